/* The calls of nigh_client.h that a client of any kind has, but for views. */

#ifndef CLIENT_CALLS_H
#define CLIENT_CALLS_H

#include "check.h"

#include <nigh_client.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nigh_client connected(const char *address, int local) {
    nigh_client_options options;
    nigh_client client;
    memset(&options, 0, sizeof options);
    options.local = local;
    options.wait_ms = 60000;
    OK(nigh_client_connect(address, &options, &client));
    return client;
}

static int has(nigh_client client, const char *key, const char *text) {
    char *value;
    size_t len;
    int same;
    if (nigh_client_get(client, key, strlen(key), &value, &len) != NIGH_OK) return 0;
    same = len == strlen(text) && strcmp(value, text) == 0;
    nigh_free(value);
    return same;
}

static void put(nigh_client client, const char *key, const char *value) {
    OK(nigh_client_set(client, key, strlen(key), value, strlen(value), NULL));
}

/* Sends a request of some words, which a NULL ends. */
static nigh_reply *ask(nigh_client client, const char *const *text) {
    nigh_bytes words[8];
    size_t len;
    nigh_reply *reply;
    for (len = 0; text[len] != NULL; len++) words[len] = bytes(text[len]);
    OK(nigh_client_call(client, words, len, &reply));
    CHECK(reply != NULL);
    return reply;
}

static void values(nigh_client client) {
    char *value;
    size_t len;
    char buffer[4];
    const char *const flush[] = {"FLUSHALL", NULL};
    nigh_free(ask(client, flush));
    put(client, "key", "value");
    OK(nigh_client_get(client, "key", 3, &value, &len));
    CHECK(len == 5 && memcmp(value, "value", 6) == 0);
    nigh_free(value);
    CHECK(nigh_client_get(client, "other", 5, &value, &len) == NIGH_NOT_FOUND);
    CHECK(value == NULL && len == 0);
    CHECK(nigh_client_get_into(client, "key", 3, buffer, 4, &len) == NIGH_TOO_SMALL && len == 5);
    CHECK(nigh_client_get_into(client, "other", 5, buffer, 4, &len) == NIGH_NOT_FOUND && len == 0);
    OK(nigh_client_set(client, "key", 3, "\0two", 4, NULL));
    OK(nigh_client_get_into(client, "key", 3, buffer, 4, &len));
    CHECK(len == 4 && memcmp(buffer, "\0two", 4) == 0);
    OK(nigh_client_set(client, NULL, 0, NULL, 0, NULL));
    OK(nigh_client_get(client, "", 0, &value, &len));
    CHECK(value != NULL && len == 0 && *value == 0);
    nigh_free(value);
    OK(nigh_client_get_into(client, NULL, 0, NULL, 0, &len));
    OK(nigh_client_delete(client, "", 0));
    OK(nigh_client_exists(client, "key", 3));
    OK(nigh_client_get_part(client, "key", 3, 2, buffer, 4, &len));
    CHECK(len == 4 && memcmp(buffer, "wo", 2) == 0);
    OK(nigh_client_get_part(client, "key", 3, 1, buffer, 2, &len));
    CHECK(len == 4 && memcmp(buffer, "tw", 2) == 0);
    OK(nigh_client_get_part(client, "key", 3, SIZE_MAX, buffer, 4, &len));
    CHECK(len == 4 && memcmp(buffer, "tw", 2) == 0);
    CHECK(nigh_client_get_part(client, "none", 4, 0, buffer, 4, &len) == NIGH_NOT_FOUND && len == 0);
    OK(nigh_client_delete(client, "key", 3));
    CHECK(nigh_client_delete(client, "key", 3) == NIGH_NOT_FOUND);
    CHECK(nigh_client_exists(client, "key", 3) == NIGH_NOT_FOUND);
    /* A value that is longer than the buffer that stays. */
    value = (char *)malloc(1 << 20);
    memset(value, 'x', 1 << 20);
    OK(nigh_client_set(client, "long", 4, value, 1 << 20, NULL));
    memset(value, 0, 1 << 20);
    OK(nigh_client_get_into(client, "long", 4, value, 1 << 20, &len));
    CHECK(len == 1 << 20 && value[0] == 'x' && value[len - 1] == 'x');
    free(value);
    OK(nigh_client_delete(client, "long", 4));
}

