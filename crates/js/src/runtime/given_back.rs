//! Stories: after a batch with something large, the io memory holds no more than it may keep; and
//! it keeps what small batches use.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use crate::caller::function_limits::WRITE_KEYS_MAX;
use crate::io::{Io, KEEP_BYTES, WRITES_AT, WRITES_ENTRY, WRITES_TABLE};
use crate::{Call, CallWrite, FunctionLimits, Host, Level, Mapping, RunTurn, Runtime, Tenant};

/// An arena with nothing in it, in words of 64 bits.
const NO_ARENA: [u64; 2048] = [0; 2048];
/// The word that says when the arena was last cleared.
const CLEAR_STAMP: usize = 43;
const PAGE_BYTES: usize = 4096;
/// Bytes of what is large.
const LARGE: usize = 50_000_000;
/// The io memory has five parts that grow.
const MOST_KEPT: usize = 5 * KEEP_BYTES;
const _: () = assert!(LARGE > MOST_KEPT);

struct Nobody;
impl Host for Nobody {
    fn commit(&mut self, _: &[CallWrite<'_>]) -> Result<(), String> {
        Ok(())
    }
    fn scan(&mut self, _: &[u8], _: u64, _: u32, _: &mut dyn FnMut(&[u8])) -> u64 {
        0
    }
    fn log(&mut self, _: Level, _: &str, _: &str, _: &str) {}
}

/// A runtime with this library, and an arena with nothing in it.
pub(super) fn runtime(source: &[u8]) -> (Runtime, Tenant) {
    runtime_over(NO_ARENA, |mapping| mapping, source)
}

/// A runtime with this library.
fn runtime_over(
    arena: [u64; 2048],
    with: impl FnOnce(Mapping) -> Mapping,
    source: &[u8],
) -> (Runtime, Tenant) {
    let limits = FunctionLimits {
        call_ms: 60_000,
        load_ms: 60_000,
        result_bytes: 2 * LARGE,
        write_set_keys: WRITE_KEYS_MAX,
        ..FunctionLimits::default()
    };
    let mut runtime = Runtime::new(limits).unwrap();
    let arena = Arc::new(arena);
    // SAFETY: the words live as long as the Arc; an arena without tables is empty.
    let mapping = unsafe { Mapping::new(arena.as_ptr().cast(), size_of_val(&*arena), arena) };
    let tenant = runtime.open_tenant(with(mapping));
    let library = runtime.load(tenant, source).unwrap();
    runtime.install(tenant, &library, source).unwrap();
    (runtime, tenant)
}

/// Runs a batch; the length and the first character of each reply.
pub(super) fn run(runtime: &mut Runtime, tenant: Tenant, calls: &[Call<'_>]) -> Vec<(usize, char)> {
    let turn = RunTurn {
        now_ms: 1,
        random_seed: 1,
        reply_bytes: usize::MAX,
        time: Duration::MAX,
        still: 0,
    };
    let mut replies = Vec::new();
    runtime.run(tenant, calls, turn, &mut Nobody, &mut |_, reply| {
        replies.push((reply.len(), char::from(reply[0])));
    });
    replies
}

/// Bytes of the io memory that the system has given pages to.
fn taken_bytes(io: Io) -> usize {
    taken_bytes_of(io, 0, Io::total())
}

/// The same of a part of it.
fn taken_bytes_of(io: Io, at: usize, length: usize) -> usize {
    let mut pages = File::open("/proc/self/pagemap").unwrap();
    let first = (io.base().addr() + at) / PAGE_BYTES;
    pages.seek(SeekFrom::Start(first as u64 * 8)).unwrap();
    let mut entries = vec![0u8; length / PAGE_BYTES * 8];
    pages.read_exact(&mut entries).unwrap();
    // The two highest bits say that the page is in memory, or that it was swapped out.
    entries.chunks_exact(8).filter(|entry| entry[7] & 0xc0 != 0).count() * PAGE_BYTES
}

#[test]
fn the_memory_of_a_large_batch_is_given_back() {
    // A large request; a large result, behind which another entry has a short one; a large result
    // that ends in an error. Once, a shard kept all of that for good: up to 640 MiB of a request.
    let source = b"#!js name=t\n\
        export const size = (db, [text]) => text.length;\n\
        export const large = (db, [bytes]) => 'x'.repeat(bytes);\n\
        export const fails = (db, [bytes]) => ['x'.repeat(bytes), Symbol('no')];
        export const refused = (db, [bytes]) => {
          try { db.set({}, 'x'.repeat(bytes)); } catch {}
          return '12345678'.length;
        };";
    let (mut runtime, tenant) = runtime(source);
    let io = runtime.isolate.io;
    let (text, bytes) = (vec![b'x'; LARGE], LARGE.to_string());
    let (texts, sizes) = ([text.as_slice()], [bytes.as_bytes()]);
    let size = Call { function: b"size", args: &texts, ..Call::default() };
    let short = Call { function: b"size", args: &sizes, ..Call::default() };
    let large = Call { function: b"large", args: &sizes, ..Call::default() };
    let fails = Call { function: b"fails", args: &sizes, ..Call::default() };
    let refused = Call { function: b"refused", args: &sizes, ..Call::default() };
    for (story, calls) in [
        ("request", [size, short]),
        ("result", [large, short]),
        ("error", [fails, short]),
        ("refused value", [refused, short]),
    ] {
        let replies = run(&mut runtime, tenant, &calls);
        let first = match story {
            "request" => (":50000000\r\n".len(), ':'),
            "result" => ("$50000000\r\n".len() + LARGE + 2, '$'),
            "refused value" => (":8\r\n".len(), ':'),
            _ => (replies[0].0, '-'),
        };
        assert_eq!(replies, [first, (":8\r\n".len(), ':')], "{story}");
        let taken = taken_bytes(io);
        assert!(taken < MOST_KEPT, "{taken} bytes stay of a large {story}");
    }
}

#[test]
fn small_batches_keep_their_pages() {
    // Once, each batch that wrote anything gave its values' page back, and the next one took it
    // anew.
    let source = b"#!js name=t\nexport const put = (db) => { db.set('key', 'value'); return 1; };";
    let (mut runtime, tenant) = runtime(source);
    let io = runtime.isolate.io;
    let put = Call { function: b"put", ..Call::default() };
    for _ in 0..3 {
        assert_eq!(run(&mut runtime, tenant, &[put]), [(":1\r\n".len(), ':')]);
        let bytes_at = WRITES_AT + WRITES_TABLE;
        assert_eq!(taken_bytes_of(io, bytes_at, PAGE_BYTES), PAGE_BYTES);
    }
}

#[test]
fn the_memory_of_large_write_sets_is_given_back() {
    // Of the table too: so many entries are longer than what it may keep.
    let source = b"#!js name=t\n\
        export const puts = (db, [count]) => { for (let n = 0; n < count; n++) db.set(n, ''); return 1; };\n\
        export const value = (db) => { db.set('key', 'x'.repeat(50e6)); return 1; };";
    let (mut runtime, tenant) = runtime(source);
    let io = runtime.isolate.io;
    let count = (3 * KEEP_BYTES / WRITES_ENTRY).to_string();
    let counts = [count.as_bytes()];
    let puts = Call { function: b"puts", args: &counts, ..Call::default() };
    let value = Call { function: b"value", ..Call::default() };
    for call in [puts, value] {
        assert_eq!(run(&mut runtime, tenant, &[call]), [(":1\r\n".len(), ':')]);
        let table = taken_bytes_of(io, WRITES_AT, WRITES_TABLE);
        assert!(table <= KEEP_BYTES, "{table} bytes of the table stay");
        let taken = taken_bytes(io);
        assert!(taken < MOST_KEPT, "{taken} bytes stay of a large write set");
    }
}

#[test]
fn the_memory_of_a_dropped_attempt_is_given_back() {
    // The first attempt asks for a key that can't be told. The second one doesn't, and its result
    // is short.
    let source = b"#!js name=t\n\
        let attempts = 0;\n\
        export const f = (db, [bytes]) => {\n\
          if (++attempts > 1) return attempts;\n\
          try { db.get('key'); } catch {}\n\
          return 'x'.repeat(bytes);\n\
        };";
    let mut arena = NO_ARENA;
    arena[CLEAR_STAMP] = 1; // behind the moment of all calls
    let (mut runtime, tenant) = runtime_over(arena, Mapping::foreign, source);
    let bytes = LARGE.to_string();
    let args = [bytes.as_bytes()];
    let f = Call { function: b"f", args: &args, ..Call::default() };
    assert_eq!(run(&mut runtime, tenant, &[f]), [(":2\r\n".len(), ':')]);
    let taken = taken_bytes(runtime.isolate.io);
    assert!(taken < MOST_KEPT, "{taken} bytes stay of the first attempt");
}
