/* A process that may take little memory (RLIMIT_AS, as `ulimit -v` sets it) meets a value that
   doesn't fit. The allocator ended it; it is told, and goes on when there is memory again. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <malloc.h>
#include <nigh.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "limit.h"

/* Of a value, and of all that the process may take beside what it has. */
static const size_t LONG_BYTES = (size_t)24 << 20;
static const size_t MORE_BYTES = (size_t)8 << 20;

/* All of a walk. */
static size_t walk(nigh_db db) {
    uint64_t cursor = 0;
    size_t found = 0, len;
    nigh_pair *pairs;
    do {
        OK(nigh_scan(db, NULL, 0, 10, &cursor, &pairs, &len));
        found += len;
        nigh_free(pairs);
    } while (cursor != 0);
    return found;
}

static void reads(nigh_db db) {
    nigh_snapshot snapshot;
    nigh_bytes keys[2], *values;
    nigh_pair *pairs;
    char *value;
    size_t len, found = 0;
    uint64_t cursor = 0;
    nigh_status status;
    keys[0] = bytes("short");
    keys[1] = bytes("long");
    OK(nigh_snapshot_begin(db, NULL, 0, &snapshot));
    limit(MORE_BYTES);
    CHECK(nigh_get(db, "long", 4, &value, &len) == NIGH_NO_MEMORY && value == NULL && len == 0);
    CHECK(nigh_multi_get(db, keys, 2, &values) == NIGH_NO_MEMORY && values == NULL);
    do {
        status = nigh_scan(db, "long", 4, 10, &cursor, &pairs, &len);
        nigh_free(pairs);
    } while (status == NIGH_OK && cursor != 0);
    CHECK(status == NIGH_NO_MEMORY && pairs == NULL && len == 0);
    SAYS("for what was found");
    /* The short one may come before; behind the error comes what it kept from coming. */
    while ((status = nigh_snapshot_next(snapshot, 10, &pairs, &len)) == NIGH_OK) {
        CHECK(len == 1 && is(pairs[0].key, "short"));
        found += len;
        nigh_free(pairs);
    }
    CHECK(status == NIGH_NO_MEMORY && pairs == NULL && len == 0);
    CHECK(nigh_snapshot_next(snapshot, 10, &pairs, &len) == NIGH_NO_MEMORY);
    SAYS("free some");
    /* There is memory for one copy, and none for the caller's. */
    limit(MORE_BYTES + LONG_BYTES);
    CHECK(nigh_snapshot_next(snapshot, 10, &pairs, &len) == NIGH_NO_MEMORY);
    limit(0);
    for (;;) {
        OK(nigh_snapshot_next(snapshot, 1, &pairs, &len));
        found += len;
        nigh_free(pairs);
        if (len == 0) break;
    }
    CHECK(found == 2);
    OK(nigh_snapshot_end(snapshot));
    CHECK(walk(db) == 2);
}

static void writes(nigh_db db, const char *lasting) {
    nigh_batch_write batch[2];
    size_t len;
    memset(batch, 0, sizeof batch);
    batch[0].kind = batch[1].kind = NIGH_PUT;
    batch[0].key = bytes("a");
    batch[1].key = bytes("b");
    batch[1].value.data = lasting;
    batch[1].value.len = LONG_BYTES;
    limit(MORE_BYTES);
    CHECK(nigh_batch(db, batch, 2, NULL) == NIGH_NO_MEMORY);
    SAYS("free some");
    CHECK(nigh_get_into(db, "a", 1, NULL, 0, &len) == NIGH_NOT_FOUND);
    OK(nigh_put(db, "b", 1, lasting, LONG_BYTES, NULL));
    OK(nigh_delete(db, "b", 1, &nigh_strong));
    limit(0);
    OK(nigh_batch(db, batch, 2, NULL));
}

/* There is memory for the library's copy of a change, and none for the caller's. */
static void changes(nigh_db db, const char *lasting) {
    nigh_watch watch;
    nigh_event event;
    OK(nigh_watch_begin(db, "w", 1, &watch));
    limit(MORE_BYTES + LONG_BYTES);
    OK(nigh_put(db, "w", 1, lasting, LONG_BYTES, NULL));
    OK(nigh_watch_next(watch, 60000, &event));
    limit(0);
    CHECK(event.kind == NIGH_EVENT_LOST && event.first == event.change && event.key.data == NULL);
    nigh_free(event.block);
    OK(nigh_put(db, "w", 1, "short", 5, NULL));
    OK(nigh_watch_next(watch, 60000, &event));
    CHECK(event.kind == NIGH_EVENT_PUT && is(event.value, "short"));
    nigh_free(event.block);
    OK(nigh_watch_end(watch));
}

int main(void) {
    nigh_db db;
    nigh_options options;
    char *lasting;
    /* Else the allocator has 64 MiB of addresses in reserve for each thread, and keeps what is
       freed. */
    CHECK(mallopt(M_ARENA_MAX, 1) == 1 && mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    lasting = (char *)malloc(LONG_BYTES);
    memset(&options, 0, sizeof options);
    options.capacity_bytes = (uint64_t)256 << 20;
    options.journal_bytes = (uint64_t)1 << 20;
    options.shared = 1;
    CHECK(lasting != NULL);
    memset(lasting, 7, LONG_BYTES);
    OK(nigh_open("data", &options, &db));
    OK(nigh_put(db, "short", 5, "hello", 5, NULL));
    OK(nigh_put(db, "long", 4, lasting, LONG_BYTES, NULL));
    reads(db);
    writes(db, lasting);
    changes(db, lasting);
    OK(nigh_close(db));
    free(lasting);
    printf("all was told\n");
    return 0;
}
