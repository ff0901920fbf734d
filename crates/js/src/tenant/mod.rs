//! A tenant of one runtime: its arenas, its libraries, and the context that holds them while in
//! use. The runtime's thread.

mod callable;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::caller::tenant_arenas::TenantArenas;
use crate::ffi;
use crate::library::{Function, Library};

pub(crate) use callable::Functions;

/// An installed library.
pub(crate) struct Installed {
    pub(crate) source: Arc<[u8]>,
    pub(crate) functions: Vec<Function>,
    /// Its functions have the numbers from here on, in order.
    pub(crate) first_id: u32,
    /// It is not started again before then, and why.
    pub(crate) rests: Option<(Instant, String)>,
}

impl Installed {
    fn ids(&self) -> Range<usize> {
        let first = self.first_id as usize;
        first..first + self.functions.len()
    }
}

/// One tenant.
pub(crate) struct TenantState {
    pub(crate) arenas: TenantArenas,
    pub(crate) libraries: BTreeMap<String, Installed>,
    pub(crate) functions: Arc<Functions>,
    /// Null while it has none.
    pub(crate) context: *mut ffi::RawContext,
    /// For each function, whether its library has been started in the context.
    started: Vec<bool>,
    /// The context has the overlay of the last call.
    pub(crate) holds_overlay: bool,
    /// Turn of the runtime in which the context was last used.
    pub(crate) used: u64,
}

impl TenantState {
    pub(crate) fn new(arenas: TenantArenas) -> TenantState {
        TenantState {
            arenas,
            libraries: BTreeMap::new(),
            functions: Arc::default(),
            context: std::ptr::null_mut(),
            started: Vec::new(),
            holds_overlay: false,
            used: 0,
        }
    }

    /// Whether a function's library has been started in the context.
    pub(crate) fn is_started(&self, id: u32) -> bool {
        self.started.get(id as usize).is_some_and(|started| *started)
    }

    /// Notes whether the library of these functions has been started in the context.
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

    /// Takes the context out, and forgets its state.
    pub(crate) fn take_context(&mut self) -> *mut ffi::RawContext {
        self.started.clear();
        self.holds_overlay = false;
        std::mem::replace(&mut self.context, std::ptr::null_mut())
    }

    /// The first of `functions` whose name a function of another library than `library` has.
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
        Arc::make_mut(&mut self.functions).remove(old.ids(), &old.functions);
        Some(old)
    }

    /// The lowest free numbers for `count` functions.
    fn free_ids(&self, count: u32) -> u32 {
        let mut taken: Vec<(u32, u32)> = self
            .libraries
            .values()
            .map(|library| (library.first_id, ffi::count(library.functions.len())))
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

    /// Adds a library of a name that no other has.
    pub(crate) fn add(&mut self, library: &Library, source: Arc<[u8]>) {
        let functions = library.functions.clone();
        let first_id = self.free_ids(ffi::count(functions.len()));
        Arc::make_mut(&mut self.functions).add(&library.name, first_id, &functions);
        let installed = Installed { source, functions, first_id, rests: None };
        self.libraries.insert(library.name.clone(), installed);
    }

    /// Takes all libraries out; the context still has their functions.
    pub(crate) fn clear(&mut self) {
        self.libraries.clear();
        self.functions = Arc::default();
    }
}
