//! The fixed part of an arena's header, checked before anything goes by it.
//!
//! Any thread, any process.

use crate::error::ArenaError;
use crate::format::format_fault::{FormatFault, ensure};
use crate::format::layout::{
    ADDRESS_BYTES_MAX, CAPACITY_MIN, COUNT_END, GENERATIONS, Geometry, INCARNATION_OVER,
    LINE_BYTES, MAGIC, SLOT_SHIFT_MAX, SLOT_SHIFT_MIN, TENANT_BYTES_MAX, VERSION, header, round_up,
};
use crate::format::regular_file::open_regular;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The fields of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderInfo {
    pub(crate) g: Geometry,
    /// Seed of the hash.
    pub seed: u32,
    /// The tenant that the arena belongs to.
    pub tenant: String,
    /// Which partition of the tenant.
    pub partition: u32,
    /// Of how many.
    pub partitions: u32,
    /// Number of the last writer.
    pub incarnation: u64,
    /// LSN of the newest published record; 0 if nothing was ever written.
    pub committed_lsn: u64,
    /// LSN of the newest change that was begun.
    pub begun_lsn: u64,
    /// All changes up to this one were on disk, as the last writer's log said; else 0.
    pub durable_lsn: u64,
    /// Id of the log that has its changes; zeros without one.
    pub log_id: [u8; 16],
    /// Id of the boot in which its last writer began; zeros if that didn't tell.
    pub boot_id: [u8; 16],
}

impl HeaderInfo {
    /// Bytes of memory that the arena may use.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.g.capacity_bytes
    }

    /// Refuses an arena of another tenant, or another partition.
    ///
    /// # Errors
    /// [`ArenaError::WrongTenant`], with what was expected at `path`.
    pub fn check_owner(
        &self,
        path: &Path,
        tenant: &str,
        partition: u32,
        partitions: u32,
    ) -> Result<(), ArenaError> {
        let found = (&*self.tenant, self.partition, self.partitions);
        check_owner(path, found, (tenant, partition, partitions))
    }
}

/// Refuses an arena whose tenant, partition and number of partitions aren't those expected.
///
/// # Errors
/// [`ArenaError::WrongTenant`], with what was expected at `path`.
pub fn check_owner(
    path: &Path,
    found: (&str, u32, u32),
    expected: (&str, u32, u32),
) -> Result<(), ArenaError> {
    if found == expected {
        return Ok(());
    }
    let told = |(tenant, partition, partitions): (&str, u32, u32)| {
        format!("{} {partition}/{partitions}", tenant.escape_debug())
    };
    let (expected, found) = (told(expected), told(found));
    Err(ArenaError::WrongTenant { path: path.to_path_buf(), expected, found })
}

/// Reads and checks the header of a file.
///
/// # Errors
/// If the file can't be read or is no arena.
pub fn header_of(path: &Path) -> Result<HeaderInfo, ArenaError> {
    let failed =
        |source| ArenaError::Io { path: path.to_path_buf(), doing: "reading the header", source };
    header_of_file(&open_regular(path).map_err(failed)?, path)
}

/// The same of a file that is open.
pub(crate) fn header_of_file(file: &File, path: &Path) -> Result<HeaderInfo, ArenaError> {
    let failed =
        |source| ArenaError::Io { path: path.to_path_buf(), doing: "reading the header", source };
    let mut bytes = [0; 4096];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            let len = file.metadata().map_err(failed)?.len();
            return Err(FormatFault::new(0, "length of the file", "at least 4096", len).at(path));
        }
        Err(e) => return Err(failed(e)),
    }
    let found = four(&bytes, header::VERSION);
    if eight(&bytes, header::MAGIC) == MAGIC && found != VERSION && found != 0 {
        return Err(ArenaError::OtherVersion { path: path.to_path_buf(), found, known: VERSION });
    }
    read_header(&bytes).map_err(|fault| fault.at(path))
}

/// Reads the fixed part of a header from the first bytes of a file.
pub(crate) fn read_header(bytes: &[u8; 4096]) -> Result<HeaderInfo, FormatFault> {
    let (four, eight) = (|at: u64| four(bytes, at), |at: u64| eight(bytes, at));
    // An id whose first word is zero is none: its writer was about to store or to remove it.
    let id = |at: u64| match eight(at) {
        0 => [0; 16],
        first => (u128::from(first) | u128::from(eight(at + 8)) << 64).to_le_bytes(),
    };
    let magic = eight(header::MAGIC);
    ensure(magic == MAGIC, || {
        let found = String::from_utf8_lossy(&magic.to_le_bytes()).escape_default().to_string();
        FormatFault::new(0, "magic", "NIGHARN1", found)
    })?;
    want(header::VERSION, "format version", VERSION.into(), four(header::VERSION).into())?;
    Ok(HeaderInfo {
        g: geometry(bytes)?,
        seed: four(header::SEED),
        tenant: tenant(bytes, four(header::TENANT_LEN))?,
        partition: four(header::PARTITION),
        partitions: four(header::PARTITIONS),
        incarnation: eight(header::INCARNATION),
        committed_lsn: eight(header::COMMITTED_LSN),
        begun_lsn: eight(header::BEGUN_LSN),
        durable_lsn: eight(header::DURABLE_LSN),
        log_id: id(header::LOG_ID),
        boot_id: id(header::BOOT_ID),
    })
}

