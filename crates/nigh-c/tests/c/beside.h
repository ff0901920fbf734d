/* What runs beside the calls on a database: snapshots, watches and readers. */

#ifndef BESIDE_H
#define BESIDE_H

#include "check.h"

#include <nigh.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

/* Options of a database that takes little. */
static nigh_options small(void) {
    nigh_options options;
    memset(&options, 0, sizeof options);
    options.capacity_bytes = 64 << 20;
    options.journal_bytes = 1 << 20;
    options.log_file_bytes = 1 << 20;
    return options;
}

/* Reads all of a snapshot; checks that it is of the moment behind `scans`. */
static int read_snapshot(nigh_snapshot snapshot) {
    int number = 0;
    for (;;) {
        nigh_pair *pairs;
        size_t len, i;
        OK(nigh_snapshot_next(snapshot, 7, &pairs, &len));
        for (i = 0; i < len; i++) {
            int n = atoi(pairs[i].key.data + 5);
            CHECK(strncmp(pairs[i].key.data, "user:", 5) == 0);
            CHECK(atoi(pairs[i].value.data) == n * n);
        }
        nigh_free(pairs);
        if (len == 0) return number;
        CHECK(len <= 7);
        number += (int)len;
    }
}

static void snapshots(nigh_db db) {
    nigh_snapshot snapshot, other, many[17];
    nigh_pair *pairs;
    size_t len;
    int n;
    OK(nigh_snapshot_begin(db, "user:", 5, &snapshot));
    OK(nigh_snapshot_begin(db, NULL, 0, &other));
    OK(nigh_put(db, "user:7", 6, "another", 7, NULL));
    OK(nigh_delete(db, "user:8", 6, NULL));
    OK(nigh_put(db, "user:100", 8, "0", 1, NULL));
    CHECK(read_snapshot(snapshot) == 100 && read_snapshot(snapshot) == 0);
    CHECK(read_snapshot(other) == 100);
    OK(nigh_snapshot_end(snapshot));
    CHECK(nigh_snapshot_next(snapshot, 1, &pairs, &len) == NIGH_CLOSED && pairs == NULL && len == 0);
    SAYS("nigh_snapshot_begin");
    CHECK(nigh_snapshot_end(snapshot) == NIGH_CLOSED);
    OK(nigh_snapshot_end(other));
    OK(nigh_put(db, "user:7", 6, "49", 2, NULL));
    OK(nigh_put(db, "user:8", 6, "64", 2, NULL));
    OK(nigh_delete(db, "user:100", 8, NULL));
    for (n = 0; n < 16; n++) OK(nigh_snapshot_begin(db, NULL, 0, &many[n]));
    CHECK(nigh_snapshot_begin(db, NULL, 0, &many[16]) == NIGH_TOO_MANY && many[16].id == 0);
    SAYS("16 snapshots");
    for (n = 0; n < 16; n++) OK(nigh_snapshot_end(many[n]));
    CHECK(nigh_snapshot_begin(db, NULL, 1, &snapshot) == NIGH_INVALID);
    CHECK(nigh_snapshot_begin(db, NULL, 0, NULL) == NIGH_INVALID);
}

/* Waits for an event that doesn't come. */
static void *waits(void *given) {
    nigh_event event;
    CHECK(nigh_watch_next(*(nigh_watch *)given, 3600000, &event) == NIGH_CLOSED);
    CHECK(event.block == NULL && event.key.data == NULL);
    return NULL;
}

