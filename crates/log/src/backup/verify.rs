//! Reads a whole folder of a log, and compares it with what its `meta` says. One thread.

use crate::backup::error::BackupError;
use crate::backup::progress::{BackupPhase, Progress};
use crate::error::LogError;
use crate::format::meta::Meta;
use crate::reader::ends::LogRecovery;
use crate::storage::{Storage, World};

/// Reads every frame that counts by this meta. Gives the bytes of all.
///
/// # Errors
/// `Stopped`, or what `wrong` makes of what is wrong.
pub(super) fn verify<S: Storage>(
    world: &World<S>,
    meta: &Meta,
    progress: &mut Progress<'_, '_>,
    wrong: fn(LogError) -> BackupError,
) -> Result<u64, BackupError> {
    let find = |chain| LogRecovery::find(world, meta, chain);
    let found = meta.chains.iter().map(find).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let all_bytes = found.iter().map(LogRecovery::bytes).sum();
    progress.begin(BackupPhase::Verifying, all_bytes);
    for recovery in &found {
        let mut stopped = None;
        let read = recovery.frames(&mut |name, header, _| {
            stopped = progress.moved(header.length).err();
            if stopped.is_none() {
                return Ok(());
            }
            let (file, position) = (name.to_string(), header.at.position);
            Err(LogError::Refused { file, position, what: "it was stopped".into() })
        });
        match stopped {
            Some(stopped) => return Err(stopped),
            None => read.map_err(wrong)?,
        }
    }
    Ok(all_bytes)
}
