/*
 * Nigh: a durable key-value store inside your process.
 *
 *     nigh_db db;
 *     if (nigh_open("data", NULL, &db) != NIGH_OK) puts(nigh_error_message());
 *     nigh_put(db, "greeting", 8, "hello", 5, NULL);
 *     nigh_close(db);
 *
 * What it is not: keys have no order, all data must fit memory, one process has a database open at
 * a time, and it runs on Linux on x86-64.
 *
 * - Any thread may call anything. Reads seldom take a lock; what they return is copied.
 * - Keys (up to 65,535 bytes) and values (up to 512 MiB) are any bytes, given by pointer and length.
 *   A pointer may be NULL if the length is 0.
 * - A function returns a status: NIGH_OK, another answer above it, or an error below it. After an
 *   error, nigh_error_message() says what happened and what to do. A write that failed has changed
 *   nothing, unless its status says otherwise.
 * - A result is also set if there is an error: to NULL, 0, or a handle that names no database.
 * - What a function hands out as a pointer that isn't const is given back by nigh_free().
 * - Snapshots, watches and readers are handles too: what begins or opens one needs an end. A process
 *   has 256 of each kind at most.
 * - A process that ends without nigh_close, or is killed, loses nothing.
 * - In the child of a fork, calls on what its parent opened are refused: it opens its own.
 * - The library's threads take no signals of the program's. The first reader (nigh_reader_open)
 *   installs a handler for SIGBUS, which passes on what isn't its own. A program with a handler of
 *   its own installs that before. The library stays in memory behind dlclose.
 * - Cancel no thread (pthread_cancel) while it is in a call: what it has locked stays so.
 */

#ifndef NIGH_H
#define NIGH_H

/* Made of crates/nigh-c/src by cbindgen: `make header` makes it anew. */

#include <stddef.h>
#include <stdint.h>

// How a call ended. 0 and above are answers, below are errors.
typedef enum nigh_status {
    // It is done.
    NIGH_OK = 0,
    // The key isn't there.
    NIGH_NOT_FOUND = 1,
    // The key's value isn't the expected one, or a condition doesn't hold: nothing is written.
    NIGH_MISMATCH = 2,
    // The buffer is too small for the value: nothing is copied.
    NIGH_TOO_SMALL = 3,
    // No change came in time.
    NIGH_NONE_YET = 4,
    // An argument can't be: NULL, or out of its bounds.
    NIGH_INVALID = -1,
    // The handle names nothing that is open: it is closed, or was never opened.
    NIGH_CLOSED = -2,
    // The database is open already, here or in another process.
    NIGH_IN_USE = -3,
    // The database is damaged.
    NIGH_DAMAGED = -4,
    // The database can't be opened for another cause.
    NIGH_CANNOT_OPEN = -5,
    // A key, a value or a batch is too long.
    NIGH_TOO_LARGE = -6,
    // Data fills the memory that the database may take.
    NIGH_FULL = -7,
    // The system gives no memory.
    NIGH_NO_MEMORY = -8,
    // The value is no number, or the sum is out of range.
    NIGH_NOT_A_NUMBER = -9,
    // The disk, or memory that others hold, doesn't keep up; a view finds no moment. Try later.
    NIGH_BUSY = -10,
    // The change is made and survives this process, but isn't known to be on disk: that takes too
    // long, or the log broke. Flush to wait again, and don't close before. A write that has
    // changed nothing never gets this.
    NIGH_NOT_DURABLE = -11,
    // The log's disk is full. Deletes still work.
    NIGH_LOG_FULL = -12,
    // The log broke, and is written anew from memory: write again later, and don't close.
    NIGH_LOG_BROKEN = -13,
    // More threads have read, and not ended, than the database was opened for.
    NIGH_TOO_MANY_THREADS = -14,
    // The write, or a client's request, is refused for another cause.
    NIGH_REFUSED = -15,
    // A fault of Nigh's own.
    NIGH_FAULT = -16,
    // The snapshot held back more memory than it may: take another and read it faster.
    NIGH_SNAPSHOT_TOO_OLD = -17,
    // No process has the database open that is to be read: read again when one has.
    NIGH_NOT_OPEN = -18,
    // The log hasn't all changes any more that a watch was to tell.
    NIGH_CHANGES_GONE = -19,
    // Of a client: there is no server now. Nothing was sent: call again, or have calls wait.
    NIGH_NO_SERVER = -20,
    // Of a client: the server can't be used so. The password is wrong, for example.
    NIGH_CANNOT_CONNECT = -21,
    // Of a client: the request was sent, and the reply is lost. Maybe it happened: read first.
    NIGH_UNKNOWN = -22,
    // Of a client: a read has no answer. Nothing was changed: read again.
    NIGH_UNANSWERED = -23,
    // Of a client: the reply is none that the command has. Is it another kind of server?
    NIGH_UNEXPECTED = -24,
    // Of a client: it doesn't read the server's memory, and the call or its options take that.
    NIGH_NOT_LOCAL = -25,
    // So many snapshots, watches or other handles are open as there may be: end one.
    NIGH_TOO_MANY = -26,
} nigh_status;

