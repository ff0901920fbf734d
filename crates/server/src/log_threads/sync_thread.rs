//! The thread that runs a log's syncs, beside the log's thread.
//!
//! 1. It has one job at a time. It ends when the log's thread has dropped its side, which waits for
//!    that: so the folder stays locked while a sync runs.
//!
//! One thread for each log; its [`SyncThread`] is the log thread's.

use nigh_log::{StoredFile, SyncEnd, SyncJob};
use nigh_store::{LogStatus, Syncer};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The log thread's side.
pub(crate) struct SyncThread<F> {
    /// `None`: it is being dropped.
    jobs: Option<SyncSender<SyncJob<F>>>,
    ends: Receiver<SyncEnd>,
    thread: Option<JoinHandle<()>>,
}

impl<F: StoredFile> SyncThread<F> {
    /// Starts the thread of a shard's log.
    pub(crate) fn spawn(shard: usize, status: Arc<LogStatus>) -> std::io::Result<SyncThread<F>> {
        let (jobs, to_run) = sync_channel::<SyncJob<F>>(1);
        let (ended, ends) = sync_channel(1);
        let run = move || {
            for job in to_run {
                if ended.send(job.run()).is_err() {
                    return;
                }
                status.tell_sync_ended();
            }
        };
        let thread = std::thread::Builder::new().name(format!("nigh-sync-{shard}")).spawn(run)?;
        Ok(SyncThread { jobs: Some(jobs), ends, thread: Some(thread) })
    }
}

impl<F: StoredFile> Syncer<F> for SyncThread<F> {
    fn begin(&mut self, job: SyncJob<F>) {
        let sent = self.jobs.as_ref().and_then(|jobs| jobs.try_send(job).ok());
        sent.expect("the thread lives, and has no other job");
    }

    fn take(&mut self) -> Option<SyncEnd> {
        self.ends.try_recv().ok()
    }

    fn wait(&mut self) -> SyncEnd {
        self.ends.recv().expect("the thread lives, and has a job")
    }
}

impl<F> Drop for SyncThread<F> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It runs no code that panics; if it did, the log's thread has told it.
            let _ = thread.join();
        }
    }
}
