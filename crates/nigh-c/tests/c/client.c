/* Calls all of nigh_client.h, right and wrong, at a server that tests/clients.rs starts:
 *
 *     client SOCKET PORT     the server's Unix socket, and its port on loopback
 *
 * By "kill" and "start" on stdout it asks for the server's end and for the next one, and reads a
 * line when that is done. tests/clients.rs compiles it as C and as C++. */

#define _POSIX_C_SOURCE 200809L

#include <nigh_client.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "fake.h"

static char unix_address[200], tcp_address[40];
static unsigned short port;

static nigh_bytes bytes(const char *text) {
    nigh_bytes bytes;
    bytes.data = text;
    bytes.len = strlen(text);
    return bytes;
}

static int is(nigh_bytes value, const char *text) {
    return value.data != NULL && value.len == strlen(text) && strcmp(value.data, text) == 0;
}

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
    functions(client);
}

/* A connection of any Redis client: sends bytes, and checks those of the reply. */
static void raw(int connection, const char *request, const char *reply) {
    char got[64];
    size_t len = 0, want = strlen(reply);
    CHECK(write(connection, request, strlen(request)) == (ssize_t)strlen(request));
    while (len < want) {
        ssize_t more = read(connection, got + len, want - len);
        CHECK(more > 0);
        len += (size_t)more;
    }
    CHECK(memcmp(got, reply, want) == 0);
}

static int raw_connection(void) {
    struct sockaddr_in at;
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(connection, (struct sockaddr *)&at, sizeof at) == 0);
    return connection;
}

static void others_write(nigh_client local) {
    int connection = raw_connection(), n;
    for (n = 0; n < 100; n++) {
        char request[64], value[16];
        sprintf(value, "%02d", n);
        sprintf(request, "SET other %s\r\n", value);
        raw(connection, request, "+OK\r\n");
        CHECK(has(local, "other", value));
    }
    raw(connection, "DEL other\r\n", ":1\r\n");
    CHECK(nigh_client_exists(local, "other", 5) == NIGH_NOT_FOUND);
    close(connection);
}

static void where_they_read(nigh_client local, nigh_client remote, nigh_client never) {
    int is_local = 7;
    char *why;
    OK(nigh_client_is_local(local, &is_local));
    CHECK(is_local == 1);
    OK(nigh_client_why_not_local(local, &why));
    CHECK(why == NULL);
    OK(nigh_client_is_local(remote, &is_local));
    CHECK(is_local == 0);
    OK(nigh_client_why_not_local(remote, &why));
    CHECK(strstr(why, "Unix socket") != NULL);
    nigh_free(why);
    OK(nigh_client_why_not_local(never, &why));
    CHECK(strstr(why, "options") != NULL);
    nigh_free(why);
    OK(nigh_client_check(local));
    OK(nigh_client_check(remote));
}

/* ------------------------------------------------------------------------------------- views */

typedef struct seen {
    nigh_client client;
    nigh_view view;
    int calls, connection, always;
    char *value;
    size_t len;
    nigh_status status;
} seen;

/* The user of a session, then its address: the second key is known by the first value. */
static void user_of_session(nigh_view view, void *context) {
    seen *all = (seen *)context;
    char *user, buffer[16];
    size_t len;
    all->calls++;
    all->view = view;
    CHECK(nigh_view_get(view, "session", 7, &user, &len) == NIGH_OK);
    OK(nigh_view_get(view, user, len, &all->value, &all->len));
    OK(nigh_view_get_into(view, user, len, buffer, sizeof buffer, &len));
    CHECK(len == all->len && memcmp(buffer, all->value, len) == 0);
    CHECK(nigh_view_get_into(view, user, 3, buffer, 1, &len) == NIGH_TOO_SMALL);
    OK(nigh_view_exists(view, user, 3));
    CHECK(nigh_view_exists(view, "none", 4) == NIGH_NOT_FOUND);
    CHECK(nigh_view_get(view, "none", 4, &user, &len) == NIGH_NOT_FOUND && user == NULL);
    /* It calls no client. */
    CHECK(nigh_client_exists(all->client, "session", 7) == NIGH_INVALID);
    SAYS("a view's callback calls a client");
    CHECK(nigh_client_close(all->client) == NIGH_INVALID);
    CHECK(nigh_client_view(all->client, user_of_session, context) == NIGH_INVALID);
}

