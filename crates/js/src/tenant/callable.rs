//! The callable functions of a tenant, by name and by number.
//!
//! A tenant's [`Functions`] change when a library comes or goes: in place, unless a batch still has
//! them; then a copy takes their place. The runtime's thread makes them; the watchdog, and handles
//! on other threads, read them too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::library::Function;

/// A callable function.
#[derive(Clone, Debug)]
pub(crate) struct Callable {
    pub(crate) library: Arc<str>,
    pub(crate) name: String,
    pub(crate) no_writes: bool,
    pub(crate) cross_slot: bool,
}

/// FNV-1a: names are short, and each call looks one up. A tenant whose names collide slows down
/// only its own calls.
#[derive(Clone, Copy)]
pub(crate) struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> Self {
        NameHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// All callable functions of a tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    ids: HashMap<Vec<u8>, u32, BuildHasherDefault<NameHasher>>,
    by_id: Vec<Option<Callable>>,
}

impl Functions {
    /// The number of a function.
    pub(crate) fn id(&self, name: &[u8]) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The function of a number.
    pub(crate) fn by_id(&self, id: u32) -> Option<&Callable> {
        self.by_id.get(id as usize)?.as_ref()
    }

    /// Adds the functions of a library, with numbers from `first_id` on.
    pub(super) fn add(&mut self, library: &str, first_id: u32, functions: &[Function]) {
        let library: Arc<str> = library.into();
        for (id, function) in (first_id..).zip(functions) {
            let at = id as usize;
            if self.by_id.len() <= at {
                self.by_id.resize(at + 1, None);
            }
            self.by_id[at] = Some(Callable {
                library: Arc::clone(&library),
                name: function.name.clone(),
                no_writes: function.no_writes,
                cross_slot: function.allow_cross_slot_keys,
            });
            self.ids.insert(function.name.clone().into_bytes(), id);
        }
    }

    /// Removes the functions of a library, which have these numbers.
    pub(super) fn remove(&mut self, ids: Range<usize>, functions: &[Function]) {
        self.by_id[ids].fill(None);
        let last = self.by_id.iter().rposition(Option::is_some);
        self.by_id.truncate(last.map_or(0, |last| last + 1));
        for function in functions {
            self.ids.remove(function.name.as_bytes());
        }
    }
}
