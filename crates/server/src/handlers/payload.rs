//! The payload of FUNCTION DUMP: all libraries in one string.
//!
//! ```text
//! "NIGHFN1\n" | count u32 | count × (name length u32, name, source length u32, source) | xxHash32 u32
//! ```
//!
//! Little-endian. The hash covers everything before it: it tells damage, not malice.
//! Any thread.

use xxhash_rust::xxh32::xxh32;

const MAGIC: &[u8] = b"NIGHFN1\n";
/// Libraries in one payload, at most.
const MOST_LIBRARIES: u32 = 100_000;

/// All libraries, by name and source, as a payload.
pub(crate) fn write(libraries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a record's part has 32 bits");
    let count = u32::try_from(libraries.len()).expect("libraries are counted in 32 bits");
    payload.extend(count.to_le_bytes());
    for (name, source) in libraries {
        for part in [name, source] {
            payload.extend(length(part).to_le_bytes());
            payload.extend_from_slice(part);
        }
    }
    payload.extend(xxh32(&payload, 0).to_le_bytes());
    payload
}

/// The libraries of a payload; `None` if it isn't whole.
pub(crate) fn read(payload: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (body, hash) = payload.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*hash) != xxh32(body, 0) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let count = take_u32(&mut rest).filter(|count| *count <= MOST_LIBRARIES)?;
    let mut libraries = Vec::new();
    for _ in 0..count {
        libraries.push((take_bytes(&mut rest)?, take_bytes(&mut rest)?));
    }
    rest.is_empty().then_some(libraries)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (head, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    Some(u32::from_le_bytes(*head))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_u32(rest)?).ok()?;
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was dumped is read back; cut or changed anywhere, it is refused.
    #[test]
    fn only_a_whole_payload_is_read() {
        let libraries: Vec<(&[u8], &[u8])> = vec![(b"a", b"source a"), (b"b", b"")];
        let payload = write(&libraries);
        assert_eq!(read(&payload), Some(libraries));
        assert_eq!(read(&write(&[])), Some(Vec::new()));
        for at in 0..payload.len() {
            assert_eq!(read(&payload[..at]), None, "cut at {at}");
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed), None, "changed at {at}");
        }
    }
}