// When a write is answered.
typedef enum nigh_durability {
    // As the database was opened; for a database: NIGH_EVENTUAL.
    NIGH_AS_OPENED = 0,
    // When the change survives this process. It is on disk within about a second; a power cut may
    // take it.
    NIGH_EVENTUAL = 1,
    // When the change, and all before it, is on disk.
    NIGH_STRONG = 2,
} nigh_durability;

// What a write of a batch does.
typedef enum nigh_write_kind {
    // The key gets the value.
    NIGH_PUT = 0,
    // The key is deleted, if it is there; the value doesn't count.
    NIGH_DELETE = 1,
} nigh_write_kind;

// What an event tells.
typedef enum nigh_event_kind {
    // The key got the value.
    NIGH_EVENT_PUT = 0,
    // The key, which has a long value, got another expiry, or none; the value is as it was.
    NIGH_EVENT_EXPIRES = 1,
    // The key was deleted, or its time was over.
    NIGH_EVENT_REMOVED = 2,
    // All keys were removed.
    NIGH_EVENT_CLEARED = 3,
    // Changes from `first` to `change` may be missing: nobody took events for too long, or the log
    // broke. A watch from the place before this event tells what the log has; or read the keys.
    NIGH_EVENT_LOST = 4,
} nigh_event_kind;

// How a database is opened. All zeros are the defaults.
typedef struct nigh_options {
    // The folder, in a tmpfs, for journal and memory; NULL: one of the database's own in /dev/shm.
    const char *memory_dir;
    // Bytes of memory that the data may take, 8 MiB to 64 GiB for each partition; 0: half of what
    // is free. They are taken as data comes.
    uint64_t capacity_bytes;
    // Bytes of each partition's journal, 1 MiB to 4 GiB; 0: 64 MiB, or less on a small disk. A
    // batch takes a fourth at most, and so does a value, unless the memory is shared.
    uint64_t journal_bytes;
    // Bytes of a file of the log, 1 MiB to 1 GiB; 0: 64 MiB, or less on a small disk.
    uint64_t log_file_bytes;
    // Threads that may have read and not ended yet, up to 4096; 0: 256.
    uint32_t threads_most;
    // A nigh_durability: when writes are answered that don't say it themselves.
    int32_t durability;
    // Not 0: closing leaves the data in memory: the next open reads no log. It takes `shared`.
    int32_t keep_memory;
    // Bytes of memory that a snapshot may hold back, from 1 MiB on; 0: a fourth of the capacity.
    // Each partition has an equal share.
    uint64_t snapshot_hold_bytes;
    // Bytes of events that may wait for one watch, 4 KiB to 1 GiB; 0: 4 MiB.
    uint64_t watch_bytes;
    // Partitions of a new database, 1 to 64; 0: 1, or as many as it has. Each has a lock, a
    // journal and a log, so that as many threads write at once. A batch is one partition's: keys
    // with the same text in braces lie together.
    uint32_t partitions;
    // Not 0: other processes may read along, by nigh_reader_open. 0: the memory is this process's
    // alone, and goes with it.
    int32_t shared;
} nigh_options;

// A database: a number, so that a handle of a closed one is told from others. All zeros is none.
typedef struct nigh_db {
    // Not for use.
    uint64_t id;
} nigh_db;

// Bytes: a key or a value. In a result, `data` is NULL if there is none, and a NUL that doesn't
// count follows the bytes.
typedef struct nigh_bytes {
    // Where they begin.
    const char *data;
    // Their number.
    size_t len;
} nigh_bytes;

