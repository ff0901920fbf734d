//! New sources are compiled and started in another process first: V8's parser knows no limit of
//! time and overflows its stack on some sources, and a top level can do what ends V8. There the end
//! is an error reply (design 14).
//!
//! ```text
//! shard: FUNCTION LOAD ──> Checks::begin ──> thread nigh-checks ──socket──> nigh check-sources: Engine::check
//!        (its connection waits)                     │ outcome <── reply, or the process's death
//!        the note wakes it  <── outcome is kept ────┘
//! ```
//!
//! 1. A source is loaded by a shard only when its outcome is `Ok`. In EXEC and FUNCTION RESTORE the
//!    shard waits for it, as long as the limit of loading lets it.
//! 2. The process has the limits of functions that held when it began; with others a new one is
//!    begun. Its stack is smaller than a shard's, so what passes there has room here.
//! 3. It ends when its socket does: with the server, however that ends, or after [`IDLE`].
//! 4. At most [`WAITING_MAX`] sources wait, also of clients that have gone; others are refused. One
//!    for which a shard waits is the next, however many there are: a shard waits for its own only.
//!
//! Bytes on the socket, all numbers u64 little-endian: limits ([`numbers`]), then again and again
//! the length of a source and the source; for each, the length of an error reply and its text, or
//! 0.
//!
//! [`Checks`] is used by all shards; [`serve_checks`] is the other process.

#[cfg(test)]
mod tests;

use crate::engine::{Engine, FunctionLimits, Library, LoadError};
use crate::sync::lock;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The subcommand of `nigh` that calls [`serve_checks`].
pub const SUBCOMMAND: &str = "check-sources";
/// The process is kept so long for the next source: beginning one takes longer than most checks.
const IDLE: Duration = Duration::from_secs(10);
/// Outcomes that are kept until a shard asks for them; one that is gone is found again.
const OUTCOMES_MAX: usize = 16;
/// Sources that wait for their check, or are checked: more than operators load at once.
const WAITING_MAX: usize = 16;
/// The error of a source beyond them.
pub(crate) const TOO_MANY: &str = "ERR too many sources wait to be tried: try again";
/// Stack of the process beyond what functions may take. A shard's has as much and more.
const STACK_BEYOND_BYTES: usize = 1 << 20;
/// Memory of the process beyond JavaScript's heap and buffers: what V8's parser takes for 4 MiB of
/// source, and more.
const MEMORY_BEYOND_BYTES: usize = 1 << 30;
/// CPU time that V8 gets to notice that the limit is over, ms; then the process ends.
const GRACE_MS: u64 = 250;
/// CPU time after which the system ends the process if nobody else does, beyond the limit of a
/// check, seconds.
const ORPHAN_SECONDS: u64 = 10;
/// Waiting time for a reply, for each ms of CPU time: on a machine that has nothing else to do it
/// is that time itself.
const PATIENCE: u32 = 30;
/// Longest error reply, bytes.
const REPLY_MAX: usize = 64 << 10;
/// Numbers that the process is sent at first.
const NUMBERS: usize = 5;

pub(crate) type CheckOutcome = Result<(), String>;

/// A source, and what came of it under these limits, once that is known.
struct Entry {
    source: Arc<[u8]>,
    limits: FunctionLimits,
    /// The thread has it, or had it.
    is_begun: bool,
    /// A shard does nothing else until the outcome is there.
    holds_shard: bool,
    outcome: Option<CheckOutcome>,
    /// Commands that were told that it is known, and are to take it.
    told: usize,
}

impl Entry {
    fn new(source: &[u8], limits: &FunctionLimits, holds_shard: bool) -> Self {
        let (source, limits) = (source.into(), limits.clone());
        Self { source, limits, is_begun: false, holds_shard, outcome: None, told: 0 }
    }

    fn is_of(&self, source: &[u8], limits: &FunctionLimits) -> bool {
        *self.source == *source && self.limits == *limits
    }
}

/// What is called when an outcome has come.
pub(crate) type Notice = Box<dyn Fn() + Send + Sync>;

struct Job {
    source: Arc<[u8]>,
    limits: FunctionLimits,
    checks: Arc<Checks>,
}

/// Tells the thread that a source more waits.
type Order = Arc<Checks>;