static void watches(nigh_db db) {
    nigh_watch watch, all, again;
    nigh_event event;
    nigh_write_options options;
    nigh_db_stats stats;
    char *place;
    pthread_t waiter;
    memset(&options, 0, sizeof options);
    options.expires_at_ms = 4000000000000;
    OK(nigh_stats(db, &stats));
    OK(nigh_watch_begin(db, "a", 1, &watch));
    OK(nigh_watch_begin(db, NULL, 0, &all));
    CHECK(nigh_watch_next(watch, 0, &event) == NIGH_NONE_YET && event.block == NULL);
    OK(nigh_put(db, "b", 1, "other", 5, NULL));
    OK(nigh_put(db, "a1", 2, "\0one", 4, &options));
    OK(nigh_delete(db, "a1", 2, NULL));
    OK(nigh_delete(db, "b", 1, NULL));
    OK(nigh_watch_next(watch, 60000, &event));
    CHECK(event.kind == NIGH_EVENT_PUT && event.change == stats.last_change + 2 && event.first == 0);
    CHECK(is(event.key, "a1") && event.value.len == 4 && memcmp(event.value.data, "\0one", 5) == 0);
    CHECK(event.expires_at_ms == 4000000000000);
    nigh_free(event.block);
    OK(nigh_watch_next(watch, 60000, &event));
    CHECK(event.kind == NIGH_EVENT_REMOVED && event.change == stats.last_change + 3);
    CHECK(is(event.key, "a1") && event.value.data == NULL && event.expires_at_ms == 0);
    nigh_free(event.block);
    OK(nigh_watch_next(all, 60000, &event));
    CHECK(is(event.key, "b") && event.change == stats.last_change + 1);
    nigh_free(event.block);
    /* What was is told again, and then what comes. */
    OK(nigh_watch_place(all, &place));
    OK(nigh_watch_begin_from(db, "b", 1, place, &again));
    nigh_free(place);
    OK(nigh_put(db, "b", 1, "later", 5, NULL));
    OK(nigh_watch_next(again, 60000, &event));
    CHECK(event.kind == NIGH_EVENT_REMOVED && event.change == stats.last_change + 4);
    nigh_free(event.block);
    OK(nigh_watch_next(again, 60000, &event));
    CHECK(is(event.value, "later") && event.change == stats.last_change + 5);
    nigh_free(event.block);
    OK(nigh_watch_end(again));
    OK(nigh_delete(db, "b", 1, NULL));
    CHECK(nigh_watch_begin_from(db, "b", 1, "17", &again) == NIGH_INVALID && again.id == 0);
    SAYS("\"17\" is no place of a watch");
    CHECK(nigh_watch_begin_from(db, "b", 1, NULL, &again) == NIGH_INVALID && again.id == 0);
    CHECK(nigh_watch_place(again, &place) == NIGH_CLOSED && place == NULL);
    CHECK(nigh_watch_place(all, NULL) == NIGH_INVALID);
    OK(nigh_watch_end(all));
    CHECK(nigh_watch_next(all, 0, &event) == NIGH_CLOSED && nigh_watch_end(all) == NIGH_CLOSED);
    CHECK(pthread_create(&waiter, NULL, waits, &watch) == 0);
    OK(nigh_watch_end(watch));
    pthread_join(waiter, NULL);
    CHECK(nigh_watch_begin(db, NULL, 1, &watch) == NIGH_INVALID && watch.id == 0);
    CHECK(nigh_watch_next(watch, 0, NULL) == NIGH_INVALID);
}

/* Takes so many puts of a watch, and notes which numbers it has of `seen`: none twice. */
static void take(nigh_watch watch, int count, char *seen) {
    nigh_event event;
    uint64_t last[3] = {0, 0, 0};
    int n, value;
    for (n = 0; n < count; n++) {
        OK(nigh_watch_next(watch, 60000, &event));
        CHECK(event.kind == NIGH_EVENT_PUT && event.partition < 3);
        CHECK(event.change > last[event.partition]);
        last[event.partition] = event.change;
        value = atoi((const char *)event.value.data);
        CHECK(!seen[value]);
        seen[value] = 1;
        nigh_free(event.block);
    }
}

static void put_number(nigh_db db, int n) {
    char key[16], value[16];
    sprintf(key, "key %d", n % 17);
    sprintf(value, "%d", n);
    OK(nigh_put(db, key, strlen(key), value, strlen(value), NULL));
}