// How one write is done. NULL, or all zeros: as the database was opened, without an expiry.
typedef struct nigh_write_options {
    // A nigh_durability.
    int32_t durability;
    // If not 0: the key is gone after so many milliseconds.
    uint64_t expires_in_ms;
    // If not 0: the key is gone from this time on, in Unix milliseconds. Not together with
    // `expires_in_ms`.
    uint64_t expires_at_ms;
} nigh_write_options;

// One write of a batch.
typedef struct nigh_batch_write {
    // A nigh_write_kind.
    int32_t kind;
    // The key.
    struct nigh_bytes key;
    // Its value.
    struct nigh_bytes value;
    // As in nigh_write_options; 0 for a NIGH_DELETE.
    uint64_t expires_in_ms;
    // As in nigh_write_options; 0 for a NIGH_DELETE.
    uint64_t expires_at_ms;
} nigh_batch_write;

// A key with its value.
typedef struct nigh_pair {
    // The key.
    struct nigh_bytes key;
    // Its value.
    struct nigh_bytes value;
} nigh_pair;

// What a database holds, and what it did since it was opened.
typedef struct nigh_db_stats {
    // Keys. One whose time is over counts until it is met.
    uint64_t keys;
    // Keys with an expiry.
    uint64_t expires;
    // Keys that were removed because their time was over.
    uint64_t expired_keys;
    // Bytes of live records: keys, values and what belongs to them.
    uint64_t used_bytes;
    // Bytes of memory that the data takes.
    uint64_t memory_bytes;
    // Bytes of memory that it may take.
    uint64_t capacity_bytes;
    // Changes that were made, in all partitions. Of a database with one it is the number of the
    // last change.
    uint64_t last_change;
    // Those of them that are on disk.
    uint64_t durable_change;
    // Bytes of the log's files that count.
    uint64_t log_bytes;
    // How often the log was synced.
    uint64_t syncs;
} nigh_db_stats;

// Keys and values of one moment. All zeros is none.
typedef struct nigh_snapshot {
    // Not for use.
    uint64_t id;
} nigh_snapshot;

// Changes under a prefix. All zeros is none.
typedef struct nigh_watch {
    // Not for use.
    uint64_t id;
} nigh_watch;

// A change that a watch tells.
typedef struct nigh_event {
    // A nigh_event_kind.
    int32_t kind;
    // The partition, counted from 0. Each numbers its changes from 1 on.
    uint32_t partition;
    // The change's number; the last one of those that were lost.
    uint64_t change;
    // The first number that may be missing; else 0.
    uint64_t first;
    // Unix milliseconds from which on the key is gone; 0 if it has no expiry.
    uint64_t expires_at_ms;
    // The key, if the event has one.
    struct nigh_bytes key;
    // The value, if the event has one.
    struct nigh_bytes value;
    // Where key and value lie, for nigh_free.
    void *block;
} nigh_event;

// A database that another process has open, to be read. All zeros is none.
typedef struct nigh_reader {
    // Not for use.
    uint64_t id;
} nigh_reader;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// For a single write: on disk when the call returns.
extern const struct nigh_write_options nigh_strong;

// The message of this thread's last call that failed: what happened, to which thing, and what to
// do. Empty if none did. It stays until the thread's next call that fails.
const char *nigh_error_message(void);

// Gives back what a function has handed out. NULL is nothing.
void nigh_free(void *given);

// Opens the database in a folder, which is made if it isn't there. What an earlier process wrote
// is there, also if that was killed. `options` may be NULL.
enum nigh_status nigh_open(const char *folder,
                           const struct nigh_options *options,
                           struct nigh_db *db);

// Has the log take all that there is, and closes the database; calls of other threads that use it
// return first. After an error it is closed too; the journal stays for the next open, and so does
// memory that is shared. While the machine runs, a full disk loses nothing. If the log broke,
// private memory is gone, and with it what only the log's failed writes had.
enum nigh_status nigh_close(struct nigh_db db);

// Finds the value of a key: NIGH_OK, and a copy of it, for nigh_free, with a NUL behind that
// doesn't count; or NIGH_NOT_FOUND.
enum nigh_status nigh_get(struct nigh_db db,
                          const void *key,
                          size_t key_len,
                          char **value,
                          size_t *value_len);

// Copies the value of a key into a buffer of `room` bytes: NIGH_OK, or NIGH_NOT_FOUND, or
// NIGH_TOO_SMALL. `value_len` gets the value's length, also if the buffer is too small for it.
enum nigh_status nigh_get_into(struct nigh_db db,
                               const void *key,
                               size_t key_len,
                               void *buffer,
                               size_t room,
                               size_t *value_len);

