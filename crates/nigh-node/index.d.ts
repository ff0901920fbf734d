/// <reference types="node" />

export * from './client.js';

/**
 * A durable key-value store inside your process.
 *
 * Keys and values are bytes. Keys have no order, all data must fit memory, one process has a
 * database open at a time, and it runs on Linux on x86-64.
 *
 * A method without `Async` in its name is done when it returns. Reads, and writes that aren't
 * `strong`, take microseconds; only when the disk is seconds late does such a write wait, 10 s at
 * most. `open`, `close`, `flush` and writes with `strong: true` wait for the disk. All of these have
 * an `Async` form: it returns a Promise, and what waits does so in libuv's pool, not in the event
 * loop. Such a write is made within the call, and seen from then on; only if it has to wait is it
 * made later, and may then be overtaken by another that isn't awaited.
 *
 * A database is open once: in one process, and in one worker thread of it. Its handle can't be
 * passed to another worker; `openReader` reads there if it is `shared`.
 *
 * Errors are `Error`s with a `code`, `NIGH_CLOSED` and others, and a message that names the database
 * and says what to do.
 */

/** What is taken as bytes; of a string, its UTF-8. */
export type Bytes = string | Uint8Array;

export type NighErrorCode =
  /** An argument or option that can't be. */
  | 'NIGH_INVALID'
  /** The database, snapshot, watch or reader is closed. */
  | 'NIGH_CLOSED'
  /** The database is open already, here or in another process. */
  | 'NIGH_IN_USE'
  /** The database is damaged. */
  | 'NIGH_DAMAGED'
  /** The database can't be opened for another cause. */
  | 'NIGH_CANNOT_OPEN'
  /** A reader finds no process that has the database open: it reads again by itself when one has. */
  | 'NIGH_NOT_OPEN'
  /** A key (65,535 bytes), a value (512 MiB), an argument or a batch is too long. */
  | 'NIGH_TOO_LARGE'
  /** Data fills the memory that the database may take. */
  | 'NIGH_FULL'
  /** The system gives no memory. */
  | 'NIGH_NO_MEMORY'
  /** The value is no decimal integer of 64 bits, or the sum is out of that range. */
  | 'NIGH_NOT_A_NUMBER'
  /** A sum, or a server's number, is no safe number: give `by` as a BigInt; read it as text. */
  | 'NIGH_UNSAFE_INTEGER'
  /** The disk, or memory that others hold, doesn't keep up: try again later. */
  | 'NIGH_BUSY'
  /**
   * The change is made and survives this process, but isn't known to be on disk: that takes too
   * long, or the log broke and is being written anew. Flush to wait again; don't close before. A
   * write that has changed nothing never gets this.
   */
  | 'NIGH_NOT_DURABLE'
  /** The log's disk is full. Deletes still work. */
  | 'NIGH_LOG_FULL'
  /** The log broke, and is being written anew from memory: write again later, and don't close. */
  | 'NIGH_LOG_BROKEN'
  /** Too many threads, snapshots or watches. */
  | 'NIGH_TOO_MANY'
  /** The snapshot held back more memory than it may. */
  | 'NIGH_SNAPSHOT_TOO_OLD'
  /** The log hasn't the changes any more from which on a watch was to tell: the text says what is left. */
  | 'NIGH_CHANGES_GONE'
  /** A client has no server now. Nothing was sent. */
  | 'NIGH_NOT_ATTACHED'
  /** A server can't be used so: a wrong password, for example. */
  | 'NIGH_CANNOT_CONNECT'
  /** A request was sent and its reply is lost: it may or may not have happened. */
  | 'NIGH_UNKNOWN'
  /** A read has no reply: read again. */
  | 'NIGH_UNANSWERED'
  /** The client has no local access, and needs it. */
  | 'NIGH_NOT_LOCAL'
  /** Too much changed in each attempt of a view. */
  | 'NIGH_TOO_NEW'
  /** The write is refused for another cause. */
  | 'NIGH_REFUSED'
  /** A fault of Nigh's own. */
  | 'NIGH_FAULT';

