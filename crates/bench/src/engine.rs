//! The load generator's loop. Each connection sends a pipeline of requests, waits for all replies,
//! and sends the next pipeline: a closed loop, as in redis-benchmark.
//!
//! ```text
//!   ┌─► append P requests ─► write ─► epoll ─► read ─► skip replies ─┐   per connection
//!   └──────────────── all P replies are there ◄──────────────────────┘
//! ```
//!
//! Invariants:
//! 1. One thread serves all connections. They share the read and the write buffer, which stay in
//!    cache.
//! 2. A latency begins just before the write of the pipeline. It ends just after the read that
//!    brought the reply.
//! 3. Between runs no request is outstanding.

use super::interrupt;
use super::reply_counts::{Checker, Skipper, Tally};
use super::stream::Stream;
use super::template::{RequestKind, Workload};
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use nigh_client::Address;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Bytes of one read; they fit in the second-level cache.
const READ_BYTES: usize = 256 << 10;
/// Events of one `epoll_wait`.
const EVENTS: usize = 256;
/// Time for which the generator polls before it sleeps: longer than a pipeline of functions takes.
/// A sleeping generator wakes up late, and by then the server sleeps too.
const SPIN: Duration = Duration::from_millis(1);
/// After this silence the generator takes the server for dead.
const SILENCE: Duration = Duration::from_secs(20);
/// Largest latency of the histogram, in ns: a minute.
const LATENCY_NS: u64 = 60_000_000_000;
/// Most connections to one endpoint: well under the 20,000 descriptors of a process.
const CONNECTIONS: usize = 10_000;
/// Time between two calls of `tick`.
const TICK: Duration = Duration::from_millis(100);

/// When a run ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Elapsed(Duration),
    Requests(u64),
}

/// The outcome of one run.
pub(super) struct RunFigures {
    pub(super) tally: Tally,
    pub(super) sets: u64,
    pub(super) seconds: f64,
    pub(super) latency: Histogram<u64>,
}

impl RunFigures {
    /// Replies per second.
    pub(super) fn rate(&self) -> f64 {
        self.tally.replies as f64 / self.seconds
    }
}

/// An empty histogram of latencies in ns, with three digits.
pub(super) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LATENCY_NS, 3)?)
}

enum ReplyReader {
    Skip(Skipper),
    Check(Checker),
}

struct Connection {
    stream: Stream,
    reader: ReplyReader,
    /// Received bytes that make no whole token yet.
    carry: Vec<u8>,
    /// Bytes that the socket has not taken yet.
    unsent: Vec<u8>,
    outstanding: u64,
    sent_at: Instant,
}

/// Connections to one endpoint.
pub(super) struct Engine {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    pipeline: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    events: Vec<Event>,
}

/// The state of a run.
struct Progress {
    tally: Tally,
    sets: u64,
    latency: Histogram<u64>,
    left: u64,
    busy: usize,
    stopping: bool,
}

impl Engine {
    /// Opens `connections` connections. With `check_bytes` the engine verifies replies; values have
    /// that size.
    pub(super) fn connect(
        address: &Address,
        password: Option<&str>,
        connections: usize,
        pipeline: u64,
        check_bytes: Option<usize>,
    ) -> Result<Self> {
        ensure!((1..=CONNECTIONS).contains(&connections), "-c must be from 1 to {CONNECTIONS}");
        ensure!(pipeline >= 1, "-P must be at least 1");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("can't create an epoll")?;
        let mut engine = Self {
            epoll,
            connections: Vec::with_capacity(connections),
            pipeline,
            input: vec![0; READ_BYTES.max(check_bytes.unwrap_or(0) * 2 + 64)],
            output: Vec::new(),
            events: Vec::with_capacity(EVENTS),
        };
        for index in 0..connections {
            let mut stream = Stream::connect(address)?;
            if let Some(password) = password.or(address.password.as_deref()) {
                authenticate(&mut stream, password)?;
            }
            stream.set_nonblocking()?;
            epoll::add(&engine.epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN)
                .context("can't watch a connection")?;
            engine.connections.push(Connection {
                stream,
                reader: match check_bytes {
                    Some(_) => ReplyReader::Check(Checker::default()),
                    None => ReplyReader::Skip(Skipper::default()),
                },
                carry: Vec::new(),
                unsent: Vec::new(),
                outstanding: 0,
                sent_at: Instant::now(),
            });
        }
        Ok(engine)
    }

