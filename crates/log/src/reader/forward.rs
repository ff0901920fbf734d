//! Reads a chain forward from a file, as far as it is whole: for one that is damaged somewhere.
//!
//! Unlike [`crate::reader::ends`], this needs nothing behind the first bad frame.
//!
//! Any thread.

use crate::error::LogError;
use crate::format::layout::BLOCK_BYTES;
use crate::format::meta::{ChainEnd, Meta};
use crate::position::LogPosition;
use crate::reader::commits::FrameReceiver;
use crate::reader::frames::FrameWalk;
use crate::reader::search::{FileSearch, ReadBegin};
use crate::reader::so_far::ReadSoFar;
use crate::storage::Storage;
use std::collections::BTreeMap;

/// How far a chain could be read.
#[derive(Debug, Clone)]
pub(crate) struct ReadForward {
    /// What was read.
    pub(crate) so_far: ReadSoFar,
    /// Where reading stopped: the end, or the first bad frame.
    pub(crate) at: LogPosition,
    /// The header sum of the last frame before; `None` if there is none.
    pub(crate) sum: Option<u32>,
    /// What is wrong there, if it is known that something is.
    pub(crate) wrong: Option<String>,
}

/// A frame that isn't read.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Where it begins.
    pub(crate) at: LogPosition,
    /// What is wrong with it, if something is.
    pub(crate) what: Option<String>,
}

/// Reads forward from a file while frames are valid and each file's successor goes on with it.
/// `end` is where a backup's meta says that the chain ends; `stop` where the caller wants that.
///
/// # Errors
/// `Io`, `NewerVersion`, and those of `each`.
pub(crate) fn read_forward<S: Storage>(
    search: &FileSearch<'_, S>,
    meta: &Meta,
    oldest: u64,
    (end, stop): (Option<&ChainEnd>, Option<&Stop>),
    each: &mut FrameReceiver<'_>,
) -> Result<ReadForward, LogError> {
    let begins = begins(search)?;
    let at = LogPosition { file: oldest, position: BLOCK_BYTES };
    let mut read = ReadForward { so_far: ReadSoFar::default(), at, sum: None, wrong: None };
    loop {
        let number = read.at.file;
        if stop.is_some_and(|stop| stop.at == read.at) {
            read.wrong = stop.and_then(|stop| stop.what.clone());
            return Ok(read);
        }
        if !begins.contains_key(&number) {
            read.wrong = Some(unbegun(search, number).into());
            return Ok(read);
        }
        let mut behind = begins.range(number + 1..).rev().map(|(_, begin)| begin);
        let next = behind.find(|begin| begin.header.watermark.file == number);
        let end = end.filter(|end| end.at.file == number);
        let limit = end.map(|end| end.at).or(next.map(|next| next.header.watermark));
        read_file(search, meta, (limit, stop), &mut read, each)?;
        if stop.is_some_and(|stop| stop.at == read.at)
            || read.wrong.is_some()
            || end.is_some()
            || next.is_none()
        {
            return Ok(read);
        }
        match next.filter(|next| next.follows(read.at, read.sum)) {
            Some(next) => read.at = next.header.at,
            None => {
                read.wrong = Some("the file ends with another frame than it should".into());
                return Ok(read);
            }
        }
    }
}

/// Each stream's last LSN before a chain's first bad frame; empty if that can't be read either.
pub(crate) fn lasts_from<S: Storage>(
    search: &FileSearch<'_, S>,
    meta: &Meta,
    oldest: u64,
) -> Vec<(u32, u64)> {
    let read = read_forward(search, meta, oldest, (None, None), &mut |_, _, _| Ok(()));
    read.map(|read| read.so_far.lasts()).unwrap_or_default()
}

/// Why a file that should be begun isn't read.
fn unbegun<S: Storage>(search: &FileSearch<'_, S>, number: u64) -> &'static str {
    if search.wrong.contains_key(&number) {
        "the file's head is damaged"
    } else if search.numbers.contains(&number) {
        "the file's BEGIN isn't valid"
    } else {
        "the file is missing"
    }
}

/// The BEGINs that are valid, by the file's number.
fn begins<S: Storage>(search: &FileSearch<'_, S>) -> Result<BTreeMap<u64, ReadBegin>, LogError> {
    let mut begins = BTreeMap::new();
    for number in search.right() {
        match search.begin(number) {
            Ok(begin) => begins.extend(begin.map(|begin| (number, begin))),
            Err(error) => drop(damage(error)?),
        }
    }
    Ok(begins)
}

/// Reads on in one file, up to a limit.
fn read_file<S: Storage>(
    search: &FileSearch<'_, S>,
    meta: &Meta,
    (limit, stop): (Option<LogPosition>, Option<&Stop>),
    read: &mut ReadForward,
    each: &mut FrameReceiver<'_>,
) -> Result<(), LogError> {
    let mut walk = FrameWalk::begin(search.open(read.at.file)?, read.sum);
    let name = walk.file().name;
    walk.set_limit(limit.map_or(u64::MAX, |limit| limit.position));
    loop {
        let taken = walk.advance().and_then(|header| {
            let Some(header) = header else { return Ok(None) };
            if let Some(stop) = stop.filter(|stop| stop.at == header.at) {
                read.wrong.clone_from(&stop.what);
                return Ok(None);
            }
            let body = walk.parsed(&header)?;
            read.so_far.take(Some(meta), &name, &header, &body)?;
            Ok(Some((header, body)))
        });
        match taken {
            Ok(Some((header, body))) => {
                each(&name, &header, &body)?;
                (read.at, read.sum) = (header.end(), Some(header.header_sum));
            }
            Ok(None) if stop.is_some_and(|stop| stop.at == read.at) => return Ok(()),
            Ok(None) if limit.is_some_and(|limit| limit != read.at) => {
                read.wrong = Some("the frame isn't valid".into());
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                read.wrong = Some(damage(error)?);
                return Ok(());
            }
        }
    }
}

/// What is wrong with the bytes of a file; other errors stay errors.
fn damage(error: LogError) -> Result<String, LogError> {
    match error {
        LogError::Body { what, .. } => Ok(format!("{what}, though its checksum is right")),
        LogError::Gap { stream, expected, found, .. } => {
            Ok(format!("stream {stream} goes on with LSN {found}, expected {expected}"))
        }
        error => Err(error),
    }
}