/* Somebody removes a key behind the view's moment: the first time, or always. */
static void key_that_goes(nigh_view view, void *context) {
    seen *all = (seen *)context;
    all->calls++;
    OK(nigh_view_exists(view, "session", 7));
    if (all->always || all->calls == 1) {
        raw(all->connection, "SET goes 1\r\n", "+OK\r\n");
        raw(all->connection, "DEL goes\r\n", ":1\r\n");
    }
    all->status = nigh_view_exists(view, "goes", 4);
    if (all->status == NIGH_BUSY) {
        SAYS("return from its callback");
        CHECK(nigh_view_exists(view, "session", 7) == NIGH_BUSY);
    }
}

static void nothing_that_can_be(nigh_view view, void *context) {
    nigh_view other = view;
    char *value;
    size_t len;
    other.id++;
    (void)context;
    CHECK(nigh_view_exists(other, "session", 7) == NIGH_CLOSED);
    CHECK(nigh_view_get(view, NULL, 1, &value, &len) == NIGH_INVALID && value == NULL);
    CHECK(nigh_view_get(view, "k", 1, NULL, &len) == NIGH_INVALID);
    CHECK(nigh_view_get_into(view, "k", 1, NULL, 1, &len) == NIGH_INVALID);
}

static void key_too_long(nigh_view view, void *context) {
    char *key = (char *)calloc(1 << 16, 1);
    (void)context;
    CHECK(nigh_view_exists(view, key, 1 << 16) == NIGH_TOO_LARGE);
    free(key);
}

static void *in_another_thread(void *given) {
    CHECK(nigh_view_exists(*(nigh_view *)given, "session", 7) == NIGH_CLOSED);
    return NULL;
}

static void handed_to_a_thread(nigh_view view, void *context) {
    pthread_t thread;
    (void)context;
    CHECK(pthread_create(&thread, NULL, in_another_thread, &view) == 0);
    pthread_join(thread, NULL);
}

static void views(nigh_client local, nigh_client remote) {
    seen all;
    memset(&all, 0, sizeof all);
    all.client = local;
    put(local, "session", "ann");
    put(local, "ann", "Rome");
    OK(nigh_client_view(local, user_of_session, &all));
    CHECK(all.calls == 1 && strcmp(all.value, "Rome") == 0);
    nigh_free(all.value);
    CHECK(nigh_view_exists(all.view, "session", 7) == NIGH_CLOSED);
    SAYS("ends with its callback");
    all.connection = raw_connection();
    all.calls = 0;
    OK(nigh_client_view(local, key_that_goes, &all));
    CHECK(all.calls == 2 && all.status == NIGH_NOT_FOUND);
    all.calls = 0;
    all.always = 1;
    CHECK(nigh_client_view(local, key_that_goes, &all) == NIGH_BUSY);
    SAYS("attempts of a view");
    CHECK(all.calls == 16 && all.status == NIGH_BUSY);
    OK(nigh_client_view(local, handed_to_a_thread, NULL));
    CHECK(nigh_client_view(local, nothing_that_can_be, NULL) == NIGH_INVALID);
    SAYS("key is NULL");
    CHECK(nigh_client_view(local, key_too_long, NULL) == NIGH_TOO_LARGE);
    SAYS("65535");
    CHECK(nigh_client_view(local, NULL, NULL) == NIGH_INVALID);
    CHECK(nigh_client_view(remote, user_of_session, &all) == NIGH_NOT_LOCAL);
    SAYS("reads the server's memory");
    close(all.connection);
}

/* ----------------------------------------------------------------------- threads, processes */

static void *counts(void *given) {
    int n;
    for (n = 0; n < 200; n++) OK(nigh_client_incr(*(nigh_client *)given, "count", 5, 1, NULL));
    return NULL;
}

