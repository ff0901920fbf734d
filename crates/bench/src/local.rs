//! `nigh-bench local`: what a local client reads and writes, beside a server that it starts.
//!
//! ```text
//! core 0: the server, and a writer that sets random keys      core 1: the client that is measured
//! a round: read latency ─ reads ─ multi-gets ─ write latency ─ pipelined writes ─ … by requests
//! ```
//!
//! Invariants:
//! 1. Each read is compared: a value that isn't its key's is an error.
//! 2. Rounds repeat all figures in turn; what is printed is the median of the rounds.
//! 3. The writer writes during the reads, and rests during the writes.

use super::child::{Program, ServerProcess};
use super::drawn_keys::SplitMix64;
use super::engine::histogram;
use super::figures::Quartiles;
use super::load::pin;
use super::report::thousands;
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use nigh_client::{Address, Client, ClientOptions, ForeignValues, LocalUse};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a key: `key:` and 12 digits.
const KEY_BYTES: usize = 16;
/// Keys of one multi-get.
const TOGETHER: usize = 16;
/// SETs of one pipeline.
const PIPELINE: u64 = 512;
/// Operations between two looks at the clock, where none of them is timed.
const BATCH: u64 = 1024;
/// Figures of the paper on DAL (HotCloud'17), which reads and writes 100-byte values, 1 M keys.
const DAL: [(&str, &str); ROWS] = [
    ("read, p50", "0.7 us"),
    ("read, p99", "1.1 us"),
    ("reads/s", ""),
    ("keys/s by multi-gets of 16", ""),
    ("write, p50", "1.1 us"),
    ("write, p99", "1.7 us"),
    ("pipelined writes/s", "1.6 M/s"),
    ("read by a request, p50", ""),
    ("written meanwhile/s", ""),
];
const ROWS: usize = 9;

/// Options of `nigh-bench local`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    program: Program,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    keys: u64,
    /// Bytes of a value, at least those of a key
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    value_size: usize,
    /// Seconds over which a figure is taken in each round
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Core of the server and of the writer; -1 for any
    #[arg(long, default_value_t = 0, value_name = "CPU", allow_negative_numbers = true)]
    server_core: i32,
    /// Core of the measured client; -1 for any
    #[arg(long, default_value_t = 1, value_name = "CPU", allow_negative_numbers = true)]
    client_core: i32,
    /// The server's partitions
    #[arg(long, default_value_t = 1, value_name = "N")]
    partitions: u32,
    /// Keep the writer at rest during the reads
    #[arg(long)]
    no_writer: bool,
}

/// The keys and values of a run.
#[derive(Clone, Copy)]
struct Content {
    keys: u64,
    value_bytes: usize,
}

/// Runs it, and prints a table.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.keys > 0 && args.rounds > 0, "--keys and --rounds must be above 0");
    ensure!(args.value_size >= KEY_BYTES, "--value-size must be {KEY_BYTES} at least");
    let Ok(slice) = Duration::try_from_secs_f64(args.seconds) else {
        bail!("--seconds must be a number of seconds, not {}", args.seconds);
    };
    let prefix = match u32::try_from(args.server_core) {
        Ok(core) => vec!["taskset".to_owned(), "-c".to_owned(), core.to_string()],
        Err(_) => Vec::new(),
    };
    let partitions = args.partitions.to_string();
    // Records, overwritten ones, and the index.
    let memory = (args.keys * (args.value_size as u64 + 128) * 3 + (64 << 20)).to_string();
    let flags = [
        "--unixsocket",
        "{dir}/sock",
        "--appendonly",
        "no",
        "--shards",
        "1",
        "--partitions",
        &partitions,
        "--maxmemory",
        &memory,
    ];
    let server = ServerProcess::nigh(&args.program.path()?, &prefix, &flags.map(str::to_owned))?;
    let address = Address::unix(server.directory().join("sock"));
    let content = Content { keys: args.keys, value_bytes: args.value_size };
    fill(&mut client(&address, LocalUse::Required)?, content)?;
    let (stop, pause, written) = (AtomicBool::new(false), AtomicBool::new(true), AtomicU64::new(0));
    let samples = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            if let Ok(core) = usize::try_from(args.server_core) {
                pin(core)?;
            }
            write_on(&address, content, &stop, &pause, &written)
        });
        let measured = std::thread::Builder::new().spawn_scoped(scope, || {
            if let Ok(core) = usize::try_from(args.client_core) {
                pin(core)?;
            }
            let set = |writes: bool| pause.store(!writes || args.no_writer, Ordering::Relaxed);
            let rounds = 0..args.rounds;
            rounds.map(|_| round(&address, content, slice, &set, &written)).collect()
        });
        let samples: Result<Vec<[f64; ROWS]>> = match measured {
            Ok(measured) => measured.join().expect("a panic has been printed"),
            Err(error) => Err(error).context("can't start a thread"),
        };
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("a panic has been printed")?;
        samples
    })?;
    print(args, &samples);
    Ok(())
}

