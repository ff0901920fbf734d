//! Making a shard's libraries what the system arena holds, when they have changed.
//!
//! ```text
//! FUNCTION LOAD at the owner ── which, noted at each seat ──> a turn of each other shard: loaded there
//!                        no time left, or it can't be loaded now ──> put off ──> one each turn, or each RETRY_AFTER
//! ```
//!
//! 1. Only what has changed is looked at. A library that couldn't be loaded is loaded again if it
//!    changed itself; if it was put off; or if the other library went that had a function of its.
//! 2. Those that changed are loaded in the turn that learns of it, so that a client that was told
//!    of a library can call it everywhere; but only for `command-time-limit-ms`, and one more.
//!
//! Belongs to the shard's thread.

use crate::engine::{self, LoadError};
use crate::folder::starts;
use crate::state::State;
use crate::state::libraries::{Broken, ChangedLibraries};
use crate::state::tenants::LocalTenant;
use crate::tenant::TenantId;
use nigh_store::Turn;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time until a library that can't be loaded now is tried again: a tick.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Why a library isn't loaded yet.
const OTHERS_FIRST: &str =
    "it waits for its turn: others that changed took all the time that there is at once";

impl State {
    /// Makes a tenant's libraries what its system arena holds, as far as they have changed. Those
    /// that are loaded with the same source stay as they are: clients wait while one is loaded. One
    /// that no longer compiles is reported. One that can't be loaded now, or for which `most` is
    /// too short, is put off.
    pub(crate) fn renew_libraries(
        &mut self,
        tenant: TenantId,
        changed: ChangedLibraries,
        most: Duration,
        turn: &Turn<'_>,
    ) {
        let began = Instant::now();
        let names = match changed {
            ChangedLibraries::Some(names) => names,
            ChangedLibraries::All => self.known_libraries(tenant, turn),
        };
        self.put_off.retain(|(of, name)| *of != tenant || !names.contains(name));
        let mut wanted = self.remove_changed(tenant, names, turn);
        let LocalTenant { keyspace, libraries, .. } = &self.tenants[tenant];
        for name in libraries.unblocked() {
            if let Some(source) = keyspace.librarian().library(name.as_bytes(), turn) {
                wanted.push((name, source));
            }
        }
        for (at, (name, source)) in wanted.into_iter().enumerate() {
            if at > 0 && began.elapsed() >= most {
                let engine = engine::of_source(&self.engines, source);
                let broken = Broken { engine, reason: OTHERS_FIRST.to_owned(), blocked_by: None };
                self.tenants[tenant].libraries.broken.insert(name.clone(), broken);
                self.put_off.push_back((tenant, name));
                self.retry_at = Some(Instant::now());
            } else {
                self.load_kept(tenant, &name, source);
            }
        }
    }

    /// The names of all libraries that are kept or loaded.
    fn known_libraries(&self, tenant: TenantId, turn: &Turn<'_>) -> BTreeSet<String> {
        let LocalTenant { keyspace, libraries, .. } = &self.tenants[tenant];
        let kept = keyspace.librarian().libraries(turn);
        let kept = kept.into_iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        kept.chain(libraries.listed().map(|library| library.name.to_owned())).collect()
    }

    /// Removes those that are gone or have another source. Returns those that are to be loaded.
    fn remove_changed<'p>(
        &mut self,
        tenant: TenantId,
        names: BTreeSet<String>,
        turn: &Turn<'p>,
    ) -> Vec<(String, &'p [u8])> {
        let LocalTenant { keyspace, libraries, .. } = &mut self.tenants[tenant];
        let mut wanted = Vec::new();
        for name in names {
            let source = keyspace.librarian().library(name.as_bytes(), turn);
            let stays = source.is_some_and(|source| {
                let engine = engine::of_source(&self.engines, source);
                libraries.engine_of_library(&name) == Some(engine)
                    && self.engines[engine].has(tenant, &name, source)
            });
            if stays {
                continue;
            }
            libraries.remove(&name);
            self.engines.iter_mut().for_each(|engine| engine.unload(tenant, Some(&name)));
            wanted.extend(source.map(|source| (name, source)));
        }
        wanted
    }

    /// Loads the first library that was put off again, unless it was removed or replaced meanwhile.
    /// If it can't be loaded yet, the next one comes after [`RETRY_AFTER`]: each try reads the
    /// source, and most reasons hold for all libraries. Its reason may be its own, so all others
    /// come before its next try.
    pub(super) fn retry_libraries(&mut self, turn: &Turn<'_>) {
        self.retry_at = None;
        while let Some((tenant, name)) = self.put_off.pop_front() {
            let of = &mut self.tenants[tenant];
            let kept = of.keyspace.librarian().library(name.as_bytes(), turn);
            let Some(source) = kept else { continue };
            if of.libraries.broken.remove(&name).is_some() {
                self.load_kept(tenant, &name, source);
                break;
            }
        }
        if !self.put_off.is_empty() {
            self.retry_at.get_or_insert_with(Instant::now);
        }
    }

    /// Loads a kept library, or notes why that can't be, and puts it off if it has to be tried
    /// again.
    fn load_kept(&mut self, tenant: TenantId, name: &str, source: &[u8]) {
        let number = engine::of_source(&self.engines, source);
        let libraries = &mut self.tenants[tenant].libraries;
        if self.shared.skips.has(name, source) {
            let reason = starts::REASON.to_owned();
            let broken = Broken { engine: number, reason, blocked_by: None };
            libraries.broken.insert(name.to_owned(), broken);
            return;
        }
        let engine = &mut self.engines[number];
        self.logs.hand_over_journal();
        let loaded = engine.load(tenant, source, true).and_then(|library| {
            libraries.check_names(&library)?;
            engine.install(tenant, &library, source)?;
            Ok(library)
        });
        let error = match loaded {
            Ok(library) => {
                tracing::info!(library = %name, functions = library.functions.len(), "library loaded");
                return libraries.insert(number, library);
            }
            Err(error) => error,
        };
        let reason = error.to_string();
        if let LoadError::NotNow { .. } = error {
            tracing::warn!(library = %name, reason, "a library that was kept can't be loaded now");
            self.put_off.push_back((tenant, name.to_owned()));
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY_AFTER);
        } else {
            tracing::error!(library = %name, reason, "a library that was kept can't be loaded");
        }
        let blocked_by = match error {
            LoadError::FunctionExists { function } => Some(function),
            _ => None,
        };
        let broken = Broken { engine: number, reason, blocked_by };
        libraries.broken.insert(name.to_owned(), broken);
    }
}
