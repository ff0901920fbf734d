//! All work that leaves memory behind goes on at once. The process's memory comes to a level and
//! stays there, and the memory of slow readers goes back to the system.
//!
//! ```text
//! timing-out functions   each costs its context          new libraries   a context each, and code
//! slow readers           replies of 10 MiB wait          large bytes     arrays that only the collector frees
//! a flood of calls       so that the shards never rest
//! ```
//!
//! The test measures the process's private memory, since `--maxmemory` bounds the arenas. It prints
//! a table, and a drawing if `NIGH_MEMORY_SVG` names a file. `NIGH_MEMORY_SECONDS` sets its length.

#[path = "cli/support/mod.rs"]
mod support;

use nigh_client::{Connection, Frame};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::{Server, folder};

/// Length in seconds, unless `NIGH_MEMORY_SECONDS` is set.
const SECONDS: u64 = 16;
/// Values that a slow reader asks for, and their number at a time.
const LARGE_BYTES: usize = 10 << 20;
const READERS: usize = 8;
/// Rows of the table.
const SAMPLES: u32 = 60;
/// Most by which the last third's median may exceed the second's, MiB. With V8's collector single
/// moments differ by hundreds.
const NOISE_MIB: u64 = 128;
/// Most that may stay at rest beyond the memory after the first calls, MiB: code, and pages that
/// the allocator keeps. 9 to 90 were seen, most after ten minutes; without a collection at rest 80
/// to 280 after seconds.
const KEPT_MIB: u64 = 120;
/// What the replies of three times as many readers take of the server's memory at least, MiB. About
/// half of each lies in a socket's buffers.
const TAKEN_MIB: u64 = 60;
/// Longest time until memory has come down to that.
const REST: Duration = Duration::from_secs(45);

const LIBRARY: &str = "#!js name=base
export const spin = () => { for (;;); };
export const fine = (db, [text]) => text;
export const large = (db) => db.get('large');
export const bytes = (db) => db.get('large').bytes().length;
fine.flags = large.flags = bytes.flags = ['no-writes'];";

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    timeouts: AtomicU64,
    libraries: AtomicU64,
    readers: AtomicU64,
    arrays: AtomicU64,
    calls: AtomicU64,
}

impl Load {
    /// Does something again and again, and counts it.
    fn repeat(&self, done: &AtomicU64, mut each: impl FnMut(u64)) {
        while !self.stop.load(Ordering::Relaxed) {
            each(done.fetch_add(1, Ordering::Relaxed));
        }
    }

    fn time_out(&self, mut connection: Connection) {
        self.repeat(&self.timeouts, |_| {
            let reply = connection.call(["FCALL", "spin", "0"]).expect("the server is up");
            assert!(reply.error().is_some(), "{reply:?}");
        });
    }

    fn load_libraries(&self, mut connection: Connection) {
        self.repeat(&self.libraries, |number| {
            let mut source = format!("#!js name=l{}\n// {number}\n", number % 4);
            for function in 0..20 {
                let _ =
                    writeln!(source, "export const f{}_{function} = () => {number};", number % 4);
            }
            let reply = connection.call(["FUNCTION", "LOAD", "REPLACE", &source]);
            let reply = reply.expect("the server is up");
            assert!(reply.error().is_none(), "{reply:?}");
            std::thread::sleep(Duration::from_millis(5));
        });
    }

    /// Asks for large replies, reads little or nothing of them, and disconnects.
    fn read_slowly(&self, server: &Server) {
        self.repeat(&self.readers, |_| {
            let ask = |number: usize| {
                let mut connection = server.connect();
                let large: &[&str] = &["FCALL", "large", "0"];
                let words = if number.is_multiple_of(2) { large } else { &["GET", "large"] };
                connection.send(words).expect("the server is up");
                connection.flush().expect("the server is up");
                connection
            };
            let readers: Vec<Connection> = (0..READERS).map(ask).collect();
            std::thread::sleep(Duration::from_millis(500));
            drop(readers);
            std::thread::sleep(Duration::from_millis(200));
        });
    }

