//! The header of a change. Its payload is the store's.

use crate::format::layout::{LSN_END, PAYLOAD_BYTES_MOST, change as c, put, word32, word64};

/// What a change does; only the store knows how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A key gets a record.
    Put,
    /// A key gets a record whose value stands on another's.
    Based,
    /// A key goes.
    Gone,
    /// All keys go.
    Clear,
}

impl ChangeKind {
    /// Its byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            ChangeKind::Put => 1,
            ChangeKind::Based => 2,
            ChangeKind::Gone => 3,
            ChangeKind::Clear => 4,
        }
    }

    /// The kind of a byte.
    #[must_use]
    pub const fn of_byte(byte: u8) -> Option<ChangeKind> {
        match byte {
            1 => Some(ChangeKind::Put),
            2 => Some(ChangeKind::Based),
            3 => Some(ChangeKind::Gone),
            4 => Some(ChangeKind::Clear),
            _ => None,
        }
    }
}

/// The header of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeHeader {
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// The stream.
    pub stream: u32,
    /// Its LSN.
    pub lsn: u64,
    /// What it does.
    pub kind: ChangeKind,
    /// The next change is of the same commit.
    pub more: bool,
    /// Appended again by compaction or a base, not fresh.
    pub again: bool,
}

impl ChangeHeader {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; c::BYTES] {
        let mut bytes = [0; c::BYTES];
        put(&mut bytes, c::PAYLOAD_BYTES, &self.payload_bytes.to_le_bytes());
        put(&mut bytes, c::STREAM, &self.stream.to_le_bytes());
        put(&mut bytes, c::LSN, &self.lsn.to_le_bytes());
        let more = if self.more { c::FLAG_MORE } else { 0 };
        let again = if self.again { c::FLAG_AGAIN } else { 0 };
        put(&mut bytes, c::KIND, &[self.kind.byte(), more | again]);
        bytes
    }

    /// Parses the bytes, and checks them by themselves.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(bytes: &[u8; c::BYTES]) -> Result<ChangeHeader, &'static str> {
        let [kind, flags, zeros @ ..] = bytes.last_chunk::<8>().expect("8 of 24 bytes");
        let kind = ChangeKind::of_byte(*kind).ok_or("a change is of no known kind")?;
        let header = ChangeHeader {
            payload_bytes: word32(bytes, c::PAYLOAD_BYTES),
            stream: word32(bytes, c::STREAM),
            lsn: word64(bytes, c::LSN),
            kind,
            more: flags & c::FLAG_MORE != 0,
            again: flags & c::FLAG_AGAIN != 0,
        };
        if flags & !(c::FLAG_MORE | c::FLAG_AGAIN) != 0 || zeros.iter().any(|&b| b != 0) {
            return Err("a change has unknown flags");
        }
        if header.payload_bytes > PAYLOAD_BYTES_MOST {
            return Err("a change is too long");
        }
        if header.lsn == 0 || header.lsn >= LSN_END {
            return Err("a change has an impossible LSN");
        }
        if header.again && (header.more || kind != ChangeKind::Put) {
            return Err("what was appended again isn't a change alone");
        }
        if kind == ChangeKind::Clear && header.payload_bytes != 0 {
            return Err("a change that clears has a payload");
        }
        Ok(header)
    }

    /// Bytes of the change in a frame, with its payload and padding.
    #[must_use]
    pub const fn bytes_in_frame(&self) -> usize {
        framed_bytes(self.payload_bytes)
    }
}

/// Bytes in a frame of a change with so long a payload, with header and padding.
pub(crate) const fn framed_bytes(payload_bytes: u32) -> usize {
    (c::BYTES + payload_bytes as usize).next_multiple_of(c::ALIGN)
}
