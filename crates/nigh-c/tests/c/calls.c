/* Calls all of nigh.h, right and wrong. tests/programs.rs compiles it as C and as C++. */

#define _POSIX_C_SOURCE 200809L

#include <nigh.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "beside.h"
#include "check.h"

static void values(nigh_db db) {
    char *value;
    size_t len;
    char buffer[4];
    OK(nigh_put(db, "key", 3, "value", 5, NULL));
    OK(nigh_get(db, "key", 3, &value, &len));
    CHECK(len == 5 && memcmp(value, "value", 6) == 0);
    nigh_free(value);
    CHECK(nigh_get(db, "other", 5, &value, &len) == NIGH_NOT_FOUND && value == NULL && len == 0);
    nigh_free(value);
    OK(nigh_put(db, NULL, 0, NULL, 0, NULL));
    OK(nigh_get(db, "", 0, &value, &len));
    CHECK(value != NULL && len == 0 && *value == 0);
    nigh_free(value);
    OK(nigh_get_into(db, NULL, 0, NULL, 0, &len));
    CHECK(nigh_get_into(db, "key", 3, buffer, sizeof buffer, &len) == NIGH_TOO_SMALL && len == 5);
    CHECK(nigh_get_into(db, "other", 5, buffer, sizeof buffer, &len) == NIGH_NOT_FOUND && len == 0);
    OK(nigh_put(db, "key", 3, "\0two", 4, NULL));
    OK(nigh_get_into(db, "key", 3, buffer, sizeof buffer, &len));
    CHECK(len == 4 && memcmp(buffer, "\0two", 4) == 0);
    OK(nigh_delete(db, "key", 3, NULL));
    CHECK(nigh_delete(db, "key", 3, &nigh_strong) == NIGH_NOT_FOUND);
    OK(nigh_delete(db, "", 0, NULL));
}

static void numbers_and_conditions(nigh_db db) {
    int64_t sum;
    char *value;
    size_t len;
    OK(nigh_incr(db, "n", 1, 5, &sum, NULL));
    OK(nigh_incr(db, "n", 1, -7, NULL, &nigh_strong));
    OK(nigh_incr(db, "n", 1, 0, &sum, NULL));
    CHECK(sum == -2);
    CHECK(nigh_incr(db, "n", 1, INT64_MIN, &sum, NULL) == NIGH_NOT_A_NUMBER);
    SAYS("range");
    SAYS("/data: the sum");
    OK(nigh_delete(db, "n", 1, NULL));
    CHECK(nigh_compare_and_set(db, "k", 1, "1", 1, "2", 1, NULL) == NIGH_MISMATCH);
    OK(nigh_compare_and_set(db, "k", 1, NULL, 0, "", 0, NULL));
    CHECK(nigh_compare_and_set(db, "k", 1, NULL, 0, "2", 1, NULL) == NIGH_MISMATCH);
    OK(nigh_compare_and_set(db, "k", 1, "", 0, "2", 1, &nigh_strong));
    OK(nigh_get(db, "k", 1, &value, &len));
    CHECK(strcmp(value, "2") == 0);
    nigh_free(value);
    OK(nigh_compare_and_set(db, "k", 1, "2", 1, NULL, 0, NULL));
    CHECK(nigh_get(db, "k", 1, &value, &len) == NIGH_NOT_FOUND);
}