fn client(address: &Address, local: LocalUse) -> Result<Client> {
    Ok(Client::connect_with(address, ClientOptions { local, ..ClientOptions::default() })?)
}

/// All figures once, in the order of the table.
fn round(
    address: &Address,
    content: Content,
    slice: Duration,
    set_writer: &dyn Fn(bool),
    written: &AtomicU64,
) -> Result<[f64; ROWS]> {
    let mut local = client(address, LocalUse::Required)?;
    let mut remote = client(address, LocalUse::Never)?;
    set_writer(true);
    let (begin, before) = (Instant::now(), written.load(Ordering::Relaxed));
    let reads = read_latency(&mut local, content, slice)?;
    let rate = reads_each(&mut local, content, slice)?;
    let together = reads_together(&mut local, content, slice)?;
    let meanwhile = written.load(Ordering::Relaxed) - before;
    let meanwhile = meanwhile as f64 / begin.elapsed().as_secs_f64();
    set_writer(false);
    // The writer ends its pipeline.
    std::thread::sleep(Duration::from_millis(5));
    let writes = write_latency(&mut local, content, slice)?;
    let piped = writes_piped(&mut local, content, slice)?;
    let asked = read_latency(&mut remote, content, slice)?;
    let us = |times: &Histogram<u64>, percent| times.value_at_percentile(percent) as f64 / 1000.0;
    Ok([
        us(&reads, 50.0),
        us(&reads, 99.0),
        rate,
        together,
        us(&writes, 50.0),
        us(&writes, 99.0),
        piped,
        us(&asked, 50.0),
        meanwhile,
    ])
}

fn print(args: &Args, samples: &[[f64; ROWS]]) {
    println!(
        "{} keys of {KEY_BYTES} B, values of {} B, {} partition(s), {} rounds of {} s a figure; a look \
         at the clock, which each latency holds, takes {:.3} us",
        thousands(args.keys as f64),
        args.value_size,
        args.partitions,
        args.rounds,
        args.seconds,
        clock_us(),
    );
    println!();
    println!("| | median | quartiles | DAL |\n|---|---|---|---|");
    for (row, (name, dal)) in DAL.iter().enumerate() {
        let sample: Vec<f64> = samples.iter().map(|round| round[row]).collect();
        let Quartiles { q1, median, q3 } = Quartiles::of(&sample);
        let shown = |figure: f64| match name.ends_with("/s") || name.contains("/s by") {
            true => thousands(figure),
            false => format!("{figure:.2} us"),
        };
        println!("| {name} | {} | {} to {} | {dal} |", shown(median), shown(q1), shown(q3));
    }
}

/// What a timed operation costs beside itself, us.
fn clock_us() -> f64 {
    const LOOKS: u32 = 100_000;
    let begin = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(Instant::now());
    }
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(LOOKS)
}

