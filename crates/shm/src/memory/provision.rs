//! One thread per domain that takes and gives back memory, off the request path.
//!
//! ```text
//! writer ── Job ──> bounded queue ──> provisioner: fallocate + populate, or punch ── Done ──> mail of that writer
//! ```
//!
//! 1. The queue is bounded; a writer whose job finds no room does it itself or asks again later.
//! 2. A job holds its region, so memory is mapped as long as somebody works on it.
//! 3. What a slot is for is decided by its writer alone; the provisioner only moves memory.
//!
//! The thread starts with the first job and ends with its domain. Tests hold it up, so that nothing
//! depends on how soon it runs.

use crate::error::Denial;
use crate::failpoints::{SlowJobs, slow_jobs};
use crate::memory::quiet_thread::spawn_without_signals;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Jobs that wait at most: some per arena of a few hundred busy ones.
pub(crate) const QUEUE_JOBS: usize = 1024;

/// Memory that a job works on: a range of whole pages at a time.
pub(crate) trait Backing: Send + Sync {
    /// Takes memory for whole pages, which then read as zeros unless they were backed before.
    fn back(&self, offset: u64, len: u64) -> Result<(), Denial>;
    /// Gives memory back; the pages read as zeros then. Only after the grace period.
    fn punch(&self, offset: u64, len: u64) -> Result<(), Denial>;
}

/// What is to be done with a range of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Back the range.
    Back,
    /// Punch the range.
    Punch,
}

/// A job, and what the writer calls it.
pub(crate) struct MemoryJob {
    pub(crate) task: Task,
    pub(crate) slot: u32,
    pub(crate) slots: u32,
    /// Where the range begins.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) region: Arc<dyn Backing>,
    /// SYNC(job-over): dropped behind the region. While the writer is not alone with its mail, a
    /// job may have the mapping in its hands.
    pub(crate) mail: Arc<Mail>,
}

/// A job that was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobDone {
    pub(crate) task: Task,
    pub(crate) slot: u32,
    pub(crate) slots: u32,
    pub(crate) bytes: u64,
    pub(crate) result: Result<(), Denial>,
}

impl MemoryJob {
    /// Does it, here and now.
    pub(crate) fn run(&self) -> JobDone {
        let result = match self.task {
            Task::Back => self.region.back(self.offset, self.bytes),
            Task::Punch => self.region.punch(self.offset, self.bytes),
        };
        let MemoryJob { task, slot, slots, bytes, .. } = *self;
        JobDone { task, slot, slots, bytes, result }
    }
}

/// Where a writer finds what was done for it.
#[derive(Default)]
pub(crate) struct Mail {
    done: Mutex<Vec<JobDone>>,
    waiting: AtomicU32,
}

impl Mail {
    fn push(&self, done: JobDone) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// Whether something waits: one load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> Vec<JobDone> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut *done)
    }
}

/// The handle to the thread.
pub(crate) struct Provisioner {
    queue: Mutex<Option<SyncSender<MemoryJob>>>,
    pub(crate) slow: SlowJobs,
}

impl Provisioner {
    pub(crate) fn new() -> Provisioner {
        Provisioner { queue: Mutex::new(None), slow: slow_jobs() }
    }

    /// Gives a job away; `Err` with the job if the queue is full or there is no thread to be had.
    pub(crate) fn send(&self, job: MemoryJob) -> Result<(), MemoryJob> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_none() {
            *queue = start(self.slow.clone());
        }
        match &*queue {
            Some(sender) => sender.try_send(job).map_err(|e| match e {
                std::sync::mpsc::TrySendError::Full(job)
                | std::sync::mpsc::TrySendError::Disconnected(job) => job,
            }),
            None => Err(job),
        }
    }
}

fn start(slow: SlowJobs) -> Option<SyncSender<MemoryJob>> {
    let (sender, receiver) = sync_channel(QUEUE_JOBS);
    spawn_without_signals("nigh-memory".into(), move || work(&receiver, &slow)).ok()?;
    Some(sender)
}

fn work(jobs: &Receiver<MemoryJob>, slow: &SlowJobs) {
    while let Ok(job) = jobs.recv() {
        slow.pause();
        let done = job.run();
        job.mail.push(done);
        slow.pause();
    }
}
