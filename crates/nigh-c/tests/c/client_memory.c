/* A client whose process may take little memory writes, and gets back what was there before: that
 * doesn't fit. "No memory" said that nothing was done, though the write was made.
 *
 *     client_memory SOCKET PORT     the server's Unix socket
 *
 * tests/clients.rs compiles it as C and as C++. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <nigh_client.h>

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "limit.h"

/* Of a value, and between two tries of all that the process may take beside what it has. */
static const size_t LONG_BYTES = (size_t)8 << 20;
static const size_t STEP_BYTES = (size_t)2 << 20;

static nigh_client client;
static char *lasting;
/* Tries whose reply had no room in the end, and those that went well. */
static int had_no_room, went_well;

/* What a try ended with, and whether the write was made. */
static void judge(nigh_status status) {
    char *value;
    nigh_bytes found;
    limit(0);
    if (status == NIGH_OK) went_well++;
    if (status == NIGH_UNKNOWN && strstr(nigh_error_message(), "hand it over") != NULL) {
        had_no_room++;
        SAYS("unix:/");
    }
    CHECK(status == NIGH_OK || status == NIGH_UNKNOWN);
    OK(nigh_client_get(client, "key", 3, &value, &found.len));
    found.data = value;
    CHECK(status == NIGH_UNKNOWN || is(found, "1"));
    nigh_free(value);
}

static void tries(size_t more_bytes) {
    nigh_bytes words[4];
    nigh_request request;
    nigh_reply *reply;
    nigh_status status;
    size_t len;
    words[0] = bytes("SET");
    words[1] = bytes("key");
    words[2] = bytes("1");
    words[3] = bytes("GET");
    OK(nigh_client_set(client, "key", 3, lasting, LONG_BYTES, NULL));
    limit(more_bytes);
    status = nigh_client_call(client, words, 4, &reply);
    CHECK((reply != NULL) == (status == NIGH_OK));
    judge(status);
    nigh_free(reply);
    OK(nigh_client_set(client, "key", 3, lasting, LONG_BYTES, NULL));
    request.words = words;
    request.words_len = 4;
    limit(more_bytes);
    status = nigh_client_pipeline(client, &request, 1, &reply, &len);
    CHECK((reply != NULL && len == 1) == (status == NIGH_OK));
    judge(status);
    nigh_free(reply);
    /* A read changes nothing: it says which memory is missing, or that it may be repeated. */
    OK(nigh_client_set(client, "key", 3, lasting, LONG_BYTES, NULL));
    words[0] = bytes("GET");
    limit(more_bytes);
    status = nigh_client_call(client, words, 2, &reply);
    limit(0);
    CHECK(status == NIGH_OK || status == NIGH_NO_MEMORY || status == NIGH_UNANSWERED);
    nigh_free(reply);
}

int main(int count, char **given) {
    char address[200];
    size_t more_bytes;
    nigh_client_options options;
    CHECK(count == 3);
    /* Else the allocator has 64 MiB of addresses in reserve for each thread, and keeps what is
       freed. */
    CHECK(mallopt(M_ARENA_MAX, 1) == 1 && mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    lasting = (char *)malloc(LONG_BYTES);
    CHECK(lasting != NULL);
    memset(lasting, 7, LONG_BYTES);
    sprintf(address, "unix:%.150s", given[1]);
    memset(&options, 0, sizeof options);
    options.local = NIGH_LOCAL_NEVER;
    options.wait_ms = 60000;
    OK(nigh_client_connect(address, &options, &client));
    for (more_bytes = STEP_BYTES; more_bytes < 6 * LONG_BYTES; more_bytes += STEP_BYTES)
        tries(more_bytes);
    CHECK(had_no_room > 1 && went_well > 1);
    OK(nigh_client_delete(client, "key", 3));
    OK(nigh_client_close(client));
    free(lasting);
    puts("all is well");
    return 0;
}
