/* A server that answers as a test says, at the Unix socket `fake.sock`: other versions, other kinds,
 * and ones that die. */

#ifndef FAKE_H
#define FAKE_H

#include "check.h"

#include <nigh_client.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_ADDRESS "unix:fake.sock"
#define REFUSES "-ERR unknown command\r\n"

/* What it answers: NULL ends the connection, and "" is silence. */
typedef struct fake_answers {
    const char *local, *ping, *other;
    int ends_behind_ping;
} fake_answers;

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static fake_answers fake_now;

static void fake(const char *local, const char *ping, const char *other, int ends_behind_ping) {
    pthread_mutex_lock(&fake_lock);
    fake_now.local = local;
    fake_now.ping = ping;
    fake_now.other = other;
    fake_now.ends_behind_ping = ends_behind_ping;
    pthread_mutex_unlock(&fake_lock);
}

static void *fake_serves(void *given) {
    int connection = *(int *)given;
    char request[4096];
    ssize_t len;
    free(given);
    while ((len = recv(connection, request, sizeof request - 1, 0)) > 0) {
        const char *answer;
        int is_ping;
        fake_answers now;
        request[len] = 0;
        pthread_mutex_lock(&fake_lock);
        now = fake_now;
        pthread_mutex_unlock(&fake_lock);
        is_ping = strstr(request, "PING") != NULL;
        answer = is_ping ? now.ping : now.other;
        if (strstr(request, "LOCAL") != NULL) answer = now.local;
        if (strstr(request, "AUTH") != NULL) answer = "-WRONGPASS it isn't\r\n";
        if (answer == NULL) break;
        if (send(connection, answer, strlen(answer), MSG_NOSIGNAL) < 0) break;
        if (is_ping && now.ends_behind_ping) break;
    }
    close(connection);
    return NULL;
}

static void *fake_accepts(void *given) {
    int listener = *(int *)given;
    for (;;) {
        pthread_t thread;
        int *connection = (int *)malloc(sizeof(int));
        *connection = accept(listener, NULL, NULL);
        CHECK(*connection >= 0);
        CHECK(pthread_create(&thread, NULL, fake_serves, connection) == 0);
        pthread_detach(thread);
    }
    return NULL;
}

/* Begins, for as long as the program runs. */
static void fake_begins(void) {
    static int listener;
    struct sockaddr_un at;
    pthread_t thread;
    memset(&at, 0, sizeof at);
    at.sun_family = AF_UNIX;
    strcpy(at.sun_path, "fake.sock");
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 16) == 0);
    CHECK(pthread_create(&thread, NULL, fake_accepts, &listener) == 0);
    pthread_detach(thread);
}

static nigh_client fake_client(int64_t timeout_ms) {
    nigh_client_options options;
    nigh_client client;
    memset(&options, 0, sizeof options);
    options.timeout_ms = timeout_ms;
    OK(nigh_client_connect(FAKE_ADDRESS, &options, &client));
    return client;
}

/* A reply that is lost: a write may have happened, a read is read again. */
static void fake_loses_replies(const char *other, int64_t timeout_ms, const char *cause) {
    nigh_client client;
    char *value;
    size_t len;
    fake(REFUSES, "+PONG\r\n", other, 0);
    client = fake_client(timeout_ms);
    CHECK(nigh_client_set(client, "k", 1, "v", 1, NULL) == NIGH_UNKNOWN);
    SAYS("may or may not have happened");
    SAYS(cause);
    CHECK(nigh_client_get(client, "k", 1, &value, &len) == NIGH_UNANSWERED && value == NULL);
    SAYS("read again");
    OK(nigh_client_close(client));
}

/* A pipeline hands out the replies that came. */
static void fake_ends_a_pipeline(void) {
    nigh_bytes word;
    nigh_request requests[3];
    nigh_client client;
    nigh_reply *replies;
    size_t len;
    int i;
    fake(REFUSES, "+PONG\r\n", NULL, 0);
    client = fake_client(0);
    fake(REFUSES, "+PONG\r\n", NULL, 1);
    word.data = "PING";
    word.len = 4;
    for (i = 0; i < 3; i++) {
        requests[i].words = &word;
        requests[i].words_len = 1;
    }
    CHECK(nigh_client_pipeline(client, requests, 3, &replies, &len) == NIGH_UNKNOWN);
    CHECK(len == 1 && strcmp(replies->bytes.data, "PONG") == 0);
    nigh_free(replies);
    OK(nigh_client_close(client));
}

/* A write to a socket whose other end is closed: no signal. */
static void fake_ends_at_once(void) {
    int i;
    for (i = 0; i < 5; i++) {
        nigh_client client;
        fake(REFUSES, "+PONG\r\n", NULL, 1);
        client = fake_client(0);
        CHECK(nigh_client_set(client, "k", 1, "v", 1, NULL) == NIGH_UNKNOWN);
        OK(nigh_client_close(client));
    }
}

