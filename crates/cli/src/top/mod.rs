//! `nigh top`: the work of a server's shards, live.
//!
//! ```text
//! INFO, LATENCY HISTOGRAM ──> sample ──> drawing ──> screen       every --interval
//!  or arenas (--local) ─────────────────────┘└───────> stdout       once, without a terminal
//! ```
//!
//! Invariants:
//! 1. A look costs the server one INFO and one LATENCY HISTOGRAM.
//! 2. If the server goes away, the live view says so in a line and looks for it until it is back,
//!    and has read its log. At the start, and without a terminal, a missing server is an error.

mod arenas;
mod drawing;
mod sample;
mod screen;

use crate::output::{Output, whole_text};
use crate::render::printable;
use crate::target::{ServerFlags, accepted};
use anyhow::{Context, Result, bail, ensure};
use drawing::{ScreenLine, Size, Style};
use nigh_client::{ClientError, Connection, Frame};
use sample::{Between, SECTIONS, Sample};
use screen::{Screen, Wake};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Shortest interval, s: each look costs every shard a snapshot.
const LEAST_INTERVAL_S: f64 = 0.1;
/// Longest interval, s.
const MOST_INTERVAL_S: f64 = 3600.0;
/// Longest wait of the live view for the server: meanwhile it reads no keys.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of looks for which the view notes that the server is another one.
const NOTED_LOOKS: u32 = 10;
/// Columns of a report without a screen: as many as any line needs.
const PLAIN_COLUMNS: usize = 400;

/// Options of `nigh top`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ServerFlags,
    /// Show the arenas in this folder (a server's shm-dir) and ask no server; it may be down
    #[arg(long, value_name = "DIR")]
    local: Option<PathBuf>,
    /// Seconds between two looks
    #[arg(short, long, default_value_t = 1.0, value_name = "SECONDS")]
    interval: f64,
    /// Look twice, print one report as plain text, and end; this is the default without a terminal
    #[arg(long)]
    once: bool,
}

/// Shows a server until `q`, or once.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        (LEAST_INTERVAL_S..=MOST_INTERVAL_S).contains(&args.interval),
        "--interval must be from {LEAST_INTERVAL_S} to {MOST_INTERVAL_S} seconds"
    );
    let interval = Duration::from_secs_f64(args.interval);
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if let Some(folder) = &args.local {
        return arenas::run(folder, interval, has_terminal && !args.once);
    }
    let is_live = has_terminal && !args.once;
    let mut server = NighServer::open(&args.target, is_live.then_some(PATIENCE))?;
    let first = server.look()?;
    if is_live { live(args, server, first, interval) } else { once(server, first, interval) }
}

/// A Nigh that doesn't serve yet: it reads its log.
#[derive(Debug)]
struct NotReady {
    address: String,
    percent: String,
}

impl fmt::Display for NotReady {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, percent } = self;
        write!(out, "it reads its log ({percent} %): {address} isn't ready yet")
    }
}

impl std::error::Error for NotReady {}

/// A connection to a server that is Nigh.
struct NighServer {
    connection: Connection,
}

impl NighServer {
    /// Connects. `patience` bounds what `--timeout` says.
    fn open(target: &ServerFlags, patience: Option<Duration>) -> Result<Self> {
        let mut connection = match patience {
            None => target.connect()?,
            Some(patience) => target.connect_within(patience)?,
        };
        let info = text(connection.call(["INFO", "server"])?)?;
        let server = Sample::parse(&info, &Frame::Null);
        if server.text("nigh_version").is_empty() {
            let other = match server.text("redis_version") {
                "" => String::new(),
                version => format!(" but a Redis {}", printable(version.as_bytes())),
            };
            bail!(
                "{} is no Nigh server{other}: nigh top shows shards and arenas, which only Nigh has",
                target.address()
            );
        }
        Ok(Self { connection })
    }

