//! V8 as an engine: libraries in JavaScript, which read a shard's arenas in place.
//!
//! Belongs to the shard's thread.

use super::lend;
use super::{
    BatchEnd, Call, Engine, FunctionLimits, Host, Library, Loaded, Remote, RunTurn, RuntimeStats,
    Starts,
};
use crate::tenant::TenantId;
use nigh_js::{Fiber, Mapping, Runtime, StartError, Tenant};
use nigh_store::{Keyspace, Store};

/// A shard's V8.
pub(crate) struct V8 {
    runtime: Runtime,
    /// As the runtime knows them.
    tenants: Vec<Tenant>,
}

impl V8 {
    /// V8 on a shard's fiber.
    pub(crate) fn on(fiber: Fiber, limits: FunctionLimits) -> Result<Self, StartError> {
        Ok(Self { runtime: Runtime::on(fiber, limits)?, tenants: Vec::new() })
    }

    /// V8 on a thread that serves nobody.
    pub(crate) fn alone(limits: FunctionLimits) -> Result<Self, StartError> {
        Ok(Self { runtime: Runtime::new(limits)?, tenants: Vec::new() })
    }
}

impl Engine for V8 {
    fn name(&self) -> &'static str {
        "JS"
    }

    fn open(&mut self, tenant: TenantId, keyspace: &Keyspace) {
        assert_eq!(tenant.index(), self.tenants.len(), "tenants are opened in their order");
        let arena = |store: &Store| {
            let arena = lend::mapping(store.data_region());
            if store.is_owner() { arena } else { arena.foreign() }
        };
        let arenas: Vec<Mapping> = keyspace.parts().iter().map(arena).collect();
        self.tenants.push(self.runtime.open_tenant(arenas));
    }

    fn tries(&self) -> Option<&FunctionLimits> {
        Some(self.runtime.limits())
    }

    fn check(&mut self, source: &[u8]) -> Loaded<()> {
        self.runtime.check(source).map(drop)
    }

    fn load(&mut self, tenant: TenantId, source: &[u8], is_kept: bool) -> Loaded<Library> {
        let tenant = self.tenants[tenant.index()];
        match is_kept {
            true => self.runtime.load_kept(tenant, source),
            false => self.runtime.load(tenant, source),
        }
    }

    fn install(&mut self, tenant: TenantId, library: &Library, source: &[u8]) -> Loaded<()> {
        self.runtime.install(self.tenants[tenant.index()], library, source)
    }

    fn has(&self, tenant: TenantId, library: &str, source: &[u8]) -> bool {
        self.runtime.has(self.tenants[tenant.index()], library, source)
    }

    fn unload(&mut self, tenant: TenantId, library: Option<&str>) {
        let tenant = self.tenants[tenant.index()];
        match library {
            Some(library) => _ = self.runtime.remove(tenant, library),
            None => self.runtime.remove_all(tenant),
        }
    }

    fn admits(&self, tenant: TenantId, call: &Call<'_>) -> Option<bool> {
        let tenant = self.tenants[tenant.index()];
        self.runtime.admits(tenant, call).then(|| self.runtime.holds_overlay(tenant))
    }

    fn run(
        &mut self,
        tenant: TenantId,
        calls: &[Call<'_>],
        turn: RunTurn,
        host: &mut dyn Host,
        reply: &mut dyn FnMut(usize, &[u8]),
    ) -> BatchEnd {
        let calls = self.runtime.run(self.tenants[tenant.index()], calls, turn, host, reply);
        BatchEnd { calls, untold: self.runtime.untold() }
    }

    fn set_limits(&mut self, limits: FunctionLimits) {
        self.runtime.set_limits(limits);
    }

    fn tell_starts(&mut self, starts: Box<dyn Starts>) {
        self.runtime.tell_starts(starts);
    }

    fn remote(&self) -> Remote {
        let handle = self.runtime.running();
        Box::new(move |reason| reason.map_or_else(|| handle.get(), |it| handle.terminate(it)))
    }

    fn catch_up(&mut self, sleeps: bool) {
        if sleeps { self.runtime.idle() } else { self.runtime.catch_up() }
    }

    fn stats(&self) -> RuntimeStats {
        self.runtime.stats()
    }

    fn reset_stats(&mut self) {
        self.runtime.reset_stats();
    }
}