static void fake_is_another_kind(void) {
    nigh_client client;
    nigh_client_options options;
    char *value;
    size_t len;
    memset(&options, 0, sizeof options);
    fake(REFUSES, "+PONG\r\n", ":1\r\n", 0);
    client = fake_client(0);
    CHECK(nigh_client_get(client, "k", 1, &value, &len) == NIGH_UNEXPECTED && value == NULL);
    SAYS("another kind of server");
    fake(REFUSES, "+PONG\r\n", "+what\r\n", 0);
    CHECK(nigh_client_append(client, "k", 1, "v", 1, NULL) == NIGH_UNEXPECTED);
    CHECK(nigh_client_incr(client, "k", 1, 1, NULL) == NIGH_UNEXPECTED);
    OK(nigh_client_close(client));
    fake(REFUSES, "HTTP/1.1 400\r\n", NULL, 0);
    CHECK(nigh_client_connect(FAKE_ADDRESS, &options, &client) == NIGH_CANNOT_CONNECT);
    SAYS("fake.sock");
    options.password = "secret";
    CHECK(nigh_client_connect(FAKE_ADDRESS, &options, &client) == NIGH_CANNOT_CONNECT);
    SAYS("refused the password");
}

static void fake_is_of_another_version(void) {
    nigh_client client;
    nigh_client_options options;
    char *why;
    memset(&options, 0, sizeof options);
    fake("*2\r\n$8\r\nprotocol\r\n:9\r\n", "+PONG\r\n", "$1\r\nv\r\n", 0);
    client = fake_client(0);
    OK(nigh_client_why_not_local(client, &why));
    CHECK(strstr(why, "version 9") != NULL);
    nigh_free(why);
    CHECK(nigh_client_exists(client, "k", 1) == NIGH_UNEXPECTED);
    OK(nigh_client_close(client));
    options.local = NIGH_LOCAL_REQUIRED;
    CHECK(nigh_client_connect(FAKE_ADDRESS, &options, &client) == NIGH_NOT_LOCAL);
    SAYS("version 9");
    CHECK(client.id == 0);
}

/* Replies of all kinds. */
static void fake_answers_all(void) {
    nigh_bytes word;
    nigh_client client;
    nigh_reply *reply;
    const nigh_reply *of;
    word.data = "WHAT";
    word.len = 4;
    fake(REFUSES, "+PONG\r\n",
         "*8\r\n%1\r\n+k\r\n~2\r\n#t\r\n,1.5\r\n=7\r\ntxt:abc\r\n(123\r\n"
         "|1\r\n+a\r\n+b\r\n*1\r\n$1\r\nx\r\n!5\r\nERR x\r\n_\r\n*0\r\n#f\r\n", 0);
    client = fake_client(0);
    OK(nigh_client_call(client, &word, 1, &reply));
    CHECK(reply->kind == NIGH_REPLY_ARRAY && reply->elements_len == 8);
    of = reply->elements;
    CHECK(of[0].kind == NIGH_REPLY_MAP && of[0].elements_len == 2);
    CHECK(of[0].elements[0].kind == NIGH_REPLY_TEXT);
    CHECK(strcmp(of[0].elements[0].bytes.data, "k") == 0);
    CHECK(of[0].elements[1].kind == NIGH_REPLY_SET && of[0].elements[1].elements_len == 2);
    CHECK(of[0].elements[1].elements[0].kind == NIGH_REPLY_BOOLEAN);
    CHECK(of[0].elements[1].elements[0].integer == 1);
    CHECK(of[0].elements[1].elements[1].kind == NIGH_REPLY_DOUBLE);
    CHECK(of[0].elements[1].elements[1].number == 1.5);
    CHECK(of[1].kind == NIGH_REPLY_BYTES && strcmp(of[1].bytes.data, "abc") == 0);
    CHECK(of[2].kind == NIGH_REPLY_TEXT && strcmp(of[2].bytes.data, "123") == 0);
    CHECK(of[3].kind == NIGH_REPLY_ARRAY && of[3].elements_len == 1);
    CHECK(strcmp(of[3].elements[0].bytes.data, "x") == 0);
    CHECK(of[4].kind == NIGH_REPLY_ERROR && strcmp(of[4].bytes.data, "ERR x") == 0);
    CHECK(of[5].kind == NIGH_REPLY_NULL);
    CHECK(of[6].kind == NIGH_REPLY_ARRAY && of[6].elements_len == 0 && of[6].elements == NULL);
    CHECK(of[7].kind == NIGH_REPLY_BOOLEAN && of[7].integer == 0);
    nigh_free(reply);
    OK(nigh_client_close(client));
}

static void other_servers(void) {
    fake_begins();
    fake_loses_replies(NULL, 0, "closed the connection");
    fake_loses_replies("", 3000, "3s");
    fake_ends_a_pipeline();
    fake_ends_at_once();
    fake_is_another_kind();
    fake_is_of_another_version();
    fake_answers_all();
}

#endif
