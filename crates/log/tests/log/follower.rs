//! Followers read along while logs are written, compacted, cut off and replaced; each one's copy is
//! right.

use crate::book::{Book, Halt, SHARDS};
use crate::machine::Machine;
use crate::model::Replica;
use crate::power::world;
use nigh_log::simulated::{SimChance, SimDisk, below, once_in};
use nigh_log::{Chain, Chance, FollowPosition, Followed, LogFollower, Meta, ReplayedCommit, World};
use std::collections::BTreeMap;

const FILE_BYTES: u64 = 16 << 10;

/// A follower of one shard, with its copy.
struct Copying {
    shard: usize,
    follower: Option<LogFollower<SimDisk>>,
    /// Where it stood when its process ended.
    at: Option<FollowPosition>,
    chain: Chain,
    copy: BTreeMap<u32, Replica>,
    /// Its file is held, so it can't fall behind.
    held: bool,
    /// It goes by ends that it is told, not by watermarks.
    told: bool,
}

/// What all followers met.
#[derive(Debug, Default)]
struct Met {
    frames: u64,
    gone: u64,
    replaced: u64,
    resumed: u64,
}

impl Copying {
    fn begin(shard: usize, told: bool, world: &World<SimDisk>, meta: &Meta) -> Copying {
        let chain = meta.chains[shard];
        let follower = LogFollower::whole(world, meta, &chain).unwrap();
        let copy = BTreeMap::new();
        Copying { shard, follower: Some(follower), at: None, chain, copy, held: false, told }
    }

    fn follower(&mut self) -> &mut LogFollower<SimDisk> {
        self.follower.as_mut().expect("one is there between two starts")
    }

    /// Reads a frame, if there is one.
    fn advance(&mut self) -> Followed {
        let copy = &mut self.copy;
        let mut take = |commit: &ReplayedCommit<'_>| {
            let stream = commit.changes[0].header.stream;
            copy.entry(stream).or_default().take(commit)
        };
        self.follower.as_mut().unwrap().advance(&mut take).unwrap()
    }

    /// Reads some frames; begins again if what comes next is gone.
    fn follow(&mut self, frames: u64, machine: &mut Machine<SimDisk>, book: &Book, met: &mut Met) {
        for _ in 0..frames {
            match self.advance() {
                Followed::Frame => met.frames += 1,
                Followed::NotYet => return,
                Followed::Gone { oldest } => {
                    let meta = book.meta.clone().unwrap();
                    let replaced = !meta.chains.contains(&self.chain);
                    assert_eq!(oldest == 0, replaced, "chain {:?}", self.chain);
                    assert!(replaced || !self.held, "a held file is gone");
                    *if replaced { &mut met.replaced } else { &mut met.gone } += 1;
                    *self = Copying::begin(self.shard, self.told, &machine.world, &meta);
                    self.tell_end(machine, book, true, met);
                }
            }
            // It has nothing that a power cut could take.
            for (&stream, copy) in &self.copy {
                let of_this = book.meta.as_ref().unwrap().chains[self.shard] == self.chain;
                let durable = machine.shards[self.shard].writer.durable(stream);
                let there = book.shards[self.shard].streams.contains_key(&stream);
                assert!(!of_this || !there || copy.last <= durable, "{} {durable}", copy.last);
            }
        }
    }

    /// One that goes by told ends is told one, or that its chain was replaced.
    fn tell_end(&mut self, machine: &mut Machine<SimDisk>, book: &Book, now: bool, met: &mut Met) {
        if !self.told || !now && !once_in(&machine.chance, 10) {
            return;
        }
        let shard = &mut machine.shards[self.shard];
        if shard.writer.chain() != self.chain {
            met.replaced += 1;
            *self = Copying::begin(self.shard, true, &machine.world, book.meta.as_ref().unwrap());
        }
        shard.end_beside().unwrap();
        let end = shard.writer.end_frame().unwrap();
        self.follower().set_end(end.at);
    }

    /// The writer keeps what it still has to read.
    fn hold(&mut self, machine: &mut Machine<SimDisk>) {
        let at = self.follower().position().map(|position| position.at.file);
        machine.shards[self.shard].writer.hold(at);
    }

    /// All that is durable has arrived.
    fn compare(&mut self, machine: &mut Machine<SimDisk>, book: &Book, met: &mut Met) {
        self.tell_end(machine, book, true, met);
        self.follow(u64::MAX, machine, book, met);
        for (&stream, model) in &book.shards[self.shard].streams {
            let copy = self.copy.remove(&stream).unwrap_or_default();
            copy.compare(stream, model).unwrap();
            self.copy.insert(stream, copy);
        }
    }
}