    fn look(&mut self) -> Result<Sample> {
        let info = [&["INFO"][..], &SECTIONS].concat();
        let replies = self.connection.pipeline([info, vec!["LATENCY", "HISTOGRAM"]])?;
        let mut replies = replies.into_iter();
        let (Some(info), Some(histogram)) = (replies.next(), replies.next()) else {
            bail!("two commands have two replies");
        };
        let info = text(info)?;
        let server = Sample::parse(&info, &Frame::Null);
        if server.text("loading") == "1" {
            let address = self.connection.address().to_string();
            let percent = printable(server.text("loading_loaded_perc").as_bytes());
            bail!(NotReady { address, percent });
        }
        Ok(Sample::parse(&info, &accepted(histogram)?))
    }
}

fn text(reply: Frame) -> Result<String> {
    let reply = accepted(reply)?;
    let bytes = reply.bytes().context("INFO isn't answered by a text")?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn once(mut server: NighServer, first: Sample, interval: Duration) -> Result<()> {
    std::thread::sleep(interval);
    let second = server.look()?;
    let size = Size { columns: PLAIN_COLUMNS, rows: None };
    let address = server.connection.address().to_string();
    let lines = drawing::lines(&address, Between::new(&first, &second), None, size);
    let mut out = Output::new();
    for line in lines {
        writeln!(out, "{}", line.text)?;
    }
    Ok(())
}

/// The state of the live view.
struct Live<'a> {
    args: &'a Args,
    screen: Screen,
    server: Option<NighServer>,
    before: Sample,
    now: Sample,
    note: Option<String>,
    /// Number of looks until the note disappears.
    noted: u32,
}

fn live(args: &Args, server: NighServer, first: Sample, interval: Duration) -> Result<()> {
    let screen = Screen::take()?;
    let (before, now) = (first.clone(), first);
    let server = Some(server);
    let mut live = Live { args, screen, server, before, now, note: None, noted: 0 };
    loop {
        live.show()?;
        match live.screen.wait(interval)? {
            Wake::Quit => return Ok(()),
            Wake::Resized => {}
            Wake::Time => live.look()?,
        }
    }
}

impl Live<'_> {
    fn show(&self) -> Result<()> {
        let address = self.args.target.address().to_string();
        let (between, note) = (Between::new(&self.before, &self.now), self.note.as_deref());
        let size = self.screen.size();
        let mut lines = drawing::lines(&address, between, note, size);
        let rows = size.rows.unwrap_or(0);
        lines.truncate(rows.saturating_sub(1));
        lines.push(ScreenLine { style: Style::Plain, text: "q leaves".to_owned() });
        self.screen.show(&lines)
    }

    /// Looks again, or looks for a server that is gone.
    fn look(&mut self) -> Result<()> {
        let was_gone = self.server.is_none();
        match self.try_look() {
            Ok(sample) => {
                if !sample.is_same_run(&self.now) {
                    self.say("The server was started anew: counters begin at 0.");
                    self.before = sample.clone();
                } else {
                    if was_gone {
                        self.say("The server answers again.");
                    }
                    self.before = std::mem::take(&mut self.now);
                }
                self.now = sample;
                self.noted = self.noted.saturating_sub(1);
                if self.noted == 0 {
                    self.note = None;
                }
                Ok(())
            }
            Err(error) if error.is::<ClientError>() || error.is::<NotReady>() => {
                self.server = None;
                self.note = Some(format!(
                    "Not connected, the numbers are old: {}. Trying again every {} s.",
                    whole_text(&error),
                    self.args.interval
                ));
                Ok(())
            }
            // Other errors won't pass, such as a server of another kind at the address.
            Err(error) => Err(error),
        }
    }

    fn say(&mut self, note: &str) {
        self.note = Some(note.to_owned());
        self.noted = NOTED_LOOKS;
    }

    fn try_look(&mut self) -> Result<Sample> {
        let server = match &mut self.server {
            Some(server) => server,
            None => self.server.insert(NighServer::open(&self.args.target, Some(PATIENCE))?),
        };
        server.look()
    }
}