// Finds the values of several keys, those of a partition all of one moment: a batch is seen whole
// or not at all. `values` gets as many, for one nigh_free of all; `data` is NULL where none is.
enum nigh_status nigh_multi_get(struct nigh_db db,
                                const struct nigh_bytes *keys,
                                size_t keys_len,
                                struct nigh_bytes **values);

// Gives a key a value, and the expiry of `options`, else none. `options` may be NULL.
enum nigh_status nigh_put(struct nigh_db db,
                          const void *key,
                          size_t key_len,
                          const void *value,
                          size_t value_len,
                          const struct nigh_write_options *options);

// Deletes a key: NIGH_OK, or NIGH_NOT_FOUND. `options` may be NULL; an expiry means nothing.
enum nigh_status nigh_delete(struct nigh_db db,
                             const void *key,
                             size_t key_len,
                             const struct nigh_write_options *options);

// Does several writes, in their order: all of them or none, also if the process is killed or the
// power goes. Of several to one key the last counts. A NIGH_DELETE with an expiry is NIGH_INVALID.
// `options` may be NULL; its expiry means nothing, as each write has its own.
enum nigh_status nigh_batch(struct nigh_db db,
                            const struct nigh_batch_write *writes,
                            size_t writes_len,
                            const struct nigh_write_options *options);

// Adds `by` to the decimal integer that a key has, 0 if it isn't there. Its expiry stays. `sum`
// gets the result, and may be NULL; so may `options`, whose expiry means nothing.
enum nigh_status nigh_incr(struct nigh_db db,
                           const void *key,
                           size_t key_len,
                           int64_t by,
                           int64_t *sum,
                           const struct nigh_write_options *options);

// If a key has the value `expected`, gives it the value `desired`: NIGH_OK, or NIGH_MISMATCH.
// `expected` NULL: if the key isn't there. `desired` NULL: deletes it. A value of no bytes is a
// pointer that isn't NULL, with the length 0. `options` may be NULL; its expiry means nothing if
// the key is deleted.
enum nigh_status nigh_compare_and_set(struct nigh_db db,
                                      const void *key,
                                      size_t key_len,
                                      const void *expected,
                                      size_t expected_len,
                                      const void *desired,
                                      size_t desired_len,
                                      const struct nigh_write_options *options);

// Gives a key the expiry of `options`, or none if they have none or are NULL: NIGH_OK, or
// NIGH_NOT_FOUND. Its value stays. A time that is over deletes the key.
enum nigh_status nigh_expire(struct nigh_db db,
                             const void *key,
                             size_t key_len,
                             const struct nigh_write_options *options);

// How long a key stays, in milliseconds; UINT64_MAX if it has no expiry. NIGH_NOT_FOUND, and 0, if
// it isn't there.
enum nigh_status nigh_ttl(struct nigh_db db, const void *key, size_t key_len, uint64_t *ttl_ms);

// A step of a walk over the keys that begin with `prefix`: about `count` of them, with their
// values, for one nigh_free of all. `cursor` is 0 for the first step; it gets the next one's, and
// 0 at the end. A step may find nothing and not be the last. A `count` of 0 counts as 1.
//
// A key that is there all the while is met, maybe twice if the number of keys changes much; one
// that comes or goes meanwhile may be. There is no order. A prefix doesn't make the walk shorter.
enum nigh_status nigh_scan(struct nigh_db db,
                           const void *prefix,
                           size_t prefix_len,
                           uint32_t count,
                           uint64_t *cursor,
                           struct nigh_pair **pairs,
                           size_t *pairs_len);

// Waits until all changes are on disk that were made before.
enum nigh_status nigh_flush(struct nigh_db db);

// Counts and sizes.
enum nigh_status nigh_stats(struct nigh_db db, struct nigh_db_stats *stats);

// Begins a snapshot of the keys that begin with `prefix`, and their values, as they are now.
// Writers wait for some milliseconds per million keys while it is taken.
enum nigh_status nigh_snapshot_begin(struct nigh_db db,
                                     const void *prefix,
                                     size_t prefix_len,
                                     struct nigh_snapshot *snapshot);