/* A watch of a database with three partitions goes on where another has ended. */
static void goes_on(void) {
    nigh_options options = small();
    nigh_db db, other;
    nigh_snapshot snapshot;
    nigh_watch watch;
    nigh_event event;
    char seen[300], *place, *moment, *none;
    int n;
    memset(seen, 0, sizeof seen);
    options.partitions = 3;
    OK(nigh_open("resumed", &options, &db));
    for (n = 0; n < 50; n++) put_number(db, n);
    OK(nigh_snapshot_begin(db, NULL, 0, &snapshot));
    OK(nigh_snapshot_place(snapshot, &moment));
    CHECK(nigh_snapshot_place(snapshot, NULL) == NIGH_INVALID);
    OK(nigh_snapshot_end(snapshot));
    CHECK(nigh_snapshot_place(snapshot, &none) == NIGH_CLOSED && none == NULL);
    for (; n < 150; n++) put_number(db, n);
    OK(nigh_watch_begin_from(db, "key", 3, moment, &watch));
    take(watch, 40, seen);
    OK(nigh_watch_place(watch, &place));
    CHECK(strlen(place) < 1536 && strncmp(place, "place1:", 7) == 0);
    OK(nigh_watch_end(watch));
    OK(nigh_close(db));
    options.partitions = 0;
    OK(nigh_open("resumed", &options, &db));
    OK(nigh_watch_begin_from(db, "key", 3, place, &watch));
    for (; n < 200; n++) put_number(db, n);
    take(watch, 110, seen);
    CHECK(nigh_watch_next(watch, 0, &event) == NIGH_NONE_YET);
    for (n = 0; n < 200; n++) CHECK(seen[n] == (n >= 50));
    /* Places of other databases, and one that is cut off. */
    OK(nigh_open("other", &options, &other));
    CHECK(nigh_watch_begin_from(other, NULL, 0, place, &watch) == NIGH_INVALID);
    SAYS("of a database with 3 partitions, and this one has 1");
    OK(nigh_close(other));
    place[strlen(place) - 1] = 0;
    CHECK(nigh_watch_begin_from(db, NULL, 0, place, &watch) == NIGH_INVALID);
    SAYS("its end is missing");
    nigh_free(place);
    nigh_free(moment);
    OK(nigh_close(db));
}

