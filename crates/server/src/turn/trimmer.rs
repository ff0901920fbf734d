//! Gives memory back that large buffers have left with the allocator, such as those of clients that
//! read slowly.
//!
//! 1. It costs little: the allocator is asked once a second, and trimmed only if [`TRIM_BYTES`]
//!    were freed.
//! 2. What is freed and used again all the time stays: only what is free longer than a second goes
//!    back.
//!
//! Belongs to the thread of shard 0, for the whole process.

/// Ticks (of 100 ms) between two looks.
const TICKS: u32 = 10;
/// So much more must be free than there was at least since it was trimmed: less isn't worth the
/// walk.
const TRIM_BYTES: usize = 16 << 20;

/// What is known of the allocator.
#[derive(Debug)]
pub(crate) struct Trimmer {
    ticks: u32,
    /// Least free bytes since it was trimmed. What was free then counts as given back, since the
    /// allocator doesn't tell that apart.
    least: usize,
    /// Free bytes at the last look.
    last: usize,
}

impl Trimmer {
    pub(crate) fn new(free_bytes: usize) -> Self {
        Self { ticks: 0, least: free_bytes, last: free_bytes }
    }

    /// To be called at each tick; whether the allocator is to be trimmed now.
    pub(crate) fn tick(&mut self, free_bytes: impl FnOnce() -> usize) -> bool {
        self.ticks += 1;
        if self.ticks < TICKS {
            return false;
        }
        self.ticks = 0;
        let free = free_bytes();
        self.least = self.least.min(free);
        let stayed = free.min(self.last);
        self.last = free;
        if stayed - self.least < TRIM_BYTES {
            return false;
        }
        self.least = free;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks at which it trims, if so many MiB are free at each of them.
    fn trims(start: usize, free_mib: &[usize]) -> Vec<usize> {
        let mut trimmer = Trimmer::new(start << 20);
        let look = |(look, mib): (usize, &usize)| {
            let trimmed: Vec<bool> = (0..TICKS).map(|_| trimmer.tick(|| mib << 20)).collect();
            assert!(!trimmed[..trimmed.len() - 1].contains(&true), "once a second");
            trimmed.contains(&true).then_some(look)
        };
        free_mib.iter().enumerate().filter_map(look).collect()
    }

    #[test]
    fn what_stays_free_for_a_second_is_given_back_once() {
        // Slow readers come, take 120 MiB, and go; twice.
        assert_eq!(trims(4, &[4, 4, 124, 124, 124, 124]), [3]);
        assert_eq!(trims(124, &[124, 4, 124, 124, 124, 4, 124, 124]), [3, 7]);
    }

    #[test]
    fn what_is_used_again_and_little_things_stay() {
        // Replies of 100 MiB, of which one is there at each second look; and 15 MiB.
        assert_eq!(trims(4, &[104, 4, 104, 4, 104, 4, 104]), []);
        assert_eq!(trims(4, &[19, 19, 19, 4, 19]), []);
    }
}
