//! A value of which the caller reads parts, where it lies if that can be.
//!
//! 1. All parts are of one version of the value. A part of which that isn't sure is an error, after
//!    which the caller begins again.
//!
//! Belongs to one thread at a time.

use nigh_resp::frame::Frame;
use nigh_shm::{ForeignInPlace, TooNew};

use crate::call_error::CallError;
use crate::client::{Client, check_key, owned_value_of};
use crate::client_view::ATTEMPTS_MAX;
use crate::local_side::Seen;

/// One version of a value.
pub struct ValueInPlace<'a>(Bytes<'a>);

enum Bytes<'a> {
    Mapped(ForeignInPlace<'a>),
    /// What the server has sent.
    Sent(&'a [u8]),
}

impl ValueInPlace<'_> {
    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Bytes::Mapped(value) => value.len(),
            Bytes::Sent(value) => value.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on to all of `to`.
    ///
    /// # Errors
    /// [`TooNew`]: the value's memory was reused. What is in `to` means nothing. Return it, and
    /// [`Client::get_in_place`] begins again.
    ///
    /// # Panics
    /// If the value has no such bytes.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), TooNew> {
        match &self.0 {
            Bytes::Mapped(value) => value.read(at, to),
            Bytes::Sent(value) => {
                to.copy_from_slice(&value[at..at + to.len()]);
                Ok(())
            }
        }
    }
}

impl Client {
    /// Passes a key's value to `read`, which takes the parts that it wants: a few bytes of a large
    /// value cost what a few bytes cost. `None`, and it isn't called, if there is no such key. A
    /// part says whether it is the value's; if not, `read` returns that, and is called again.
    ///
    /// Without local access, and when the value changes too often, the server sends all of it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), nigh_client::CallError> {
    /// let mut client = nigh_client::Client::connect("unix:/run/nigh/nigh.sock")?;
    /// let magic = client.get_in_place(b"a large file", |value| {
    ///     let mut magic = [0; 4];
    ///     let there = value.len() >= 4;
    ///     Ok(if there { value.read(0, &mut magic).map(|()| Some(magic))? } else { None })
    /// })?;
    /// # drop(magic);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::get`]; [`CallError::TooNew`] if `read` says so of what the server has sent.
    pub fn get_in_place<R>(
        &mut self,
        key: &[u8],
        mut read: impl FnMut(&ValueInPlace<'_>) -> Result<R, TooNew>,
    ) -> Result<Option<R>, CallError> {
        check_key(key)?;
        for _ in 0..ATTEMPTS_MAX {
            let result = self.look(b"GET", &mut read, |side, read| match side.in_place(key) {
                Seen::Is(None) => Seen::Is(Ok(None)),
                Seen::Is(Some(value)) => {
                    Seen::Is(read(&ValueInPlace(Bytes::Mapped(value))).map(Some))
                }
                Seen::Ask => Seen::Ask,
                Seen::Over(why) => Seen::Over(why),
                Seen::NoRoom(bytes) => Seen::NoRoom(bytes),
            })?;
            match result {
                Some(Ok(found)) => return Ok(found),
                Some(Err(TooNew)) => std::thread::yield_now(),
                None => break,
            }
        }
        let mut value = Vec::new();
        let sent = |reply: Frame, value: &mut Vec<u8>| {
            let found = owned_value_of(reply)?;
            let is_there = found.is_some();
            *value = found.unwrap_or_default();
            Some(is_there)
        };
        if !self.ask(&mut value, &[b"GET", key], sent)? {
            return Ok(None);
        }
        let address = self.address().to_string();
        let found = read(&ValueInPlace(Bytes::Sent(&value)));
        found.map(Some).map_err(|TooNew| CallError::TooNew { address, attempts: ATTEMPTS_MAX })
    }
}