#[test]
fn followers_copies_are_right() {
    let mut met = Met::default();
    for seed in 0..24 {
        run(seed, &mut met).unwrap_or_else(|halt| panic!("seed {seed}: {halt}"));
    }
    println!("{met:?}");
    assert!(met.frames > 2000 && met.gone > 20, "{met:?}");
    assert!(met.replaced > 10 && met.resumed > 50, "{met:?}");
}

fn run(seed: u64, met: &mut Met) -> Result<(), Halt> {
    let chance = SimChance::new(seed);
    let mut disk = SimDisk::new(seed);
    let mut book = Book::new();
    let mut copying: Vec<Copying> = Vec::new();
    for life in 0..6 {
        let start = world(&disk, chance.word());
        let mut machine = Machine::start(start, &mut book, FILE_BYTES, seed * 100 + life)?;
        let meta = book.meta.clone().unwrap();
        if copying.is_empty() {
            copying = (0..2 * SHARDS)
                .map(|i| Copying::begin(i / 2, i % 2 == 1, &machine.world, &meta))
                .collect();
        }
        for copying in &mut copying {
            if copying.follower.is_none() {
                copying.resume(&machine, &meta, &mut met.resumed);
            }
        }
        let held = once_in(&chance, 2);
        for _ in 0..below(&chance, 300) {
            machine.step(&mut book)?;
            for (i, copying) in copying.iter_mut().enumerate() {
                copying.tell_end(&mut machine, &book, false, met);
                // The first of each shard is slow, and is held in some lives.
                if i % 2 == 1 || once_in(&chance, 40) {
                    copying.follow(1 + below(&chance, 6), &mut machine, &book, met);
                }
                if held && i % 2 == 0 {
                    copying.hold(&mut machine);
                    if !copying.held && copying.advance() != (Followed::Gone { oldest: 0 }) {
                        copying.held = copying.follower().position().is_some();
                    }
                }
            }
        }
        machine.drain(&book)?;
        machine.shards.iter_mut().try_for_each(|shard| shard.writer.close())?;
        machine.tell(&mut book)?;
        for copying in &mut copying {
            if once_in(&chance, 2) {
                copying.compare(&mut machine, &book, met);
            }
            copying.leave();
        }
        disk = if once_in(&chance, 2) { disk.kill() } else { disk.power_cut(&chance) };
        book.power_was_cut();
    }
    Ok(())
}

impl Copying {
    /// Its process ends; it keeps its copy, and where it stands.
    fn leave(&mut self) {
        if let Some(follower) = self.follower.take() {
            self.at = follower.position();
        }
        self.held = false;
    }

    /// Goes on in another process, from where it stood.
    fn resume(&mut self, machine: &Machine<SimDisk>, meta: &Meta, resumed: &mut u64) {
        let follower = match &self.at {
            Some(at) => {
                *resumed += 1;
                LogFollower::from(&machine.world, meta, at)
            }
            None => {
                *self = Copying::begin(self.shard, self.told, &machine.world, meta);
                return;
            }
        };
        self.follower = Some(follower.unwrap());
    }
}
