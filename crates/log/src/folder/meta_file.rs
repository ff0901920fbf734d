//! Reads and replaces the file `meta`.
//!
//! A new one counts when [`save_meta`] has returned. The old one or the new one is there at every
//! moment: the new one is whole on disk before it gets the name.
//!
//! The thread that has the folder, one at a time.

use crate::error::LogError;
use crate::format::meta::Meta;
use crate::format::meta_text;
use crate::format::names::{META, META_NEW};
use crate::storage::{Storage, StoredFile, read_exact_at, write_all_at};

/// Most bytes of `meta`: some 5 million tenants.
const META_BYTES_MOST: u64 = 1 << 30;

/// Why a meta wasn't saved.
#[derive(Debug, thiserror::Error)]
pub enum MetaFault {
    /// The old one counts.
    #[error("{0}")]
    Unchanged(LogError),
    /// The old one or the new one will be there after a power cut. All logs of the folder are
    /// broken until a later one has counted.
    #[error("{0}; whether meta was changed isn't known")]
    InDoubt(LogError),
}

/// Reads meta; `None` if there is no such file. What it gives is durable.
///
/// # Errors
/// `Io`, `NewerVersion`, `Meta`.
pub fn read_meta<S: Storage>(storage: &S) -> Result<Option<Meta>, LogError> {
    let io = |doing| move |error| LogError::io(META, 0, doing, error);
    let file = storage.open(META).map_err(io("opening"))?;
    if let Some(file) = &file {
        file.sync_all().map_err(io("syncing"))?;
    }
    storage.sync_folder().map_err(|error| LogError::io(".", 0, "syncing the folder", error))?;
    file.map_or(Ok(None), |file| parse(&file).map(Some))
}

/// Reads meta as it is now, in a process that only looks: nothing is synced, so what it gives may
/// be gone after a power cut. `None` if there is no such file.
///
/// # Errors
/// As [`read_meta`].
pub fn look_at_meta<S: Storage>(storage: &S) -> Result<Option<Meta>, LogError> {
    let file = storage.open(META).map_err(|error| LogError::io(META, 0, "opening", error))?;
    file.map_or(Ok(None), |file| parse(&file).map(Some))
}

fn parse<F: StoredFile>(file: &F) -> Result<Meta, LogError> {
    let io = |doing| move |error| LogError::io(META, 0, doing, error);
    let bytes = file.len().map_err(io("asking for the length"))?;
    let wanted = usize::try_from(bytes).ok().filter(|_| bytes <= META_BYTES_MOST);
    let Some(wanted) = wanted else {
        return Err(LogError::Meta { line: 1, what: format!("it has {bytes} bytes") });
    };
    let mut text = vec![0; wanted];
    read_exact_at(file, 0, &mut text).map_err(io("reading"))?;
    meta_text::parse(&text)
}

/// Replaces meta. It counts when this has returned.
///
/// # Errors
/// `Unchanged` if the old one still counts; `InDoubt` if the renaming or what is behind it failed.
pub fn save_meta<S: Storage>(storage: &S, meta: &Meta) -> Result<(), MetaFault> {
    let checked = meta.check().map_err(|what| LogError::Meta { line: 0, what });
    checked.and_then(|()| write_new(storage, meta)).map_err(MetaFault::Unchanged)?;
    let in_doubt = |doing| move |error| MetaFault::InDoubt(LogError::io(META, 0, doing, error));
    storage.rename(META_NEW, META).map_err(in_doubt("renaming"))?;
    storage.sync_folder().map_err(in_doubt("syncing the folder behind a renaming"))
}

fn write_new<S: Storage>(storage: &S, meta: &Meta) -> Result<(), LogError> {
    let io = |doing| move |error| LogError::io(META_NEW, 0, doing, error);
    let text = meta_text::encode(meta);
    if text.len() as u64 > META_BYTES_MOST {
        return Err(LogError::Meta {
            line: 0,
            what: format!("it would have {} bytes", text.len()),
        });
    }
    let file = storage.create(META_NEW).map_err(io("making"))?;
    write_all_at(&file, 0, text.as_bytes()).map_err(io("writing"))?;
    file.sync_all().map_err(io("syncing"))
}