/* Reads until the client is closed under it. */
static void *reads(void *given) {
    nigh_client client = *(nigh_client *)given;
    nigh_status status;
    do {
        char *value;
        size_t len;
        status = nigh_client_get(client, "count", 5, &value, &len);
        CHECK(status == NIGH_CLOSED || (status == NIGH_OK && strcmp(value, "800") == 0));
        nigh_free(value);
    } while (status == NIGH_OK);
    return NULL;
}

static void threads_share_a_client(const char *address) {
    nigh_client client = connected(address, NIGH_LOCAL_AUTO), none;
    pthread_t threads[4];
    char *value;
    size_t len;
    int i;
    OK(nigh_client_set(client, "count", 5, "0", 1, NULL));
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, counts, &client) == 0);
    for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(has(client, "count", "800"));
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, reads, &client) == 0);
    OK(nigh_client_close(client));
    for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(nigh_client_get(client, "count", 5, &value, &len) == NIGH_CLOSED && value == NULL);
    SAYS("nigh_client_connect");
    CHECK(nigh_client_close(client) == NIGH_CLOSED);
    memset(&none, 0, sizeof none);
    CHECK(nigh_client_set(none, "k", 1, "v", 1, NULL) == NIGH_CLOSED);
    CHECK(nigh_client_check(none) == NIGH_CLOSED && nigh_client_close(none) == NIGH_CLOSED);
}

static void child_of_a_fork(nigh_client local) {
    int status;
    pid_t child;
    put(local, "before", "1");
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        nigh_client own;
        CHECK(nigh_client_exists(local, "before", 6) == NIGH_REFUSED);
        SAYS("forked");
        CHECK(nigh_client_set(local, "before", 6, "2", 1, NULL) == NIGH_REFUSED);
        CHECK(nigh_client_close(local) == NIGH_REFUSED);
        own = connected(unix_address, NIGH_LOCAL_REQUIRED);
        put(own, "child", "1");
        CHECK(has(own, "before", "1"));
        OK(nigh_client_close(own));
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(has(local, "child", "1"));
    put(local, "before", "3");
    CHECK(has(local, "before", "3"));
}

/* ------------------------------------------------------------------------------- the server */

