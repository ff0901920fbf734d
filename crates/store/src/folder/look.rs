//! A folder of arenas: which there are, which there are to be, and whether they belong together.
//!
//! ```text
//! <dir>/<tenant>.0.arena    the tenant's data, partition 0; .1 and so on if there are more
//! <dir>/_system.0.arena     libraries
//! <dir>/manifest            which of them were made: tenants and partitions
//! ```
//!
//! 1. Opening and `nigh check` go by [`look`]: what the one refuses, the other names.
//! 2. The manifest is written when all arenas of a tenant have been made. A listed arena that is
//!    not there is missing. Arenas that no manifest lists were left by a first start that was cut
//!    off, and nothing was ever written to them; or by a server that knew no manifest, and then all
//!    of them are there.
//! 3. The manifest goes before any arena goes.
//!
//! Thread: any; who opens or converts holds the folder's lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nigh_shm::{ArenaError, HeaderInfo, edition1, header_of};

use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::keyspace::MOST_PARTITIONS;
use crate::open::store_options::DEFAULT_TENANT;

/// Tenant of the system arena; no tenant of users begins with `_`.
pub(crate) const SYSTEM_TENANT: &str = "_system";
/// Name of the manifest.
pub const MANIFEST: &str = "manifest";
/// Its name while it is written.
pub const NEW_MANIFEST: &str = "manifest.new";
/// First line of a manifest.
const MANIFEST_HEAD: &str = "nigh-manifest 1";
/// Longest name of a tenant, bytes: what the arena's header holds.
const MAX_TENANT_BYTES: usize = 128;

