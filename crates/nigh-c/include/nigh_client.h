/*
 * Nigh: a client of a server.
 *
 *     nigh_client client;
 *     if (nigh_client_connect("unix:/run/nigh.sock", NULL, &client) != NIGH_OK)
 *         puts(nigh_error_message());
 *     nigh_client_set(client, "greeting", 8, "hello", 5, NULL);
 *     nigh_client_close(client);
 *
 * Over the Unix socket of a server on the same host a client reads the server's memory by itself,
 * without a system call, and writes by a ring in shared memory. Over TCP, or where the server
 * allows no more, each call is a request. The calls are the same.
 *
 * - Statuses, nigh_error_message() and nigh_free() are those of nigh.h, and so are the rules on
 *   pointers, lengths and results.
 * - Any thread may call anything. Calls with one client follow each other: a thread waits until the
 *   call of another one has returned. Threads that shall not wait have a client each; a process has
 *   256 at most.
 * - Reads show what the server has answered before, also what this client wrote; they don't go
 *   back. docs/local.md says precisely what reads and writes promise.
 * - A write is sent once. NIGH_NO_SERVER: nothing was sent. NIGH_UNKNOWN: it may or may not have
 *   happened. After another error it hasn't.
 * - When the server was away, the next call attaches anew. `wait_ms` has calls wait for that.
 * - The child of a fork must not use the clients that its parent has connected: its calls are
 *   refused.
 * - The first local client installs a handler for SIGBUS, which passes on what isn't its own. A
 *   program with a handler of its own installs that before. The library stays in memory behind
 *   dlclose. Cancel no thread (pthread_cancel) while it is in a call.
 */

#ifndef NIGH_CLIENT_H
#define NIGH_CLIENT_H

/* Made of crates/nigh-c/src by cbindgen: `make header` makes it anew. */

#include "nigh.h"

// Whether a client reads the server's memory.
typedef enum nigh_local_use {
    // If it can: over the server's Unix socket. Else everything goes by requests.
    NIGH_LOCAL_AUTO = 0,
    // Yes: without it there is an error, NIGH_NOT_LOCAL.
    NIGH_LOCAL_REQUIRED = 1,
    // No.
    NIGH_LOCAL_NEVER = 2,
} nigh_local_use;

// On which condition a key is set.
typedef enum nigh_condition {
    // On none.
    NIGH_ALWAYS = 0,
    // If the key isn't there.
    NIGH_IF_ABSENT = 1,
    // If the key is there.
    NIGH_IF_PRESENT = 2,
} nigh_condition;

// What a reply is.
typedef enum nigh_reply_kind {
    // Nothing.
    NIGH_REPLY_NULL = 0,
    // A number, in `integer`.
    NIGH_REPLY_INTEGER = 1,
    // Bytes, such as a value.
    NIGH_REPLY_BYTES = 2,
    // A text of the server's own in `bytes`, such as OK.
    NIGH_REPLY_TEXT = 3,
    // The server's refusal: a text in `bytes`, which begins with a code, such as ERR.
    NIGH_REPLY_ERROR = 4,
    // Replies, in `elements`.
    NIGH_REPLY_ARRAY = 5,
    // Keys and values in turn, in `elements`. With protocol 3 alone, as all that follow.
    NIGH_REPLY_MAP = 6,
    // Replies without an order, in `elements`.
    NIGH_REPLY_SET = 7,
    // A number, in `number`.
    NIGH_REPLY_DOUBLE = 8,
    // 0 or 1, in `integer`.
    NIGH_REPLY_BOOLEAN = 9,
} nigh_reply_kind;

// How a client connects, reads and waits. All zeros are the defaults.
typedef struct nigh_client_options {
    // The user; NULL: the address's, or the default user. Without a password it has an empty one.
    const char *user;
    // The password; NULL: the address's, or none.
    const char *password;
    // The name in CLIENT LIST; NULL: none.
    const char *client_name;
    // Longest wait to connect, and for each reply, in milliseconds; 0: ten seconds; below 0: no
    // limit.
    int64_t timeout_ms;
    // How long a call waits for a server that is away, in milliseconds; 0: it says so at once.
    uint64_t wait_ms;
    // How long a call looks for its reply before it sleeps, in microseconds, up to a second; 0: 50
    // on a machine with several cores, else not at all; below 0: not at all.
    int32_t spin_us;
    // A nigh_local_use.
    int32_t local;
    // Not 0, with `appendfsync always`: reads show from memory also what isn't on disk yet. By
    // default such a read asks the server, whose reply waits for the disk.
    int32_t reads_unsynced;
    // The protocol's version, 2 or 3; 0: 2. It decides of which kinds replies are.
    int32_t protocol;
    // Not 0: attach once. When the attachment is over, each call says NIGH_CLOSED. By default a
    // client attaches again by itself, also between a WATCH and its EXEC, which then changes what
    // nobody watches.
    int32_t attach_once;
} nigh_client_options;

