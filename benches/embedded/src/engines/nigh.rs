//! Nigh's embedded library.

use super::engine::{Engine, EngineKind, Place, Session};
use crate::data::Key;
use anyhow::Result;
use nigh::{Db, Durability, Options};

pub(super) const KIND: EngineKind = EngineKind {
    name: "nigh",
    title: "Nigh",
    version: env!("VERSION_NIGH"),
    eventual: "`Durability::Eventual`: a write is in the journal, which a killed process leaves, \
               when it returns, and on disk within about a second. Data in a tmpfs \
               (`Options::shared`), log in the folder; journal 64 MiB",
    strong: "`Durability::Strong`",
    multi_get: Some("`multi_get`: all of one moment"),
    groups_commits: true,
    open,
};

fn open(place: &Place) -> Result<Box<dyn Engine>> {
    let durability = if place.strong { Durability::Strong } else { Durability::Eventual };
    let options = Options::new()
        .memory_dir(&place.memory_dir)
        .shared(true)
        .capacity_bytes(place.cache_bytes() as u64)
        .durability(durability);
    Ok(Box::new(Db::open(&place.dir, &options)?))
}

impl Engine for Db {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Db {
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = Db::get(self, key)?;
        if let Some(bytes) = value.as_deref() {
            see(bytes);
        }
        Ok(value.is_some())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(Db::put(self, key, value)?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Db::delete(self, key)?;
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let mut named = [&[][..]; crate::protocol::TOGETHER];
        let named = &mut named[..keys.len()];
        for (name, key) in named.iter_mut().zip(keys) {
            *name = key;
        }
        for (at, value) in Db::multi_get(self, named)?.iter().enumerate() {
            if let Some(bytes) = value.as_deref() {
                see(at, bytes);
            }
        }
        Ok(())
    }
}
