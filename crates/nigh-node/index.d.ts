/// <reference types="node" />

import type { Readable } from 'node:stream';

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
  /** The change is made and survives this process, but the disk hasn't taken it. */
  | 'NIGH_NOT_DURABLE'
  /** The log's disk is full. Deletes still work. */
  | 'NIGH_LOG_FULL'
  /** The log broke, and is being written anew. */
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
  /** Bytes of memory that the data may take, 8 MiB to 64 GiB. By default half of what is free. */
  capacityBytes?: number;
  /**
   * Bytes of the journal, 1 MiB to 4 GiB; 64 MiB by default, or less in a small tmpfs. A batch takes
   * a fourth at most, and so does a value, unless the memory is shared.
   */
  journalBytes?: number;
  /** Bytes of one file of the log, 1 MiB to 1 GiB; 64 MiB by default. */
  logFileBytes?: number;
  /** Threads that may read at once, up to 4096; 256 by default. */
  threadsMost?: number;
  /** Bytes of memory that a snapshot may hold back; by default a fourth of the capacity. */
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

/** When a key is gone; by default never. */
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
  /** The number of the last change. */
  lastChange: number;
  /** All changes up to this number are on disk. */
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
  /** All of one moment: a batch is seen whole or not at all. */
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
   * If the key has the value `expected` (null: isn't there), gives it `desired` (null: deletes it).
   * Whether it did.
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
   * write. Writers wait for some milliseconds per million keys while it is taken.
   */
  snapshot(prefix?: Bytes): Snapshot;
  /**
   * Tells the changes of keys that begin with `prefix`, from now on; or from the change with the
   * number `from` on: first what was, as the log has it, then what comes. That waits for the disk,
   * and has no `Async` form. It throws NIGH_CHANGES_GONE if the log hasn't all of it any more. Only
   * where there is one partition: each numbers its own changes.
   */
  watch(prefix?: Bytes, options?: { from?: number }): Watch;
  /** Waits until all changes are on disk that were made before. */
  flush(): void;
  flushAsync(): Promise<void>;
  stats(): Stats;
  /** Has the log take all that there is. Closing again does nothing. */
  close(): void;
  /** The same, after strong writes that wait. Other calls are refused from now on. */
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
 * too slowly ends with NIGH_SNAPSHOT_TOO_OLD. One that is left by `break` is closed.
 */
export class Snapshot implements IterableIterator<[Buffer, Buffer]> {
  private constructor();
  /** The number of the last change that it sees. */
  readonly lastChange: number;
  next(): IteratorResult<[Buffer, Buffer], undefined>;
  return(): IteratorResult<[Buffer, Buffer], undefined>;
  [Symbol.iterator](): this;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A change, with its number. */
export type WatchEvent =
  | { kind: 'put'; change: number; key: Buffer; value: Buffer; expiresAt?: Date }
  /** A key with a long value got another expiry, or none. */
  | { kind: 'expires'; change: number; key: Buffer; expiresAt?: Date }
  /** The key was deleted, or its time was over. */
  | { kind: 'removed'; change: number; key: Buffer }
  /** All keys were removed. */
  | { kind: 'cleared'; change: number }
  /** Changes from `first` to `change` may be missing: read the keys again if you need them. */
  | { kind: 'lost'; change: number; first: number };

/**
 * Changes under a prefix, each once and in order: `for await (const event of db.watch('user:'))`.
 * It ends when it or the database is closed; one that is left by `break` is closed. Whoever awaits
 * an event keeps the process alive.
 */
export class Watch implements AsyncIterableIterator<WatchEvent> {
  private constructor();
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
  /** All of one moment: a batch is seen whole or not at all. */
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

/** A key, a value or another argument; of a string its UTF-8, of a number its decimal text. */
export type Word = string | Uint8Array | number | bigint;
export type Pairs = [Record<string, Word> | Map<Word, Word> | Word[]] | Word[];

export interface ClientOptions {
  /** The user; the default one if there is only a password. */
  username?: string;
  password?: string;
  /** The name in CLIENT LIST. */
  name?: string;
  /** Milliseconds that it waits at most for the server to go on with a reply; 10,000 by default. */
  timeoutMs?: number;
  /** Milliseconds that a call waits for a server that is away; 0 by default: it fails at once. */
  waitMs?: number;
  /**
   * Whether it reads the server's memory: 'auto', the default, if it can; 'required': connecting
   * fails if it can't; 'never'.
   */
  local?: 'auto' | 'required' | 'never';
  /** Microseconds that a thread of the pool looks for a reply before it sleeps; 50 by default. */
  spinUs?: number;
  /**
   * With `appendfsync always`: read from memory also what isn't on disk yet. By default such a read
   * asks the server, whose reply waits for the disk.
   */
  readsUnsynced?: boolean;
}

/** Connects to a server: `unix:/path`, `host:port`, `redis://user:password@host:port`. */
export function connect(address: string, options?: ClientOptions): Promise<Client>;

/**
 * A client of a Nigh server, or of another that speaks RESP2. Over the Unix socket of a Nigh server on
 * the same host it reads the server's memory, and writes by a ring in shared memory. Else its calls are
 * requests. The calls are named and shaped as in ioredis.
 *
 * Calls that return a Promise never wait in the event loop, and happen in the order in which they are
 * called. A read that memory can answer is answered at once, unless an earlier call is pending.
 *
 * The `Sync` forms read memory now, whatever is pending. Where memory doesn't tell (the client isn't
 * local, or the key's time is just over), they wait for the server, as `readFileSync` waits for the
 * disk.
 *
 * A call that fails has a `code`. Behind `NIGH_UNKNOWN` it may or may not have happened. An error
 * reply of the server is a `ReplyError`. A client attaches again by itself when the server was started
 * anew. One that is forgotten goes by and by, and an idle one keeps no process alive. It belongs to
 * one worker thread.
 */
export class Client {
  /** Connects in the background; calls wait for that, and tell why it failed. */
  constructor(address: string, options?: ClientOptions);
  /** The server's address, without a password. */
  readonly address: string;
  readonly closed: boolean;
  /** Whether it reads the server's memory now. */
  readonly isLocal: boolean;
  /** Why it doesn't; null if it does. */
  readonly whyNotLocal: string | null;
  get(key: Word): Promise<string | null>;
  getSync(key: Word): string | null;
  getBuffer(key: Word): Promise<Buffer | null>;
  getBufferSync(key: Word): Buffer | null;
  /** Those of a partition are of one moment. */
  mget(...keys: (Word | Word[])[]): Promise<(string | null)[]>;
  mgetSync(...keys: (Word | Word[])[]): (string | null)[];
  mgetBuffer(...keys: (Word | Word[])[]): Promise<(Buffer | null)[]>;
  mgetBufferSync(...keys: (Word | Word[])[]): (Buffer | null)[];
  /** How many of them are there. */
  exists(...keys: (Word | Word[])[]): Promise<number>;
  existsSync(...keys: (Word | Word[])[]): number;
  strlen(key: Word): Promise<number>;
  strlenSync(key: Word): number;
  getrange(key: Word, start: number, end: number): Promise<string>;
  getrangeSync(key: Word, start: number, end: number): string;
  getrangeBuffer(key: Word, start: number, end: number): Promise<Buffer>;
  getrangeBufferSync(key: Word, start: number, end: number): Buffer;
  /** Seconds; -1: it has no expiry; -2: there is no such key. */
  ttl(key: Word): Promise<number>;
  ttlSync(key: Word): number;
  pttl(key: Word): Promise<number>;
  pttlSync(key: Word): number;
  /** Options as the command has them: 'EX', 10, 'PX', 500, 'NX', 'XX', 'KEEPTTL', 'GET'. */
  set(key: Word, value: Word, ...options: Word[]): Promise<'OK' | string | null>;
  setBuffer(key: Word, value: Word, ...options: Word[]): Promise<Buffer | null>;
  setnx(key: Word, value: Word): Promise<number>;
  setex(key: Word, seconds: Word, value: Word): Promise<'OK'>;
  psetex(key: Word, milliseconds: Word, value: Word): Promise<'OK'>;
  getset(key: Word, value: Word): Promise<string | null>;
  getsetBuffer(key: Word, value: Word): Promise<Buffer | null>;
  getdel(key: Word): Promise<string | null>;
  getdelBuffer(key: Word): Promise<Buffer | null>;
  getex(key: Word, ...options: Word[]): Promise<string | null>;
  getexBuffer(key: Word, ...options: Word[]): Promise<Buffer | null>;
  /** `mset('a', 1, 'b', 2)`, or of an object, a Map or a list. */
  mset(...pairs: Pairs): Promise<'OK'>;
  msetnx(...pairs: Pairs): Promise<number>;
  append(key: Word, value: Word): Promise<number>;
  setrange(key: Word, offset: Word, value: Word): Promise<number>;
  incr(key: Word): Promise<number>;
  decr(key: Word): Promise<number>;
  incrby(key: Word, by: Word): Promise<number>;
  decrby(key: Word, by: Word): Promise<number>;
  incrbyfloat(key: Word, by: Word): Promise<string>;
  del(...keys: (Word | Word[])[]): Promise<number>;
  unlink(...keys: (Word | Word[])[]): Promise<number>;
  type(key: Word): Promise<string>;
  rename(key: Word, to: Word): Promise<'OK'>;
  renamenx(key: Word, to: Word): Promise<number>;
  copy(key: Word, to: Word, ...options: Word[]): Promise<number>;
  expire(key: Word, seconds: Word, ...options: Word[]): Promise<number>;
  pexpire(key: Word, milliseconds: Word, ...options: Word[]): Promise<number>;
  expireat(key: Word, seconds: Word, ...options: Word[]): Promise<number>;
  pexpireat(key: Word, milliseconds: Word, ...options: Word[]): Promise<number>;
  persist(key: Word): Promise<number>;
  keys(pattern: Word): Promise<string[]>;
  keysBuffer(pattern: Word): Promise<Buffer[]>;
  scan(cursor: Word, ...options: Word[]): Promise<[string, string[]]>;
  scanBuffer(cursor: Word, ...options: Word[]): Promise<[Buffer, Buffer[]]>;
  randomkey(): Promise<string | null>;
  randomkeyBuffer(): Promise<Buffer | null>;
  fcall(name: Word, keys: number, ...args: (Word | Word[])[]): Promise<unknown>;
  fcallBuffer(name: Word, keys: number, ...args: (Word | Word[])[]): Promise<unknown>;
  fcall_ro(name: Word, keys: number, ...args: (Word | Word[])[]): Promise<unknown>;
  fcall_roBuffer(name: Word, keys: number, ...args: (Word | Word[])[]): Promise<unknown>;
  /** `function('LOAD', code)`. */
  function(...args: (Word | Word[])[]): Promise<unknown>;
  ping(text?: Word): Promise<string>;
  echo(text: Word): Promise<string>;
  time(): Promise<[string, string]>;
  info(...sections: Word[]): Promise<string>;
  dbsize(): Promise<number>;
  flushall(...options: Word[]): Promise<'OK'>;
  config(...args: (Word | Word[])[]): Promise<unknown>;
  client(...args: (Word | Word[])[]): Promise<unknown>;
  wait(replicas: Word, milliseconds: Word): Promise<number>;
  waitaof(local: Word, replicas: Word, milliseconds: Word): Promise<number[]>;
  /** Any command, but for those that change the connection. */
  call(command: string, ...args: (Word | Word[])[]): Promise<unknown>;
  callBuffer(command: string, ...args: (Word | Word[])[]): Promise<unknown>;
  /** Gathers commands that are sent together: `[['set', 'key', 'value'], …]`, or by its methods. */
  pipeline(commands?: [string, ...unknown[]][]): Pipeline;
  /** The same as a transaction: all of it happens, and nothing in between. */
  multi(commands?: [string, ...unknown[]][]): Pipeline;
  /**
   * The next `multi()` happens only if these keys stay as they are until then, and the client stays
   * attached: else `exec` gives null, and nothing was done. As in ioredis it is the client's: what
   * else calls `multi()` on the same client meanwhile takes the watch away. So connect a client for
   * each task that watches.
   */
  watch(...keys: (Word | Word[])[]): Promise<'OK'>;
  /** The next `multi()` happens in any case. */
  unwatch(): Promise<'OK'>;
  /**
   * Reads keys of one moment for each partition: `read` decides by one value what it reads next. When
   * too much has changed meanwhile, an error leaves `read`, which is called again for another moment.
   * It takes local access, and runs in the event loop, which waits if the client has to attach
   * anew (`waitMs`) or, from the second attempt on, has a call under way.
   */
  view<R>(read: (view: View) => R): R;
  /** All keys, in lists of some: each that is there all the while comes at least once. */
  scanStream(options?: { match?: Word; type?: Word; count?: Word }): Readable;
  scanBufferStream(options?: { match?: Word; type?: Word; count?: Word }): Readable;
  /** Closes it behind all calls that are pending. */
  quit(): Promise<'OK'>;
  /** Closes it: what isn't sent yet fails with NIGH_CLOSED. */
  disconnect(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Keys of one moment, within the function of `Client.view`. */
export class View {
  private constructor();
  get(key: Word): string | null;
  getBuffer(key: Word): Buffer | null;
  exists(...keys: Word[]): number;
}

/** Commands that are sent together, from `Client.pipeline` or `Client.multi`. */
export class Pipeline {
  private constructor();
  /** Number of commands. */
  readonly length: number;
  /**
   * Sends them. What came of each, in order: `[null, reply]` or `[error]`. Of `multi()`: null if it
   * didn't happen, as a watched key had changed; if the server refused a command, it throws, with `previousErrors`.
   */
  exec(): Promise<([null, unknown] | [Error])[] | null>;
  get(key: Word): this;
  getBuffer(key: Word): this;
  mget(...keys: (Word | Word[])[]): this;
  mgetBuffer(...keys: (Word | Word[])[]): this;
  exists(...keys: (Word | Word[])[]): this;
  strlen(key: Word): this;
  getrange(key: Word, start: number, end: number): this;
  getrangeBuffer(key: Word, start: number, end: number): this;
  ttl(key: Word): this;
  pttl(key: Word): this;
  set(key: Word, value: Word, ...options: Word[]): this;
  setBuffer(key: Word, value: Word, ...options: Word[]): this;
  setnx(key: Word, value: Word): this;
  setex(key: Word, seconds: Word, value: Word): this;
  psetex(key: Word, milliseconds: Word, value: Word): this;
  getset(key: Word, value: Word): this;
  getsetBuffer(key: Word, value: Word): this;
  getdel(key: Word): this;
  getdelBuffer(key: Word): this;
  getex(key: Word, ...options: Word[]): this;
  getexBuffer(key: Word, ...options: Word[]): this;
  mset(...pairs: Pairs): this;
  msetnx(...pairs: Pairs): this;
  append(key: Word, value: Word): this;
  setrange(key: Word, offset: Word, value: Word): this;
  incr(key: Word): this;
  decr(key: Word): this;
  incrby(key: Word, by: Word): this;
  decrby(key: Word, by: Word): this;
  incrbyfloat(key: Word, by: Word): this;
  del(...keys: (Word | Word[])[]): this;
  unlink(...keys: (Word | Word[])[]): this;
  type(key: Word): this;
  rename(key: Word, to: Word): this;
  renamenx(key: Word, to: Word): this;
  copy(key: Word, to: Word, ...options: Word[]): this;
  expire(key: Word, seconds: Word, ...options: Word[]): this;
  pexpire(key: Word, milliseconds: Word, ...options: Word[]): this;
  expireat(key: Word, seconds: Word, ...options: Word[]): this;
  pexpireat(key: Word, milliseconds: Word, ...options: Word[]): this;
  persist(key: Word): this;
  keys(pattern: Word): this;
  keysBuffer(pattern: Word): this;
  scan(cursor: Word, ...options: Word[]): this;
  scanBuffer(cursor: Word, ...options: Word[]): this;
  randomkey(): this;
  randomkeyBuffer(): this;
  fcall(name: Word, keys: number, ...args: (Word | Word[])[]): this;
  fcallBuffer(name: Word, keys: number, ...args: (Word | Word[])[]): this;
  fcall_ro(name: Word, keys: number, ...args: (Word | Word[])[]): this;
  fcall_roBuffer(name: Word, keys: number, ...args: (Word | Word[])[]): this;
  function(...args: (Word | Word[])[]): this;
  ping(text?: Word): this;
  echo(text: Word): this;
  time(): this;
  info(...sections: Word[]): this;
  dbsize(): this;
  flushall(...options: Word[]): this;
  config(...args: (Word | Word[])[]): this;
  client(...args: (Word | Word[])[]): this;
  wait(replicas: Word, milliseconds: Word): this;
  waitaof(local: Word, replicas: Word, milliseconds: Word): this;
  call(command: string, ...args: (Word | Word[])[]): this;
  callBuffer(command: string, ...args: (Word | Word[])[]): this;
}

/** The server refused a command: `message` is its reply, `code` the reply's first word. */
export class ReplyError extends Error {
  constructor(reply: string, command?: { name: string; args: unknown[] });
  readonly name: 'ReplyError';
}

export interface ReplyError {
  code: string;
  command?: { name: string; args: unknown[] };
  /** Of a transaction that was refused: why. */
  previousErrors?: Error[];
}
