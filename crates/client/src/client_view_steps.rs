//! Views of several keys, by a function that is called again, or step by step.
//!
//! ```text
//! begin ── step, step, … ── end ──┬─ true: what was read counts
//!            └──── again ─────────┘
//! ```
//!
//! 1. An attempt counts if it is whole, its memory has its writers still, and what it has seen is
//!    on disk, where replies wait for that.
//! 2. Between two steps nothing of the client is borrowed or locked.
//!
//! Belongs to one thread at a time.

use std::time::{Duration, Instant};

use nigh_shm::TooNew;

use crate::call_error::CallError;
use crate::client::Client;
use crate::client_view::{ATTEMPTS_MAX, AttemptState, ClientView, ViewSteps};
use crate::link::LOOK_MS;
use crate::local_side::{OTHER_WRITER, why_over};
use crate::waits::GLANCE;

/// Between two looks whether a moment is on disk.
const SYNC_STEP: Duration = Duration::from_micros(50);
/// Between two looks whether its server is there.
const LOOK: Duration = Duration::from_millis(LOOK_MS);
/// How long a view waits for that if no timeout says so.
const SYNC_MOST: Duration = Duration::from_secs(10);

impl Client {
    /// Reads some keys as of one moment for each partition: `read` gets them from the view, one
    /// after another, and may decide by one value which key is next. When too much has changed
    /// meanwhile, the view says so, `read` returns that, and is called again for another moment. It
    /// takes local access.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), nigh_client::CallError> {
    /// let mut client = nigh_client::Client::connect("unix:/run/nigh/nigh.sock")?;
    /// let address = client.view(|view| match view.get(b"user:of:session")? {
    ///     Some(user) => view.get(&user),
    ///     None => Ok(None),
    /// })?;
    /// # drop(address);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::get`]; [`CallError::NotLocal`], [`CallError::TooNew`],
    /// [`CallError::NotSynced`].
    pub fn view<R>(
        &mut self,
        mut read: impl FnMut(&mut ClientView<'_>) -> Result<R, TooNew>,
    ) -> Result<R, CallError> {
        let mut steps = self.begin_view()?;
        loop {
            let result = self.step_view(&mut steps, &mut read);
            if self.end_view(&mut steps, result.is_ok())?
                && let Ok(result) = result
            {
                return Ok(result);
            }
        }
    }

    /// Begins a view for a caller that reads step by step, as one in another language does: the
    /// steps are reads by [`Client::step_view`], and [`Client::end_view`] says whether they count.
    ///
    /// # Errors
    /// As [`Client::view`].
    pub fn begin_view(&mut self) -> Result<ViewSteps, CallError> {
        let link = self.attached()?;
        if link.local.is_none() {
            let cause = format!("{}; a view reads the server's memory", link.why_not_local);
            return Err(CallError::NotLocal { address: self.address().to_string(), cause });
        }
        let (link_number, outcome) = (self.link_number(), AttemptState::Whole);
        Ok(ViewSteps { link_number, views: Vec::new(), outcome, attempts: 0 })
    }

    /// Reads in a view.
    ///
    /// # Errors
    /// [`TooNew`]: the attempt is over, and [`Client::end_view`] begins another.
    pub fn step_view<R>(
        &self,
        steps: &mut ViewSteps,
        read: impl FnOnce(&mut ClientView<'_>) -> Result<R, TooNew>,
    ) -> Result<R, TooNew> {
        match self.side_of(steps.link_number) {
            Some(side) => read(&mut ClientView::of(side, steps)),
            None => Err(steps.end_with(AttemptState::TooNew)),
        }
    }

    /// Ends an attempt: `true` if what it has read counts. Else another one has begun, whose steps
    /// are the next ones; also if the caller didn't get `to_the_end` of its reads.
    ///
    /// # Errors
    /// As [`Client::view`]. Behind [`CallError::WouldWait`] the same call goes on where it may
    /// wait.
    pub fn end_view(&mut self, steps: &mut ViewSteps, to_the_end: bool) -> Result<bool, CallError> {
        if let AttemptState::Judge(key) = &steps.outcome {
            // Its owner finds it over too, and says so in its clock.
            self.ask(&mut (), &[b"EXISTS", key], |_, ()| Some(()))?;
        } else if let AttemptState::NoRoom(bytes) = steps.outcome {
            return Err(CallError::no_memory(b"a view", bytes));
        } else if let Some(side) = self.side_of(steps.link_number) {
            let is_whole = to_the_end && matches!(steps.outcome, AttemptState::Whole);
            if !side.has_its_writers() {
                self.leave(OTHER_WRITER.to_owned());
            } else if is_whole {
                if self.await_disk(steps)? {
                    return Ok(true);
                }
            } else if let AttemptState::Failed(error) = &steps.outcome
                && let Some(why) = why_over(error)
            {
                self.leave(why);
            } else {
                std::thread::yield_now();
            }
        }
        let attempts = steps.attempts + 1;
        if attempts >= ATTEMPTS_MAX {
            return Err(CallError::TooNew { address: self.address().to_string(), attempts });
        }
        *steps = ViewSteps { attempts, ..self.begin_view()? };
        Ok(false)
    }

    /// Waits until what a view has seen is on disk, if replies wait for that. False if its server
    /// is gone before: nobody syncs then.
    fn await_disk(&mut self, steps: &ViewSteps) -> Result<bool, CallError> {
        let begin = Instant::now();
        let (mut glanced, mut looked) = (begin, begin);
        let options = &self.options().connection;
        let (after, while_waiting) = (options.timeout.unwrap_or(SYNC_MOST), options.while_waiting);
        loop {
            let Some(side) = self.side_of(steps.link_number) else { return Ok(false) };
            if steps.moments().all(|(partition, lsn)| side.is_on_disk(partition, Some(lsn))) {
                return Ok(side.has_its_writers());
            }
            if !self.waits() {
                return Err(CallError::WouldWait);
            }
            let mut is_enough = begin.elapsed() >= after;
            if glanced.elapsed() >= GLANCE {
                glanced = Instant::now();
                is_enough |= while_waiting.is_some_and(|goes_on| !goes_on());
            }
            if is_enough {
                return Err(CallError::NotSynced { address: self.address().to_string(), after });
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if self.leave_if_over() {
                    return Ok(false);
                }
            }
            std::thread::sleep(SYNC_STEP);
        }
    }
}