static void several_at_once(nigh_db db) {
    nigh_batch_write writes[3];
    nigh_bytes keys[3], *found;
    memset(writes, 0, sizeof writes);
    writes[0].key = keys[0] = bytes("from");
    writes[0].value = bytes("90");
    writes[1].key = keys[1] = bytes("to");
    writes[1].value = bytes("110");
    writes[1].expires_in_ms = 3600000;
    writes[2].kind = NIGH_DELETE;
    writes[2].key = keys[2] = bytes("pending");
    OK(nigh_put(db, "pending", 7, "20", 2, NULL));
    OK(nigh_batch(db, writes, 3, &nigh_strong));
    OK(nigh_multi_get(db, keys, 3, &found));
    CHECK(is(found[0], "90") && is(found[1], "110") && found[2].data == NULL);
    nigh_free(found);
    OK(nigh_multi_get(db, NULL, 0, &found));
    nigh_free(found);
    OK(nigh_batch(db, NULL, 0, NULL));
    /* All or nothing. */
    writes[0].value = bytes("0");
    writes[2].kind = 7;
    CHECK(nigh_batch(db, writes, 3, NULL) == NIGH_INVALID);
    SAYS("kind is 7");
    /* What is deleted has no expiry: neither one, nor both. */
    writes[2].kind = NIGH_DELETE;
    writes[2].expires_in_ms = 1;
    CHECK(nigh_batch(db, writes, 3, NULL) == NIGH_INVALID);
    SAYS("NIGH_DELETE has an expiry");
    writes[2].expires_at_ms = 1;
    CHECK(nigh_batch(db, writes, 3, NULL) == NIGH_INVALID);
    SAYS("NIGH_DELETE has an expiry");
    writes[2].expires_in_ms = 0;
    CHECK(nigh_batch(db, writes, 3, NULL) == NIGH_INVALID);
    SAYS("set expires_in_ms and expires_at_ms to 0");
    OK(nigh_multi_get(db, keys, 1, &found));
    CHECK(is(found[0], "90"));
    nigh_free(found);
    OK(nigh_delete(db, "from", 4, NULL));
    OK(nigh_delete(db, "to", 2, NULL));
}

static void expiry(nigh_db db) {
    uint64_t ttl_ms;
    nigh_write_options options;
    nigh_db_stats stats;
    memset(&options, 0, sizeof options);
    options.durability = NIGH_EVENTUAL;
    options.expires_at_ms = 1;
    OK(nigh_put(db, "past", 4, "1", 1, &options));
    CHECK(nigh_delete(db, "past", 4, NULL) == NIGH_NOT_FOUND);
    options.expires_at_ms = 0;
    options.expires_in_ms = 3600000;
    CHECK(nigh_expire(db, "key", 3, &options) == NIGH_NOT_FOUND);
    OK(nigh_put(db, "key", 3, "1", 1, NULL));
    OK(nigh_ttl(db, "key", 3, &ttl_ms));
    CHECK(ttl_ms == UINT64_MAX);
    OK(nigh_expire(db, "key", 3, &options));
    OK(nigh_ttl(db, "key", 3, &ttl_ms));
    CHECK(ttl_ms <= 3600000 && ttl_ms > 3000000);
    CHECK(nigh_ttl(db, "none", 4, &ttl_ms) == NIGH_NOT_FOUND && ttl_ms == 0);
    CHECK(nigh_ttl(db, "key", 3, NULL) == NIGH_INVALID);
    OK(nigh_stats(db, &stats));
    CHECK(stats.expires == 1 && stats.keys == 1 && stats.capacity_bytes == 64 << 20);
    OK(nigh_expire(db, "key", 3, NULL));
    OK(nigh_stats(db, &stats));
    CHECK(stats.expires == 0);
    options.expires_at_ms = 1;
    CHECK(nigh_expire(db, "key", 3, &options) == NIGH_INVALID);
    SAYS("both");
    options.durability = 3;
    CHECK(nigh_expire(db, "key", 3, &options) == NIGH_INVALID);
    SAYS("durability is 3");
    OK(nigh_flush(db));
    OK(nigh_stats(db, &stats));
    CHECK(stats.durable_change == stats.last_change && stats.syncs > 0);
    OK(nigh_delete(db, "key", 3, NULL));
}