/// The key of a number, in place of another one's.
fn set_key(key: &mut [u8; KEY_BYTES], mut number: u64) {
    key[..4].copy_from_slice(b"key:");
    for digit in key[4..].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// A value begins with its key.
fn set_value(value: &mut [u8], key: &[u8; KEY_BYTES], by: u64) {
    value.fill(b'a' + (by % 26) as u8);
    value[..KEY_BYTES].copy_from_slice(key);
}

fn check(key: &[u8; KEY_BYTES], value: Option<&[u8]>, content: Content) -> Result<()> {
    let is_its = |value: &[u8]| value.len() == content.value_bytes && value.starts_with(key);
    ensure!(
        value.is_some_and(is_its),
        "{} has a wrong value: {value:?}",
        String::from_utf8_lossy(key)
    );
    Ok(())
}

/// Requests of a pipeline, in memory that is used again.
struct Sets {
    content: Content,
    keys: Vec<[u8; KEY_BYTES]>,
    values: Vec<u8>,
}

impl Sets {
    fn new(content: Content) -> Sets {
        Sets { content, keys: Vec::new(), values: Vec::new() }
    }

    /// Sets the keys with these numbers.
    fn send(&mut self, client: &mut Client, numbers: impl Iterator<Item = u64>) -> Result<()> {
        let bytes = self.content.value_bytes;
        self.keys.clear();
        for number in numbers {
            let (mut key, from) = ([0; KEY_BYTES], self.keys.len() * bytes);
            set_key(&mut key, number);
            self.values.resize(self.values.len().max(from + bytes), 0);
            set_value(&mut self.values[from..from + bytes], &key, number);
            self.keys.push(key);
        }
        let parts = self.keys.iter().zip(self.values.chunks(bytes));
        let requests = parts.map(|(key, value)| [&b"SET"[..], &key[..], value]);
        let mut errors = 0;
        client.pipeline_each(requests, |reply| errors += u64::from(reply.error().is_some()))?;
        ensure!(errors == 0, "{errors} SETs were refused");
        Ok(())
    }
}

fn fill(client: &mut Client, content: Content) -> Result<()> {
    let mut sets = Sets::new(content);
    let mut from = 0;
    while from < content.keys {
        let to = content.keys.min(from + BATCH);
        sets.send(client, from..to)?;
        from = to;
    }
    Ok(())
}

/// The writer: sets random keys until it is stopped, but for pauses.
fn write_on(
    address: &Address,
    content: Content,
    stop: &AtomicBool,
    pause: &AtomicBool,
    written: &AtomicU64,
) -> Result<()> {
    // It shares its core with the server: to spin would take the server's time.
    let spin = Some(Duration::ZERO);
    let options = ClientOptions { local: LocalUse::Required, spin, ..ClientOptions::default() };
    let mut client = Client::connect_with(address, options)?;
    let (mut random, mut sets) = (SplitMix64::new(2), Sets::new(content));
    while !stop.load(Ordering::Relaxed) {
        if pause.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        sets.send(&mut client, (0..PIPELINE).map(|_| random.below(content.keys)))?;
        written.fetch_add(PIPELINE, Ordering::Relaxed);
    }
    Ok(())
}

fn read_latency(client: &mut Client, content: Content, slice: Duration) -> Result<Histogram<u64>> {
    let (mut times, mut random) = (histogram()?, SplitMix64::new(3));
    let (mut key, mut value) = ([0; KEY_BYTES], Vec::new());
    let begin = Instant::now();
    loop {
        set_key(&mut key, random.below(content.keys));
        let from = Instant::now();
        let found = client.get_into(&key, &mut value)?;
        let to = Instant::now();
        check(&key, found.then_some(&value[..]), content)?;
        times.saturating_record(nanos(to - from));
        if to - begin >= slice {
            return Ok(times);
        }
    }
}

fn reads_each(client: &mut Client, content: Content, slice: Duration) -> Result<f64> {
    let (mut random, mut key, mut value) = (SplitMix64::new(4), [0; KEY_BYTES], Vec::new());
    rate(slice, BATCH, || {
        for _ in 0..BATCH {
            set_key(&mut key, random.below(content.keys));
            let found = client.get_into(&key, &mut value)?;
            check(&key, found.then_some(&value[..]), content)?;
        }
        Ok(())
    })
}

fn reads_together(client: &mut Client, content: Content, slice: Duration) -> Result<f64> {
    let (mut random, mut values) = (SplitMix64::new(5), ForeignValues::new());
    let mut keys = [[0; KEY_BYTES]; TOGETHER];
    rate(slice, BATCH, || {
        for _ in 0..BATCH / TOGETHER as u64 {
            keys.iter_mut().for_each(|key| set_key(key, random.below(content.keys)));
            let wanted: [&[u8]; TOGETHER] = std::array::from_fn(|at| &keys[at][..]);
            client.multi_get_into(&wanted, &mut values)?;
            for (at, key) in keys.iter().enumerate() {
                check(key, values.get(at), content)?;
            }
        }
        Ok(())
    })
}

fn write_latency(client: &mut Client, content: Content, slice: Duration) -> Result<Histogram<u64>> {
    let (mut times, mut random) = (histogram()?, SplitMix64::new(6));
    let (mut key, mut value) = ([0; KEY_BYTES], vec![0; content.value_bytes]);
    let begin = Instant::now();
    loop {
        let number = random.below(content.keys);
        set_key(&mut key, number);
        set_value(&mut value, &key, number);
        let from = Instant::now();
        client.set(&key, &value)?;
        let to = Instant::now();
        times.saturating_record(nanos(to - from));
        if to - begin >= slice {
            return Ok(times);
        }
    }
}

fn writes_piped(client: &mut Client, content: Content, slice: Duration) -> Result<f64> {
    let (mut random, mut sets) = (SplitMix64::new(7), Sets::new(content));
    rate(slice, BATCH, || sets.send(client, (0..BATCH).map(|_| random.below(content.keys))))
}

/// Operations per second; each `batch` has so many.
fn rate(slice: Duration, count: u64, mut batch: impl FnMut() -> Result<()>) -> Result<f64> {
    let (begin, mut done) = (Instant::now(), 0u64);
    loop {
        batch()?;
        done += count;
        let elapsed = begin.elapsed();
        if elapsed >= slice {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
