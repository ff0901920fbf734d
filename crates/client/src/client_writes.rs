//! What a client changes, and calls of any kind.
//!
//! 1. A request is sent once. Without a reply the error says whether it may have happened.
//!
//! Belongs to one thread at a time.

use std::time::Duration;

use nigh_resp::frame::Frame;

use crate::call_error::CallError;
use crate::client::{Client, check_key};
use crate::client_error::ClientError;
use crate::remote::no_words;

/// Why there are no more replies to a pipeline.
pub(crate) struct BrokenPipeline {
    pub(crate) error: CallError,
    /// Whether the first reply that is lacking is more than this process takes.
    #[cfg_attr(
        not(feature = "async"),
        expect(dead_code, reason = "AsyncClient alone asks for it")
    )]
    pub(crate) is_too_much: bool,
}

impl Client {
    /// Sets a key's value; it has no expiry then.
    ///
    /// # Errors
    /// [`CallError`]: behind [`CallError::Unknown`] alone it may have happened.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), CallError> {
        check_key(key)?;
        self.call_done(&[b"SET", key, value]).map(drop)
    }

    /// The same with an expiry: a whole number of milliseconds, at least one.
    ///
    /// # Errors
    /// As [`Client::set`].
    pub fn set_for(&mut self, key: &[u8], value: &[u8], life: Duration) -> Result<(), CallError> {
        check_key(key)?;
        self.call_done(&[b"SET", key, value, b"PX", millis(life).as_bytes()]).map(drop)
    }

    /// Deletes keys. How many were there.
    ///
    /// # Errors
    /// As [`Client::set`].
    pub fn del(&mut self, keys: &[&[u8]]) -> Result<u64, CallError> {
        if keys.is_empty() {
            return Ok(0);
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        self.number(&[&[&b"DEL"[..]], keys].concat()).map(i64::unsigned_abs)
    }

    /// Adds to the number in a key. What it is then.
    ///
    /// # Errors
    /// As [`Client::set`]; [`CallError::Refused`] if the value is no number.
    pub fn incr(&mut self, key: &[u8], by: i64) -> Result<i64, CallError> {
        check_key(key)?;
        self.number(&[b"INCRBY", key, by.to_string().as_bytes()])
    }

    /// Gives a key an expiry. Whether it was there.
    ///
    /// # Errors
    /// As [`Client::set`].
    pub fn expire(&mut self, key: &[u8], life: Duration) -> Result<bool, CallError> {
        check_key(key)?;
        Ok(self.number(&[b"PEXPIRE", key, millis(life).as_bytes()])? > 0)
    }

    /// Calls a function.
    ///
    /// # Errors
    /// As [`Client::set`].
    pub fn fcall(
        &mut self,
        function: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Frame, CallError> {
        let count = keys.len().to_string();
        let head: [&[u8]; 3] = [b"FCALL", function.as_bytes(), count.as_bytes()];
        self.call_done(&[&head[..], keys, args].concat())
    }

    /// Sends a request of any kind, once. An error reply is a reply.
    ///
    /// # Errors
    /// As [`Client::set`]; [`CallError::Unanswered`] if the command changes nothing
    /// ([`crate::reads_only`]).
    pub fn call(&mut self, request: &[&[u8]]) -> Result<Frame, CallError> {
        if request.is_empty() {
            return Ok(no_words());
        }
        self.once(request)
    }

    /// The same for a request that is to be done now: behind an open MULTI it would only wait for
    /// its EXEC.
    ///
    /// # Errors
    /// As [`Client::call`]; [`CallError::Refused`] for an error reply, and if it waits for an EXEC.
    pub fn call_done(&mut self, request: &[&[u8]]) -> Result<Frame, CallError> {
        let reply = self.call(request)?;
        let command = request.first().copied().unwrap_or_default();
        CallError::if_refused(self.address(), command, reply)
    }

    /// Sends many requests of any kind, and gathers their replies in order. Error replies are
    /// replies.
    ///
    /// # Errors
    /// As [`Client::set`]: behind [`CallError::Unknown`] some of them may have happened, behind
    /// [`CallError::NoMemory`], [`CallError::ValueTooLong`] and [`CallError::TooManyWords`] those
    /// that were sent have. To learn which have, use [`Client::pipeline_each`].
    pub fn pipeline<C>(
        &mut self,
        requests: impl IntoIterator<Item = C>,
    ) -> Result<Vec<Frame>, CallError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        let mut replies = Vec::new();
        self.pipeline_each(requests, |reply| replies.push(reply))?;
        Ok(replies)
    }

    /// The same, and hands out each reply as it comes: those requests have happened.
    ///
    /// # Errors
    /// As [`Client::pipeline`].
    pub fn pipeline_each<C>(
        &mut self,
        requests: impl IntoIterator<Item = C>,
        each: impl FnMut(Frame),
    ) -> Result<(), CallError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        self.pipeline_until(requests, each).map_err(|broken| broken.error)
    }

    /// The same, with more about the end.
    pub(crate) fn pipeline_until<C>(
        &mut self,
        requests: impl IntoIterator<Item = C>,
        each: impl FnMut(Frame),
    ) -> Result<(), BrokenPipeline>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        let unsent = |error| BrokenPipeline { error, is_too_much: false };
        let link = self.attached_to_ask().map_err(unsent)?;
        let Err(error) = link.connection.pipeline_each(requests, each) else { return Ok(()) };
        let unknown = self.unknown("a pipeline".to_owned(), &error);
        let is_too_much = error.is_too_much();
        let error = match error {
            ClientError::NoRoom { bytes, .. } => {
                CallError::no_memory(b"a request of a pipeline", bytes)
            }
            ClientError::WordTooLong { bytes, .. } => CallError::ValueTooLong { bytes },
            ClientError::TooManyWords { words, .. } => CallError::TooManyWords { words },
            _ => unknown,
        };
        Err(BrokenPipeline { error, is_too_much })
    }

    fn number(&mut self, request: &[&[u8]]) -> Result<i64, CallError> {
        self.call_done(request)?
            .integer()
            .ok_or_else(|| CallError::unexpected(self.address(), request[0]))
    }
}

/// Milliseconds, at least one.
pub(crate) fn millis(life: Duration) -> String {
    life.as_millis().clamp(1, i64::MAX.unsigned_abs().into()).to_string()
}
