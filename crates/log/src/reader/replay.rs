//! Reads all that counts of a chain, in the order of the log: step 7 of docs/formats/log.md,
//! "Recovery", and the frames of step 5.
//!
//! Any thread.

use crate::error::LogError;
use crate::reader::commits::{
    CommitReceiver, FrameReceiver, FrameTaker, ReplayedFrame, give, refused,
};
use crate::reader::counted::CountedWalk;
use crate::reader::ends::LogRecovery;
use crate::reader::so_far::ReadSoFar;
use crate::storage::Storage;

impl<S: Storage> LogRecovery<S> {
    /// Gives every commit from the oldest file to the end, but for dropped tenants', and says how
    /// many bytes of frames were read so far. All that is given was checked.
    ///
    /// # Errors
    /// `Refused` if `each` fails; `Corrupt`, `Missing`, `Head`, `Gap`, `Body` or `Io`. Commits
    /// before the fault were given.
    pub fn replay(
        &self,
        each: &mut CommitReceiver<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), LogError> {
        let mut bytes = 0;
        self.frames(&mut |name, header, body| {
            give(Some(&self.meta), name, header, body, each)?;
            bytes += header.length;
            progress(bytes);
            Ok(())
        })
    }

    /// The same frame by frame, and with the changes of dropped tenants.
    ///
    /// # Errors
    /// As of [`LogRecovery::replay`].
    pub fn replay_frames(
        &self,
        each: &mut FrameTaker<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), LogError> {
        let mut bytes = 0;
        self.frames(&mut |name, header, body| {
            let frame =
                ReplayedFrame { at: header.at, bytes: header.length, changes: &body.changes };
            each(&frame).map_err(|what| refused(name, header.at, what))?;
            bytes += header.length;
            progress(bytes);
            Ok(())
        })
    }

    /// Gives every frame that counts.
    ///
    /// # Errors
    /// As for `replay`, and those of `each`.
    pub(crate) fn frames(&self, each: &mut FrameReceiver<'_>) -> Result<(), LogError> {
        let mut so_far = ReadSoFar::default();
        for file in &self.files {
            let mut walk = CountedWalk::open(&*self.world.storage, &self.key, file)?;
            let name = walk.name();
            while let Some(header) = walk.advance(&so_far)? {
                let body = walk.parsed(&header)?;
                so_far.take(Some(&self.meta), &name, &header, &body)?;
                each(&name, &header, &body)?;
            }
        }
        Ok(())
    }
}
