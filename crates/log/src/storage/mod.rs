//! The folder of a log, the clock and chance, as the log sees them: so that a simulation drives
//! the shipped code.
//!
//! Any thread; a file is written by one thread at a time.

pub(crate) mod aligned;
pub(crate) mod real;
#[cfg(feature = "simulation")]
pub mod simulated;

use std::io;
use std::sync::Arc;

/// A folder of files.
pub trait Storage: Send + Sync + 'static {
    /// A file of it.
    type File: StoredFile;

    /// Names of all files, in no order.
    ///
    /// # Errors
    /// If the folder can't be read.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file; `None` if there is none.
    ///
    /// # Errors
    /// If it is there and can't be opened.
    fn open(&self, name: &str) -> io::Result<Option<Self::File>>;

    /// Makes an empty file, in the place of one with this name.
    ///
    /// # Errors
    /// As the system says.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, in the place of one that has it.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name; none is no error.
    ///
    /// # Errors
    /// As the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names durable that were given, changed and removed.
    ///
    /// # Errors
    /// As the system says; what is durable then isn't known.
    fn sync_folder(&self) -> io::Result<()>;
}

/// A file of a folder.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait StoredFile: Send + Sync + 'static {
    /// Its length, bytes.
    ///
    /// # Errors
    /// As the system says.
    fn len(&self) -> io::Result<u64>;

    /// Number of its names.
    ///
    /// # Errors
    /// As the system says.
    fn links(&self) -> io::Result<u64>;

    /// Reads some bytes, at most the buffer's; 0 only at the file's end.
    ///
    /// # Errors
    /// As the system says.
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some of these bytes, one at least; returns how many.
    ///
    /// # Errors
    /// As the system says.
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Reads see what is on the disk from now on, and what a sync would still move there: so what a
    /// sync that failed has left in the system's cache is gone. It may do nothing where the system
    /// can't do that.
    fn forget_cached(&self);

    /// Makes the file so long, and has disk space for it set aside; false if that can't be done
    /// here: then a write may still find the disk full.
    ///
    /// # Errors
    /// As the system says; `StorageFull` if there is no room.
    fn allocate(&self, bytes: u64) -> io::Result<bool>;

    /// Makes its bytes durable: `fdatasync`.
    ///
    /// # Errors
    /// As the system says; what is durable then isn't known, and trying again doesn't tell.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes its bytes and its length durable: `fsync`.
    ///
    /// # Errors
    /// As for `sync_data`.
    fn sync_all(&self) -> io::Result<()>;
}

/// Time.
pub trait Clock: Send + Sync {
    /// Unix time, ms. It may step.
    fn unix_ms(&self) -> u64;
    /// Time that only rises, µs from some moment.
    fn rising_us(&self) -> u64;
}

/// Chance.
pub trait Chance: Send + Sync {
    /// 64 random bits.
    fn word(&self) -> u64;
}

/// All that a log sees of the machine.
#[derive(Debug)]
pub struct World<S> {
    /// The folder.
    pub storage: Arc<S>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
}

impl<S> Clone for World<S> {
    fn clone(&self) -> World<S> {
        let (storage, clock) = (Arc::clone(&self.storage), Arc::clone(&self.clock));
        World { storage, clock, chance: Arc::clone(&self.chance) }
    }
}

impl std::fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl std::fmt::Debug for dyn Chance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chance")
    }
}

/// Writes all of these bytes: goes on behind a short write and behind an interruption.
///
/// # Errors
/// As the system says; some bytes may be written.
pub fn write_all_at(file: &impl StoredFile, mut position: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(position, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                position += written as u64;
                bytes = bytes.get(written..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the buffer is full; an end before it is an error, since only bytes that were read
/// can be invalid.
///
/// # Errors
/// As the system says, or `UnexpectedEof`.
pub fn read_exact_at(file: &impl StoredFile, mut position: u64, into: &mut [u8]) -> io::Result<()> {
    let mut rest = into;
    while !rest.is_empty() {
        match file.read_at(position, rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                position += read as u64;
                rest = rest.get_mut(read..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