export interface OpenOptions {
  /** The folder, in a tmpfs, for journal and memory. By default one of its own in /dev/shm. */
  memoryDir?: string;
  /**
   * Bytes of memory that the data may take, 8 MiB to 64 GiB for each partition. By default half of
   * what is free.
   */
  capacityBytes?: number;
  /**
   * Bytes of the journal of each partition, 1 MiB to 4 GiB; 64 MiB by default, or less in a small
   * tmpfs or on a small disk. A batch takes a fourth at most, and so does a value, unless the
   * memory is shared.
   */
  journalBytes?: number;
  /** Bytes of one file of the log, 1 MiB to 1 GiB; 64 MiB by default, or less on a small disk. */
  logFileBytes?: number;
  /** Threads that may have read and not ended yet, up to 4096; 256 by default. */
  threadsMost?: number;
  /**
   * Bytes of memory that a snapshot may hold back; by default a fourth of the capacity. Each
   * partition has an equal share.
   */
  snapshotHoldBytes?: number;
  /** Bytes of events that may wait for one watch, 4 KiB to 1 GiB; 4 MiB by default. */
  watchBytes?: number;
  /**
   * Partitions of a new database, 1 to 64; 1 by default. Each has a lock, a journal and a log, so
   * that as many threads write at once. A batch is one partition's: keys with the same text in
   * braces lie together.
   */
  partitions?: number;
  /** Whether writes are strong that don't say it themselves. */
  strong?: boolean;
  /**
   * Whether other processes, and other workers, may read along by `openReader`. By default the
   * memory is this process's alone, and goes with it.
   */
  shared?: boolean;
  /** Closing leaves the data in memory, which is shared, so that the next open needn't read the log. */
  keepMemory?: boolean;
}

export interface StrongOption {
  /**
   * Whether the write is on disk when it is done; else it survives this process, and is on disk
   * within about a second. By default as the database was opened.
   */
  strong?: boolean;
}

/** When a key is gone; by default, or if that is `Infinity` or behind the last Date, never. */
export interface ExpiryOptions {
  /** After so many milliseconds. */
  expiresInMs?: number;
  /** At this time, a Date or Unix milliseconds. */
  expiresAt?: Date | number;
}

export type WriteOptions = StrongOption & ExpiryOptions;

/** What a database holds, and what it did since it was opened. */
export interface Stats {
  /** Keys. One whose time is over counts until it is met. */
  keys: number;
  /** Keys with an expiry. */
  expires: number;
  /** Keys that were removed because their time was over. */
  expiredKeys: number;
  /** Bytes of live records: keys, values and what belongs to them. */
  usedBytes: number;
  /** Bytes of memory that the data takes. */
  memoryBytes: number;
  /** Bytes of memory that it may take. */
  capacityBytes: number;
  /** Changes that were made, in all partitions. Of a database with one: the last one's number. */
  lastChange: number;
  /** Those of them that are on disk. */
  durableChange: number;
  /** Bytes of the log's files that count. */
  logBytes: number;
  /** How often the log was synced. */
  syncs: number;
}

/** Opens the database in a folder, which is made if it isn't there. It waits for the disk. */
export function open(path: string | URL, options?: OpenOptions): Db;
/** The same, outside of the event loop. */
export function openAsync(path: string | URL, options?: OpenOptions): Promise<Db>;
/**
 * Opens, to read, a database that another process (or worker thread) has open with `shared: true`,
 * or has left in memory. Name its `memoryDir` if it has one.
 */
export function openReader(path: string | URL, options?: { memoryDir?: string }): Reader;