// A client of a server: a number, so that a handle of a closed one is told from others. All zeros
// is none.
typedef struct nigh_client {
    // Not for use.
    uint64_t id;
} nigh_client;

// Keys as of one moment, for the callback of nigh_client_view. All zeros is none.
typedef struct nigh_view {
    // Not for use.
    uint64_t id;
} nigh_view;

// How a key is set. NULL, or all zeros: on no condition, without an expiry.
typedef struct nigh_set_options {
    // If not 0: the key is gone after so many milliseconds.
    uint64_t expires_in_ms;
    // If not 0: the key is gone from this time on, in Unix milliseconds. Not together with
    // `expires_in_ms`.
    uint64_t expires_at_ms;
    // A nigh_condition.
    int32_t condition;
    // Not 0: the expiry that the key has stays. Not together with a new one.
    int32_t keeps_expiry;
} nigh_set_options;

// A reply of a server.
typedef struct nigh_reply {
    // A nigh_reply_kind: it says which of the others is set. All others are 0 and NULL.
    int32_t kind;
    // A number.
    int64_t integer;
    // A number.
    double number;
    // Bytes, with a NUL behind that doesn't count.
    nigh_bytes bytes;
    // Replies.
    const struct nigh_reply *elements;
    // Their number.
    size_t elements_len;
} nigh_reply;

// A request: its words, the command's name first.
typedef struct nigh_request {
    // The words.
    const nigh_bytes *words;
    // Their number.
    size_t words_len;
} nigh_request;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to a server: "unix:/path", "tcp:host:port", "host:port", or
// "redis://user:password@host:port". `options` may be NULL. NIGH_INVALID if the address can't be
// read; NIGH_NO_SERVER if there is no server, NIGH_CANNOT_CONNECT if it can't be used.
nigh_status nigh_client_connect(const char *address,
                                const struct nigh_client_options *options,
                                struct nigh_client *client);

// Closes a client; calls of other threads that use it return first.
nigh_status nigh_client_close(struct nigh_client client);

// Looks whether there is a server, and attaches again if need be: NIGH_OK, or why not.
nigh_status nigh_client_check(struct nigh_client client);

// Whether the client reads the server's memory now: `is_local` gets 1 or 0.
nigh_status nigh_client_is_local(struct nigh_client client, int32_t *is_local);

// Why the client doesn't read the server's memory, though it is connected: a text for nigh_free.
// NULL if it does, or isn't connected now.
nigh_status nigh_client_why_not_local(struct nigh_client client, char **why);

// Finds the value of a key: NIGH_OK, and a copy of it, for nigh_free, with a NUL behind that
// doesn't count; or NIGH_NOT_FOUND.
nigh_status nigh_client_get(struct nigh_client client,
                            const void *key,
                            size_t key_len,
                            char **value,
                            size_t *value_len);

// Copies the value of a key into a buffer of `room` bytes: NIGH_OK, or NIGH_NOT_FOUND, or
// NIGH_TOO_SMALL. `value_len` gets the value's length, also if the buffer is too small for it.
nigh_status nigh_client_get_into(struct nigh_client client,
                                 const void *key,
                                 size_t key_len,
                                 void *buffer,
                                 size_t room,
                                 size_t *value_len);

// Copies a part of a key's value into a buffer: its bytes from `begin` on, as many as there are,
// up to `room`. NIGH_OK, or NIGH_NOT_FOUND. `value_len` gets the length of the whole value. A few
// bytes of a long value cost what a few bytes cost, if the client is local.
nigh_status nigh_client_get_part(struct nigh_client client,
                                 const void *key,
                                 size_t key_len,
                                 size_t begin,
                                 void *buffer,
                                 size_t room,
                                 size_t *value_len);

// Whether a key is there: NIGH_OK, or NIGH_NOT_FOUND.
nigh_status nigh_client_exists(struct nigh_client client, const void *key, size_t key_len);

// How long a key stays, in milliseconds; UINT64_MAX if it has no expiry. NIGH_NOT_FOUND, and 0, if
// it isn't there.
nigh_status nigh_client_ttl(struct nigh_client client,
                            const void *key,
                            size_t key_len,
                            uint64_t *ttl_ms);

// Finds the values of several keys. Those of a partition are of one moment: a transaction is seen
// whole or not at all. `values` gets as many as there are keys, for one nigh_free of all; `data`
// is NULL where there is none.
nigh_status nigh_client_multi_get(struct nigh_client client,
                                  const nigh_bytes *keys,
                                  size_t keys_len,
                                  nigh_bytes **values);

// A step of a walk over the keys that begin with `prefix`: about `count` of them, with their
// values, for one nigh_free of all. `cursor` is 0 for the first step; it gets the next one's, and
// 0 at the end. A step may find nothing and not be the last.
//
// A key that is there all the while is met, maybe more than once; one that comes or goes meanwhile
// may be. There is no order. A prefix doesn't make the walk shorter.
nigh_status nigh_client_scan(struct nigh_client client,
                             const void *prefix,
                             size_t prefix_len,
                             uint32_t count,
                             uint64_t *cursor,
                             nigh_pair **pairs,
                             size_t *pairs_len);