static void conditions_and_expiry(nigh_client client) {
    nigh_set_options options;
    uint64_t ttl_ms;
    memset(&options, 0, sizeof options);
    options.condition = NIGH_IF_PRESENT;
    CHECK(nigh_client_set(client, "c", 1, "1", 1, &options) == NIGH_MISMATCH);
    CHECK(nigh_client_ttl(client, "c", 1, &ttl_ms) == NIGH_NOT_FOUND && ttl_ms == 0);
    options.condition = NIGH_IF_ABSENT;
    options.expires_in_ms = 3600000;
    OK(nigh_client_set(client, "c", 1, "2", 1, &options));
    CHECK(nigh_client_set(client, "c", 1, "3", 1, &options) == NIGH_MISMATCH);
    CHECK(has(client, "c", "2"));
    OK(nigh_client_ttl(client, "c", 1, &ttl_ms));
    CHECK(ttl_ms > 3500000 && ttl_ms <= 3600000);
    memset(&options, 0, sizeof options);
    options.keeps_expiry = 1;
    OK(nigh_client_set(client, "c", 1, "4", 1, &options));
    OK(nigh_client_ttl(client, "c", 1, &ttl_ms));
    CHECK(ttl_ms > 3500000 && ttl_ms <= 3600000);
    put(client, "c", "5");
    OK(nigh_client_ttl(client, "c", 1, &ttl_ms));
    CHECK(ttl_ms == UINT64_MAX);
    memset(&options, 0, sizeof options);
    options.expires_at_ms = 4000000000000;
    OK(nigh_client_set(client, "c", 1, "6", 1, &options));
    OK(nigh_client_ttl(client, "c", 1, &ttl_ms));
    CHECK(ttl_ms > 3600000 && ttl_ms < UINT64_MAX);
    OK(nigh_client_expire(client, "c", 1, 60000));
    OK(nigh_client_ttl(client, "c", 1, &ttl_ms));
    CHECK(ttl_ms > 0 && ttl_ms <= 60000);
    CHECK(nigh_client_expire(client, "none", 4, 1) == NIGH_NOT_FOUND);
    CHECK(nigh_client_expire(client, "c", 1, 0) == NIGH_INVALID);
    SAYS("expires_in_ms is 0");
    options.keeps_expiry = 1;
    CHECK(nigh_client_set(client, "c", 1, "7", 1, &options) == NIGH_INVALID);
    SAYS("more than one");
    options.keeps_expiry = 0;
    options.condition = 3;
    CHECK(nigh_client_set(client, "c", 1, "7", 1, &options) == NIGH_INVALID);
    SAYS("condition is 3");
    CHECK(has(client, "c", "6"));
    OK(nigh_client_delete(client, "c", 1));
}

static void numbers(nigh_client client) {
    int64_t sum;
    size_t len;
    OK(nigh_client_incr(client, "n", 1, 5, &sum));
    OK(nigh_client_incr(client, "n", 1, -7, NULL));
    OK(nigh_client_incr(client, "n", 1, 0, &sum));
    CHECK(sum == -2);
    OK(nigh_client_append(client, "n", 1, "x", 1, &len));
    CHECK(len == 3);
    OK(nigh_client_append(client, "n", 1, NULL, 0, NULL));
    CHECK(has(client, "n", "-2x"));
    CHECK(nigh_client_incr(client, "n", 1, 1, &sum) == NIGH_REFUSED && sum == 0);
    SAYS("INCRBY");
    OK(nigh_client_delete(client, "n", 1));
}