/** A database, from `open` or `openAsync`. One that is forgotten is closed by and by: close it. */
export class Db implements Iterable<[Buffer, Buffer]> {
  private constructor();
  readonly path: string;
  readonly closed: boolean;
  /** A copy of the key's value. */
  get(key: Bytes): Buffer | undefined;
  has(key: Bytes): boolean;
  /** Milliseconds for which the key stays; `Infinity` if it has no expiry. */
  ttl(key: Bytes): number | undefined;
  /** Those of a partition all of one moment: a batch is seen whole or not at all. */
  multiGet(keys: Iterable<Bytes>): (Buffer | undefined)[];
  put(key: Bytes, value: Bytes, options?: WriteOptions): void;
  putAsync(key: Bytes, value: Bytes, options?: WriteOptions): Promise<void>;
  /** Whether it was there. */
  delete(key: Bytes, options?: StrongOption): boolean;
  deleteAsync(key: Bytes, options?: StrongOption): Promise<boolean>;
  /** Writes that happen together: all of them or none. */
  batch(): Batch;
  /**
   * Adds to the decimal integer that the key has, 0 if it isn't there. Its expiry stays. The sum is
   * what `by` is: a number, or a BigInt for all of 64 bits.
   */
  incr(key: Bytes, by?: number, options?: StrongOption): number;
  incr(key: Bytes, by: bigint, options?: StrongOption): bigint;
  incrAsync(key: Bytes, by?: number, options?: StrongOption): Promise<number>;
  incrAsync(key: Bytes, by: bigint, options?: StrongOption): Promise<bigint>;
  /**
   * If the key has the value `expected` (null: isn't there), gives it `desired` (null: deletes it;
   * an expiry is ignored then). Whether it did.
   */
  compareAndSet(
    key: Bytes,
    expected: Bytes | null | undefined,
    desired: Bytes | null | undefined,
    options?: WriteOptions,
  ): boolean;
  compareAndSetAsync(
    key: Bytes,
    expected: Bytes | null | undefined,
    desired: Bytes | null | undefined,
    options?: WriteOptions,
  ): Promise<boolean>;
  /** Gives the key another expiry, or none. Whether it is there. */
  expire(key: Bytes, options?: WriteOptions): boolean;
  expireAsync(key: Bytes, options?: WriteOptions): Promise<boolean>;
  /**
   * Keys that begin with `prefix`, and their values, in no order. One that is there all the while
   * is met, maybe twice if the number of keys changes much.
   */
  scan(prefix?: Bytes): IterableIterator<[Buffer, Buffer]>;
  [Symbol.iterator](): IterableIterator<[Buffer, Buffer]>;
  /**
   * Keys that begin with `prefix`, and their values, as they are now, to be read while others
   * write. Writers wait for some milliseconds per million keys while it is taken, and so does this
   * call.
   */
  snapshot(prefix?: Bytes): Snapshot;
  /**
   * Tells the changes of keys that begin with `prefix`, from now on; or from a `place` on that a
   * watch or a snapshot gave: first what was behind it, as the log has it, one partition's after
   * the other's, then what comes. That waits for the disk, and has no `Async` form. It throws
   * NIGH_CHANGES_GONE if the log hasn't all of it any more: the message has the place from which on
   * it has. It throws NIGH_INVALID if it isn't a place of this database, or is behind its last
   * change. A batch's changes come one after the other.
   */
  watch(prefix?: Bytes, options?: { place?: string }): Watch;
  /** Waits until all changes are on disk that were made before. */
  flush(): void;
  flushAsync(): Promise<void>;
  stats(): Stats;
  /**
   * Has the log take all that there is. Closing again does nothing. An `…Async` write that waits may
   * be told NIGH_CLOSED, made or not: `closeAsync` waits for it.
   */
  close(): void;
  /** The same, after `…Async` writes that wait. Other calls are refused from now on. */
  closeAsync(): Promise<void>;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Writes that happen together, in their order. It copies what it is given. */
export class Batch {
  private constructor();
  /** Number of writes. */
  readonly length: number;
  put(key: Bytes, value: Bytes, options?: ExpiryOptions): this;
  delete(key: Bytes): this;
  clear(): this;
  /** Does all of them now, or nothing. Then the batch is empty, also if it failed. */
  write(options?: StrongOption): void;
  writeAsync(options?: StrongOption): Promise<void>;
}

/**
 * Keys and values of one moment, to be read once. What it holds back is bounded: one that is read
 * too slowly ends with NIGH_SNAPSHOT_TOO_OLD. One that is left by `break` is closed. After another
 * error the next call goes on.
 *
 * For a key with the prefix, one `next` may look at all keys of the database, and the event loop
 * waits meanwhile. `nextAsync`, and `for await (const [key, value] of snapshot)`, look for them in
 * libuv's pool.
 */
export class Snapshot implements IterableIterator<[Buffer, Buffer]> {
  private constructor();
  /**
   * The place of its moment: `db.watch(prefix, { place })` tells what came later, and nothing that
   * the snapshot has.
   */
  readonly place: string;
  /** It throws NIGH_INVALID while a `nextAsync` is under way. */
  next(): IteratorResult<[Buffer, Buffer], undefined>;
  nextAsync(): Promise<IteratorResult<[Buffer, Buffer], undefined>>;
  return(): IteratorResult<[Buffer, Buffer], undefined>;
  [Symbol.iterator](): this;
  [Symbol.asyncIterator](): AsyncIterator<[Buffer, Buffer], undefined>;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A change, with its number: each partition numbers its own, from 1 on. */
export type WatchEvent =
  | { kind: 'put'; partition: number; change: number; key: Buffer; value: Buffer; expiresAt?: Date }
  /** A key with a long value got another expiry, or none. */
  | { kind: 'expires'; partition: number; change: number; key: Buffer; expiresAt?: Date }
  /** The key was deleted, or its time was over. */
  | { kind: 'removed'; partition: number; change: number; key: Buffer }
  /** All keys of the partition were removed. */
  | { kind: 'cleared'; partition: number; change: number }
  /**
   * Changes from `first` to `change` may be missing: a watch from the place before this event tells
   * what the log has of them; or read the keys again.
   */
  | { kind: 'lost'; partition: number; change: number; first: number };

/**
 * Changes under a prefix, each once, and in each partition in the order of their numbers: `for
 * await (const event of db.watch('user:'))`.
 * It ends when it or the database is closed; one that is left by `break` is closed. A call that
 * awaits an event keeps the process alive. As long as the program has the watch, a database that
 * nobody closes stays open; a snapshot does the same.
 */
export class Watch implements AsyncIterableIterator<WatchEvent> {
  private constructor();
  /**
   * Where it is: behind the events that were given. Keep it with what you made of them:
   * `db.watch(prefix, { place })` tells what this watch hasn't told, also in another process, behind
   * a restart or a kill. It may be ahead of the disk, as the events may: after `flush` it isn't. A
   * closed watch has the place at which it was closed.
   */
  readonly place: string;
  next(): Promise<IteratorResult<WatchEvent, undefined>>;
  return(): Promise<IteratorResult<WatchEvent, undefined>>;
  [Symbol.asyncIterator](): this;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A database that another process has open: it writes, this one reads, and neither waits. While
 * nobody has it open, calls fail with NIGH_NOT_OPEN, and succeed again later.
 */
export class Reader implements Iterable<[Buffer, Buffer]> {
  private constructor();
  readonly path: string;
  get(key: Bytes): Buffer | undefined;
  has(key: Bytes): boolean;
  /** Milliseconds for which the key stays; `Infinity` if it has no expiry. */
  ttl(key: Bytes): number | undefined;
  /** Those of a partition all of one moment: a batch is seen whole or not at all. */
  multiGet(keys: Iterable<Bytes>): (Buffer | undefined)[];
  scan(prefix?: Bytes): IterableIterator<[Buffer, Buffer]>;
  [Symbol.iterator](): IterableIterator<[Buffer, Buffer]>;
  /** Waits until the database can be read, `mostMs` at most; then it throws why it can't be. */
  wait(mostMs: number): void;
  waitAsync(mostMs: number): Promise<void>;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}
