//! `nigh-bench local`: what a local client reads and writes, beside other stores on one machine.
//!
//! ```text
//! core 0: servers, and a writer that sets random keys     core 1: the client that is measured
//! a round: each contestant's reads and writes, in turn ── samples ──> page: table, picture
//! ```
//!
//! Invariants:
//! 1. Each read is compared: a value that isn't its key's is an error.
//! 2. Rounds repeat all figures of all contestants in turn; what is shown is the median of the
//!    rounds.
//! 3. The writer writes during the reads of Nigh's memory, and rests else.
//! 4. All servers and helpers end and their files are removed, also after an error or a signal.

mod content;
mod contestants;
mod helper;
mod measure;
mod memcached;
mod options;
mod page;
mod rows;
mod store;

use crate::drawn_keys::SplitMix64;
use crate::interrupt;
use crate::load::pin;
use crate::machine::Machine;
use anyhow::{Context, Result, bail, ensure};
use content::{Content, KEY_BYTES, Sets};
use contestants::{Contestant, Field, Part};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_client::{Address, ClientOptions, LocalUse};
pub(crate) use options::Args;
use page::{Column, Told};
use rows::{Figures, Row};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{ByClient, Store};

/// SETs of one pipeline of the writer.
const PIPELINE: u64 = 512;
/// The writer ends its pipeline.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs it, prints the table, and writes the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.keys > 0 && args.rounds > 0, "--keys and --rounds must be above 0");
    ensure!(args.value_size >= KEY_BYTES, "--value-size must be {KEY_BYTES} at least");
    let Ok(slice) = Duration::try_from_secs_f64(args.seconds) else {
        bail!("--seconds must be a number of seconds, not {}", args.seconds);
    };
    interrupt::watch()?;
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:32} {pos}/{len}  {msg}")?);
    bar.set_message("starting and filling stores");
    // Before the load begins, and threads are pinned: both would change the facts.
    let machine = Machine::look(&args.program.path()?);
    let content = Content { keys: args.keys, value_bytes: args.value_size };
    let mut field = Field::start(args, content, slice)?;
    let columns = measure_all(args, &mut field, (content, slice), &bar)?;
    bar.finish_and_clear();
    let told = Told { args, machine: &machine, columns: &columns, missing: &field.missing };
    print!("{}", told.summary());
    if let Some(path) = &args.out {
        told.write(path)?;
        println!("\nwritten to {}", path.display());
    }
    Ok(())
}

/// All rounds.
fn measure_all(
    args: &Args,
    field: &mut Field,
    (content, slice): (Content, Duration),
    bar: &ProgressBar,
) -> Result<Vec<Column>> {
    let address = Address::unix(field.nigh.directory().join("sock"));
    let contestants = &mut field.contestants;
    bar.set_length((args.rounds * contestants.len()) as u64);
    let column = |it: &Contestant| (it.name, it.about.clone());
    let mut columns: Vec<Column> = contestants
        .iter()
        .map(column)
        .map(|(name, about)| Column { name, about, samples: Vec::new() })
        .collect();
    let (stop, pause, written) = (AtomicBool::new(false), AtomicBool::new(true), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            if let Ok(core) = usize::try_from(args.server_core) {
                pin(core)?;
            }
            write_on(&address, content, &stop, &pause, &written)
        });
        let measured = (|| {
            if let Ok(core) = usize::try_from(args.client_core) {
                pin(core)?;
            }
            for round in 0..args.rounds {
                for turn in 0..contestants.len() {
                    // A B C, B C A, C A B: nobody always comes behind the same one.
                    let at = (round + turn) % contestants.len();
                    let it = &mut contestants[at];
                    bar.set_message(it.name);
                    let rests = !it.is_local || args.no_writer;
                    let mut figures = beside(&pause, rests, &written, || {
                        it.measure(Part::Reads, content, slice)
                    })?;
                    figures.add(&it.measure(Part::Writes, content, slice)?);
                    columns[at].samples.push(figures);
                    bar.inc(1);
                }
            }
            anyhow::Ok(columns)
        })();
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("a panic has been printed").context("the writer has failed")?;
        measured
    })
}

/// Figures that are taken while the writer writes, unless it rests.
fn beside(
    pause: &AtomicBool,
    rests: bool,
    written: &AtomicU64,
    measure: impl FnOnce() -> Result<Figures>,
) -> Result<Figures> {
    if rests {
        return measure();
    }
    pause.store(false, Ordering::Relaxed);
    let (begin, before) = (Instant::now(), written.load(Ordering::Relaxed));
    let figures = measure();
    let count = written.load(Ordering::Relaxed) - before;
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    pause.store(true, Ordering::Relaxed);
    std::thread::sleep(PAUSE);
    let mut figures = figures?;
    figures.put(Row::Beside, rate);
    Ok(figures)
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
    let mut store = ByClient::connect_with(address, options)?;
    let (mut random, mut sets) = (SplitMix64::new(2), Sets::new(content));
    while !stop.load(Ordering::Relaxed) {
        if pause.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        sets.choose((0..PIPELINE).map(|_| random.below(content.keys)));
        store.set_all(&sets)?;
        written.fetch_add(PIPELINE, Ordering::Relaxed);
    }
    Ok(())
}
