//! Loads, installs and removes libraries. The runtime's thread.

use std::sync::Arc;

use super::Runtime;
use crate::caller::fcall::Tenant;
use crate::ffi;
use crate::isolate::lingering::{Stuck, TOP_LEVEL};
use crate::library::{Library, LoadError, source};

/// In the place of a tenant: [`Runtime::check`] checks a source for no tenant.
const NOBODY: Tenant = Tenant(u32::MAX);
/// The arena of a scratch context: the header of an empty one.
static NO_ARENA: [u64; 512] = [0; 512];

impl Runtime {
    /// Compiles and evaluates `source` (with its first line `#!js name=…`) in a scratch context. It
    /// isn't installed.
    ///
    /// # Errors
    /// [`LoadError`], whose text is the error reply.
    pub fn load(&mut self, tenant: Tenant, source: &[u8]) -> Result<Library, LoadError> {
        let most = self.limits.source_bytes;
        if source.len() > most {
            let reason = format!(
                "the source is longer than {most} bytes (setting: function-source-limit-bytes)"
            );
            return Err(LoadError::BadSource { library: source::library_name(source)?, reason });
        }
        self.load_kept(tenant, source)
    }

    /// The same for a library that was loaded before, even if it is longer than a source may be
    /// now.
    ///
    /// # Errors
    /// [`LoadError`], whose text is the error reply.
    pub fn load_kept(&mut self, tenant: Tenant, source: &[u8]) -> Result<Library, LoadError> {
        let library = self.examine(tenant, source)?;
        match self.state(tenant).taken(&library.name, &library.functions) {
            Some(taken) => Err(LoadError::FunctionExists { function: taken.name.clone() }),
            None => Ok(library),
        }
    }

    /// The same without a tenant: whether the source can be a library of any tenant.
    ///
    /// # Errors
    /// [`LoadError`], whose text is the error reply.
    pub fn check(&mut self, source: &[u8]) -> Result<Library, LoadError> {
        self.examine(NOBODY, source)
    }

    fn examine(&mut self, tenant: Tenant, source: &[u8]) -> Result<Library, LoadError> {
        let name = source::library_name(source)?;
        let bad = |reason| LoadError::BadSource { library: name.clone(), reason };
        let text = std::str::from_utf8(source).map_err(|error| {
            bad(format!("the source is not UTF-8 at byte {}", error.valid_up_to()))
        })?;
        let not_now = |reason| LoadError::NotNow { library: name.clone(), reason };
        let until_restart = |reason| LoadError::GivenUp { library: name.clone(), reason };
        if self.lingering.are_too_many() {
            let (reason, for_good) = self.lingering.crowded();
            return Err(if for_good { until_restart(reason) } else { not_now(reason) });
        }
        match self.lingering.stuck(tenant, &name, TOP_LEVEL, source) {
            None => {}
            Some(stuck @ Stuck::Stopping) => return Err(not_now(stuck.of_start().to_owned())),
            Some(stuck @ Stuck::ForGood) => return Err(until_restart(stuck.of_start().to_owned())),
        }
        let base: *const u8 = NO_ARENA.as_ptr().cast();
        let arena = ffi::RawArena { base, length: size_of_val(&NO_ARENA), foreign: false };
        let context = self.new_context(&[arena]).map_err(not_now)?;
        let compile = |reason| LoadError::Compile { library: name.clone(), reason };
        self.isolate.make_room();
        let found = self.evaluate(tenant, context, &name, source, 0);
        self.isolate.free_context(context);
        let mut functions = found.map_err(|stop| compile(self.recovered(stop)))?;
        if functions.is_empty() {
            return Err(LoadError::NoFunctions);
        }
        let mut descriptions = source::descriptions(text);
        for function in &mut functions {
            function.description = descriptions.remove(function.name.as_str());
        }
        Ok(Library { name, functions })
    }

    /// Makes the functions of a loaded library callable, and replaces a library of the same name.
    /// The library starts at once. If it fails to start beside the tenant's other libraries, its
    /// calls say so.
    ///
    /// # Errors
    /// [`LoadError::FunctionExists`] if another library has a function of the same name. Then the
    /// tenant keeps its libraries.
    pub fn install(
        &mut self,
        tenant: Tenant,
        library: &Library,
        source: &[u8],
    ) -> Result<(), LoadError> {
        let state = self.state(tenant);
        if let Some(taken) = state.taken(&library.name, &library.functions) {
            return Err(LoadError::FunctionExists { function: taken.name.clone() });
        }
        self.remove(tenant, &library.name);
        self.let_go_of_functions();
        self.state(tenant).add(library, source.into());
        if let Ok(context) = self.ensure_context(tenant) {
            // If it fails, its calls say why.
            let _ = self.start_library(tenant, context, &library.name);
        }
        Ok(())
    }

    /// Whether a tenant has a library of this name with this source.
    #[must_use]
    pub fn has(&self, tenant: Tenant, name: &str, source: &[u8]) -> bool {
        let libraries = &self.tenants[tenant.0 as usize].libraries;
        libraries.get(name).is_some_and(|installed| *installed.source == *source)
    }

    /// Removes a library; false if there is none of that name.
    pub fn remove(&mut self, tenant: Tenant, name: &str) -> bool {
        self.let_go_of_functions();
        let state = self.state(tenant);
        let Some(old) = state.remove(name) else { return false };
        let context = state.context;
        if !context.is_null() {
            let count = ffi::count(old.functions.len());
            if !self.isolate.remove_functions(context, old.first_id, count) {
                self.drop_context(tenant);
            }
        }
        true
    }

    /// Forgets the functions with which the last batch ran: so they change in place, however many
    /// there are.
    fn let_go_of_functions(&mut self) {
        self.isolate.bridge().functions = Arc::default();
        self.isolate.watchdog().watch.set_names(|names| names.functions = Arc::default());
    }

    /// Removes all libraries of a tenant, and their memory.
    pub fn remove_all(&mut self, tenant: Tenant) {
        self.drop_context(tenant);
        let state = self.state(tenant);
        state.clear();
    }
}
