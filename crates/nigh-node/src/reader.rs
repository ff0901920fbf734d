//! A database that another process has open: it is read.
//!
//! The thread of the JavaScript.

use crate::arguments::ms_left;
use crate::fault::{Code, Fault, answer};
use crate::pairs::{Pairs, buffer};
use napi::bindgen_prelude::{BigInt, BufferSlice};
use napi::{Env, Result};
use napi_derive::napi;
use nigh::DbReader;
use std::time::Duration;

/// A reader.
#[napi]
pub struct Reader {
    path: String,
    /// `None` when it is closed.
    reader: Option<DbReader>,
}

impl Reader {
    fn reader(&self) -> std::result::Result<&DbReader, Fault> {
        self.reader.as_ref().ok_or_else(|| Fault::ended(&self.path, "reader"))
    }
}

#[napi]
impl Reader {
    /// Opens one.
    #[napi(constructor)]
    pub fn new(path: String, memory_dir: Option<String>) -> Result<Reader, Code> {
        answer(|| {
            let reader = match memory_dir {
                None => nigh::Db::open_reader(&path)?,
                Some(memory) => nigh::Db::open_reader_in(&path, memory)?,
            };
            Ok(Reader { path, reader: Some(reader) })
        })
    }

    /// The value of a key.
    #[napi]
    pub fn get<'env>(&self, env: &'env Env, key: &[u8]) -> Result<Option<BufferSlice<'env>>, Code> {
        answer(|| self.reader()?.get(key)?.map(|value| buffer(env, &value)).transpose())
    }

    /// The values of several keys, those of a partition all of one moment.
    #[napi]
    pub fn multi_get<'env>(
        &self,
        env: &'env Env,
        keys: Vec<&[u8]>,
    ) -> Result<Vec<Option<BufferSlice<'env>>>, Code> {
        answer(|| {
            let found = self.reader()?.multi_get(&keys)?;
            found.iter().map(|it| it.as_ref().map(|it| buffer(env, it)).transpose()).collect()
        })
    }

    /// Whether a key is there.
    #[napi]
    pub fn has(&self, key: &[u8]) -> Result<bool, Code> {
        answer(|| Ok(self.reader()?.contains(key)?))
    }

    /// Milliseconds for which a key stays: infinity if it has no expiry, nothing if it isn't there.
    #[napi]
    pub fn ttl(&self, key: &[u8]) -> Result<Option<f64>, Code> {
        answer(|| Ok(self.reader()?.ttl(key)?.map(ms_left)))
    }

    /// Waits until the database can be read, for so many milliseconds at most.
    #[napi]
    pub fn wait(&self, most_ms: u32) -> Result<(), Code> {
        answer(|| Ok(self.reader()?.wait(Duration::from_millis(most_ms.into()))?))
    }

    /// A step of a walk: the next cursor, and keys and values in turn.
    #[napi]
    pub fn scan<'env>(
        &self,
        env: &'env Env,
        prefix: &[u8],
        cursor: BigInt,
        count: u32,
    ) -> Result<(u64, Vec<BufferSlice<'env>>), Code> {
        answer(|| {
            let mut pairs = Pairs::new(env);
            let (_, cursor, _) = cursor.get_u64();
            let next =
                self.reader()?.scan(prefix, cursor, count, |key, value| pairs.add(key, value))?;
            Ok((next, pairs.into_list()?))
        })
    }

    /// Gives the memory's mapping back.
    #[napi]
    pub fn close(&mut self) {
        self.reader = None;
    }
}