/// The file of a partition.
pub(crate) fn path_of(dir: &Path, tenant: &str, partition: usize) -> PathBuf {
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

/// Tenant and partition that a file's name tells; `None` for names that no server gives: 03 or +3
/// isn't partition 3.
#[must_use]
pub fn arena_of_name(name: &str) -> Option<(&str, usize)> {
    let (tenant, number) = name.strip_suffix(".arena")?.rsplit_once('.')?;
    let partition = (0..MOST_PARTITIONS).find(|it| number == it.to_string())?;
    let is_system = tenant == SYSTEM_TENANT && partition == 0;
    (is_system || check_tenant(tenant).is_ok()).then_some((tenant, partition))
}

/// How many partitions of each tenant were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest(pub(crate) BTreeMap<String, usize>);

impl Manifest {
    /// The manifest of a folder; `None` if it has none.
    pub(crate) fn load(dir: &Path) -> Result<Option<Manifest>, StoreError> {
        let path = dir.join(MANIFEST);
        match fs::read_to_string(&path) {
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

    /// Puts it in the place of the folder's.
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

    /// Removes the folder's, if there is one (invariant 3).
    pub(crate) fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(MANIFEST)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Lists in the manifest of `to` what that of `from` lists beyond: tenants whose arenas were taken
/// along.
///
/// # Errors
/// A manifest makes no sense, or can't be read or written.
pub fn list_others(from: &Path, to: &Path) -> Result<(), StoreError> {
    let mut listed = Manifest::load(from)?.unwrap_or_default();
    let of_copy = Manifest::load(to)?.unwrap_or_default();
    listed.0.extend(of_copy.0.clone());
    if listed == of_copy {
        return Ok(());
    }
    listed.store(to).map_err(|source| StoreError::Directory { path: to.join(MANIFEST), source })
}

/// What an arena's header says of its place in a folder.
pub(crate) struct Header {
    tenant: String,
    partition: u32,
    partitions: u32,
    seed: u32,
    committed_lsn: u64,
    pub(crate) capacity_bytes: u64,
}

impl Header {
    /// Reads that of an arena, which is of this edition.
    fn of(path: &Path, edition: Edition) -> Result<Header, ArenaError> {
        if edition == Edition::One {
            let edition1::Header1 {
                tenant,
                partition,
                partitions,
                seed,
                capacity_bytes,
                committed_lsn,
                ..
            } = edition1::Header1::of(path)?;
            return Ok(Header {
                tenant,
                partition,
                partitions,
                seed,
                committed_lsn,
                capacity_bytes,
            });
        }
        let header = header_of(path)?;
        let capacity_bytes = header.capacity_bytes();
        let HeaderInfo { tenant, partition, partitions, seed, committed_lsn, .. } = header;
        Ok(Header { tenant, partition, partitions, seed, committed_lsn, capacity_bytes })
    }

    /// Refuses an arena of another tenant, or another partition.
    fn check_owner(
        &self,
        path: &Path,
        tenant: &str,
        partition: u32,
        partitions: u32,
    ) -> Result<(), ArenaError> {
        if (&*self.tenant, self.partition, self.partitions) == (tenant, partition, partitions) {
            return Ok(());
        }
        let found =
            format!("{} {}/{}", self.tenant.escape_debug(), self.partition, self.partitions);
        let (path, expected) = (path.to_owned(), format!("{tenant} {partition}/{partitions}"));
        Err(ArenaError::WrongTenant { path, expected, found })
    }
}

/// What a folder holds of a tenant.
pub(crate) struct Found {
    /// Partitions of the tenant's data; `None` if there is none yet.
    pub(crate) partitions: Option<usize>,
    /// The arenas that are there, with what their headers say.
    pub(crate) there: BTreeMap<usize, Header>,
    /// Whether the libraries' arena is there.
    pub(crate) has_system: bool,
    /// The folder's manifest.
    pub(crate) manifest: Option<Manifest>,
}

impl Found {
    /// The seed of the tenant's hash.
    pub(crate) fn seed(&self) -> Option<u32> {
        self.there.values().next().map(|header| header.seed)
    }
}

/// The partitions of a tenant whose files are in the folder, in order.
pub(crate) fn partitions_there(dir: &Path, tenant: &str) -> Result<BTreeSet<usize>, StoreError> {
    let names = names(dir)?;
    let of_names = names.iter().filter_map(|name| arena_of_name(name));
    Ok(of_names.filter(|found| found.0 == tenant).map(|found| found.1).collect())
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |source| StoreError::Directory { path: dir.to_owned(), source };
    let entries = fs::read_dir(dir).map_err(failed)?;
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect::<io::Result<_>>().map_err(failed)
}

/// Whose data lies, or should lie, in a folder: the default tenant's if only the libraries do.
fn tenants_in(dir: &Path) -> Result<BTreeSet<String>, StoreError> {
    let mut tenants: BTreeSet<String> =
        Manifest::load(dir)?.unwrap_or_default().0.into_keys().collect();
    let names = names(dir)?;
    tenants.extend(names.iter().filter_map(|name| Some(arena_of_name(name)?.0.to_owned())));
    if tenants.remove(SYSTEM_TENANT) && tenants.is_empty() {
        tenants.insert(DEFAULT_TENANT.to_owned());
    }
    Ok(tenants)
}

/// What keeps a server from opening the arenas of a folder, but for what is damaged within one
/// ([`nigh_shm::verify`] tells that).
#[must_use]
pub fn faults_of(dir: &Path) -> Vec<StoreError> {
    let tenants = match tenants_in(dir) {
        Ok(tenants) => tenants,
        Err(error) => return vec![error],
    };
    let looks = tenants.iter().map(|tenant| look(dir, tenant, Edition::Living));
    let faults = looks.filter_map(Result::err);
    faults.filter(|it| !matches!(it, StoreError::Arena(ArenaError::Damaged { .. }))).collect()
}

/// Looks at the headers of a tenant's arenas and of the libraries', and refuses what doesn't belong
/// together. Nothing is changed.
pub(crate) fn look(dir: &Path, tenant: &str, edition: Edition) -> Result<Found, StoreError> {
    check_tenant(tenant)?;
    let manifest = Manifest::load(dir)?;
    let listed = |tenant| manifest.as_ref().and_then(|it| it.0.get(tenant).copied());
    let numbers = partitions_there(dir, tenant)?;
    let mut headers = BTreeMap::new();
    let partitions = match (listed(tenant), numbers.first()) {
        (Some(partitions), _) => Some(partitions),
        // The first one says so.
        (None, Some(&first)) => {
            let header = Header::of(&path_of(dir, tenant, first), edition)?;
            let partitions = usize::try_from(header.partitions).unwrap_or(usize::MAX);
            headers.insert(first, header);
            Some(partitions)
        }
        (None, None) => None,
    };
    let of = Whole { dir, tenant, partitions: partitions.unwrap_or(0), edition };
    of.refuse_stray(&numbers)?;
    for &partition in &numbers {
        of.add(&mut headers, partition)?;
    }
    let has_system = exists(&system_path(dir))?;
    let found = Found { partitions, there: headers, has_system, manifest };
    of.refuse_missing(&found)?;
    if has_system {
        let path = system_path(dir);
        Header::of(&path, edition)?.check_owner(&path, SYSTEM_TENANT, 0, 1)?;
    }
    Ok(found)
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(|source| StoreError::Directory { path: path.to_owned(), source })
}

/// The arenas of a tenant, as they are to be.
struct Whole<'a> {
    dir: &'a Path,
    tenant: &'a str,
    partitions: usize,
    edition: Edition,
}

impl Whole<'_> {
    fn path(&self, partition: usize) -> PathBuf {
        path_of(self.dir, self.tenant, partition)
    }

    /// One whose number is none of theirs is nobody's.
    fn refuse_stray(&self, numbers: &BTreeSet<usize>) -> Result<(), StoreError> {
        let Some(&stray) = numbers.iter().find(|&&it| it >= self.partitions) else {
            return Ok(());
        };
        let path = self.path(stray);
        let says = match Header::of(&path, self.edition) {
            Ok(other) => format!("it says that it is one of {} partition(s)", other.partitions),
            Err(error) => error.to_string(),
        };
        let first = self.path(numbers.first().copied().unwrap_or(0));
        Err(StoreError::Stray { path, says, first, partitions: self.partitions })
    }

    /// Reads a header, which has to be of this tenant and of one keyspace with the others'.
    fn add(
        &self,
        headers: &mut BTreeMap<usize, Header>,
        partition: usize,
    ) -> Result<(), StoreError> {
        let path = self.path(partition);
        let header = match headers.remove(&partition) {
            Some(header) => header,
            None => Header::of(&path, self.edition)?,
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        header.check_owner(&path, self.tenant, number(partition), number(self.partitions))?;
        let seed = headers.values().next().map_or(header.seed, |first| first.seed);
        headers.insert(partition, header);
        let is_like_others = headers[&partition].seed == seed;
        if is_like_others { Ok(()) } else { Err(StoreError::Foreign { path }) }
    }

    /// Arenas that were made once have to be there (invariant 2).
    fn refuse_missing(&self, found: &Found) -> Result<(), StoreError> {
        let listed = |tenant| found.manifest.as_ref().is_some_and(|it| it.0.contains_key(tenant));
        let written = found.there.values().any(|header| header.committed_lsn > 0);
        let missing = |path: PathBuf, tenant: &str, is_known: bool| {
            let manifest = self.dir.join(MANIFEST);
            let drops_line = tenant == SYSTEM_TENANT || found.there.is_empty();
            Err(match is_known {
                true => StoreError::Missing { path, manifest, tenant: tenant.into(), drops_line },
                false => StoreError::MissingBeside { path },
            })
        };
        let gone = (0..self.partitions).find(|partition| !found.there.contains_key(partition));
        if let Some(gone) = gone.filter(|_| listed(self.tenant) || written) {
            return missing(self.path(gone), self.tenant, listed(self.tenant));
        }
        let path = system_path(self.dir);
        // Who knows of the tenant, but not of the libraries, was told to go on without them.
        let is_wanted = listed(SYSTEM_TENANT) || written && !listed(self.tenant);
        if is_wanted && !found.has_system {
            return missing(path, SYSTEM_TENANT, listed(SYSTEM_TENANT));
        }
        // Libraries that nobody lists, and no data of anybody: it was there when they were written.
        let is_alone = found.manifest.is_none() && self.partitions == 0 && found.has_system;
        if is_alone && Header::of(&path, self.edition)?.committed_lsn > 0 && !self.has_others()? {
            return missing(self.path(0), self.tenant, false);
        }
        Ok(())
    }

    /// Whether other tenants have arenas here.
    fn has_others(&self) -> Result<bool, StoreError> {
        let names = names(self.dir)?;
        let mut tenants = names.iter().filter_map(|name| arena_of_name(name)).map(|found| found.0);
        Ok(tenants.any(|tenant| tenant != SYSTEM_TENANT && tenant != self.tenant))
    }
}