/// What a server knows about new sources.
pub(crate) struct Checks {
    /// None: shards compile unchecked, as in a process that is no `nigh`.
    program: Option<PathBuf>,
    notice: Notice,
    entries: Mutex<VecDeque<Entry>>,
    /// An outcome has come.
    came: Condvar,
    worker: Mutex<Option<(Sender<Order>, JoinHandle<()>)>>,
    /// The socket of the process that runs now.
    socket: Mutex<Option<UnixStream>>,
    closing: AtomicBool,
}

impl Checks {
    pub(crate) fn new(program: Option<PathBuf>, notice: Notice) -> Self {
        Self {
            program,
            notice,
            entries: Mutex::default(),
            came: Condvar::new(),
            worker: Mutex::default(),
            socket: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// Whether a source may be loaded without waiting; if not, its check is under way, and all
    /// shards have a note when it is done.
    pub(crate) fn is_done(self: &Arc<Self>, source: &[u8], limits: &FunctionLimits) -> bool {
        !self.is_checked(source, limits) || self.look(source, limits, 1, false)
    }

    /// Whether a source is refused, since too many wait before it.
    pub(crate) fn refuses(&self, source: &[u8], limits: &FunctionLimits) -> bool {
        let entries = lock(&self.entries);
        let waiting = entries.iter().filter(|entry| entry.outcome.is_none()).count();
        waiting >= WAITING_MAX
            && self.is_checked(source, limits)
            && !entries.iter().any(|entry| entry.is_of(source, limits))
    }

    /// The outcome of a source, which may be loaded once if it is `Ok`. It stays for others that
    /// were told that it is there: they are on their way to the owner of libraries, which isn't to
    /// wait for another check. Waits for it if need be.
    pub(crate) fn take(self: &Arc<Self>, source: &[u8], limits: &FunctionLimits) -> CheckOutcome {
        if !self.is_checked(source, limits) {
            return Ok(());
        }
        loop {
            self.look(source, limits, 0, true);
            let mut entries = lock(&self.entries);
            while let Some(at) = entries.iter().position(|entry| entry.is_of(source, limits)) {
                if let Some(outcome) = entries[at].outcome.clone() {
                    entries[at].told = entries[at].told.saturating_sub(1);
                    if entries[at].told == 0 {
                        entries.remove(at);
                    }
                    return outcome;
                }
                entries = self.came.wait(entries).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A source that is too long isn't checked: loading refuses it at once.
    fn is_checked(&self, source: &[u8], limits: &FunctionLimits) -> bool {
        self.program.is_some() && source.len() <= limits.source_bytes
    }

    /// Whether the outcome is there, which so many are told; orders the check if nobody has. With
    /// `holds_shard` a shard does nothing else until it is there.
    fn look(
        self: &Arc<Self>,
        source: &[u8],
        limits: &FunctionLimits,
        told: usize,
        holds_shard: bool,
    ) -> bool {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.is_of(source, limits)) {
            let is_there = entry.outcome.is_some();
            entry.told += if is_there { told } else { 0 };
            entry.holds_shard |= holds_shard;
            return is_there;
        }
        let mut known = (0..entries.len()).filter(|at| entries[*at].outcome.is_some());
        if let Some(oldest) = known.next().filter(|_| known.count() + 1 >= OUTCOMES_MAX) {
            entries.remove(oldest);
        }
        entries.push_back(Entry::new(source, limits, holds_shard));
        drop(entries);
        let ordered = self.order(Arc::clone(self));
        if let Err(error) = &ordered {
            let text = format!("ERR the source can't be checked: {error}");
            self.note((source, limits), Err(text));
        }
        ordered.is_err()
    }

    /// Tells the thread of a source more; it is begun if there is none.
    fn order(&self, order: Order) -> io::Result<()> {
        let Some(program) = self.program.clone() else { return Ok(()) };
        let mut worker = lock(&self.worker);
        let (sender, _) = match &mut *worker {
            Some(worker) => worker,
            none => {
                let (sender, orders) = channel();
                let thread = std::thread::Builder::new().name("nigh-checks".into());
                none.insert((sender, thread.spawn(move || work(&orders, &program))?))
            }
        };
        sender.send(order).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// The source that is checked next: one for which a shard waits, else the oldest.
    fn next(self: &Arc<Self>) -> Option<Job> {
        let mut entries = lock(&self.entries);
        let waits = |entry: &Entry| !entry.is_begun && entry.outcome.is_none();
        let first = entries.iter().position(|entry| entry.holds_shard && waits(entry));
        let next = first.or_else(|| entries.iter().position(waits))?;
        let entry = &mut entries[next];
        entry.is_begun = true;
        let (source, limits) = (Arc::clone(&entry.source), entry.limits.clone());
        Some(Job { source, limits, checks: Arc::clone(self) })
    }

    fn note(&self, (source, limits): (&[u8], &FunctionLimits), outcome: CheckOutcome) {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.is_of(source, limits)) {
            entry.outcome = Some(outcome);
        }
        self.came.notify_all();
    }

    /// Ends the thread and its process; checks that wait fail.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::SeqCst);
        let worker = lock(&self.worker).take();
        if let Some(socket) = &*lock(&self.socket) {
            let _ = socket.shutdown(Shutdown::Both); // it may have ended by itself
        }
        if let Some((sender, thread)) = worker {
            drop(sender);
            let _ = thread.join(); // it panics nowhere; if it did, it is over all the same
        }
    }
}

/// The thread: one check after the other.
fn work(orders: &Receiver<Order>, program: &Path) {
    let mut process: Option<Process> = None;
    loop {
        match orders.recv_timeout(IDLE) {
            Ok(checks) => {
                let Some(job) = checks.next() else { continue };
                let outcome = match Library::name_of(&job.source) {
                    Ok(name) => check(&mut process, program, &name, &job),
                    Err(error) => Err(error.to_string()),
                };
                checks.note((&job.source, &job.limits), outcome);
                (checks.notice)();
            }
            Err(RecvTimeoutError::Timeout) => process = None,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Has a source checked by the process; one that has ended, or has other limits, is replaced.
fn check(process: &mut Option<Process>, program: &Path, library: &str, job: &Job) -> CheckOutcome {
    let checks = &job.checks;
    if process.as_ref().is_some_and(|process| process.limits != job.limits) {
        *process = None;
    }
    let failed = |error: &io::Error| {
        Err(format!("ERR library '{library}': its source can't be checked: {error}"))
    };
    let running = match process {
        Some(running) => running,
        None => match Process::begin(program, &job.limits) {
            Ok((begun, socket)) => {
                *lock(&checks.socket) = Some(socket);
                process.insert(begun)
            }
            Err(error) => {
                tracing::error!(program = %program.display(), %error, "sources can't be checked");
                return failed(&error);
            }
        },
    };
    if checks.closing.load(Ordering::SeqCst) {
        return Err("ERR the server is shutting down".to_owned());
    }
    let before_ms = running.cpu_ms();
    match running.ask(&job.source) {
        Ok(outcome) => outcome,
        Err(_) if checks.closing.load(Ordering::SeqCst) => {
            *process = None;
            Err("ERR the server is shutting down".to_owned())
        }
        Err(error) => {
            let used_ms = running.cpu_ms().saturating_sub(before_ms);
            let how = running.end(&error);
            *process = None;
            let reason = if used_ms >= job.limits.load_ms {
                LoadError::too_long(library, job.limits.load_ms).to_string()
            } else {
                format!(
                    "ERR Error compiling library '{library}': it ended the process that tried it ({how}): \
                     it may be nested too deeply, or need too much memory"
                )
            };
            tracing::warn!(
                library,
                used_ms,
                how,
                "a source that was to be loaded ended the process that tried it"
            );
            Err(reason)
        }
    }
}

/// The other process, from here.
struct Process {
    child: Child,
    stream: UnixStream,
    limits: FunctionLimits,
}

impl Process {
    /// Begins one, and a second handle of its socket.
    fn begin(program: &Path, limits: &FunctionLimits) -> io::Result<(Self, UnixStream)> {
        let (stream, theirs) = UnixStream::pair()?;
        let patience = Duration::from_millis(limits.load_ms) * PATIENCE;
        stream.set_read_timeout(Some(patience + IDLE))?;
        stream.set_write_timeout(Some(patience + IDLE))?;
        let child = Command::new(program)
            .arg(SUBCOMMAND)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null()) // what it logs and dies of is told here
            .spawn()?;
        let socket = stream.try_clone()?;
        let mut process = Self { child, stream, limits: limits.clone() };
        process.stream.write_all(numbers(limits).map(u64::to_le_bytes).as_flattened())?;
        Ok((process, socket))
    }

    fn ask(&mut self, source: &[u8]) -> io::Result<CheckOutcome> {
        self.stream.write_all(&(source.len() as u64).to_le_bytes())?;
        self.stream.write_all(source)?;
        let text = read_bytes(&mut self.stream, REPLY_MAX)?;
        let text = text.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(if text.is_empty() { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) })
    }

    /// CPU time that it has used, also when it has ended, as long as nobody has waited for it.
    fn cpu_ms(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let text = text.unwrap_or_default();
        // Behind the name, which may contain anything: utime and stime are the 12th and 13th field.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)
    }

    /// Ends it, if it hasn't; how it ended.
    fn end(&mut self, error: &io::Error) -> String {
        use std::os::unix::process::ExitStatusExt;
        // One that lives on isn't waited for. One that has closed its socket by its end keeps how
        // it ended.
        let _ = self.child.kill();
        let ended = self.child.wait();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return "no reply".to_owned(),
            io::ErrorKind::InvalidData => return "a reply that is none".to_owned(),
            _ => {}
        }
        match ended {
            Ok(status) => match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => status.to_string(),
            },
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

/// The limits that bound a check, in the order in which they are sent.
fn numbers(limits: &FunctionLimits) -> [u64; NUMBERS] {
    let bytes = |size: usize| size as u64;
    [
        limits.load_ms,
        bytes(limits.heap_bytes),
        bytes(limits.array_buffer_bytes),
        bytes(limits.stack_bytes),
        bytes(limits.source_bytes),
    ]
}

/// Length and bytes; nothing at the end of the stream.
fn read_bytes(stream: &mut UnixStream, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// The process that checks sources by the engine that `make` makes, with the socket to the server
/// as its stdin; until that is closed.
/// An error is what the system or the engine refuses.
pub(crate) fn serve_checks<E: Engine>(
    make: impl FnOnce(FunctionLimits) -> io::Result<E> + Send + 'static,
) -> io::Result<()> {
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut sent = [[0; 8]; NUMBERS];
    stream.read_exact(sent.as_flattened_mut())?;
    let [load_ms, sizes @ ..] = sent.map(u64::from_le_bytes);
    let [heap_bytes, array_buffer_bytes, stack_bytes, source_bytes] =
        sizes.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    let limits = FunctionLimits {
        load_ms,
        heap_bytes,
        array_buffer_bytes,
        stack_bytes,
        source_bytes,
        grace_ms: GRACE_MS,
        ..FunctionLimits::default()
    };
    limit(Resource::Core, 0)?;
    let stack = limits.stack_bytes + STACK_BEYOND_BYTES;
    let thread = std::thread::Builder::new().name("nigh-check".into()).stack_size(stack);
    let thread = thread.spawn(move || serve_each(&mut stream, limits, make))?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the check panicked")))
}

fn serve_each<E: Engine>(
    stream: &mut UnixStream,
    limits: FunctionLimits,
    make: impl FnOnce(FunctionLimits) -> io::Result<E>,
) -> io::Result<()> {
    let (most, seconds) = (limits.source_bytes, limits.load_ms.div_ceil(1000) + ORPHAN_SECONDS);
    let memory = limits.heap_bytes + limits.array_buffer_bytes + MEMORY_BEYOND_BYTES;
    let mut engine = make(limits)?;
    // The engine has reserved more than it will use, which counts.
    limit(Resource::Data, reserved_bytes()? + memory as u64)?;
    while let Some(source) = read_bytes(stream, most)? {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec;
        limit(Resource::Cpu, u64::try_from(used).unwrap_or(0) + seconds)?;
        let text = engine.check(&source).err().map_or_else(String::new, |error| error.to_string());
        stream.write_all(&(text.len() as u64).to_le_bytes())?;
        stream.write_all(text.as_bytes())?;
        engine.catch_up(true);
    }
    Ok(())
}

/// Writable memory that this process has mapped, used or not.
fn reserved_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(5).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size() as u64)
}

/// Lowers what the system lets this process take.
fn limit(resource: Resource, current: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(resource).maximum;
    let current = maximum.map_or(current, |maximum| current.min(maximum));
    Ok(setrlimit(resource, Rlimit { current: Some(current), maximum })?)
}