    fn copy_bytes(&self, mut connection: Connection) {
        self.repeat(&self.arrays, |_| {
            let reply = connection.call(["FCALL", "bytes", "0"]).expect("the server is up");
            // On a busy machine the call may be stopped, even late. A lack of memory never refuses
            // it.
            let text = String::from_utf8_lossy(reply.error().unwrap_or_default());
            assert!(
                reply == Frame::Integer(10 << 20)
                    || text.contains("function-time-limit")
                    || text.contains("being stopped"),
                "{text}"
            );
            std::thread::sleep(Duration::from_millis(100));
        });
    }

    fn flood(&self, mut connection: Connection) {
        let calls = vec![["FCALL", "fine", "0", "text"]; 50];
        self.repeat(&self.calls, |_| {
            connection.pipeline(&calls).expect("the server is up");
        });
    }

    fn counts(&self) -> [u64; 5] {
        [&self.timeouts, &self.libraries, &self.readers, &self.arrays, &self.calls]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// Seconds, and MiB at that time.
type Curve = Vec<(f64, u64)>;

/// The maximum in a part of the time; both ends are shares of it.
fn most(curve: &Curve, from: f64, to: f64) -> u64 {
    let end = curve.last().map_or(0.0, |(at, _)| *at);
    let part = curve.iter().filter(|(at, _)| *at >= end * from && *at <= end * to);
    part.map(|(_, mib)| *mib).max().expect("there are samples in each part")
}

/// The median in a part of the time.
fn median(curve: &Curve, from: f64, to: f64) -> u64 {
    let end = curve.last().map_or(0.0, |(at, _)| *at);
    let part = curve.iter().filter(|(at, _)| *at >= end * from && *at <= end * to);
    let mut sorted: Vec<u64> = part.map(|(_, mib)| *mib).collect();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// The curve as a drawing.
fn svg(curve: &Curve) -> String {
    let (end, top) = (curve.last().expect("samples").0, most(curve, 0.0, 1.0).max(1));
    let points: Vec<String> = curve
        .iter()
        .map(|(at, mib)| {
            let height = f64::from(u32::try_from(mib * 1000 / top).expect("at most 1000"));
            format!("{:.1},{:.1}", 50.0 + at / end * 720.0, 270.0 - height / 1000.0 * 240.0)
        })
        .collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 300\" font-family=\"sans-serif\" \
         font-size=\"12\"><path d=\"M50 30V270H770\" fill=\"none\" stroke=\"#888\"/><polyline points=\"{}\" \
         fill=\"none\" stroke=\"#06c\" stroke-width=\"2\"/><text x=\"4\" y=\"34\">{top} MiB</text><text x=\"20\" \
         y=\"274\">0</text><text x=\"700\" y=\"290\">{end:.0} s</text></svg>\n",
        points.join(" ")
    )
}

/// One test at a time: V8 collects at rest only while it gets some of the machine.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn memory_comes_to_a_level_and_goes_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = std::env::var("NIGH_MEMORY_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let folder = folder();
    let flags = ["--maxmemory", "128mb", "--shards", "2", "--function-time-limit-ms", "20"];
    let server = Server::start_with(folder.path(), &flags);
    assert!(server.call(&["FUNCTION", "LOAD", LIBRARY]).error().is_none());
    let large = "x".repeat(LARGE_BYTES);
    assert!(server.call(&["SET", "large", &large]).error().is_none());
    assert!(server.call(&["FCALL", "fine", "0", "x"]).error().is_none());
    let before = server.private_mib();

    let load = Load::default();
    // A thread that fails stops the others.
    struct StopOnDrop<'a>(&'a Load);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
    let mut curve = Curve::new();
    std::thread::scope(|scope| {
        let (load, server) = (&load, &server);
        type Work<'a> = Box<dyn FnOnce() + Send + 'a>;
        let connect = || server.connect();
        let (first, second, third) = (connect(), connect(), connect());
        let (fourth, fifth) = (connect(), connect());
        let all: [Work<'_>; 6] = [
            Box::new(move || load.time_out(first)),
            Box::new(move || load.load_libraries(second)),
            Box::new(move || load.copy_bytes(third)),
            Box::new(move || load.flood(fourth)),
            Box::new(move || load.flood(fifth)),
            Box::new(move || load.read_slowly(server)),
        ];
        for work in all {
            scope.spawn(move || {
                let _stop = StopOnDrop(load);
                work();
            });
        }
        let begin = Instant::now();
        while begin.elapsed() < seconds && !load.stop.load(Ordering::Relaxed) {
            std::thread::sleep(seconds / SAMPLES);
            curve.push((begin.elapsed().as_secs_f64(), server.private_mib()));
        }
        load.stop.store(true, Ordering::Relaxed);
    });
    eprintln!("    s    MiB   ({before} before)");
    curve.iter().for_each(|(at, mib)| eprintln!("{at:>5.1} {mib:>6}"));
    eprintln!(
        "timeouts, libraries, turns of readers, arrays, batches of calls: {:?}",
        load.counts()
    );
    if let Some(file) = std::env::var_os("NIGH_MEMORY_SVG") {
        std::fs::write(file, svg(&curve)).expect("the drawing can be written");
    }
    assert!(load.counts().iter().all(|count| *count > 2), "everybody has worked");
    let (middle, end) = (median(&curve, 0.33, 0.67), median(&curve, 0.67, 1.0));
    assert!(end <= middle + NOISE_MIB, "{end} MiB at last, {middle} before that");