fn four(bytes: &[u8; 4096], at: u64) -> u32 {
    let at = usize::try_from(at).expect("a header offset");
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn eight(bytes: &[u8; 4096], at: u64) -> u64 {
    u64::from(four(bytes, at)) | u64::from(four(bytes, at + 4)) << 32
}

/// Refuses another number than the one that belongs there.
fn want(at: u64, what: &'static str, expected: u64, found: u64) -> Result<(), FormatFault> {
    ensure(found == expected, || FormatFault::new(at, what, expected, found))
}

/// How large the arena is, and where its tables lie.
fn geometry(bytes: &[u8; 4096]) -> Result<Geometry, FormatFault> {
    let (four, eight) = (|at: u64| four(bytes, at), |at: u64| eight(bytes, at));
    let slot_shift = four(header::SLOT_SHIFT);
    ensure((SLOT_SHIFT_MIN..=SLOT_SHIFT_MAX).contains(&slot_shift), || {
        FormatFault::new(header::SLOT_SHIFT, "slot shift", "17 to 20", slot_shift)
    })?;
    let address_bytes = eight(header::ADDRESS_BYTES);
    let whole = address_bytes.is_multiple_of(1 << slot_shift);
    ensure(whole && (CAPACITY_MIN..=ADDRESS_BYTES_MAX).contains(&address_bytes), || {
        FormatFault::new(
            header::ADDRESS_BYTES,
            "address bytes",
            "slots, 2 MiB to 64 GiB",
            address_bytes,
        )
    })?;
    let slots = address_bytes >> slot_shift;
    let table = round_up(slots * 4, LINE_BYTES);
    let (generations, tails) = (GENERATIONS, GENERATIONS + table);
    let first_slot = (tails + table).div_ceil(1 << slot_shift);
    want(header::SLOTS, "number of slots", slots, four(header::SLOTS).into())?;
    let found = four(header::GENERATIONS).into();
    want(header::GENERATIONS, "generation table", generations, found)?;
    want(header::TAILS, "tail table", tails, four(header::TAILS).into())?;
    want(header::FIRST_SLOT, "first slot", first_slot, four(header::FIRST_SLOT).into())?;
    let capacity_bytes = eight(header::CAPACITY);
    ensure((CAPACITY_MIN..=address_bytes).contains(&capacity_bytes), || {
        FormatFault::new(header::CAPACITY, "capacity", "2 MiB to the address bytes", capacity_bytes)
    })?;
    let narrow = |n: u64| u32::try_from(n).expect("below 64 GiB / 16");
    Ok(Geometry {
        capacity_bytes,
        address_bytes,
        slot_shift,
        slots: narrow(slots),
        generations,
        tails,
        first_slot: narrow(first_slot),
    })
}

fn tenant(bytes: &[u8; 4096], len: u32) -> Result<String, FormatFault> {
    let len = len as usize;
    ensure((1..=TENANT_BYTES_MAX).contains(&len), || {
        FormatFault::new(header::TENANT_LEN, "length of the tenant's name", "1 to 128", len)
    })?;
    let at = usize::try_from(header::TENANT).expect("a header offset");
    String::from_utf8(bytes[at..at + len].to_vec())
        .map_err(|_| FormatFault::new(header::TENANT, "tenant's name", "UTF-8", "other bytes"))
}

/// The fault of a file that ends there, if it is too short.
pub(crate) fn length_fault(g: &Geometry, end: u64) -> Option<FormatFault> {
    let least = g.slot_offset(g.first_slot);
    (end < least)
        .then(|| FormatFault::new(0, "length of the file", format!("at least {least}"), end))
}

/// The fault of a writer's number, if it is none. A file that is over has none.
pub(crate) fn incarnation_fault(incarnation: u64) -> Option<FormatFault> {
    let found = match incarnation {
        INCARNATION_OVER => "that of a file that is over".into(),
        0..COUNT_END => return None,
        other => other.to_string(),
    };
    Some(FormatFault::new(header::INCARNATION, "incarnation", "less than 2^62", found))
}
