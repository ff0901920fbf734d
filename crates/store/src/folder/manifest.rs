//! The manifest: the tenants of a folder, and how many partitions each has. See `folder` for what
//! it means.
//!
//! ```text
//! nigh-manifest 1
//! <tenant> <partitions>
//! ...
//! ```
//!
//! 1. A new manifest takes the place of the old one by one rename.
//!
//! Thread: any.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::StoreError;
use crate::folder::names::{SYSTEM_TENANT, check_tenant};
use nigh_shm::{MOST_PARTITIONS, open_regular};

/// Name of the manifest.
pub const MANIFEST: &str = "manifest";
/// Its name while it is written.
pub const NEW_MANIFEST: &str = "manifest.new";
/// First line of a manifest.
const MANIFEST_HEAD: &str = "nigh-manifest 1";
/// The number of partitions of each tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest(pub(crate) BTreeMap<String, usize>);

impl Manifest {
    /// The manifest of a folder; `None` if it has none.
    pub(crate) fn load(dir: &Path) -> Result<Option<Manifest>, StoreError> {
        let path = dir.join(MANIFEST);
        match open_regular(&path).and_then(io::read_to_string) {
            Ok(text) => match Manifest::parse(&text) {
                Some(manifest) => Ok(Some(manifest)),
                None => Err(StoreError::Manifest { path }),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(StoreError::Manifest { path })
            }
            Err(source) => Err(StoreError::Directory { path, source }),
        }
    }

    fn parse(text: &str) -> Option<Manifest> {
        let mut lines = text.lines();
        if lines.next()? != MANIFEST_HEAD || !text.ends_with('\n') {
            return None;
        }
        let mut tenants = BTreeMap::new();
        for line in lines {
            let (tenant, partitions) = line.split_once(' ')?;
            let partitions = partitions.parse().ok()?;
            let known = tenant == SYSTEM_TENANT && partitions == 1 || check_tenant(tenant).is_ok();
            if !known || !(1..=MOST_PARTITIONS).contains(&partitions) {
                return None;
            }
            tenants.insert(tenant.to_owned(), partitions);
        }
        Some(Manifest(tenants))
    }

    /// Puts it in the place of the folder's manifest.
    pub(crate) fn store(&self, dir: &Path) -> io::Result<()> {
        let mut text = format!("{MANIFEST_HEAD}\n");
        self.0.iter().for_each(|(tenant, partitions)| text += &format!("{tenant} {partitions}\n"));
        let new = dir.join(NEW_MANIFEST);
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        let placed = written.and_then(|()| fs::rename(&new, dir.join(MANIFEST)));
        placed.inspect_err(|_| _ = fs::remove_file(&new))
    }

    /// Removes the folder's manifest, if there is one.
    pub(crate) fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(MANIFEST)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Adds to the manifest of `to` the tenants of `from`'s that it lacks: their arenas were taken
/// along.
///
/// # Errors
/// A manifest isn't one that the store writes, or can't be read or written.
pub fn list_others(from: &Path, to: &Path) -> Result<(), StoreError> {
    let mut listed = Manifest::load(from)?.unwrap_or_default();
    let of_copy = Manifest::load(to)?.unwrap_or_default();
    listed.0.extend(of_copy.0.clone());
    if listed == of_copy {
        return Ok(());
    }
    listed.store(to).map_err(|source| StoreError::Directory { path: to.join(MANIFEST), source })
}