// The next keys of a snapshot, with their values, `count` at most, for one nigh_free of all.
// `pairs_len` is 0 at the end, and only there. Memory that the snapshot holds back is bounded
// (`snapshot_hold_bytes`): one that is read too slowly ends with NIGH_SNAPSHOT_TOO_OLD. Behind
// NIGH_NO_MEMORY the next call gives what this one would have given.
enum nigh_status nigh_snapshot_next(struct nigh_snapshot snapshot,
                                    uint32_t count,
                                    struct nigh_pair **pairs,
                                    size_t *pairs_len);

// The place of a snapshot's moment, for one nigh_free: a watch from there tells what came later.
enum nigh_status nigh_snapshot_place(struct nigh_snapshot snapshot, char **place);

// Ends a snapshot: it holds nothing back any more.
enum nigh_status nigh_snapshot_end(struct nigh_snapshot snapshot);

// Begins to tell the changes of keys with this prefix, each once; a partition's in their order.
enum nigh_status nigh_watch_begin(struct nigh_db db,
                                  const void *prefix,
                                  size_t prefix_len,
                                  struct nigh_watch *watch);

// The same from a place on, that nigh_watch_place or nigh_snapshot_place gave, in any process:
// first what the log has behind it, one partition's after the other's, then what comes. It waits
// for the disk. NIGH_CHANGES_GONE: the message has the place from which on the log has all.
// NIGH_INVALID: it isn't a place of this database, or is behind its last change.
enum nigh_status nigh_watch_begin_from(struct nigh_db db,
                                       const void *prefix,
                                       size_t prefix_len,
                                       const char *place,
                                       struct nigh_watch *watch);

// The next change: NIGH_OK, and `event`, whose `block` is for nigh_free; or NIGH_NONE_YET, if none
// comes within `most_ms` ms (more may follow while the log is read); or NIGH_CLOSED, if the
// watch or the database is closed. Several threads may take from one watch.
enum nigh_status nigh_watch_next(struct nigh_watch watch,
                                 uint64_t most_ms,
                                 struct nigh_event *event);

// Where a watch is, behind the events that were taken: a text, for one nigh_free. A later watch
// from there tells what this one hasn't told. It may be ahead of the disk until nigh_flush.
enum nigh_status nigh_watch_place(struct nigh_watch watch, char **place);

// Ends a watch. Threads that wait there get NIGH_CLOSED.
enum nigh_status nigh_watch_end(struct nigh_watch watch);

// Opens, to read, the database that another process has open with the option `shared`, or has
// left in memory; by its folder. `memory_dir` is its owner's, if that names one, else NULL. Its
// owner never waits for that. While nobody has it open, calls get NIGH_NOT_OPEN, and succeed again
// later.
enum nigh_status nigh_reader_open(const char *folder,
                                  const char *memory_dir,
                                  struct nigh_reader *reader);

// Finds the value of a key, as nigh_get.
enum nigh_status nigh_reader_get(struct nigh_reader reader,
                                 const void *key,
                                 size_t key_len,
                                 char **value,
                                 size_t *value_len);

// Finds the values of several keys, as nigh_multi_get.
enum nigh_status nigh_reader_multi_get(struct nigh_reader reader,
                                       const struct nigh_bytes *keys,
                                       size_t keys_len,
                                       struct nigh_bytes **values);

// A step of a walk over the keys that begin with `prefix`, as nigh_scan.
enum nigh_status nigh_reader_scan(struct nigh_reader reader,
                                  const void *prefix,
                                  size_t prefix_len,
                                  uint32_t count,
                                  uint64_t *cursor,
                                  struct nigh_pair **pairs,
                                  size_t *pairs_len);

// Whether a key is there: NIGH_OK, or NIGH_NOT_FOUND.
enum nigh_status nigh_reader_contains(struct nigh_reader reader, const void *key, size_t key_len);

// How long a key stays, in milliseconds; UINT64_MAX if it has no expiry. NIGH_NOT_FOUND, and 0, if
// it isn't there.
enum nigh_status nigh_reader_ttl(struct nigh_reader reader,
                                 const void *key,
                                 size_t key_len,
                                 uint64_t *ttl_ms);

// Waits until the database can be read, for `most_ms` milliseconds at most: then it says why it
// can't be. It ends if the reader is closed.
enum nigh_status nigh_reader_wait(struct nigh_reader reader, uint64_t most_ms);

// Closes a reader.
enum nigh_status nigh_reader_close(struct nigh_reader reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NIGH_H */
