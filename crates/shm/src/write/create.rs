//! Making a new arena. Any thread.
//!
//! 1. The file appears whole: it gets its name when its header is complete.

use crate::error::ArenaError;
use crate::error::io;
use crate::format::layout::{Geometry, MAGIC, TENANT_BYTES_MAX, VERSION, header};
use crate::format::words::SharedWords;
use crate::index::growth::FIRST_TABLE_LINES;
use crate::index::{Index, Table};
use crate::qsbr::Domain;
use crate::region::Region;
use crate::space::Space;
use crate::write::writer::Writer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Which arena, and how large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaSpec {
    /// The arena's file, in a tmpfs directory.
    pub path: PathBuf,
    /// The tenant that it belongs to, 1 to 128 bytes.
    pub tenant: String,
    /// Which partition of the tenant.
    pub partition: u32,
    /// Of how many.
    pub partitions: u32,
    /// Bytes of memory that it may use, 2 MiB to 64 GiB.
    pub capacity_bytes: u64,
    /// Seed of the hash, which all partitions of a tenant share; drawn if it is `None`. An adopted
    /// arena has its own: [`Reader::seed`](crate::Reader::seed).
    pub seed: Option<u32>,
}

impl Writer {
    /// Makes a new arena and its writer. The file appears whole, by renaming.
    ///
    /// # Errors
    /// If there is such a file already, the capacity or the name is out of bounds, or the system
    /// refuses.
    pub fn create(spec: &ArenaSpec, domain: &Arc<Domain>) -> Result<Writer, ArenaError> {
        let writer = Writer::build(spec, domain)?;
        let named = writer.give_name();
        if named.is_err() {
            let _ = std::fs::remove_file(temporary(&spec.path));
        }
        named.map(|()| writer)
    }

    /// Makes a new arena under the name of one that isn't whole yet, `….new`. It gets its own by
    /// [`Writer::give_name`].
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn build(spec: &ArenaSpec, domain: &Arc<Domain>) -> Result<Writer, ArenaError> {
        let g = geometry(spec)?;
        let temporary = temporary(&spec.path);
        let _ = std::fs::remove_file(&temporary);
        let made = Region::create(&temporary, &spec.path, g, domain)
            .and_then(|region| Writer::format(spec, g, Arc::new(region)));
        if made.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        made
    }

    /// An arena that was built is whole: its file gets its name.
    ///
    /// # Errors
    /// If there is such a file already, or the system refuses.
    pub fn give_name(&self) -> Result<(), ArenaError> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let path = self.region.path();
        renameat_with(CWD, temporary(path), CWD, path, RenameFlags::NOREPLACE)
            .map_err(|e| io(path, "naming the file", e))?;
        self.region.set_named();
        Ok(())
    }

    fn format(spec: &ArenaSpec, g: Geometry, region: Arc<Region>) -> Result<Writer, ArenaError> {
        let (words, mut space) = (region.words(), Space::new(&region));
        let four = |at, value: u64| {
            words.store32(at, u32::try_from(value).expect("fits, as the geometry is"), Relaxed);
        };
        let seed = spec.seed.map_or_else(|| random_seed(&spec.path), Ok)?;
        four(header::VERSION, VERSION.into());
        four(header::SLOT_SHIFT, g.slot_shift.into());
        words.store64(header::CAPACITY, g.capacity_bytes, Relaxed);
        words.store64(header::ADDRESS_BYTES, g.address_bytes, Relaxed);
        four(header::SLOTS, g.slots.into());
        four(header::GENERATIONS, g.generations);
        four(header::TAILS, g.tails);
        four(header::FIRST_SLOT, g.first_slot.into());
        four(header::SEED, seed.into());
        four(header::PARTITION, spec.partition.into());
        four(header::PARTITIONS, spec.partitions.into());
        four(header::TENANT_LEN, spec.tenant.len() as u64);
        words.copy_in(header::TENANT, spec.tenant.as_bytes());
        words.store64(header::INCARNATION, 2, Relaxed);
        let no_memory = |cause| {
            let path = spec.path.clone();
            ArenaError::Memory { path, doing: "make its index", cause }
        };
        let table = space.take_run(FIRST_TABLE_LINES * 64, false).map_err(no_memory)?;
        let index = Index::new(Table::new(table, FIRST_TABLE_LINES, g.slot_shift));
        index.install(&words);
        // SYNC(arena-magic): stored last, so that a file with the magic is whole.
        words.store64(header::MAGIC, MAGIC, Release);
        Ok(Writer::assemble(region, space, index, seed))
    }
}

/// The name of an arena's file until it is whole.
fn temporary(path: &Path) -> PathBuf {
    let mut temporary = path.to_path_buf().into_os_string();
    temporary.push(".new");
    PathBuf::from(temporary)
}

fn geometry(spec: &ArenaSpec) -> Result<Geometry, ArenaError> {
    check_tenant(&spec.tenant)?;
    Geometry::new(spec.capacity_bytes).ok_or_else(|| capacity_error(spec))
}

pub(crate) fn capacity_error(spec: &ArenaSpec) -> ArenaError {
    ArenaError::Capacity {
        path: spec.path.clone(),
        capacity_bytes: spec.capacity_bytes,
        least: crate::format::layout::CAPACITY_MIN,
        most: crate::format::layout::CAPACITY_MAX,
    }
}

pub(crate) fn check_tenant(name: &str) -> Result<(), ArenaError> {
    if (1..=TENANT_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(ArenaError::TenantName { len: name.len(), most: TENANT_BYTES_MAX })
}

/// A seed that nobody can guess, so most keys that collide can't be chosen from outside. Some can,
/// whatever it is: see [`crate::index::growth::ALIKE_MAX`].
fn random_seed(path: &Path) -> Result<u32, ArenaError> {
    let mut bytes = [0u8; 4];
    let file = std::fs::File::open("/dev/urandom");
    file.and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes)).map_err(|source| {
        ArenaError::Io { path: path.to_path_buf(), doing: "drawing a seed", source }
    })?;
    Ok(u32::from_le_bytes(bytes))
}