static void several_at_once(nigh_client client) {
    nigh_bytes keys[3], *found;
    keys[0] = bytes("from");
    keys[1] = bytes("none");
    keys[2] = bytes("to");
    put(client, "from", "90");
    OK(nigh_client_set(client, "to", 2, "\0", 1, NULL));
    OK(nigh_client_multi_get(client, keys, 3, &found));
    CHECK(is(found[0], "90") && found[1].data == NULL);
    CHECK(found[2].len == 1 && memcmp(found[2].data, "\0\0", 2) == 0);
    nigh_free(found);
    OK(nigh_client_multi_get(client, NULL, 0, &found));
    nigh_free(found);
    OK(nigh_client_delete(client, "from", 4));
    OK(nigh_client_delete(client, "to", 2));
}

/* Walks over the keys with a prefix; returns how many it met, each once. */
static int walk(nigh_client client, const char *prefix, uint32_t step) {
    char met[100];
    int number = 0;
    uint64_t cursor = 0;
    memset(met, 0, sizeof met);
    do {
        nigh_pair *pairs;
        size_t len, i;
        OK(nigh_client_scan(client, prefix, strlen(prefix), step, &cursor, &pairs, &len));
        for (i = 0; i < len; i++) {
            int n = atoi(pairs[i].key.data + 5);
            CHECK(strncmp(pairs[i].key.data, "user*", 5) == 0 && n >= 0 && n < 100);
            CHECK(atoi(pairs[i].value.data) == n * n);
            number += met[n] == 0;
            met[n] = 1;
        }
        nigh_free(pairs);
    } while (cursor != 0);
    return number;
}

/* The keys of `scans`, by one pipeline. */
static void fill(nigh_client client) {
    static char key[100][16], value[100][16];
    nigh_bytes words[100][3];
    nigh_request requests[100];
    nigh_reply *replies;
    size_t len;
    int n;
    for (n = 0; n < 100; n++) {
        sprintf(key[n], "user*%d", n);
        sprintf(value[n], "%d", n * n);
        words[n][0] = bytes("SET");
        words[n][1] = bytes(key[n]);
        words[n][2] = bytes(value[n]);
        requests[n].words = words[n];
        requests[n].words_len = 3;
    }
    OK(nigh_client_pipeline(client, requests, 100, &replies, &len));
    CHECK(len == 100);
    for (n = 0; n < 100; n++) {
        CHECK(replies[n].kind == NIGH_REPLY_TEXT && is(replies[n].bytes, "OK"));
    }
    nigh_free(replies);
}

static void scans(nigh_client client) {
    fill(client);
    put(client, "userX1", "no");
    CHECK(walk(client, "user*", 7) == 100);
    CHECK(walk(client, "user*1", 1000) == 11);
    CHECK(walk(client, "order:", 1) == 0);
}

static void requests_of_any_kind(nigh_client client) {
    const char *const get[] = {"GET", "user*7", NULL}, *const none[] = {"GET", "none", NULL};
    const char *const nonsense[] = {"NONSENSE", NULL}, *const number[] = {"EXISTS", "user*7", NULL};
    const char *const all[] = {"MGET", "user*2", "none", "user*3", NULL};
    const char *words[] = {"MULTI", "INCR", "SET", "EXEC", "GET"};
    nigh_bytes given[5][3];
    nigh_request requests[5];
    nigh_reply *reply;
    size_t len;
    int i;
    reply = ask(client, get);
    CHECK(reply->kind == NIGH_REPLY_BYTES && is(reply->bytes, "49") && reply->elements == NULL);
    nigh_free(reply);
    reply = ask(client, none);
    CHECK(reply->kind == NIGH_REPLY_NULL && reply->bytes.data == NULL);
    nigh_free(reply);
    reply = ask(client, nonsense);
    CHECK(reply->kind == NIGH_REPLY_ERROR && strncmp(reply->bytes.data, "ERR ", 4) == 0);
    nigh_free(reply);
    reply = ask(client, number);
    CHECK(reply->kind == NIGH_REPLY_INTEGER && reply->integer == 1 && reply->bytes.data == NULL);
    nigh_free(reply);
    reply = ask(client, all);
    CHECK(reply->kind == NIGH_REPLY_ARRAY && reply->elements_len == 3);
    CHECK(is(reply->elements[0].bytes, "4") && is(reply->elements[2].bytes, "9"));
    CHECK(reply->elements[1].kind == NIGH_REPLY_NULL);
    nigh_free(reply);
    /* A transaction, whose reply is nested; a refusal is a reply among the others. */
    for (i = 0; i < 5; i++) {
        given[i][0] = bytes(words[i]);
        given[i][1] = bytes("t");
        given[i][2] = bytes("x");
        requests[i].words = given[i];
        requests[i].words_len = i == 2 ? 3 : i % 3 == 0 ? 1 : 2;
    }
    OK(nigh_client_pipeline(client, requests, 5, &reply, &len));
    CHECK(len == 5 && reply[3].kind == NIGH_REPLY_ARRAY && reply[3].elements_len == 2);
    CHECK(reply[3].elements[0].integer == 1 && is(reply[3].elements[1].bytes, "OK"));
    CHECK(is(reply[4].bytes, "x"));
    nigh_free(reply);
    OK(nigh_client_pipeline(client, requests + 1, 1, &reply, &len));
    CHECK(len == 1 && reply->kind == NIGH_REPLY_ERROR);
    nigh_free(reply);
    OK(nigh_client_pipeline(client, NULL, 0, &reply, &len));
    CHECK(len == 0);
    nigh_free(reply);
    OK(nigh_client_delete(client, "t", 1));
}

