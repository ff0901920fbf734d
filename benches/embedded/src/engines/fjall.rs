//! fjall: a log-structured merge tree; in Rust.

use super::engine::{Engine, EngineKind, Place, Session};
use crate::data::Key;
use anyhow::Result;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

pub(super) const KIND: EngineKind = EngineKind {
    name: "fjall",
    title: "fjall",
    version: env!("VERSION_FJALL"),
    eventual: "`PersistMode::Buffer` after each write, as by default: the kernel has it. No \
               compression; Bloom filters and memtables of 64 MiB as by default",
    strong: "`PersistMode::SyncData` after each write",
    multi_get: None,
    groups_commits: false,
    open,
};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    strong: bool,
}

fn open(place: &Place) -> Result<Box<dyn Engine>> {
    let database = Database::builder(&place.dir).cache_size(place.cache_bytes() as u64).open()?;
    let keyspace = database.keyspace("bench", || {
        KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
    })?;
    Ok(Box::new(Fjall { database, keyspace, strong: place.strong }))
}

impl Fjall {
    fn persist(&self) -> Result<()> {
        if self.strong {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Fjall {
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(bytes) = &value {
            see(bytes);
        }
        Ok(value.is_some())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.keyspace.insert(&key[..], value)?;
        self.persist()
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.keyspace.remove(&key[..])?;
        self.persist()
    }
}
