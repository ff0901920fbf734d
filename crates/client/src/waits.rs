//! For how long a call waits on a socket, and who may end that earlier.
//!
//! 1. The time counts since a call began to wait, whatever cut a wait short. So signals that come
//!    again and again make no call wait for ever. Behind a signal one more wait may begin: a call
//!    takes two timeouts at most.
//! 2. Bytes that come are no wait. So a call looks at the clock behind them too, or a server that
//!    always sends something that isn't the reply would hold it for ever.
//! 3. A caller that looks for signals is asked behind each wait, also behind one that a signal has
//!    cut short.
//!
//! Any thread: plain data.

use std::time::{Duration, Instant};

use crate::address::Address;
use crate::client_error::ClientError;

/// Between two calls of [`crate::ConnectionOptions::while_waiting`].
pub(crate) const GLANCE: Duration = Duration::from_millis(50);

/// What bounds the waits of a connection's calls.
#[derive(Clone, Copy)]
pub(crate) struct WaitBounds {
    /// Longest wait of a call; no limit if `None`.
    pub(crate) timeout: Option<Duration>,
    /// Says whether a call waits on.
    pub(crate) while_waiting: Option<fn() -> bool>,
}

/// What a call has taken that wasn't its reply yet.
#[derive(Default)]
pub(crate) struct Taken {
    /// When it skipped its first push.
    skipped: Option<Instant>,
    /// When [`crate::ConnectionOptions::while_waiting`] was asked last.
    glanced: Option<Instant>,
}

impl WaitBounds {
    /// How long a socket waits at once.
    pub(crate) fn at_once(&self) -> Option<Duration> {
        let glance = self.while_waiting.map(|_| GLANCE);
        self.timeout.into_iter().chain(glance).min()
    }

    /// Behind a wait in vain: goes on if the timeout isn't over, and the caller likes to. `begin`
    /// is when the call began to wait, and `None` behind its first wait. `is_cut`: a signal has
    /// ended the wait.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`], [`ClientError::BrokenOff`].
    #[cold]
    pub(crate) fn go_on(
        &self,
        begin: &mut Option<Instant>,
        is_cut: bool,
        address: &Address,
    ) -> Result<(), ClientError> {
        let now = Instant::now();
        // A call that needn't wait doesn't look at the clock, so the first wait is reckoned back.
        let begun = *begin.get_or_insert_with(|| {
            let waited = self.at_once().filter(|_| !is_cut).unwrap_or_default();
            now.checked_sub(waited).unwrap_or(now)
        });
        if self.while_waiting.is_some_and(|goes_on| !goes_on()) {
            return Err(ClientError::BrokenOff { address: address.to_string() });
        }
        match self.timeout {
            Some(after) if now.duration_since(begun) >= after => {
                Err(ClientError::TimedOut { address: address.to_string(), after })
            }
            _ => Ok(()),
        }
    }

    /// Behind bytes that weren't the whole reply: goes on if the caller likes to, and behind a push
    /// that was skipped, if the timeout isn't over. A long reply may take longer, as long as it
    /// comes.
    ///
    /// # Errors
    /// As [`Self::go_on`].
    pub(crate) fn take_on(
        &self,
        taken: &mut Taken,
        is_skipped: bool,
        address: &Address,
    ) -> Result<(), ClientError> {
        let now = Instant::now();
        let glanced = taken.glanced.get_or_insert(now);
        if now.duration_since(*glanced) >= GLANCE {
            *glanced = now;
            if self.while_waiting.is_some_and(|goes_on| !goes_on()) {
                return Err(ClientError::BrokenOff { address: address.to_string() });
            }
        }
        if !is_skipped {
            return Ok(());
        }
        let begun = *taken.skipped.get_or_insert(now);
        match self.timeout {
            Some(after) if now.duration_since(begun) >= after => {
                Err(ClientError::TimedOut { address: address.to_string(), after })
            }
            _ => Ok(()),
        }
    }
}
