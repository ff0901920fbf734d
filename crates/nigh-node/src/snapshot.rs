//! All keys and values of one moment.
//!
//! 1. What was read stays until it was given: a step that finds no memory for it loses nothing.
//! 2. While a thread of the pool reads, `beside.js` calls nothing else here: the event loop would
//!    wait for the lock.
//!
//! The thread of the JavaScript, and one of the pool.

use crate::fault::{Code, Fault, answer};
use crate::pairs::Pairs;
use crate::pool_work::{Done, PoolWork};
use napi::bindgen_prelude::{AsyncTask, BufferSlice};
use napi::{Env, Result};
use napi_derive::napi;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys of a step: enough to make its beginning cheap.
const STEP_KEYS: usize = 64;
/// Bytes behind which a step ends.
const STEP_BYTES: usize = 256 << 10;

/// A snapshot that is read in steps.
#[napi]
pub struct Snapshot {
    place: String,
    steps: Arc<Mutex<Steps>>,
}

struct Steps {
    path: String,
    /// `None` when it is closed.
    snapshot: Option<nigh::Snapshot>,
    /// What was read and not given yet.
    found: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Steps {
    /// Reads the next keys and values; none at the end. An error comes behind what was found before
    /// it.
    fn read(&mut self) -> std::result::Result<(), Fault> {
        if !self.found.is_empty() {
            return Ok(());
        }
        let ended = || Fault::ended(&self.path, "snapshot");
        let snapshot = self.snapshot.as_mut().ok_or_else(ended)?;
        let mut bytes = 0;
        while self.found.len() < STEP_KEYS && bytes < STEP_BYTES {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            match snapshot.next_into(&mut key, &mut value) {
                Ok(true) => {}
                Err(error) if self.found.is_empty() => {
                    return Err(Fault::of_call(&self.path, &error));
                }
                _ => break,
            }
            bytes += key.len() + value.len();
            self.found.push((key, value));
        }
        Ok(())
    }
}

fn lock(steps: &Mutex<Steps>) -> MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Snapshot {
    pub(crate) fn of(path: &str, snapshot: nigh::Snapshot) -> Snapshot {
        let (place, path) = (snapshot.place().to_string(), path.to_owned());
        let steps = Steps { path, snapshot: Some(snapshot), found: Vec::new() };
        Snapshot { place, steps: Arc::new(Mutex::new(steps)) }
    }
}

#[napi]
impl Snapshot {
    /// The next keys and values; none at the end.
    #[napi]
    pub fn next<'env>(&self, env: &'env Env) -> Result<Vec<BufferSlice<'env>>, Code> {
        answer(|| {
            let mut steps = lock(&self.steps);
            steps.read()?;
            let mut pairs = Pairs::new(env);
            steps.found.iter().for_each(|(key, value)| pairs.add(key, value));
            let list = pairs.into_list()?;
            steps.found.clear();
            Ok(list)
        })
    }

    /// Reads, in the pool, what `next` gives then.
    #[napi]
    pub fn read_later(&self) -> AsyncTask<PoolWork> {
        let steps = Arc::clone(&self.steps);
        PoolWork::new(move || lock(&steps).read().map(|()| Done::Nothing))
    }

    /// The place of its moment.
    #[napi(getter)]
    pub fn place(&self) -> String {
        self.place.clone()
    }

    /// Holds nothing back any more.
    #[napi]
    pub fn close(&self) {
        let mut steps = lock(&self.steps);
        (steps.snapshot, steps.found) = (None, Vec::new());
    }
}