// Reads some keys as of one moment for each partition: calls `read`, which gets them from the view
// one after another, and may decide by one value which key is next. Too much may change meanwhile;
// then `read` is called again, for another moment: up to 16 times, then the answer is NIGH_BUSY.
// So it sets anew what it puts into `context`, which may be NULL. It takes local access, else
// NIGH_NOT_LOCAL.
//
// The view is of this thread, and ends with `read`. `read` returns: no exception and no longjmp
// leaves it. It calls no nigh_client_ function.
nigh_status nigh_client_view(struct nigh_client client, void (*read)(struct nigh_view view,
                                                                     void *context), void *context);

// Finds the value that a key had at the view's moment: NIGH_OK, and a copy of it, for nigh_free;
// or NIGH_NOT_FOUND. NIGH_BUSY: too much has changed, so return from the callback, which is called
// again. After another error the view fails with that.
nigh_status nigh_view_get(struct nigh_view view,
                          const void *key,
                          size_t key_len,
                          char **value,
                          size_t *value_len);

// The same into a buffer of `room` bytes, as nigh_client_get_into.
nigh_status nigh_view_get_into(struct nigh_view view,
                               const void *key,
                               size_t key_len,
                               void *buffer,
                               size_t room,
                               size_t *value_len);

// Whether there was such a key at the view's moment: NIGH_OK, or NIGH_NOT_FOUND; else as
// nigh_view_get.
nigh_status nigh_view_exists(struct nigh_view view, const void *key, size_t key_len);

// Gives a key a value, and the expiry of `options`, else none. `options` may be NULL. NIGH_OK; or
// NIGH_MISMATCH, if the condition of `options` doesn't hold: nothing is written.
nigh_status nigh_client_set(struct nigh_client client,
                            const void *key,
                            size_t key_len,
                            const void *value,
                            size_t value_len,
                            const struct nigh_set_options *options);

// Deletes a key: NIGH_OK, or NIGH_NOT_FOUND.
nigh_status nigh_client_delete(struct nigh_client client, const void *key, size_t key_len);

// Adds `by` to the decimal integer that a key has, 0 if it isn't there. Its expiry stays. `sum`
// gets the result, and may be NULL. NIGH_REFUSED if the value is no number, or the sum is out of
// range.
nigh_status nigh_client_incr(struct nigh_client client,
                             const void *key,
                             size_t key_len,
                             int64_t by,
                             int64_t *sum);

// Puts bytes behind the value that a key has, if any. Its expiry stays. `new_len` gets the length
// of the whole, and may be NULL.
nigh_status nigh_client_append(struct nigh_client client,
                               const void *key,
                               size_t key_len,
                               const void *value,
                               size_t value_len,
                               size_t *new_len);

// Lets a key be gone after so many milliseconds, at least one: NIGH_OK, or NIGH_NOT_FOUND. Its
// value stays. (PERSIST, by nigh_client_call, takes an expiry away.)
nigh_status nigh_client_expire(struct nigh_client client,
                               const void *key,
                               size_t key_len,
                               uint64_t expires_in_ms);

// Calls a function of the server's, with keys and arguments. `reply` is for nigh_free. An error
// that the function throws is NIGH_REFUSED, and `reply` is NULL.
nigh_status nigh_client_fcall(struct nigh_client client,
                              const char *function,
                              const nigh_bytes *keys,
                              size_t keys_len,
                              const nigh_bytes *args,
                              size_t args_len,
                              struct nigh_reply **reply);

// Sends a request of any kind: its words, the command's name first. `reply` is for one nigh_free
// of all that belongs to it. The server's refusal is a reply too, of the kind NIGH_REPLY_ERROR.
//
// It is sent once, over the client's only connection, which is another one when the server was
// away; WATCH and MULTI end with it. Until EXEC, reads that ask the server would be queued: send a
// transaction by nigh_client_pipeline, or call nothing else meanwhile. Don't send CLIENT REPLY,
// MONITOR, SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE: behind them requests and replies don't match.
//
// If there is no memory for the reply of a request that may have changed something, the answer is
// NIGH_UNKNOWN: it was done.
nigh_status nigh_client_call(struct nigh_client client,
                             const nigh_bytes *words,
                             size_t words_len,
                             struct nigh_reply **reply);

// Sends many requests of any kind, each once, and gathers their replies, which stand side by side
// in the order of the requests; for one nigh_free of all. Refusals are replies.
//
// If the connection is lost, the answer is NIGH_UNKNOWN, and `replies` has those that came before:
// so many requests have happened, and of the others some may have. If there is no memory for the
// replies, it is NIGH_UNKNOWN too, and there are none. If there is none for a request, it is
// NIGH_NO_MEMORY: those whose replies came have happened, and no other.
nigh_status nigh_client_pipeline(struct nigh_client client,
                                 const struct nigh_request *requests,
                                 size_t requests_len,
                                 struct nigh_reply **replies,
                                 size_t *replies_len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NIGH_CLIENT_H */
