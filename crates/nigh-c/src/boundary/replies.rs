//! Replies of a server as C gets them: trees in one block.
//!
//! ```text
//! frames ── measured ──> block [ replies: the roots, then the elements of each | bytes ]
//! ```
//!
//! 1. Elements of one reply stand side by side, behind the reply and its neighbours.
//! 2. A frame is nested 32 deep at most, as its decoder sees to; so recursion is safe.
//!
//! Any thread.

use super::pointers::{block, put};
use crate::client_types::{nigh_reply, nigh_reply_kind};
use crate::fault::{Fault, nigh_status};
use nigh_client::Frame;
use nigh_reply_kind::{
    NIGH_REPLY_ARRAY, NIGH_REPLY_BOOLEAN, NIGH_REPLY_BYTES, NIGH_REPLY_DOUBLE, NIGH_REPLY_ERROR,
    NIGH_REPLY_INTEGER, NIGH_REPLY_MAP, NIGH_REPLY_NULL, NIGH_REPLY_SET, NIGH_REPLY_TEXT,
};
use std::mem::take;

/// What is left of a block: places, and bytes.
struct Room {
    places: &'static mut [nigh_reply],
    bytes: &'static mut [u8],
}

/// A block with these replies, side by side.
pub(super) fn give_replies(frames: &[Frame]) -> Result<*mut nigh_reply, Fault> {
    let roots: Vec<&Frame> = frames.iter().collect();
    let (places, len) = measure(&roots);
    let (places, bytes) = block(places, len)?;
    fill(&roots, &mut Room { places, bytes })
}

/// The places and bytes that these frames take.
fn measure(frames: &[&Frame]) -> (usize, usize) {
    frames.iter().fold((frames.len(), 0), |(places, len), frame| {
        let frame = proper(frame);
        let own = bytes_of(frame).map_or(0, |bytes| bytes.len() + 1);
        let (below, len_below) = measure(&elements_of(frame));
        (places + below, len + own + len_below)
    })
}

/// Puts frames into the first places of a room. Returns where they begin.
fn fill(frames: &[&Frame], room: &mut Room) -> Result<*mut nigh_reply, Fault> {
    let (own, rest) = take(&mut room.places).split_at_mut(frames.len());
    room.places = rest;
    let begin = own.as_mut_ptr();
    for (place, frame) in own.iter_mut().zip(frames) {
        let frame = proper(frame);
        place.kind = kind_of(frame)? as i32;
        match frame {
            Frame::Integer(number) => place.integer = *number,
            Frame::Boolean(is_true) => place.integer = i64::from(*is_true),
            Frame::Double(number) => place.number = *number,
            _ => {}
        }
        if let Some(bytes) = bytes_of(frame) {
            place.bytes = put(bytes, &mut room.bytes);
        }
        let elements = elements_of(frame);
        if !elements.is_empty() {
            place.elements_len = elements.len();
            place.elements = fill(&elements, room)?;
        }
    }
    Ok(begin)
}

/// The frame that attributes describe.
fn proper(frame: &Frame) -> &Frame {
    match frame {
        Frame::Attribute { value, .. } => proper(value),
        frame => frame,
    }
}

fn bytes_of(frame: &Frame) -> Option<&[u8]> {
    frame.error().or_else(|| frame.bytes())
}

/// The elements of a frame; keys and values of a map in turn.
fn elements_of(frame: &Frame) -> Vec<&Frame> {
    match frame {
        Frame::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
        frame => frame.elements().unwrap_or_default().iter().collect(),
    }
}

fn kind_of(frame: &Frame) -> Result<nigh_reply_kind, Fault> {
    Ok(match frame {
        Frame::Null | Frame::NullArray => NIGH_REPLY_NULL,
        Frame::Integer(_) => NIGH_REPLY_INTEGER,
        Frame::Bulk(_) | Frame::Verbatim { .. } => NIGH_REPLY_BYTES,
        Frame::Simple(_) | Frame::BigNumber(_) => NIGH_REPLY_TEXT,
        Frame::Error(_) | Frame::BlobError(_) => NIGH_REPLY_ERROR,
        Frame::Array(_) | Frame::Push(_) => NIGH_REPLY_ARRAY,
        Frame::Map(_) => NIGH_REPLY_MAP,
        Frame::Set(_) => NIGH_REPLY_SET,
        Frame::Double(_) => NIGH_REPLY_DOUBLE,
        Frame::Boolean(_) => NIGH_REPLY_BOOLEAN,
        other => {
            let message = format!("the reply {other:?} isn't known: please report it");
            return Err(Fault::new(nigh_status::NIGH_FAULT, message));
        }
    })
}
