//! The names of a folder's arenas, and of tenants.
//!
//! Thread: any.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use nigh_shm::MOST_PARTITIONS;

/// Name of the tenant of a client that chooses none.
pub const DEFAULT_TENANT: &str = "default";
/// Tenant of the system arena. No tenant of a user begins with `_`.
pub(crate) const SYSTEM_TENANT: &str = "_system";
/// Longest name of a tenant that an arena's header holds, bytes.
const MAX_TENANT_BYTES: usize = 128;

/// The file of a partition.
#[must_use]
pub fn path_of(dir: &Path, tenant: &str, partition: usize) -> PathBuf {
    dir.join(format!("{tenant}.{partition}.arena"))
}

/// The file of the libraries.
pub(crate) fn system_path(dir: &Path) -> PathBuf {
    path_of(dir, SYSTEM_TENANT, 0)
}

pub(crate) fn check_tenant(name: &str) -> Result<(), StoreError> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_well = !name.starts_with(['.', '_']);
    if !name.is_empty() && name.len() <= MAX_TENANT_BYTES && begins_well && name.bytes().all(usable)
    {
        return Ok(());
    }
    Err(StoreError::TenantName { name: name.to_owned() })
}

/// Tenant and partition of a file by its name; `None` for a name that no server gives, such as that
/// of partition 03 or +3.
#[must_use]
pub fn arena_of_name(name: &str) -> Option<(&str, usize)> {
    let (tenant, number) = name.strip_suffix(".arena")?.rsplit_once('.')?;
    let partition = (0..MOST_PARTITIONS).find(|it| number == it.to_string())?;
    let is_system = tenant == SYSTEM_TENANT && partition == 0;
    (is_system || check_tenant(tenant).is_ok()).then_some((tenant, partition))
}

/// The partitions of a tenant whose files are in the folder, in order.
pub(crate) fn partitions_there(dir: &Path, tenant: &str) -> Result<BTreeSet<usize>, StoreError> {
    let names = names(dir)?;
    let of_names = names.iter().filter_map(|name| arena_of_name(name));
    Ok(of_names.filter(|found| found.0 == tenant).map(|found| found.1).collect())
}

pub(crate) fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |source| StoreError::Directory { path: dir.to_owned(), source };
    let entries = fs::read_dir(dir).map_err(failed)?;
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect::<io::Result<_>>().map_err(failed)
}
