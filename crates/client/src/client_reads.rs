//! What a client reads.
//!
//! 1. Several keys are read at one moment for each partition.
//! 2. Errors leave a caller's memory without an answer: what is in it means nothing.
//!
//! Belongs to one thread at a time.

use std::time::Duration;

use nigh_resp::frame::Frame;
use nigh_shm::{ForeignValues, ForeignVersion};

use crate::call_error::CallError;
use crate::client::{Client, check_key, owned_value_of, value_of};
use crate::local_side::{KeyLife, Seen};

/// Most keys that a step of a scan by requests asks for.
const SCAN_MOST: u32 = 10_000;

impl Client {
    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// [`CallError`]; nothing is changed by any of them.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// The same into memory that is used again: its content is replaced. False, and it is empty, if
    /// there is no such key.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_into(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, CallError> {
        check_key(key)?;
        self.read(
            into,
            &[b"GET", key],
            |side, into| side.get(key, into),
            |reply, into| {
                into.clear();
                let Some(value) = owned_value_of(reply)? else { return Some(false) };
                *into = value;
                Some(true)
            },
        )
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, CallError> {
        check_key(key)?;
        self.read(
            &mut (),
            &[b"EXISTS", key],
            |side, ()| side.expiry(key).map(|expiry_ms| expiry_ms.is_some()),
            |reply, ()| Some(reply.integer()? > 0),
        )
    }

    /// How long a key stays; `None` if it isn't there.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn ttl(&mut self, key: &[u8]) -> Result<Option<KeyLife>, CallError> {
        check_key(key)?;
        self.read(
            &mut (),
            &[b"PTTL", key],
            |side, ()| side.life(key),
            |reply, ()| life_of_reply(&reply),
        )
    }

    /// The values of several keys; `None` for one that isn't there. Those of a partition are of one
    /// moment.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn multi_get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let mut values = ForeignValues::new();
        self.multi_get_into(keys, &mut values)?;
        let copied = |key| values.get(key).map(|value| copied(b"MGET", value)).transpose();
        (0..keys.len()).map(copied).collect()
    }

    /// The same into memory that is used again.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn multi_get_into(
        &mut self,
        keys: &[&[u8]],
        values: &mut ForeignValues,
    ) -> Result<(), CallError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.is_empty() {
            values.reset(0);
            return Ok(());
        }
        match self.look(b"MGET", values, |side, values| side.multi_get(keys, values))? {
            Some(()) => Ok(()),
            None => self.ask_for_all(keys, values),
        }
    }

    /// MGET, by the server.
    #[cold]
    fn ask_for_all(&mut self, keys: &[&[u8]], values: &mut ForeignValues) -> Result<(), CallError> {
        let request = [&[&b"MGET"[..]], keys].concat();
        self.ask(values, &request, |reply, values| {
            let found = reply.elements().filter(|found| found.len() == keys.len())?;
            values.reset(keys.len());
            let bytes = found.iter().filter_map(Frame::bytes).map(<[u8]>::len).sum();
            if !values.make_room(bytes) {
                return Some(Err(CallError::no_memory(b"MGET", bytes)));
            }
            for (key, value) in found.iter().enumerate() {
                if let Some(value) = value_of(value)? {
                    values.set(key, value, ForeignVersion { lsn: 0, expiry_ms: 0 });
                }
            }
            Some(Ok(()))
        })?
    }

    /// Sends a request of any kind that changes nothing; again if its reply is lost.
    ///
    /// # Errors
    /// As [`Client::get`]; an error reply is [`CallError::Refused`].
    pub fn call_read(&mut self, request: &[&[u8]]) -> Result<Frame, CallError> {
        if request.is_empty() {
            return Err(CallError::unexpected(self.address(), b"a request without words"));
        }
        self.ask(&mut (), request, |reply, ()| Some(reply))
    }

    /// A step of a walk over the keys that begin with `prefix`, with SCAN's guarantee: passes about
    /// `count` of them, with their values, to `found`. The first step has the cursor 0. Returns the
    /// cursor of the next one; 0 at the end.
    ///
    /// # Errors
    /// As [`Client::get`]. What was passed before is right, and may come again.
    pub fn scan(
        &mut self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, CallError> {
        let pattern = [&escaped(prefix)[..], b"*"].concat();
        let (at, most) = (cursor.to_string(), count.clamp(1, SCAN_MOST).to_string());
        let request = [b"SCAN", at.as_bytes(), b"MATCH", &pattern, b"COUNT", most.as_bytes()];
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let next = self.read(
            &mut keys,
            &request,
            |side, _| {
                if !side.shows_all() {
                    return Seen::Ask;
                }
                side.scan(prefix, cursor, count, &mut |it| found(&it.key, &it.value))
            },
            |reply, keys| {
                let Frame::Array(both) = reply else { return None };
                let [next, Frame::Array(found)] = <[Frame; 2]>::try_from(both).ok()? else {
                    return None;
                };
                // They are taken out of the reply: copies might find no memory.
                *keys = found.into_iter().map(|key| owned_value_of(key)?).collect::<Option<_>>()?;
                std::str::from_utf8(next.bytes()?).ok()?.parse().ok()
            },
        )?;
        let mut value = Vec::new();
        for key in keys {
            if self.get_into(&key, &mut value)? {
                found(&key, &value);
            }
        }
        Ok(next)
    }
}

/// A copy of a value.
pub(crate) fn copied(command: &[u8], value: &[u8]) -> Result<Vec<u8>, CallError> {
    let mut copy = Vec::new();
    let room = copy.try_reserve_exact(value.len());
    room.map_err(|_| CallError::no_memory(command, value.len()))?;
    copy.extend_from_slice(value);
    Ok(copy)
}

/// What PTTL says.
pub(crate) fn life_of_reply(reply: &Frame) -> Option<Option<KeyLife>> {
    match reply.integer()? {
        -2 => Some(None),
        -1 => Some(Some(KeyLife::Forever)),
        ms => Some(Some(KeyLife::Left(Duration::from_millis(u64::try_from(ms).ok()?)))),
    }
}

/// A prefix as a pattern of SCAN.
fn escaped(prefix: &[u8]) -> Vec<u8> {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\');
    let one = |byte: &u8| if is_special(byte) { vec![b'\\', *byte] } else { vec![*byte] };
    prefix.iter().flat_map(one).collect()
}
