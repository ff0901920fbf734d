//! The call's two lines of JavaScript, against a watchdog that is as late as possible: it stores
//! KILL while the call runs, and decides long after the call's end.

use std::sync::Arc;
use std::time::Duration;

use super::agreement::{Word, Words};
use crate::io::Io;
use crate::{Call, CallWrite, FunctionLimits, Host, Level, Mapping, RunTurn, Runtime, ffi};

/// Words of an arena with nothing in it.
const NO_ARENA_WORDS: usize = 512;
/// After this, a call that doesn't wait would have gone on.
const LATE: Duration = Duration::from_millis(50);

struct Isolate(*mut ffi::RawIsolate);
// SAFETY: used for `nigh_terminate` alone, which any thread may call, and while the runtime lives.
unsafe impl Send for Isolate {}

/// A host that decides late about each call that scans whether it dies.
struct Late {
    io: Io,
    isolate: *mut ffi::RawIsolate,
    kills: bool,
    deciding: Option<std::thread::JoinHandle<()>>,
    commits: usize,
}

impl Host for Late {
    fn commit(&mut self, _: &[CallWrite<'_>]) -> Result<(), String> {
        assert_eq!(self.io.load(Word::Kill), 0, "the call hasn't waited for the decision");
        self.commits += 1;
        Ok(())
    }
    fn scan(&mut self, _: &[u8], _: u64, _: u32, _: &mut dyn FnMut(&[u8])) -> u64 {
        let (io, isolate, kills) = (self.io, Isolate(self.isolate), self.kills);
        let k = io.load(Word::State);
        io.store(Word::Kill, k);
        self.deciding = Some(std::thread::spawn(move || {
            let isolate = isolate;
            while io.load(Word::State) == k {
                std::thread::yield_now();
            }
            std::thread::sleep(LATE);
            if kills {
                // As if the second look at STATE had come before the call's store of 0.
                // SAFETY: the test joins this thread while the isolate lives.
                unsafe { ffi::nigh_terminate(isolate.0) };
                io.store(Word::Issued, k);
            } else {
                io.store(Word::Kill, 0);
            }
        }));
        0
    }
    fn log(&mut self, _: Level, _: &str, _: &str, _: &str) {}
}

#[test]
fn a_call_that_may_be_killed_waits_until_that_is_decided() {
    // After its second look, a watchdog terminates, whatever happens meanwhile. If a call doesn't
    // wait for that, its commit or the next call is hit.
    let source = b"#!js name=t\n\
        export const late = (db) => { db.set('k', 1); db.scan('k'); return 1; };\n\
        export const next = () => { let x = 0; for (let i = 0; i < 1e6; i++) x += i; return 2; };";
    let limits = FunctionLimits { call_ms: 60_000, ..FunctionLimits::default() };
    let mut runtime = Runtime::new(limits).unwrap();
    let arena: Arc<[u64; NO_ARENA_WORDS]> = Arc::new([0; NO_ARENA_WORDS]);
    // SAFETY: the words live as long as the Arc; an arena of zeros is empty.
    let mapping = unsafe { Mapping::new(arena.as_ptr().cast(), 8 * NO_ARENA_WORDS, arena) };
    let tenant = runtime.open_tenant(mapping);
    let library = runtime.load(tenant, source).unwrap();
    runtime.install(tenant, &library, source).unwrap();
    let (io, isolate) = (runtime.isolate.io, runtime.isolate.raw());
    for kills in [false, true, false, true] {
        let mut host = Late { io, isolate, kills, deciding: None, commits: 0 };
        let call = |function| Call { function, ..Call::default() };
        let turn = RunTurn {
            now_ms: 1,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let mut replies = Vec::new();
        let calls = [call(b"late"), call(b"next")];
        runtime.run(tenant, &calls, turn, &mut host, &mut |_, reply| {
            replies.push(String::from_utf8_lossy(reply).into_owned());
        });
        host.deciding.take().expect("it scanned").join().unwrap();
        assert_eq!(replies[0].starts_with("-ERR"), kills, "{replies:?}");
        assert_eq!(replies[1], ":2\r\n", "the next call is hit");
        assert_eq!(host.commits, usize::from(!kills));
    }
}
