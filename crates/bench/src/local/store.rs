//! What is asked of each store: the same calls, by the client that it has.
//!
//! Invariant: a call returns when the store has answered.

use super::content::{Key, Sets};
use anyhow::{Result, ensure};
use nigh_client::{Address, Client, ClientOptions, ForeignValues, LocalUse};

/// Keys of one multi-get.
pub(super) const TOGETHER: usize = 16;

/// A store, as one client sees it.
pub(super) trait Store {
    /// Copies a value into a buffer. Whether there is one.
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<bool>;

    /// Reads keys by one call, and shows their values in turn.
    fn get_all(
        &mut self,
        keys: &[Key; TOGETHER],
        see: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()>;

    /// Sets a key.
    fn set(&mut self, key: &Key, value: &[u8]) -> Result<()>;

    /// Sets many keys: all requests are sent before the last reply is awaited.
    fn set_all(&mut self, sets: &Sets) -> Result<()>;
}

/// A server that speaks RESP, by [`Client`]: local or not.
pub(super) struct ByClient {
    client: Client,
    values: ForeignValues,
}

impl ByClient {
    pub(super) fn connect(address: &Address, local: LocalUse) -> Result<ByClient> {
        ByClient::connect_with(address, ClientOptions { local, ..ClientOptions::default() })
    }

    pub(super) fn connect_with(address: &Address, options: ClientOptions) -> Result<ByClient> {
        let client = Client::connect_with(address, options)?;
        Ok(ByClient { client, values: ForeignValues::new() })
    }
}

impl Store for ByClient {
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.client.get_into(key, value)?)
    }

    fn get_all(
        &mut self,
        keys: &[Key; TOGETHER],
        mut see: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let wanted: [&[u8]; TOGETHER] = std::array::from_fn(|at| &keys[at][..]);
        self.client.multi_get_into(&wanted, &mut self.values)?;
        (0..TOGETHER).try_for_each(|at| see(at, self.values.get(at)))
    }

    fn set(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(self.client.set(key, value)?)
    }

    fn set_all(&mut self, sets: &Sets) -> Result<()> {
        let requests = sets.pairs().map(|(key, value)| [&b"SET"[..], &key[..], value]);
        let mut errors = 0;
        let count = |reply: nigh_client::Frame| errors += u64::from(reply.error().is_some());
        self.client.pipeline_each(requests, count)?;
        ensure!(errors == 0, "{errors} SETs were refused");
        Ok(())
    }
}
