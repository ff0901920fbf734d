//! Walks over values that aren't imported: by their lengths, exactly.
//!
//! A count is never trusted: each round of a loop takes at least a byte of the input, or ends.

use std::io::Read;

use super::opcode::{
    HASH, HASH_LISTPACK, HASH_LISTPACK_EX, HASH_METADATA, HASH_ZIPLIST, HASH_ZIPMAP, LIST,
    LIST_QUICKLIST, LIST_QUICKLIST_2, LIST_ZIPLIST, MODULE_2, SET, SET_INTSET, SET_LISTPACK,
    STREAM_LISTPACKS, STREAM_LISTPACKS_2, STREAM_LISTPACKS_3, STRING, VALKEY_HASH_2, ZSET, ZSET_2,
    ZSET_LISTPACK, ZSET_ZIPLIST,
};
use super::strings::{length, skip as skip_string};
use crate::source::{Input, SourceError};

/// Bytes of a stream entry's id, stored raw.
const STREAM_ID_BYTES: u64 = 16;
/// Characters of a module's name, six bits each.
const MODULE_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Leaves out a value of type `number`, which `kind_of` knows.
pub(super) fn skip<R: Read>(input: &mut Input<R>, number: u8) -> Result<(), SourceError> {
    let offset = input.offset();
    match number {
        STRING | HASH_ZIPMAP | LIST_ZIPLIST | SET_INTSET | ZSET_ZIPLIST | HASH_ZIPLIST
        | HASH_LISTPACK | ZSET_LISTPACK | SET_LISTPACK => skip_string(input, "a value"),
        LIST | SET | LIST_QUICKLIST => repeat(input, |input| skip_string(input, "an element")),
        HASH => repeat(input, |input| {
            skip_string(input, "a field")?;
            skip_string(input, "a field's value")
        }),
        ZSET => repeat(input, |input| {
            skip_string(input, "an element")?;
            skip_score(input)
        }),
        ZSET_2 => repeat(input, |input| {
            skip_string(input, "an element")?;
            input.skip(8, "a score")
        }),
        LIST_QUICKLIST_2 => repeat(input, |input| {
            length(input, "a list's node")?;
            skip_string(input, "a list's node")
        }),
        VALKEY_HASH_2 => repeat(input, |input| {
            skip_string(input, "a field")?;
            skip_string(input, "a field's value")?;
            input.skip(8, "a field's expiry")
        }),
        HASH_METADATA => {
            input.skip(8, "a hash's expiry")?;
            repeat(input, |input| {
                length(input, "a field's expiry")?;
                skip_string(input, "a field")?;
                skip_string(input, "a field's value")
            })
        }
        HASH_LISTPACK_EX => {
            input.skip(8, "a hash's expiry")?;
            skip_string(input, "a hash")
        }
        STREAM_LISTPACKS | STREAM_LISTPACKS_2 | STREAM_LISTPACKS_3 => skip_stream(input, number),
        MODULE_2 => {
            length(input, "a module's id")?;
            skip_module(input)
        }
        _ => Err(SourceError::UnknownType { offset, number }),
    }
}

fn repeat<R: Read>(
    input: &mut Input<R>,
    mut each: impl FnMut(&mut Input<R>) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    for _ in 0..length(input, "a count")? {
        each(input)?;
    }
    Ok(())
}

/// A score as text, with its length before it; or a special length.
fn skip_score<R: Read>(input: &mut Input<R>) -> Result<(), SourceError> {
    match input.byte("a score")? {
        253..=255 => Ok(()), // not a number, and the infinities
        len => input.skip(u64::from(len), "a score"),
    }
}