/* Walks over the keys with a prefix; returns how many it met, each once. */
static int walk(nigh_db db, const char *prefix, uint32_t step) {
    char met[100];
    int number = 0;
    uint64_t cursor = 0;
    memset(met, 0, sizeof met);
    do {
        nigh_pair *pairs;
        size_t len, i;
        OK(nigh_scan(db, prefix, strlen(prefix), step, &cursor, &pairs, &len));
        for (i = 0; i < len; i++) {
            int n = atoi(pairs[i].key.data + 5);
            CHECK(strncmp(pairs[i].key.data, "user:", 5) == 0);
            CHECK(strlen(pairs[i].key.data) == pairs[i].key.len);
            CHECK(atoi(pairs[i].value.data) == n * n && n >= 0 && n < 100);
            number += met[n] == 0;
            met[n] = 1;
        }
        nigh_free(pairs);
    } while (cursor != 0);
    return number;
}

static void scans(nigh_db db) {
    int n;
    for (n = 0; n < 100; n++) {
        char key[16], value[16];
        int key_len = sprintf(key, "user:%d", n), value_len = sprintf(value, "%d", n * n);
        OK(nigh_put(db, key, (size_t)key_len, value, (size_t)value_len, NULL));
    }
    CHECK(walk(db, "", 7) == 100);
    CHECK(walk(db, "user:1", 1000) == 11);
    CHECK(walk(db, "order:", 1) == 0);
}

static void what_cannot_be(nigh_db db) {
    char *value;
    size_t len;
    uint64_t cursor = 0;
    nigh_bytes key, *found;
    CHECK(nigh_put(db, NULL, 3, "v", 1, NULL) == NIGH_INVALID);
    SAYS("key is NULL, and its length is 3");
    CHECK(nigh_put(db, "k", 1, NULL, 1, NULL) == NIGH_INVALID);
    SAYS("value is NULL");
    CHECK(nigh_put(db, "k", 1, "v", SIZE_MAX, NULL) == NIGH_INVALID);
    SAYS("no memory has that");
    CHECK(nigh_get(db, "k", 1, NULL, &len) == NIGH_INVALID);
    CHECK(nigh_get(db, "k", 1, &value, NULL) == NIGH_INVALID && value == NULL);
    CHECK(nigh_get_into(db, "k", 1, NULL, 1, &len) == NIGH_INVALID);
    CHECK(nigh_multi_get(db, NULL, 1, &found) == NIGH_INVALID && found == NULL);
    CHECK(nigh_multi_get(db, &key, SIZE_MAX / 2, &found) == NIGH_INVALID);
    CHECK(nigh_multi_get(db, &key, 1, NULL) == NIGH_INVALID);
    key.data = NULL;
    key.len = 1;
    CHECK(nigh_multi_get(db, &key, 1, &found) == NIGH_INVALID);
    CHECK(nigh_batch(db, NULL, 1, NULL) == NIGH_INVALID);
    CHECK(nigh_scan(db, "", 0, 10, NULL, NULL, NULL) == NIGH_INVALID);
    CHECK(nigh_scan(db, "", 0, 10, &cursor, NULL, &len) == NIGH_INVALID);
    CHECK(nigh_stats(db, NULL) == NIGH_INVALID);
    value = (char *)calloc(1 << 16, 1);
    CHECK(nigh_put(db, value, 1 << 16, "v", 1, NULL) == NIGH_TOO_LARGE);
    SAYS("65535");
    SAYS("/data: a key");
    free(value);
}

static void opens_that_fail(nigh_db open) {
    nigh_options options = small();
    nigh_db db = open;
    FILE *file = fopen("file", "w");
    fclose(file);
    CHECK(nigh_open("data", &options, &db) == NIGH_IN_USE && db.id == 0);
    SAYS("data is open in this process");
    CHECK(nigh_open("file", &options, &db) == NIGH_CANNOT_OPEN);
    SAYS("file is a file");
    CHECK(nigh_open(NULL, &options, &db) == NIGH_INVALID);
    CHECK(nigh_open("new", &options, NULL) == NIGH_INVALID);
    options.durability = -1;
    CHECK(nigh_open("new", &options, &db) == NIGH_INVALID);
    options.durability = NIGH_STRONG;
    options.capacity_bytes = 1;
    CHECK(nigh_open("new", &options, &db) == NIGH_INVALID);
    SAYS("/new: the option capacity_bytes is 1");
}

