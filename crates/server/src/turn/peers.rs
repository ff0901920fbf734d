//! The other shards as clients of this one, and whether commands of theirs are left.
//!
//! Belongs to the shard's thread.

use crate::net::peer::Peer;

/// See the header of this file.
pub(crate) struct Peers {
    /// By number. None: it is in the turn, or it is this shard.
    all: Vec<Option<Box<Peer>>>,
    /// The shard whose commands are the first in this turn: they take turns.
    first: usize,
    /// Some of their commands are left for the next turn.
    pub(crate) some_have_work: bool,
    /// Some are left until their shard has taken replies, or others stand still.
    pub(crate) some_wait: bool,
}

impl Peers {
    /// The peers of one of so many shards.
    pub(crate) fn new(own: usize, shards: usize) -> Self {
        let peer = |number| (number != own).then(|| Box::new(Peer::new(number)));
        Self {
            all: (0..shards).map(peer).collect(),
            first: 0,
            some_have_work: false,
            some_wait: false,
        }
    }

    /// Begins a turn's look at them. Whether commands were left, and the shards in turn.
    pub(crate) fn begin_turn(&mut self) -> (bool, impl Iterator<Item = usize> + Clone + use<>) {
        let were_left = self.some_have_work || self.some_wait;
        (self.some_have_work, self.some_wait) = (false, false);
        self.first = (self.first + 1) % self.all.len();
        (were_left, (self.first..self.all.len()).chain(0..self.first))
    }

    /// A peer that isn't in the turn.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Peer> {
        self.all[number].as_deref_mut()
    }

    /// A peer that has commands, for the turn.
    pub(crate) fn take(&mut self, number: usize) -> Option<Box<Peer>> {
        self.all[number].take_if(|peer| peer.pipe.input.has_commands())
    }

    /// A peer leaves the turn.
    pub(crate) fn put(&mut self, peer: Box<Peer>) {
        let number = peer.number;
        self.all[number] = Some(peer);
    }

    /// Commands of one are left: for the next turn, unless they wait for something.
    pub(crate) fn note_left(&mut self, waits: bool) {
        self.some_wait |= waits;
        self.some_have_work |= !waits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_its_turn_to_be_the_first() {
        let mut peers = Peers::new(0, 3);
        for order in [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]] {
            assert!(peers.begin_turn().1.eq(order));
        }
    }

    #[test]
    fn what_several_shards_have_left_is_told_once() {
        for waits in [false, true] {
            let mut peers = Peers::new(0, 3);
            assert!(!peers.begin_turn().0);
            for _ in 0..2 {
                peers.note_left(waits);
                assert_eq!((peers.some_have_work, peers.some_wait), (!waits, waits));
            }
            assert!(peers.begin_turn().0);
            assert!(!peers.begin_turn().0);
        }
    }
}
