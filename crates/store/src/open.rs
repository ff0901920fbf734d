//! Opening a store: creates its arenas or adopts those that an earlier server left.
//!
//! ```text
//! <dir>/<tenant>.0.arena    the tenant's data, partition 0
//! <dir>/_system.0.arena     libraries
//! ```
//!
//! That no second server uses the directory is the server's to ensure.
//!
//! Thread: the one that starts the shard.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_shm::{Adoption, ArenaSpec, Domain, Writer};

use crate::error::StoreError;
use crate::half::{Libraries, WriterHalf};
use crate::options::{Opened, StoreOptions};
use crate::store::{Counters, Store};
use crate::sweep::Sweep;
use crate::watch::Watches;

/// Tenant of the system arena; no tenant of users begins with `_`.
const SYSTEM_TENANT: &str = "_system";
/// Longest name of a tenant, bytes: what the arena's header holds.
const MAX_TENANT_BYTES: usize = 128;

/// The files of a store.
pub(crate) struct Files {
    dir: PathBuf,
    data: PathBuf,
    system: PathBuf,
}

impl Store {
    /// Adopts the arenas in the directory, creating what is missing; with `fresh`, all of it.
    ///
    /// # Errors
    ///
    /// The directory or an arena can't be used; the message says which and why.
    pub fn open(
        options: &StoreOptions,
        domain: &Arc<Domain>,
    ) -> Result<(Store, Opened), StoreError> {
        check_tenant(&options.tenant)?;
        make_dir(&options.dir)?;
        let path = |tenant: &str| options.dir.join(format!("{tenant}.0.arena"));
        let files = Files {
            dir: options.dir.clone(),
            data: path(&options.tenant),
            system: path(SYSTEM_TENANT),
        };
        let open = |path: &Path, tenant: &str, capacity_bytes| {
            let tenant = tenant.to_owned();
            let path = path.to_owned();
            let spec = ArenaSpec { path, tenant, partition: 0, partitions: 1, capacity_bytes };
            open_arena(&spec, options.fresh, domain)
        };
        let (data, data_adoption) = open(&files.data, &options.tenant, options.capacity_bytes)?;
        let (system, system_adoption) =
            open(&files.system, SYSTEM_TENANT, options.system_capacity_bytes)?;
        let reader = data.reader();
        let libraries = system.keys();
        let opened = Opened { data: data_adoption, system: system_adoption, libraries };
        let store = Store {
            data: WriterHalf::here(data),
            reader,
            transaction: None,
            watches: Watches::default(),
            counters: Counters::default(),
            sweep: Sweep::default(),
            tracks: false,
            eviction: None,
            hit_log: None,
            new_rings: Arc::default(),
            libraries: Libraries { reader: system.reader(), writer: WriterHalf::here(system) },
            files: Some(files),
        };
        Ok((store, opened))
    }

    /// Closes the store. Its arenas stay for the next one, or with `remove` go, and with them the
    /// directory if nothing else is in it. What can't be removed stays.
    pub fn close(mut self, remove: bool) {
        self.rollback();
        let Store { files, data, reader, libraries, .. } = self;
        drop((data, reader, libraries));
        if remove && let Some(files) = files {
            // The server ends anyway, and what stays is adopted or replaced by the next one.
            let _ = fs::remove_file(&files.data);
            let _ = fs::remove_file(&files.system);
            let _ = fs::remove_dir(&files.dir);
        }
    }
}

fn check_tenant(name: &str) -> Result<(), StoreError> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_well = !name.starts_with(['.', '_']);
    if !name.is_empty() && name.len() <= MAX_TENANT_BYTES && begins_well && name.bytes().all(usable)
    {
        return Ok(());
    }
    Err(StoreError::TenantName { name: name.to_owned() })
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| StoreError::Directory { path: dir.to_owned(), source })
}

fn open_arena(
    spec: &ArenaSpec,
    fresh: bool,
    domain: &Arc<Domain>,
) -> Result<(Writer, Option<Adoption>), StoreError> {
    let directory = |source| StoreError::Directory { path: spec.path.clone(), source };
    if fresh {
        match fs::remove_file(&spec.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(directory(error)),
            _ => {}
        }
    }
    if spec.path.try_exists().map_err(directory)? {
        let (writer, adoption) = Writer::adopt(spec, domain)?;
        return Ok((writer, Some(adoption)));
    }
    Ok((Writer::create(spec, domain)?, None))
}
