//! redb: a B+ tree in one file, copied on write; in Rust.

use super::engine::{Engine, EngineKind, Place, Session};
use crate::data::Key;
use anyhow::Result;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const KIND: EngineKind = EngineKind {
    name: "redb",
    title: "redb",
    version: env!("VERSION_REDB"),
    eventual: "one transaction for each write, with `Durability::None`, and each 10,000th with \
               `Immediate`: it frees pages only then, and a killed process loses what came after that. \
               (It has no `Eventual` any more.) One read \
               transaction for each `get`",
    strong: "one transaction for each write, `Durability::Immediate`",
    multi_get: Some("16 reads in one read transaction"),
    groups_commits: false,
    open,
};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("bench");
/// Writes for each that is made durable, where writes are eventual.
const WRITES_PER_SYNC: u64 = 10_000;

/// The table, in a transaction that writes.
type Writing<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;

struct Redb {
    database: Database,
    strong: bool,
    writes: AtomicU64,
}

fn open(place: &Place) -> Result<Box<dyn Engine>> {
    let mut builder = Builder::new();
    builder.set_cache_size(place.cache_bytes());
    let database = builder.create(place.dir.join("bench.redb"))?;
    // Makes the table if it isn't there.
    let making = database.begin_write()?;
    making.open_table(TABLE)?;
    making.commit()?;
    Ok(Box::new(Redb { database, strong: place.strong, writes: AtomicU64::new(0) }))
}

impl Redb {
    fn write(&self, change: impl FnOnce(&mut Writing<'_>) -> Result<()>) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        let writes = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let durability = match self.strong || writes.is_multiple_of(WRITES_PER_SYNC) {
            true => Durability::Immediate,
            false => Durability::None,
        };
        transaction.set_durability(durability)?;
        change(&mut transaction.open_table(TABLE)?)?;
        Ok(transaction.commit()?)
    }
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Redb {
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let value = ReadableTable::get(&table, &key[..])?;
        if let Some(value) = &value {
            see(value.value());
        }
        Ok(value.is_some())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.write(|table| {
            table.insert(&key[..], value)?;
            Ok(())
        })
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.write(|table| {
            table.remove(&key[..])?;
            Ok(())
        })
    }

    fn multi_get(&mut self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for (at, key) in keys.iter().enumerate() {
            if let Some(value) = ReadableTable::get(&table, &key[..])? {
                see(at, value.value());
            }
        }
        Ok(())
    }
}
