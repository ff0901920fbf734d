/// <reference types="node" />

import type { Readable } from 'node:stream';

/** A key, a value or another argument; of a string its UTF-8, of a number its decimal text. */
export type Word = string | Uint8Array | number | bigint;
export type Pairs = [Record<string, Word> | Map<Word, Word> | Word[]] | Word[];

export interface ClientOptions {
  /** The user; the default one if there is only a password. Without a password it has an empty one. */
  username?: string;
  password?: string;
  /** The name in CLIENT LIST. */
  name?: string;
  /**
   * Milliseconds that it waits at most for the server to go on with a reply; 10,000 by default, at
   * least 1.
   */
  timeoutMs?: number;
  /**
   * Milliseconds that a call waits for a server that is away; 0 by default: it fails at once.
   * `process.exit()` waits for such a call, too: call `disconnect()` before, which ends the wait.
   */
  waitMs?: number;
  /**
   * Whether it reads the server's memory: 'auto', the default, if it can; 'required': connecting
   * fails if it can't; 'never'.
   */
  local?: 'auto' | 'required' | 'never';
  /**
   * Microseconds that a thread of the pool looks for a reply before it sleeps, up to a second; 50 by
   * default.
   */
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
 * reply of the server is a `ReplyError`. An element of a reply may be an Error, too. A client attaches
 * again by itself when the server was started anew. One that is forgotten goes by and by, and an idle
 * one keeps no process alive. It belongs to one worker thread.
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
  /** How many of them are there. Of several keys the server says it, as of one moment in each partition. */
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
   * anew (`waitMs`). It waits for a call under way from the second attempt on, and with
   * `appendfsync always` at the first too, if what was read isn't on disk yet.
   */
  view<R>(read: (view: View) => R): R;
  /** All keys, in lists of some: each that is there all the while comes at least once. */
  scanStream(options?: { match?: Word; type?: Word; count?: Word }): Readable;
  scanBufferStream(options?: { match?: Word; type?: Word; count?: Word }): Readable;
  /** Closes it behind all calls that are pending. */
  quit(): Promise<'OK'>;
  /** Closes it: what isn't sent yet fails with NIGH_CLOSED, also if it waits for a server. */
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
   * didn't happen, as a watched key had changed; if the server refused a command, it throws, with
   * `previousErrors`.
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
