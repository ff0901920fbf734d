//! A commit as a reader gives it.

use crate::error::LogError;
use crate::format::frame::FrameHeader;
use crate::format::frame_body::{FrameBody, FramedChange, commits_of};
use crate::format::meta::Meta;
use crate::format::names::FileName;
use crate::position::LogPosition;

/// A commit that was read. A change that was appended again comes alone.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedCommit<'a> {
    /// Where its frame begins.
    pub at: LogPosition,
    /// Its changes, of one stream, in order.
    pub changes: &'a [FramedChange<'a>],
    /// The latest clock word of its frame, ms, or 0.
    pub clock_ms: u64,
}

/// A frame that was read: for a reader that looks ahead of the commit that it is at.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedFrame<'a> {
    /// Where it begins.
    pub at: LogPosition,
    /// Its bytes.
    pub bytes: u64,
    /// Its changes in order, those of dropped tenants too.
    pub changes: &'a [FramedChange<'a>],
}

impl<'a> ReplayedFrame<'a> {
    /// Its commits, each with its changes of one stream.
    pub fn commits(&self) -> impl Iterator<Item = &'a [FramedChange<'a>]> {
        commits_of(self.changes)
    }
}

/// Takes a frame, or says why it can't: [`LogError::Refused`].
pub type FrameTaker<'r> = dyn FnMut(&ReplayedFrame<'_>) -> Result<(), String> + 'r;

/// Takes a commit, or says why it can't: [`LogError::Refused`].
pub type CommitReceiver<'r> = dyn FnMut(&ReplayedCommit<'_>) -> Result<(), String> + 'r;

/// Takes a frame: the file's name, the frame's header and its body.
pub(crate) type FrameReceiver<'r> =
    dyn FnMut(&FileName, &FrameHeader, &FrameBody<'_>) -> Result<(), LogError> + 'r;

/// Gives a frame's commits, but for those of tenants that `meta` says were dropped.
///
/// # Errors
/// `Refused`.
pub(crate) fn give(
    meta: Option<&Meta>,
    name: &FileName,
    header: &FrameHeader,
    body: &FrameBody<'_>,
    each: &mut CommitReceiver<'_>,
) -> Result<(), LogError> {
    let at = header.at;
    for changes in body.commits() {
        let stream = changes.first().map(|change| change.header.stream);
        if meta.is_some_and(|meta| stream.is_some_and(|stream| meta.is_dropped(stream))) {
            continue;
        }
        let commit = ReplayedCommit { at, changes, clock_ms: header.clock_ms };
        each(&commit).map_err(|what| refused(name, at, what))?;
    }
    Ok(())
}

/// The error of a receiver that refuses what a frame has.
pub(crate) fn refused(name: &FileName, at: LogPosition, what: String) -> LogError {
    LogError::Refused { file: name.to_string(), position: at.position, what }
}
