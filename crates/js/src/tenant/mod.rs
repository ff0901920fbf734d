//! A tenant of one runtime: its arenas, its libraries, and the context that holds them while in
//! use. Belongs to the runtime's thread, but for [`Functions`], which the watchdog reads too.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::caller::tenant_arenas::Keyspace;
use crate::ffi;
use crate::library::{Function, Library};

/// A callable function.
#[derive(Clone, Debug)]
pub(crate) struct Callable {
    pub(crate) library: Arc<str>,
    pub(crate) name: String,
    pub(crate) no_writes: bool,
    pub(crate) cross_slot: bool,
}

/// FNV-1a: names are short and looked up for each call, and a tenant that makes them collide slows
/// down nobody but itself.
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

/// All callable functions of a tenant: replaced as a whole when a library comes or goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    ids: HashMap<Vec<u8>, u32, BuildHasherDefault<NameHasher>>,
    by_id: Vec<Option<Callable>>,
}

impl Functions {
    pub(crate) fn id(&self, name: &[u8]) -> Option<u32> {
        self.ids.get(name).copied()
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<&Callable> {
        self.by_id.get(id as usize)?.as_ref()
    }
}

/// A library as installed.
pub(crate) struct Installed {
    pub(crate) source: Arc<[u8]>,
    pub(crate) functions: Vec<Function>,
    /// Its functions have the numbers from here on, in order.
    pub(crate) first_id: u32,
    /// It is not started before then, and why.
    pub(crate) rests: Option<(Instant, String)>,
}

impl Installed {
    fn ids(&self) -> Range<usize> {
        let first = self.first_id as usize;
        first..first + self.functions.len()
    }
}

/// State of one tenant.
pub(crate) struct TenantState {
    pub(crate) keyspace: Keyspace,
    pub(crate) libraries: BTreeMap<String, Installed>,
    pub(crate) functions: Arc<Functions>,
    /// Null while it has none.
    pub(crate) context: *mut ffi::RawContext,
    /// For each function: its library has been started in the context.
    started: Vec<bool>,
    /// The context has the overlay of the last call.
    pub(crate) holds_overlay: bool,
    /// Turn of the runtime in which the context was last used.
    pub(crate) used: u64,
}

impl TenantState {
    pub(crate) fn new(keyspace: Keyspace) -> TenantState {
        TenantState {
            keyspace,
            libraries: BTreeMap::new(),
            functions: Arc::default(),
            context: std::ptr::null_mut(),
            started: Vec::new(),
            holds_overlay: false,
            used: 0,
        }
    }

    /// Whether a function can be called in the context that is there.
    pub(crate) fn is_started(&self, id: u32) -> bool {
        self.started.get(id as usize).is_some_and(|started| *started)
    }

    /// Notes that a library has been started in the context, or is no longer there.
    fn set_started(&mut self, ids: Range<usize>, started: bool) {
        if self.started.len() < ids.end {
            self.started.resize(ids.end, false);
        }
        self.started[ids].fill(started);
    }

    /// Notes that a library has been started in the context.
    pub(crate) fn has_started(&mut self, library: &str) {
        if let Some(installed) = self.libraries.get(library) {
            self.set_started(installed.ids(), true);
        }
    }

    /// Lets go of the context, and of all that was in it.
    pub(crate) fn take_context(&mut self) -> *mut ffi::RawContext {
        self.started.clear();
        self.holds_overlay = false;
        std::mem::replace(&mut self.context, std::ptr::null_mut())
    }

    /// A function of another library than `library` that has the name of one in `functions`.
    pub(crate) fn taken<'f>(
        &self,
        library: &str,
        functions: &'f [Function],
    ) -> Option<&'f Function> {
        functions.iter().find(|function| {
            let id = self.functions.id(function.name.as_bytes());
            id.and_then(|id| self.functions.by_id(id))
                .is_some_and(|known| *known.library != *library)
        })
    }

    /// Takes a library out; the context still has its functions.
    pub(crate) fn remove(&mut self, library: &str) -> Option<Installed> {
        let old = self.libraries.remove(library)?;
        self.set_started(old.ids(), false);
        self.index();
        Some(old)
    }

    /// The lowest numbers that nobody has, for `count` functions.
    fn free_ids(&self, count: u32) -> u32 {
        let mut taken: Vec<(u32, u32)> = self
            .libraries
            .values()
            .map(|library| (library.first_id, number(library.functions.len())))
            .collect();
        taken.sort_unstable();
        let mut first = 0;
        for (start, length) in taken {
            if start - first >= count {
                break;
            }
            first = start + length;
        }
        first
    }

    pub(crate) fn add(&mut self, library: &Library, source: Arc<[u8]>) {
        let functions = library.functions.clone();
        let first_id = self.free_ids(number(functions.len()));
        let installed = Installed { source, functions, first_id, rests: None };
        self.libraries.insert(library.name.clone(), installed);
        self.index();
    }

    /// Makes [`Functions`] anew from the libraries.
    pub(crate) fn index(&mut self) {
        let mut functions = Functions::default();
        for (name, library) in &self.libraries {
            let label: Arc<str> = name.as_str().into();
            for (id, function) in (library.first_id..).zip(&library.functions) {
                let at = id as usize;
                if functions.by_id.len() <= at {
                    functions.by_id.resize(at + 1, None);
                }
                functions.by_id[at] = Some(Callable {
                    library: Arc::clone(&label),
                    name: function.name.clone(),
                    no_writes: function.no_writes,
                    cross_slot: function.allow_cross_slot_keys,
                });
                functions.ids.insert(function.name.clone().into_bytes(), id);
            }
        }
        self.functions = Arc::new(functions);
    }
}

/// A small count as u32.
pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
