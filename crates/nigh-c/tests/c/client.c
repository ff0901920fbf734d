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
#include "client_calls.h"
#include "fake.h"

static char unix_address[200], tcp_address[40];
static unsigned short port;

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
        SAYS(unix_address);
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
    SAYS(unix_address);
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
    CHECK(nigh_client_set(client, value, 1 << 16, "v", 1, NULL) == NIGH_TOO_LARGE);
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
    options.local = NIGH_LOCAL_AUTO;
    CHECK(nigh_client_connect(unix_address, &options, &client) == NIGH_CANNOT_CONNECT);
    SAYS("asks for a password: give one");
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
