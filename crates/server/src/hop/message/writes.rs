//! A function's write set for one partition, in a message.
//!
//! ```text
//! message   tenant u32 | partition u32 | write, write ...
//! write     what u8: 1 put, 2 delete, 3 expire | key bytes u32 | value bytes u32 | expiry, Unix ms u64 | key | value
//! ```
//!
//! What a write doesn't have is 0. Little-endian. Any thread.

use super::{LEAD_BYTES, OUR_FORMAT, lead, led_by};
use crate::tenant::TenantId;
use nigh_store::KeyWrite;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const EXPIRE: u8 = 3;

/// The message for the owner of a tenant's partition.
pub(crate) fn write(tenant: TenantId, partition: usize, writes: &[KeyWrite<'_>]) -> Vec<u8> {
    let narrow = |bytes: usize| u32::try_from(bytes).expect("a write set is bounded");
    let mut out = lead(tenant, narrow(partition)).to_vec();
    for write in writes {
        let (what, key, value, expiry_ms): (u8, &[u8], &[u8], u64) = match *write {
            KeyWrite::Put { key, value, expiry_ms } => (PUT, key, value, expiry_ms),
            KeyWrite::Delete { key } => (DELETE, key, &[], 0),
            KeyWrite::Expire { key, expiry_ms } => (EXPIRE, key, &[], expiry_ms),
        };
        out.push(what);
        out.extend(narrow(key.len()).to_le_bytes());
        out.extend(narrow(value.len()).to_le_bytes());
        out.extend(expiry_ms.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    out
}

/// The partition and the write set of a message. Panics if it isn't of this format.
pub(crate) fn read(message: &[u8]) -> (usize, Vec<KeyWrite<'_>>) {
    let partition = led_by(message).1 as usize;
    let mut rest = &message[LEAD_BYTES..];
    let mut writes = Vec::new();
    while !rest.is_empty() {
        let [what] = *take(&mut rest);
        let key_bytes = u32::from_le_bytes(*take(&mut rest)) as usize;
        let value_bytes = u32::from_le_bytes(*take(&mut rest)) as usize;
        let expiry_ms = u64::from_le_bytes(*take(&mut rest));
        let (key, value);
        (key, rest) = rest.split_at_checked(key_bytes).expect(OUR_FORMAT);
        (value, rest) = rest.split_at_checked(value_bytes).expect(OUR_FORMAT);
        writes.push(match what {
            PUT => KeyWrite::Put { key, value, expiry_ms },
            DELETE => KeyWrite::Delete { key },
            EXPIRE => KeyWrite::Expire { key, expiry_ms },
            _ => panic!("{OUR_FORMAT}: write {what}"),
        });
    }
    (partition, writes)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> &'a [u8; N] {
    let (taken, after) = rest.split_first_chunk().expect(OUR_FORMAT);
    *rest = after;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_set_arrives_as_it_was_sent() {
        let writes = [
            KeyWrite::Put { key: b"k", value: b"", expiry_ms: u64::MAX },
            KeyWrite::Delete { key: b"" },
            KeyWrite::Put { key: b"long", value: &[7; 100_000], expiry_ms: 0 },
            KeyWrite::Expire { key: b"k\0", expiry_ms: 5 },
        ];
        let message = write(TenantId(70_000), 63, &writes);
        assert_eq!(led_by(&message).0, TenantId(70_000));
        assert_eq!(format!("{:?}", read(&message)), format!("{:?}", (63, writes.to_vec())));
        assert_eq!(read(&write(TenantId::DEFAULT, 0, &[])).1.len(), 0);
    }
}