    /// Sends `load` until `until`. Calls `tick` about every 100 ms with the replies so far.
    pub(super) fn run(
        &mut self,
        load: &mut Workload,
        until: Until,
        tick: &mut dyn FnMut(u64),
    ) -> Result<RunFigures> {
        let (left, limit) = match until {
            Until::Elapsed(limit) => (u64::MAX, Some(limit)),
            Until::Requests(count) => (count, None),
        };
        let mut progress = Progress {
            tally: Tally::default(),
            sets: 0,
            latency: histogram()?,
            left,
            busy: 0,
            stopping: false,
        };
        let start = Instant::now();
        for index in 0..self.connections.len() {
            self.send(index, load, &mut progress)?;
        }
        let (mut heard, mut ticked) = (start, start);
        while progress.busy > 0 {
            interrupt::check()?;
            let now = self.wait(heard)?;
            if !self.events.is_empty() {
                heard = now;
            }
            progress.stopping |= limit.is_some_and(|limit| now - start >= limit);
            self.serve(load, &mut progress)?;
            if now - ticked >= TICK {
                ticked = now;
                tick(progress.tally.replies);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let Progress { tally, sets, latency, .. } = progress;
        Ok(RunFigures { tally, sets, seconds, latency })
    }

    /// Waits for events. Polls while the last event is recent, then sleeps.
    fn wait(&mut self, heard: Instant) -> Result<Instant> {
        let mut now = Instant::now();
        let silence = now - heard;
        if silence > SILENCE {
            bail!("the server hasn't answered for {} s", SILENCE.as_secs());
        }
        let sleep = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let spin = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if silence < SPIN { &spin } else { &sleep };
        self.events.clear();
        let space = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, space, Some(timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("can't wait for replies"),
        }
        if silence >= SPIN {
            now = Instant::now();
        }
        Ok(now)
    }

    fn serve(&mut self, load: &mut Workload, progress: &mut Progress) -> Result<()> {
        for at in 0..self.events.len() {
            let event = self.events[at];
            let index = usize::try_from(event.data.u64())?;
            let flags = event.flags;
            if flags.contains(EventFlags::OUT) {
                self.flush(index)?;
            }
            if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
                self.receive(index, load, progress)?;
            }
        }
        Ok(())
    }

    /// Sends the next pipeline, if any request is left to send.
    fn send(&mut self, index: usize, load: &mut Workload, progress: &mut Progress) -> Result<()> {
        let connection = &mut self.connections[index];
        let count = self.pipeline.min(progress.left);
        if progress.stopping || count == 0 {
            return Ok(());
        }
        progress.left -= count;
        progress.busy += 1;
        self.output.clear();
        for _ in 0..count {
            let (kind, number) = load.append(&mut self.output);
            progress.sets += u64::from(kind == RequestKind::Set);
            if let ReplyReader::Check(checker) = &mut connection.reader {
                checker.expect(kind, number);
            }
        }
        connection.outstanding = count;
        connection.sent_at = Instant::now();
        let sent = connection.stream.write(&self.output).context("the server hung up")?;
        if sent < self.output.len() {
            connection.unsent.extend_from_slice(&self.output[sent..]);
            self.watch(index, EventFlags::IN | EventFlags::OUT)?;
        }
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let sent = connection.stream.write(&connection.unsent).context("the server hung up")?;
        connection.unsent.drain(..sent);
        if connection.unsent.is_empty() {
            self.watch(index, EventFlags::IN)?;
        }
        Ok(())
    }

    fn watch(&self, index: usize, flags: EventFlags) -> Result<()> {
        let data = EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, &self.connections[index].stream, data, flags)
            .context("can't watch a connection")
    }

    /// Reads once and counts replies. Sends the next pipeline when this one is answered.
    fn receive(
        &mut self,
        index: usize,
        load: &mut Workload,
        progress: &mut Progress,
    ) -> Result<()> {
        let connection = &mut self.connections[index];
        let carried = connection.carry.len();
        self.input[..carried].copy_from_slice(&connection.carry);
        let read = connection.stream.read(&mut self.input[carried..]);
        let read = match read.context("the server hung up")? {
            None => return Ok(()),
            Some(0) => bail!("the server closed the connection"),
            Some(read) => read,
        };
        let latency = connection.sent_at.elapsed();
        let bytes = &self.input[..carried + read];
        let before = progress.tally.replies;
        let used = match &mut connection.reader {
            ReplyReader::Skip(skipper) => skipper.feed(bytes, &mut progress.tally)?,
            ReplyReader::Check(checker) => checker.feed(bytes, &load.shape, &mut progress.tally)?,
        };
        connection.carry.clear();
        connection.carry.extend_from_slice(&bytes[used..]);
        ensure!(connection.carry.len() < self.input.len(), "the server sent a reply without end");
        let replies = progress.tally.replies - before;
        ensure!(replies <= connection.outstanding, "the server sent more replies than requests");
        if replies > 0 {
            let nanos = u64::try_from(latency.as_nanos())?.clamp(1, LATENCY_NS);
            progress.latency.saturating_record_n(nanos, replies);
            connection.outstanding -= replies;
            if connection.outstanding == 0 {
                progress.busy -= 1;
                self.send(index, load, progress)?;
            }
        }
        Ok(())
    }
}

/// Sends AUTH and waits for the reply.
fn authenticate(stream: &mut Stream, password: &str) -> Result<()> {
    let request = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len());
    stream.write(request.as_bytes()).context("the server hung up")?;
    let mut reply = [0; 512];
    let length = stream.read(&mut reply).context("the server hung up")?.unwrap_or(0);
    if !reply[..length].starts_with(b"+OK") {
        bail!("AUTH failed: {}", String::from_utf8_lossy(&reply[..length]).trim());
    }
    Ok(())
}