/* Another process would do the same. */
static void readers(nigh_db db) {
    nigh_options options = small();
    nigh_db alone;
    nigh_reader reader;
    nigh_bytes keys[2], *found;
    nigh_pair *pairs;
    nigh_write_options expires;
    uint64_t cursor = 0, ttl_ms;
    int number = 0;
    char *value;
    size_t len;
    memset(&expires, 0, sizeof expires);
    OK(nigh_reader_open("data", NULL, &reader));
    OK(nigh_put(db, "key", 3, "value", 5, NULL));
    OK(nigh_reader_get(reader, "key", 3, &value, &len));
    CHECK(len == 5 && strcmp(value, "value") == 0);
    nigh_free(value);
    OK(nigh_reader_contains(reader, "key", 3));
    OK(nigh_reader_ttl(reader, "key", 3, &ttl_ms));
    CHECK(ttl_ms == UINT64_MAX);
    expires.expires_in_ms = 3600000;
    OK(nigh_expire(db, "key", 3, &expires));
    OK(nigh_reader_ttl(reader, "key", 3, &ttl_ms));
    CHECK(ttl_ms > 3500000 && ttl_ms <= 3600000);
    OK(nigh_reader_wait(reader, 0));
    OK(nigh_delete(db, "key", 3, NULL));
    CHECK(nigh_reader_contains(reader, "key", 3) == NIGH_NOT_FOUND);
    CHECK(nigh_reader_ttl(reader, "key", 3, &ttl_ms) == NIGH_NOT_FOUND && ttl_ms == 0);
    CHECK(nigh_reader_get(reader, "key", 3, &value, &len) == NIGH_NOT_FOUND && value == NULL);
    keys[0] = bytes("user:9");
    keys[1] = bytes("none");
    OK(nigh_reader_multi_get(reader, keys, 2, &found));
    CHECK(is(found[0], "81") && found[1].data == NULL);
    nigh_free(found);
    do {
        OK(nigh_reader_scan(reader, "user:", 5, 7, &cursor, &pairs, &len));
        number += (int)len;
        nigh_free(pairs);
    } while (cursor != 0);
    CHECK(number >= 100);
    CHECK(nigh_reader_scan(reader, "", 0, 7, NULL, &pairs, &len) == NIGH_INVALID);
    OK(nigh_reader_close(reader));
    CHECK(nigh_reader_get(reader, "key", 3, &value, &len) == NIGH_CLOSED);
    CHECK(nigh_reader_wait(reader, 3600000) == NIGH_CLOSED);
    CHECK(nigh_reader_close(reader) == NIGH_CLOSED);
    CHECK(nigh_reader_open("none", NULL, &reader) == NIGH_CANNOT_OPEN && reader.id == 0);
    SAYS("no database in");
    CHECK(nigh_reader_open(NULL, NULL, &reader) == NIGH_INVALID);
    OK(nigh_open("alone", &options, &alone));
    CHECK(nigh_reader_open("alone", NULL, &reader) == NIGH_CANNOT_OPEN);
    SAYS("is private");
    OK(nigh_close(alone));
    options.keep_memory = 1;
    CHECK(nigh_open("alone", &options, &alone) == NIGH_INVALID);
    SAYS("option shared");
}

/* What is left of a database that is closed. */
static void left_over(void) {
    nigh_options options = small();
    nigh_db db;
    nigh_snapshot snapshot;
    nigh_watch watch;
    nigh_reader reader;
    nigh_event event;
    nigh_pair *pairs;
    char *value;
    size_t len;
    int n;
    options.snapshot_hold_bytes = 1 << 20;
    options.watch_bytes = 4096;
    options.shared = 1;
    OK(nigh_open("left", &options, &db));
    for (n = 0; n < 5000; n++) {
        char bytes[1000];
        memset(bytes, 0, sizeof bytes);
        if (n == 100) {
            OK(nigh_snapshot_begin(db, NULL, 0, &snapshot));
            OK(nigh_watch_begin(db, NULL, 0, &watch));
        }
        OK(nigh_put(db, bytes, (size_t)(n % 100), bytes, sizeof bytes, NULL));
    }
    CHECK(nigh_snapshot_next(snapshot, 1, &pairs, &len) == NIGH_SNAPSHOT_TOO_OLD && pairs == NULL);
    OK(nigh_snapshot_end(snapshot));
    OK(nigh_snapshot_begin(db, NULL, 0, &snapshot));
    OK(nigh_reader_open("left", NULL, &reader));
    OK(nigh_close(db));
    CHECK(nigh_snapshot_next(snapshot, 1, &pairs, &len) == NIGH_CLOSED);
    SAYS("the database was closed");
    OK(nigh_snapshot_end(snapshot));
    for (n = 0; nigh_watch_next(watch, 0, &event) == NIGH_OK; n = event.kind) nigh_free(event.block);
    CHECK(n == NIGH_EVENT_LOST);
    CHECK(nigh_watch_next(watch, 3600000, &event) == NIGH_CLOSED);
    OK(nigh_watch_end(watch));
    CHECK(nigh_reader_get(reader, "", 0, &value, &len) == NIGH_NOT_OPEN);
    SAYS("isn't open");
    CHECK(nigh_reader_wait(reader, 250) == NIGH_NOT_OPEN);
    OK(nigh_open("left", &options, &db));
    OK(nigh_reader_wait(reader, 60000));
    OK(nigh_close(db));
    OK(nigh_reader_close(reader));
}

#endif