static void demand(const char *what) {
    char line[16];
    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static void killed_and_started_anew(nigh_client local, nigh_client remote) {
    nigh_client impatient, none;
    char *value;
    size_t len;
    int i;
    OK(nigh_client_connect(unix_address, NULL, &impatient));
    put(local, "kept", "1");
    CHECK(has(impatient, "kept", "1") && has(remote, "kept", "1"));
    demand("kill");
    CHECK(nigh_client_check(impatient) == NIGH_NO_SERVER);
    SAYS("nothing was sent");
    SAYS("wait_ms");
    CHECK(nigh_client_set(impatient, "kept", 4, "2", 1, NULL) == NIGH_NO_SERVER);
    CHECK(nigh_client_get(impatient, "kept", 4, &value, &len) == NIGH_NO_SERVER && value == NULL);
    CHECK(nigh_client_connect(unix_address, NULL, &none) == NIGH_NO_SERVER && none.id == 0);
    SAYS(unix_address);
    CHECK(nigh_client_connect(tcp_address, NULL, &none) == NIGH_NO_SERVER);
    demand("start");
    /* These wait for it; a write that was lost with the old server isn't sent again. */
    CHECK(has(local, "kept", "1") && has(remote, "kept", "1"));
    put(local, "kept", "3");
    CHECK(has(local, "kept", "3") && has(remote, "kept", "3"));
    for (i = 0; nigh_client_check(impatient) != NIGH_OK; i++) {
        const struct timespec pause = {0, 10000000};
        CHECK(i < 1000);
        nanosleep(&pause, NULL);
    }
    CHECK(has(impatient, "kept", "3"));
    OK(nigh_client_close(impatient));
}

/* ------------------------------------------------------------------------- what can't be */

static void calls_that_cannot_be(nigh_client client) {
    const size_t too_long = ((size_t)512 << 20) + 1;
    char *value;
    size_t len;
    uint64_t cursor = 0;
    nigh_bytes key, *found;
    nigh_request request;
    nigh_reply *reply;
    CHECK(nigh_client_set(client, NULL, 3, "v", 1, NULL) == NIGH_INVALID);
    SAYS("key is NULL, and its length is 3");
    CHECK(nigh_client_set(client, "k", 1, NULL, 1, NULL) == NIGH_INVALID);
    CHECK(nigh_client_set(client, "k", 1, "v", SIZE_MAX, NULL) == NIGH_INVALID);
    SAYS("no memory has that");
    value = (char *)calloc(too_long, 1);
    CHECK(value != NULL && nigh_client_set(client, "k", 1, value, too_long, NULL) == NIGH_TOO_LARGE);
    SAYS("536870912");
    free(value);
    CHECK(nigh_client_get(client, "k", 1, NULL, &len) == NIGH_INVALID);
    CHECK(nigh_client_get(client, "k", 1, &value, NULL) == NIGH_INVALID && value == NULL);
    CHECK(nigh_client_get_into(client, "k", 1, NULL, 1, &len) == NIGH_INVALID);
    CHECK(nigh_client_get_part(client, "k", 1, 0, NULL, 1, &len) == NIGH_INVALID);
    CHECK(nigh_client_get_part(client, "k", 1, 0, &key, 1, NULL) == NIGH_INVALID);
    CHECK(nigh_client_ttl(client, "k", 1, NULL) == NIGH_INVALID);
    CHECK(nigh_client_is_local(client, NULL) == NIGH_INVALID);
    CHECK(nigh_client_why_not_local(client, NULL) == NIGH_INVALID);
    CHECK(nigh_client_multi_get(client, NULL, 1, &found) == NIGH_INVALID && found == NULL);
    key.data = NULL;
    key.len = 1;
    CHECK(nigh_client_multi_get(client, &key, 1, &found) == NIGH_INVALID);
    CHECK(nigh_client_multi_get(client, &key, SIZE_MAX / 2, &found) == NIGH_INVALID);
    CHECK(nigh_client_multi_get(client, &key, 1, NULL) == NIGH_INVALID);
    CHECK(nigh_client_scan(client, "", 0, 10, NULL, NULL, NULL) == NIGH_INVALID);
    CHECK(nigh_client_scan(client, "", 0, 10, &cursor, NULL, &len) == NIGH_INVALID);
    CHECK(nigh_client_call(client, &key, 1, &reply) == NIGH_INVALID && reply == NULL);
    CHECK(nigh_client_call(client, NULL, 0, &reply) == NIGH_INVALID);
    SAYS("no words");
    CHECK(nigh_client_call(client, &key, 1, NULL) == NIGH_INVALID);
    request.words = NULL;
    request.words_len = 0;
    CHECK(nigh_client_pipeline(client, &request, 1, &reply, &len) == NIGH_INVALID);
    SAYS("no words");
    CHECK(nigh_client_pipeline(client, NULL, 1, &reply, &len) == NIGH_INVALID && reply == NULL);
    CHECK(nigh_client_pipeline(client, &request, 1, NULL, &len) == NIGH_INVALID);
    value = (char *)calloc(1 << 16, 1);
    CHECK(nigh_client_get_into(client, value, 1 << 16, NULL, 0, &len) == NIGH_TOO_LARGE);
    SAYS("65535");
    CHECK(nigh_client_set(client, value, 1 << 16, "v", 1, NULL) == NIGH_REFUSED);
    free(value);
    CHECK(nigh_client_exists(client, "k", 1) == NIGH_NOT_FOUND);
}

static void connects_that_cannot_be(void) {
    static const char *const addresses[] = {"", ":1", "unix:", "host:0", "rediss://host", "\xff"};
    nigh_client_options options;
    nigh_client client;
    size_t i;
    memset(&options, 0, sizeof options);
    for (i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        client.id = 7;
        CHECK(nigh_client_connect(addresses[i], NULL, &client) == NIGH_INVALID && client.id == 0);
    }
    CHECK(nigh_client_connect(NULL, NULL, &client) == NIGH_INVALID);
    CHECK(nigh_client_connect(unix_address, NULL, NULL) == NIGH_INVALID);
    CHECK(nigh_client_connect("unix:none/nigh.sock", NULL, &client) == NIGH_NO_SERVER);
    SAYS("none/nigh.sock");
    CHECK(nigh_client_connect("unix:.", NULL, &client) == NIGH_NO_SERVER);
    options.local = 3;
    CHECK(nigh_client_connect(unix_address, &options, &client) == NIGH_INVALID);
    SAYS("local is 3");
    options.local = NIGH_LOCAL_REQUIRED;
    CHECK(nigh_client_connect(tcp_address, &options, &client) == NIGH_NOT_LOCAL);
    SAYS("unix:/path");
    options.protocol = 1;
    CHECK(nigh_client_connect(unix_address, &options, &client) == NIGH_INVALID);
    options.protocol = 0;
    options.spin_us = 1000001;
    CHECK(nigh_client_connect(unix_address, &options, &client) == NIGH_INVALID);
    SAYS("spin_us");
    options.spin_us = 0;
    options.user = "ann";
    CHECK(nigh_client_connect(unix_address, &options, &client) == NIGH_INVALID);
    SAYS("without a password");
    options.password = "\xff";
    CHECK(nigh_client_connect(unix_address, &options, &client) == NIGH_INVALID);
    SAYS("password isn't UTF-8");
}

/* All options at once, and their ends. */
static void options_that_can_be(const char *address, int is_local) {
    const char *const name[] = {"CLIENT", "GETNAME", NULL}, *const all[] = {"HELLO", NULL};
    nigh_client_options options;
    nigh_client client;
    nigh_reply *reply;
    int end;
    for (end = 0; end < 2; end++) {
        memset(&options, 0, sizeof options);
        options.client_name = "from-c";
        options.protocol = 3;
        options.reads_unsynced = 1;
        options.local = is_local ? NIGH_LOCAL_REQUIRED : NIGH_LOCAL_NEVER;
        options.timeout_ms = end ? INT64_MAX : -1;
        options.wait_ms = UINT64_MAX;
        options.spin_us = end ? 1000000 : -1;
        OK(nigh_client_connect(address, &options, &client));
        reply = ask(client, name);
        CHECK(is(reply->bytes, "from-c"));
        nigh_free(reply);
        reply = ask(client, all);
        CHECK(reply->kind == NIGH_REPLY_MAP && reply->elements_len % 2 == 0);
        CHECK(is(reply->elements[0].bytes, "server"));
        nigh_free(reply);
        put(client, "k", "v");
        CHECK(has(client, "k", "v"));
        OK(nigh_client_delete(client, "k", 1));
        OK(nigh_client_close(client));
    }
}

int main(int count, char **words) {
    nigh_client local, remote, never;
    CHECK(count == 3);
    alarm(120);
    sprintf(unix_address, "unix:%.150s", words[1]);
    port = (unsigned short)atoi(words[2]);
    sprintf(tcp_address, "tcp:127.0.0.1:%d", port);
    local = connected(unix_address, NIGH_LOCAL_REQUIRED);
    remote = connected(tcp_address, NIGH_LOCAL_AUTO);
    never = connected(unix_address, NIGH_LOCAL_NEVER);
    where_they_read(local, remote, never);
    all_calls(local);
    all_calls(remote);
    all_calls(never);
    others_write(local);
    views(local, remote);
    threads_share_a_client(unix_address);
    threads_share_a_client(tcp_address);
    child_of_a_fork(local);
    calls_that_cannot_be(local);
    calls_that_cannot_be(remote);
    connects_that_cannot_be();
    options_that_can_be(unix_address, 1);
    options_that_can_be(tcp_address, 0);
    other_servers();
    killed_and_started_anew(local, remote);
    OK(nigh_client_close(local));
    OK(nigh_client_close(remote));
    OK(nigh_client_close(never));
    puts("all is well");
    return 0;
}