    let begin = Instant::now();
    let mut rest = server.private_mib();
    while rest > before + KEPT_MIB && begin.elapsed() < REST {
        std::thread::sleep(Duration::from_millis(200));
        rest = server.private_mib();
    }
    eprintln!("at rest, after {:.1} s: {rest} MiB", begin.elapsed().as_secs_f64());
    let kinds = || server.private_kinds();
    assert!(rest <= before + KEPT_MIB, "{rest} MiB stay, of {before} before:\n{}", kinds());
}

/// Readers come and go between two looks at the allocator, whose freed memory is then the same at
/// all looks. Others stay, and their replies lie behind those in each heap: so the allocator gives
/// nothing back by itself.
#[test]
fn what_slow_readers_took_between_two_looks_goes_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let server = Server::start_with(folder.path(), &["--maxmemory", "128mb", "--shards", "2"]);
    assert!(server.call(&["SET", "large", &"x".repeat(LARGE_BYTES)]).error().is_none());
    let start = server.private_mib();
    let ask = |_| {
        let mut connection = server.connect();
        connection.send(&["GET", "large"]).expect("the server is up");
        connection.flush().expect("the server is up");
        connection
    };
    let wait = |what: &str, is_so: &dyn Fn(u64) -> bool| {
        let begin = Instant::now();
        while !is_so(server.private_mib()) {
            let waited = begin.elapsed();
            let at = || format!("{} MiB, of {start} before", server.private_mib());
            assert!(waited < REST, "{what}: not at {}:\n{}", at(), server.private_kinds());
            std::thread::sleep(Duration::from_millis(1));
        }
        begin.elapsed().as_secs_f64()
    };
    let readers: Vec<Connection> = (0..3 * READERS).map(ask).collect();
    wait("the replies wait", &|mib| mib >= start + TAKEN_MIB);
    let _stay: Vec<Connection> = (0..READERS).map(ask).collect();
    wait("more wait", &|mib| mib >= start + TAKEN_MIB + TAKEN_MIB / 3);
    drop(readers);
    wait("they go", &|mib| mib < start + TAKEN_MIB);
    for turn in 0..2 {
        let before = server.private_mib();
        let readers: Vec<Connection> = (0..3 * READERS).map(ask).collect();
        wait("they wait again", &|mib| mib >= before + TAKEN_MIB);
        drop(readers);
        let seconds = wait("they go again", &|mib| mib < before + TAKEN_MIB / 2);
        eprintln!("turn {turn}: {before} MiB before, which were back after {seconds:.1} s");
    }
}
