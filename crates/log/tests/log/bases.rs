//! Bases: a chain is written anew from memory, and named in place of the old one.

use crate::book::{Book, Halt, SHARDS, SHARDS_OF_META};
use crate::machine::Machine;
use crate::shard::Shard;
use nigh_log::simulated::{below, once_in};
use nigh_log::{Chain, LogWriter, Storage, list, remove_chains};

impl<S: Storage> Machine<S> {
    /// The log is given up, and begun again from what is in memory, while changes go on.
    pub(crate) fn retire(&mut self, book: &mut Book) -> Result<(), Halt> {
        let mut meta = self.next_meta(book);
        let old = std::mem::take(&mut meta.chains);
        book.save(&self.world, meta, &[])?;
        self.shards.clear();
        let listing = list(&*self.world.storage)?;
        remove_chains(&*self.world.storage, &listing, &old)?;
        self.base(book, (0..SHARDS).collect(), true)
    }

    /// Writes bases of shards, in place of their chains; other shards join if they wait for them.
    pub(crate) fn base(
        &mut self,
        book: &mut Book,
        mut which: Vec<usize>,
        changes_go_on: bool,
    ) -> Result<(), Halt> {
        let mut meta = book.named();
        meta.next_generation += 1;
        let generation = meta.next_generation - 1;
        book.save(&self.world, meta, &[])?;
        for i in 0..self.shards.len() {
            if !which.contains(&i) {
                self.pump(book, i)?;
                self.shards[i].sync()?;
                if !self.shards[i].is_drained() {
                    which.push(i);
                }
            }
        }
        self.tell(book)?;
        for i in 0..SHARDS {
            if which.contains(&i) {
                let shard = u32::try_from(i).unwrap();
                self.begin_base(book, Chain { generation, shard, shards: SHARDS_OF_META })?;
            }
        }
        for &i in &which {
            self.walk(book, i, changes_go_on)?;
        }
        self.finish_bases(book, &which)?;
        self.name_bases(book, generation, &which)
    }

    fn begin_base(&mut self, book: &Book, chain: Chain) -> Result<(), Halt> {
        let i = chain.shard as usize;
        let models = book.shards[i].streams.iter();
        let lasts: Vec<(u32, u64)> = models.map(|(&stream, model)| (stream, model.last)).collect();
        let (meta, clock) = (book.named(), self.world.clock.unix_ms());
        let clock_ms = clock.max(book.shards[i].latest_clock_ms());
        let writer =
            LogWriter::begin_chain(&self.world, &meta, chain, &lasts, self.settings, clock_ms)?;
        let shard = Shard::new(writer, &book.shards[i]);
        self.unnamed.insert(i);
        if i < self.shards.len() {
            self.shards[i] = shard
        } else {
            self.shards.push(shard)
        }
        Ok(())
    }

    /// Appends each record of a shard as it is when the walk comes by.
    fn walk(&mut self, book: &mut Book, i: usize, changes_go_on: bool) -> Result<(), Halt> {
        let streams: Vec<u32> = book.shards[i].streams.keys().copied().collect();
        for (stream, key) in streams.iter().flat_map(|s| (0..=u8::MAX).map(move |key| (*s, key))) {
            let keys = &book.shards[i].streams[&stream].keys;
            if !keys.contains_key(&key) {
                continue;
            }
            self.shards[i].append_again(stream, key, keys);
            for _ in 0..if changes_go_on { below(&self.chance, 3) } else { 0 } {
                self.commit(book, i);
            }
            if once_in(&self.chance, 8) {
                self.pump(book, i)?;
            }
        }
        Ok(())
    }

    /// Appends what stands on changes before the bases, and syncs all logs.
    fn finish_bases(&mut self, book: &Book, which: &[usize]) -> Result<(), Halt> {
        for &i in which {
            while self.shards[i].append_standing(&book.shards[i], 0, 4) > 0 {}
        }
        self.drain(book)
    }

    fn name_bases(
        &mut self,
        book: &mut Book,
        generation: u64,
        which: &[usize],
    ) -> Result<(), Halt> {
        let mut meta = book.named();
        let shards = SHARDS_OF_META;
        let old = |shard: u32| meta.chains.get(shard as usize).copied();
        let chains = (0..shards).map(|shard| match old(shard) {
            Some(chain) if !which.contains(&(shard as usize)) => chain,
            _ => Chain { generation, shard, shards },
        });
        meta.chains = chains.collect();
        let mut old = book.named().chains;
        old.retain(|chain| !meta.chains.contains(chain));
        book.save(&self.world, meta, which)?;
        for &i in which {
            self.shards[i].writer.named();
            self.unnamed.remove(&i);
            self.bases += 1;
            // A base has nothing of tenants that were dropped before.
            self.dropped.values_mut().for_each(|files| files[i] = 0);
        }
        self.tell(book)?;
        let listing = list(&*self.world.storage)?;
        remove_chains(&*self.world.storage, &listing, &old)?;
        Ok(())
    }
}
