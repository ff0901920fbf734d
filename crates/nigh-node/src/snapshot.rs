//! All keys and values of one moment.
//!
//! The thread of the JavaScript.

use crate::fault::{Code, Fault, answer};
use crate::pairs::Pairs;
use napi::bindgen_prelude::BufferSlice;
use napi::{Env, Result};
use napi_derive::napi;

/// Keys of a step: enough to make its beginning cheap.
const STEP_KEYS: usize = 64;
/// Bytes behind which a step ends.
const STEP_BYTES: usize = 256 << 10;

/// A snapshot that is read in steps.
#[napi]
pub struct Snapshot {
    path: String,
    place: String,
    /// `None` when it is closed.
    snapshot: Option<nigh::Snapshot>,
}

impl Snapshot {
    pub(crate) fn of(path: &str, snapshot: nigh::Snapshot) -> Snapshot {
        let place = snapshot.place().to_string();
        Snapshot { path: path.to_owned(), place, snapshot: Some(snapshot) }
    }
}

#[napi]
impl Snapshot {
    /// The next keys and values; none at the end. An error comes behind what was found before it.
    #[napi]
    pub fn next<'env>(&mut self, env: &'env Env) -> Result<Vec<BufferSlice<'env>>, Code> {
        answer(|| {
            let ended = || Fault::ended(&self.path, "snapshot");
            let snapshot = self.snapshot.as_mut().ok_or_else(ended)?;
            let (mut key, mut value, mut pairs) = (Vec::new(), Vec::new(), Pairs::new(env));
            for found in 0..STEP_KEYS {
                match snapshot.next_into(&mut key, &mut value) {
                    Ok(true) => pairs.add(&key, &value),
                    Err(error) if found == 0 => return Err(Fault::of_call(&self.path, &error)),
                    _ => break,
                }
                if pairs.bytes() >= STEP_BYTES {
                    break;
                }
            }
            pairs.into_list()
        })
    }

    /// The place of its moment.
    #[napi(getter)]
    pub fn place(&self) -> String {
        self.place.clone()
    }

    /// Holds nothing back any more.
    #[napi]
    pub fn close(&mut self) {
        self.snapshot = None;
    }
}
