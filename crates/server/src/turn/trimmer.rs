//! Gives memory back that large buffers have left with the allocator, such as those of clients that
//! read slowly.
//!
//! ```text
//! free at the looks   4   124   124 ─ trim       124   124   124 … 124 ─ trim, if pages were touched
//!                          └─ a rise that stays       └─ ten looks: use between them isn't seen
//! ```
//!
//! 1. It costs little: the allocator is asked once a second, and trimmed only if [`TRIM_BYTES`] may
//!    go back.
//! 2. What is free at two looks goes back. After a trim, the allocator's free bytes are the same as
//!    before, and stay the same if all of them are used and freed between two looks. So from ten
//!    looks after a trim on, each page that was touched counts as free memory to give back.
//! 3. What is used and freed all the time costs a trim in ten seconds at most, unless a look sees
//!    it in use.
//!
//! Belongs to the thread of shard 0, for the whole process.

/// Ticks (of 100 ms) between two looks.
const TICKS: u32 = 10;
/// So much must be free, and may go back: less isn't worth the walk.
const TRIM_BYTES: usize = 16 << 20;
/// Looks after a trim from which on touched pages count. A trim of 100 MiB, and touching them
/// again, take some 30 ms.
const LOOKS: u32 = 10;
/// Page faults by which [`TRIM_BYTES`] may have become resident: with huge pages of 2 MiB.
const FAULTS: u64 = (TRIM_BYTES >> 21) as u64;

/// What is known of the allocator at a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocatorLook {
    /// Bytes that it keeps. Some of them may have gone back: it doesn't note which.
    pub(crate) free_bytes: usize,
    /// Page faults of the process up to now.
    pub(crate) faults: u64,
}

/// The looks since the allocator was trimmed.
#[derive(Debug)]
pub(crate) struct Trimmer {
    ticks: u32,
    /// How many there were.
    looks: u32,
    /// The faults when it was trimmed.
    faults: u64,
    /// Least free bytes of a look. What was free at the trim went back then.
    least: usize,
    /// Free bytes at the last look.
    last: usize,
}

impl Trimmer {
    pub(crate) fn new(look: AllocatorLook) -> Self {
        let AllocatorLook { free_bytes, faults } = look;
        Self { ticks: 0, looks: 0, faults, least: free_bytes, last: free_bytes }
    }

    /// To be called at each tick; whether the allocator is to be trimmed now.
    pub(crate) fn tick(&mut self, look: impl FnOnce() -> AllocatorLook) -> bool {
        self.ticks += 1;
        if self.ticks < TICKS {
            return false;
        }
        self.ticks = 0;
        let AllocatorLook { free_bytes, faults } = look();
        self.looks = self.looks.saturating_add(1);
        self.least = self.least.min(free_bytes);
        let stayed = free_bytes.min(self.last);
        self.last = free_bytes;
        let has_risen = stayed - self.least >= TRIM_BYTES;
        let was_touched = self.looks >= LOOKS && faults.saturating_sub(self.faults) >= FAULTS;
        let trims = has_risen || (was_touched && stayed >= TRIM_BYTES);
        if !trims {
            return false;
        }
        *self = Self { ticks: 0, looks: 0, faults, least: free_bytes, last: free_bytes };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks at which it trims, if so many MiB are free at each of them, and so many faults
    /// were before it.
    fn trims_with(faults: u64, start: usize, free_mib: &[usize]) -> Vec<usize> {
        let look = |mib: usize, faults| AllocatorLook { free_bytes: mib << 20, faults };
        let mut trimmer = Trimmer::new(look(start, 77));
        let mut all = 77;
        let each = |(number, mib): (usize, &usize)| {
            all += faults;
            let trimmed: Vec<bool> = (0..TICKS).map(|_| trimmer.tick(|| look(*mib, all))).collect();
            assert!(!trimmed[..trimmed.len() - 1].contains(&true), "once a second");
            trimmed.contains(&true).then_some(number)
        };
        free_mib.iter().enumerate().filter_map(each).collect()
    }

    fn trims(start: usize, free_mib: &[usize]) -> Vec<usize> {
        trims_with(0, start, free_mib)
    }

    #[test]
    fn what_stays_free_for_a_second_is_given_back_once() {
        // Slow readers come, take 120 MiB, and go; twice.
        assert_eq!(trims(4, &[4, 4, 124, 124, 124, 124]), [3]);
        assert_eq!(trims(124, &[124, 4, 124, 124, 124, 4, 124, 124]), [3, 7]);
        assert_eq!(trims(4, &[124; 40]), [1]);
    }

    #[test]
    fn what_is_used_again_and_little_things_stay() {
        // Replies of 100 MiB, of which one is there at each second look; and 15 MiB.
        assert_eq!(trims(4, &[104, 4, 104, 4, 104, 4, 104]), []);
        assert_eq!(trims(4, &[19, 19, 19, 4, 19]), []);
        let looks = [[104, 4]; 20].concat();
        assert_eq!(trims_with(25_000, 4, &looks), []);
        assert_eq!(trims_with(25_000, 4, &[15; 40]), []);
    }

    /// Readers come and go between two looks: each look sees as many bytes free as the one before.
    #[test]
    fn what_was_used_between_two_looks_is_given_back_too() {
        assert_eq!(trims_with(30_000, 124, &[124; 35]), [9, 19, 29]);
        // Huge pages; and a process that does nothing more.
        assert_eq!(trims_with(1, 124, &[124; 15]), [9]);
        assert_eq!(trims_with(0, 124, &[124; 35]), []);
    }
}
