//! Looking at a folder as a whole: which arenas are there, which are missing, and whether they
//! belong together.
//!
//! 1. Opening and `nigh check` both use [`look`]: `nigh check` names every fault for which a server
//!    refuses the folder.
//! 2. Looking changes nothing.
//!
//! Thread: any.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nigh_shm::ArenaError;

use crate::error::StoreError;
use crate::folder::arena_header::ArenaHeader;
use crate::folder::edition::Edition;
use crate::folder::manifest::{MANIFEST, Manifest};
use crate::folder::names::{
    DEFAULT_TENANT, SYSTEM_TENANT, arena_of_name, check_tenant, names, partitions_there, path_of,
    system_path,
};

/// What a folder holds of a tenant.
pub(crate) struct Found {
    /// Number of partitions of the tenant's data; `None` if it has no data yet.
    pub(crate) partitions: Option<usize>,
    /// The arenas that are there, with their headers.
    pub(crate) there: BTreeMap<usize, ArenaHeader>,
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

/// The tenants whose data lies, or should lie, in a folder: the default tenant if only libraries
/// do.
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

/// The faults for which a server refuses the arenas of a folder, but for damage within an arena
/// ([`nigh_shm::verify`] finds that).
#[must_use]
pub fn faults_of(dir: &Path) -> Vec<StoreError> {
    let tenants = match tenants_in(dir) {
        Ok(tenants) => tenants,
        Err(error) => return vec![error],
    };
    let looks = tenants.iter().map(|tenant| match Edition::of(dir, tenant)? {
        Edition::One => Err(StoreError::Edition { dir: dir.to_owned() }),
        Edition::Living => look(dir, tenant, Edition::Living).map(drop),
    });
    let faults = looks.filter_map(Result::err);
    faults.filter(|it| !matches!(it, StoreError::Arena(ArenaError::Damaged { .. }))).collect()
}

/// Looks at the headers of a tenant's arenas and of the libraries'. Refuses arenas that don't
/// belong together, and missing ones.
pub(crate) fn look(dir: &Path, tenant: &str, edition: Edition) -> Result<Found, StoreError> {
    check_tenant(tenant)?;
    let manifest = Manifest::load(dir)?;
    let listed = |tenant| manifest.as_ref().and_then(|it| it.0.get(tenant).copied());
    let numbers = partitions_there(dir, tenant)?;
    let mut headers = BTreeMap::new();
    let partitions = match (listed(tenant), numbers.first()) {
        (Some(partitions), _) => Some(partitions),
        // The header of the first arena tells the number.
        (None, Some(&first)) => {
            let header = ArenaHeader::of(&path_of(dir, tenant, first), edition)?;
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
        ArenaHeader::of(&path, edition)?.check_owner(&path, SYSTEM_TENANT, 0, 1)?;
    }
    Ok(found)
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(|source| StoreError::Directory { path: path.to_owned(), source })
}

/// The arenas that a tenant should have.
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

    /// Refuses an arena whose number is too high.
    fn refuse_stray(&self, numbers: &BTreeSet<usize>) -> Result<(), StoreError> {
        let Some(&stray) = numbers.iter().find(|&&it| it >= self.partitions) else {
            return Ok(());
        };
        let path = self.path(stray);
        let says = match ArenaHeader::of(&path, self.edition) {
            Ok(other) => format!("it says that it is one of {} partition(s)", other.partitions),
            Err(error) => error.to_string(),
        };
        let first = self.path(numbers.first().copied().unwrap_or(0));
        Err(StoreError::Stray { path, says, first, partitions: self.partitions })
    }

    /// Reads a header, which must be of this tenant and of the same keyspace as the others.
    fn add(
        &self,
        headers: &mut BTreeMap<usize, ArenaHeader>,
        partition: usize,
    ) -> Result<(), StoreError> {
        let path = self.path(partition);
        let header = match headers.remove(&partition) {
            Some(header) => header,
            None => ArenaHeader::of(&path, self.edition)?,
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        header.check_owner(&path, self.tenant, number(partition), number(self.partitions))?;
        let seed = headers.values().next().map_or(header.seed, |first| first.seed);
        headers.insert(partition, header);
        let is_like_others = headers[&partition].seed == seed;
        if is_like_others { Ok(()) } else { Err(StoreError::Foreign { path }) }
    }

    /// Refuses a folder in which an arena is missing that was once made (`folder`, invariants 1 and
    /// 2).
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
        // A manifest that lists the tenant without the libraries says to go on without them.
        let is_wanted = listed(SYSTEM_TENANT) || written && !listed(self.tenant);
        if is_wanted && !found.has_system {
            return missing(path, SYSTEM_TENANT, listed(SYSTEM_TENANT));
        }
        // Libraries without a manifest and without data. The data was there when they were written.
        let is_alone = found.manifest.is_none() && self.partitions == 0 && found.has_system;
        if is_alone
            && ArenaHeader::of(&path, self.edition)?.committed_lsn > 0
            && !self.has_others()?
        {
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