fn skip_stream<R: Read>(input: &mut Input<R>, number: u8) -> Result<(), SourceError> {
    repeat(input, |input| {
        skip_string(input, "a stream's node")?;
        skip_string(input, "a stream's node")
    })?;
    // Entries, and the last id; then the first, the highest deleted, and how many were added.
    let lengths = if number == STREAM_LISTPACKS { 3 } else { 8 };
    for _ in 0..lengths {
        length(input, "a stream's head")?;
    }
    repeat(input, |input| {
        skip_string(input, "a group's name")?;
        let lengths = if number == STREAM_LISTPACKS { 2 } else { 3 };
        for _ in 0..lengths {
            length(input, "a group's head")?;
        }
        repeat(input, |input| {
            input.skip(STREAM_ID_BYTES + 8, "a pending entry")?;
            length(input, "a pending entry").map(|_| ())
        })?;
        repeat(input, |input| {
            skip_string(input, "a consumer's name")?;
            let times = if number == STREAM_LISTPACKS_3 { 16 } else { 8 };
            input.skip(times, "a consumer's times")?;
            repeat(input, |input| input.skip(STREAM_ID_BYTES, "a consumer's entry"))
        })
    })
}

/// Leaves out what a module has written, up to its end: each piece says its type.
pub(super) fn skip_module<R: Read>(input: &mut Input<R>) -> Result<(), SourceError> {
    loop {
        match length(input, "a module's piece")? {
            0 => return Ok(()),
            1 | 2 => drop(length(input, "a module's number")?),
            3 => input.skip(4, "a module's float")?,
            4 => input.skip(8, "a module's double")?,
            5 => skip_string(input, "a module's string")?,
            other => return Err(input.malformed(format!("a module's piece of kind {other}"))),
        }
    }
}

/// The name in a module's id: nine characters above the ten bits of its version.
pub(super) fn module_name(id: u64) -> String {
    let at = |place: u32| usize::try_from(id >> (10 + 6 * place) & 63).unwrap_or(0);
    (0..9).rev().map(|place| char::from(MODULE_CHARS[at(place)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module's id tells its name: this one is that of Redis's documentation of RDB.
    #[test]
    fn a_module_is_named_by_its_id() {
        let name = b"test__xy-";
        let id = name.iter().fold(0, |id, char| {
            let place = MODULE_CHARS.iter().position(|known| known == char).expect("it is one");
            id << 6 | place as u64
        });
        assert_eq!(module_name(id << 10 | 3), "test__xy-");
    }

    fn left(number: u8, bytes: &[u8]) -> Result<u64, SourceError> {
        let mut input = Input::new(bytes, 0);
        skip(&mut input, number)?;
        Ok(bytes.len() as u64 - input.offset())
    }

    /// Encodings that current servers don't write any more, byte for byte.
    #[test]
    fn old_and_foreign_encodings_are_walked_over() {
        assert_eq!(
            left(ZSET, &[3, 1, b'a', 1, b'5', 1, b'b', 254, 1, b'c', 253, 9]).expect("whole"),
            1
        );
        assert_eq!(left(HASH_ZIPMAP, &[3, 0, 255, 0, 9, 9]).expect("whole"), 2);
        let module = [0x81, 0, 0, 0, 0, 0, 0, 4, 1, 2, 7, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let module = [&module[..], &[5, 2, b'h', b'i', 1, 0x40, 200, 0, 9]].concat();
        assert_eq!(left(MODULE_2, &module).expect("whole"), 1);
        let hash = [1, 1, b'f', 1, b'v', 0, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(left(VALKEY_HASH_2, &hash).expect("whole"), 1);
        let hash = [0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 1, b'f', 1, b'v', 9];
        assert_eq!(left(HASH_METADATA, &hash).expect("whole"), 1);
        let stream = [0, 0, 0, 0, 1, 1, b'g', 0, 0, 0, 1, 1, b'c', 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(left(STREAM_LISTPACKS, &stream).expect("whole"), 1);
    }

    /// A count of 2^64 - 1 ends with the bytes.
    #[test]
    fn a_huge_count_ends_with_the_bytes() {
        let bytes = [0x81, 255, 255, 255, 255, 255, 255, 255, 255, 1, b'a', 1];
        let error = left(LIST, &bytes).expect_err("it isn't whole");
        assert!(error.to_string().contains("offset 12, in the middle of an element"), "{error}");
    }
}