/* Reads until the database is closed under it. */
static void *reads(void *given) {
    nigh_db db = *(nigh_db *)given;
    nigh_status status;
    do {
        char *value;
        size_t len;
        status = nigh_get(db, "user:7", 6, &value, &len);
        CHECK(status == NIGH_CLOSED || (status == NIGH_OK && strcmp(value, "49") == 0));
        nigh_free(value);
    } while (status == NIGH_OK);
    return NULL;
}

static void *closes(void *given) {
    nigh_status status = nigh_close(*(nigh_db *)given);
    CHECK(status == NIGH_OK || status == NIGH_CLOSED);
    return status == NIGH_OK ? given : NULL;
}

static void closed_under_readers(nigh_db db) {
    pthread_t readers[4], closers[2];
    nigh_db other, none;
    nigh_options options = small();
    int i, number = 0;
    memset(&none, 0, sizeof none);
    for (i = 0; i < 4; i++) CHECK(pthread_create(&readers[i], NULL, reads, &db) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_create(&closers[i], NULL, closes, &db) == 0);
    for (i = 0; i < 2; i++) {
        void *done;
        pthread_join(closers[i], &done);
        number += done != NULL;
    }
    CHECK(number == 1); /* the other one found it closed */
    for (i = 0; i < 4; i++) pthread_join(readers[i], NULL);
    /* Its handle stays one of nothing, also if another database has its place. */
    OK(nigh_open("data", &options, &other));
    CHECK(nigh_put(db, "k", 1, "v", 1, NULL) == NIGH_CLOSED);
    SAYS("closed");
    CHECK(nigh_flush(db) == NIGH_CLOSED && nigh_close(db) == NIGH_CLOSED);
    CHECK(nigh_flush(none) == NIGH_CLOSED && nigh_close(none) == NIGH_CLOSED);
    CHECK(walk(other, "user:", 100) == 100);
    OK(nigh_close(other));
}

/* Two databases at once, one of them several times. */
static void many(void) {
    nigh_options options = small();
    nigh_db first, db;
    int n;
    OK(nigh_open("first", &options, &first));
    for (n = 0; n < 3; n++) {
        OK(nigh_open("second", &options, &db));
        CHECK(db.id != first.id);
        OK(nigh_incr(db, "opens", 5, 1, NULL, NULL));
        OK(nigh_close(db));
    }
    OK(nigh_close(first));
}

/* A batch is one partition's. */
static void partitions(void) {
    nigh_options options = small();
    nigh_batch_write writes[40];
    char keys[40][8];
    nigh_db db;
    int i;
    options.partitions = 3;
    OK(nigh_open("parts", &options, &db));
    memset(writes, 0, sizeof writes);
    for (i = 0; i < 40; i++) {
        sprintf(keys[i], "%d", i);
        writes[i].key = writes[i].value = bytes(keys[i]);
    }
    CHECK(nigh_batch(db, writes, 40, NULL) == NIGH_REFUSED);
    SAYS("lie in two partitions");
    for (i = 0; i < 40; i++) {
        sprintf(keys[i], "{t}%d", i);
        writes[i].key = writes[i].value = bytes(keys[i]);
    }
    OK(nigh_batch(db, writes, 40, NULL));
    OK(nigh_close(db));
    options.partitions = 2;
    CHECK(nigh_open("parts", &options, &db) != NIGH_OK);
    SAYS("has 3 partitions, not 2");
}

/* Writes until its database is closed; each waits for the disk within the call. */
static void *writes_strongly(void *given) {
    nigh_db db = *(nigh_db *)given;
    nigh_status status;
    do {
        status = nigh_put(db, "strong", 6, "v", 1, &nigh_strong);
        CHECK(status == NIGH_OK || status == NIGH_CLOSED);
    } while (status == NIGH_OK);
    return NULL;
}