/* Behind an open MULTI, nigh_client_set was NIGH_OK for a write that only waited for an EXEC, and
 * nigh_client_append told of another kind of server. */
static void writes_in_an_open_transaction(nigh_client client) {
    const char *const multi[] = {"MULTI", NULL}, *const discard[] = {"DISCARD", NULL};
    size_t len;
    nigh_free(ask(client, multi));
    CHECK(nigh_client_set(client, "q", 1, "1", 1, NULL) == NIGH_REFUSED);
    SAYS("a MULTI is open");
    CHECK(nigh_client_append(client, "q", 1, "2", 1, &len) == NIGH_REFUSED && len == 0);
    SAYS("a MULTI is open");
    nigh_free(ask(client, discard));
    CHECK(nigh_client_exists(client, "q", 1) == NIGH_NOT_FOUND);
}

static void functions(nigh_client client) {
    const char *const load[] = {
        "FUNCTION", "LOAD", "REPLACE",
        "#!js name=c\n"
        "export function both(db, [text], [key]) { db.set(key, text); return [text, [1, null]]; }\n"
        "export function throws() { throw new Error('TIRED of it'); }\n", NULL};
    nigh_bytes key = bytes("f"), arg = bytes("told");
    nigh_reply *reply = ask(client, load);
    CHECK(is(reply->bytes, "c"));
    nigh_free(reply);
    OK(nigh_client_fcall(client, "both", &key, 1, &arg, 1, &reply));
    CHECK(reply->elements_len == 2 && is(reply->elements[0].bytes, "told"));
    CHECK(reply->elements[1].elements[0].integer == 1);
    CHECK(reply->elements[1].elements[1].kind == NIGH_REPLY_NULL);
    nigh_free(reply);
    CHECK(has(client, "f", "told"));
    CHECK(nigh_client_fcall(client, "throws", NULL, 0, NULL, 0, &reply) == NIGH_REFUSED);
    SAYS("TIRED");
    CHECK(reply == NULL);
    CHECK(nigh_client_fcall(client, NULL, NULL, 0, NULL, 0, &reply) == NIGH_INVALID);
    CHECK(nigh_client_fcall(client, "\xff", NULL, 0, NULL, 0, &reply) == NIGH_INVALID);
    SAYS("UTF-8");
    OK(nigh_client_delete(client, "f", 1));
}

/* All calls that a client of any kind has. */
static void all_calls(nigh_client client) {
    values(client);
    conditions_and_expiry(client);
    numbers(client);
    several_at_once(client);
    scans(client);
    requests_of_any_kind(client);
    writes_in_an_open_transaction(client);
    functions(client);
}

#endif