/* Reads until its reader is closed. */
static void *reads_beside(void *given) {
    nigh_reader reader = *(nigh_reader *)given;
    char *value;
    size_t len;
    nigh_status status;
    do {
        status = nigh_reader_get(reader, "strong", 6, &value, &len);
        CHECK(status == NIGH_OK || status == NIGH_NOT_FOUND || status == NIGH_CLOSED);
        nigh_free(value);
    } while (status != NIGH_CLOSED);
    return NULL;
}

/* A thread is within a call at each fork, and isn't in the child: what it has locked stays locked
   there. */
static void children_of_forks(void) {
    const struct timespec pause = {0, 2000000};
    nigh_options options = small();
    nigh_db db, own;
    nigh_snapshot snapshot;
    nigh_watch watch;
    nigh_event event;
    nigh_reader reader, childs;
    nigh_pair *pairs;
    pthread_t threads[4], readers[4];
    char *value;
    size_t len;
    int i, status;
    options.shared = 1;
    OK(nigh_open("forked", &options, &db));
    OK(nigh_reader_open("forked", NULL, &reader));
    OK(nigh_snapshot_begin(db, NULL, 0, &snapshot));
    OK(nigh_watch_begin(db, "none", 4, &watch));
    for (i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, writes_strongly, &db) == 0);
        CHECK(pthread_create(&readers[i], NULL, reads_beside, &reader) == 0);
    }
    for (i = 0; i < 8; i++) {
        pid_t child;
        nanosleep(&pause, NULL);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60); /* the signal ends it, if it hangs */
            CHECK(nigh_get(db, "strong", 6, &value, &len) == NIGH_REFUSED && value == NULL);
            SAYS("forked");
            CHECK(nigh_put(db, "child", 5, "v", 1, NULL) == NIGH_REFUSED);
            CHECK(nigh_flush(db) == NIGH_REFUSED);
            CHECK(nigh_snapshot_next(snapshot, 1, &pairs, &len) == NIGH_REFUSED);
            CHECK(nigh_snapshot_end(snapshot) == NIGH_REFUSED);
            CHECK(nigh_watch_next(watch, 3600000, &event) == NIGH_REFUSED);
            CHECK(nigh_watch_end(watch) == NIGH_REFUSED);
            CHECK(nigh_close(db) == NIGH_REFUSED);
            CHECK(nigh_reader_get(reader, "strong", 6, &value, &len) == NIGH_REFUSED);
            SAYS("nigh_reader_open gives another one here");
            CHECK(nigh_reader_close(reader) == NIGH_REFUSED);
            OK(nigh_reader_open("forked", NULL, &childs));
            CHECK(nigh_reader_contains(childs, "strong", 6) >= NIGH_OK);
            OK(nigh_reader_close(childs));
            OK(nigh_open("of the child", &options, &own));
            OK(nigh_put(own, "child", 5, "v", 1, &nigh_strong));
            OK(nigh_close(own));
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    OK(nigh_snapshot_end(snapshot));
    OK(nigh_watch_end(watch));
    OK(nigh_reader_close(reader));
    for (i = 0; i < 4; i++) pthread_join(readers[i], NULL);
    OK(nigh_close(db));
    for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    OK(nigh_open("forked", &options, &db));
    CHECK(nigh_get(db, "child", 5, &value, &len) == NIGH_NOT_FOUND);
    OK(nigh_close(db));
}

int main(void) {
    nigh_options options = small();
    nigh_db db;
    CHECK(*nigh_error_message() == 0);
    options.shared = 1;
    OK(nigh_open("data", &options, &db));
    values(db);
    numbers_and_conditions(db);
    several_at_once(db);
    expiry(db);
    scans(db);
    snapshots(db);
    watches(db);
    goes_on();
    readers(db);
    what_cannot_be(db);
    opens_that_fail(db);
    closed_under_readers(db);
    left_over();
    many();
    partitions();
    children_of_forks();
    puts("all is well");
    return 0;
}
