//! Replies that wait to be written: bytes, and large values that still lie in the arena.
//!
//! ```text
//! bytes   +OK $100000 | CRLF :1 $20000 | CRLF
//!                     ^ value A        ^ value B        (position in `bytes`, reference)
//! ```
//!
//! 1. References are of this turn. What the socket doesn't take is copied by `settle` in the flush,
//!    so before the shard announces; after it there are none.
//! 2. `waiting` counts every byte that isn't written yet, referenced ones too.
//!
//! Belongs to the shard's thread.

mod flushing;

use crate::hop::later::Own;
use crate::tenant::TenantId;
use nigh_resp::{Protocol, encode};
use nigh_shm::{Pin, Reader, Record, ValueRef};
use nigh_store::ReplySink;

/// Values from this length on are written from where they lie. Below, a copy of 16 KiB (about 2 µs)
/// costs less than two more slices of a writev and the search for them.
const REFERENCE_BYTES: usize = 16 << 10;
/// The same once this much waits: a reply of a million repeats of one value then costs little until
/// the limit of output cuts the client off.
const PLENTY_BYTES: usize = 1 << 20;
/// Values from this length on are referenced when plenty waits: ten times what the reference takes.
const FEW_BYTES: usize = 256;

/// What may stand between two bytes of a buffer.
#[derive(Debug, Clone, Copy)]
struct Inserted {
    /// Position in the bytes before which it stands.
    at: usize,
    value: ValueRef,
    len: usize,
    /// Whose arena it lies in, and which.
    tenant: TenantId,
    partition: usize,
}

impl Inserted {
    fn bytes<'p>(&self, readers: &Readers<'_>, pin: &'p Pin<'_>) -> &'p [u8] {
        readers(self.tenant, self.partition).bytes(pin, self.value)
    }
}

/// The reader of the arena of a tenant's partition.
pub(crate) type Readers<'a> = dyn Fn(TenantId, usize) -> &'a Reader + 'a;

/// A place in an output to which it can be cut back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    bytes: usize,
    values: usize,
    value_bytes: usize,
}

/// The replies of one connection that aren't written yet.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Whose values are added.
    pub(crate) tenant: TenantId,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are written.
    sent: usize,
    values: Vec<Inserted>,
    /// Sum of the lengths of `values`.
    value_bytes: usize,
    /// Bytes that were copied since somebody asked.
    copied: usize,
    /// The socket took less than there was, last time.
    is_behind: bool,
}

impl Output {
    /// Bytes that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len() - self.sent + self.value_bytes
    }

    /// Whether some of it has been to the socket, which didn't take it.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether a part of it is written.
    pub(crate) fn is_begun(&self) -> bool {
        self.sent > 0
    }

    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Where the next reply begins.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), values: self.values.len(), value_bytes: self.value_bytes }
    }

    /// Bytes since `mark`.
    #[inline]
    pub(crate) fn since(&self, mark: Mark) -> usize {
        self.bytes.len() - mark.bytes + self.value_bytes - mark.value_bytes
    }

    /// Whether what was written since `mark` is OK.
    #[inline]
    pub(crate) fn is_ok_since(&self, mark: Mark) -> bool {
        self.bytes[mark.bytes..] == *encode::OK
    }

    /// Takes back everything since `mark`.
    pub(crate) fn cut(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.values.truncate(mark.values);
        self.value_bytes = mark.value_bytes;
    }

    /// Takes out the bytes since `mark`, where no values are.
    pub(crate) fn cut_bytes(&mut self, mark: Mark) -> Vec<u8> {
        debug_assert!(self.values.len() == mark.values, "values would be lost");
        self.bytes.split_off(mark.bytes)
    }

    /// Puts an error in the place of all that waits.
    pub(crate) fn replace_by_error(&mut self, text: &str) {
        self.cut(Mark { bytes: self.sent, values: 0, value_bytes: 0 });
        encode::error(&mut self.bytes, text);
    }

    /// Puts an error in the place of the reply since `mark`, which is longer than `limit`.
    #[cold]
    pub(crate) fn refuse_since(&mut self, mark: Mark, limit: usize) {
        let bytes = self.since(mark);
        self.cut(mark);
        let text = format!(
            "ERR the reply takes {bytes} bytes, and output-buffer-limit is {limit}: ask for less \
             at a time"
        );
        encode::error(&mut self.bytes, &text);
    }

    /// The text of the error that was written at `mark`, if it is one.
    #[inline]
    pub(crate) fn error_at(&self, mark: Mark) -> Option<&[u8]> {
        match self.bytes.get(mark.bytes) {
            Some(b'-') => self.bytes.get(mark.bytes + 1..),
            _ => None,
        }
    }

    /// The encoder's buffer, to append to.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends the value of a record as a bulk string.
    #[inline]
    fn value(&mut self, reader: &Reader, record: Record<'_>) {
        let len = record.value_len() as usize;
        if len < REFERENCE_BYTES && (len < FEW_BYTES || self.bytes.len() < PLENTY_BYTES) {
            encode::bulk(&mut self.bytes, record.value());
        } else {
            self.insert(reader, record, len);
        }
    }

    /// Appends a value that stays in its arena until it is written. Apart from short ones, of which
    /// a GET then consists without a call.
    #[inline(never)]
    fn insert(&mut self, reader: &Reader, record: Record<'_>, len: usize) {
        encode::bulk_header(&mut self.bytes, len);
        let (tenant, partition) = (self.tenant, reader.partition() as usize);
        let (at, value) = (self.bytes.len(), record.value_ref());
        self.values.push(Inserted { at, value, len, tenant, partition });
        self.value_bytes += len;
        self.bytes.extend_from_slice(encode::CRLF);
    }

    /// Bytes that were copied because their place in the arena was to be used again, since this was
    /// asked last.
    pub(crate) fn take_copied(&mut self) -> usize {
        std::mem::take(&mut self.copied)
    }

    /// Copies all that is referenced.
    pub(crate) fn settle_all(&mut self, readers: &Readers<'_>, pin: &Pin<'_>) {
        if !self.values.is_empty() {
            self.settle(0, readers, pin);
        }
    }

    /// Takes out what was written since `mark`, with the values copied, to the end of `taken`.
    pub(crate) fn take_since(
        &mut self,
        mark: Mark,
        taken: &mut Own,
        readers: &Readers<'_>,
        pin: &Pin<'_>,
    ) {
        let mut from = mark.bytes;
        for inserted in &self.values[mark.values..] {
            taken.extend_from_slice(&self.bytes[from..inserted.at]);
            taken.extend_from_slice(inserted.bytes(readers, pin));
            from = inserted.at;
        }
        taken.extend_from_slice(&self.bytes[from..]);
        self.cut(mark);
    }
}

/// Writes replies of one protocol version into an output.
pub(crate) struct ReplyWriter<'a> {
    out: &'a mut Output,
    protocol: Protocol,
}

impl<'a> ReplyWriter<'a> {
    /// A writer at the end of `out`.
    #[inline]
    pub(crate) fn new(out: &'a mut Output, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// Appends an error whose text quotes bytes of a client.
    pub(crate) fn error_bytes(&mut self, text: &[u8]) {
        encode::error_bytes(&mut self.out.bytes, text);
    }

    /// Appends text: a verbatim string in RESP3, a bulk string in RESP2.
    pub(crate) fn verbatim(&mut self, text: &str) {
        encode::verbatim(&mut self.out.bytes, self.protocol, *b"txt", text.as_bytes());
    }

    /// Appends a bulk string of text.
    pub(crate) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Appends two texts.
    pub(crate) fn pair(&mut self, name: &str, value: &str) {
        self.text(name);
        self.text(value);
    }

    /// Appends a map of names and numbers.
    pub(crate) fn figures<const N: usize>(&mut self, figures: [(&str, u64); N]) {
        self.map(N);
        figures.into_iter().for_each(|(name, number)| self.figure(name, number));
    }

    /// Appends a name and a number.
    pub(crate) fn figure(&mut self, name: &str, number: u64) {
        self.text(name);
        self.number(number);
    }

    /// Appends a number that isn't negative.
    pub(crate) fn number(&mut self, number: u64) {
        self.int(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Appends a reply that is encoded already.
    pub(crate) fn raw(&mut self, reply: &[u8]) {
        self.out.bytes.extend_from_slice(reply);
    }
}

impl ReplySink for ReplyWriter<'_> {
    #[inline]
    fn ok(&mut self) {
        encode::ok(&mut self.out.bytes);
    }
    fn simple(&mut self, text: &str) {
        encode::simple(&mut self.out.bytes, text);
    }
    fn error(&mut self, text: &str) {
        encode::error(&mut self.out.bytes, text);
    }
    #[inline]
    fn int(&mut self, value: i64) {
        encode::integer(&mut self.out.bytes, value);
    }
    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        encode::bulk(&mut self.out.bytes, bytes);
    }
    #[inline]
    fn value(&mut self, reader: &Reader, record: Record<'_>) {
        self.out.value(reader, record);
    }
    #[inline]
    fn null(&mut self) {
        encode::null(&mut self.out.bytes, self.protocol);
    }
    fn null_array(&mut self) {
        encode::null_array(&mut self.out.bytes, self.protocol);
    }
    fn array(&mut self, len: usize) {
        encode::array(&mut self.out.bytes, len);
    }
    fn map(&mut self, len: usize) {
        encode::map(&mut self.out.bytes, self.protocol, len);
    }
    fn set(&mut self, len: usize) {
        encode::set(&mut self.out.bytes, self.protocol, len);
    }
    fn double(&mut self, value: f64) {
        encode::double(&mut self.out.bytes, self.protocol, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_shm::{ArenaSpec, Domain};

    fn arena(dir: &tempfile::TempDir, domain: &std::sync::Arc<Domain>) -> nigh_shm::Writer {
        let spec = ArenaSpec {
            path: dir.path().join("a"),
            tenant: "default".to_owned(),
            partition: 0,
            partitions: 1,
            seed: None,
            capacity_bytes: 16 << 20,
        };
        nigh_shm::Writer::create(&spec, domain).expect("an arena")
    }

    #[test]
    fn a_value_that_is_asked_for_again_and_again_is_not_copied_each_time() {
        // MGET of one key of 8 KiB, a hundred thousand times: 800 MB wait, in a few megabytes.
        let dir = tempfile::tempdir().expect("a folder");
        let domain = Domain::new(1);
        let mut writer = arena(&dir, &domain);
        let participant = domain.join();
        let pin = participant.pin();
        let hash = writer.hash(b"k");
        writer.put(&pin, hash, b"k", &[&[b'x'; 8 << 10]], 0).expect("room");
        let mut out = Output::default();
        let reader = writer.reader();
        for _ in 0..100_000 {
            out.value(&reader, reader.get(&pin, hash, b"k").expect("it is there"));
        }
        assert!(out.waiting() > 700 << 20);
        assert!(out.capacity() < 16 << 20, "{} bytes are held", out.capacity());
    }

    #[test]
    fn a_client_that_reads_slowly_holds_no_more_than_what_waits() {
        // Replies of 64 MiB go out piece by piece, and half a MiB always waits: nothing else is
        // kept.
        let dir = tempfile::tempdir().expect("a folder");
        let domain = Domain::new(1);
        let arena = arena(&dir, &domain);
        let (reader, participant) = (arena.reader(), domain.join());
        let pin = participant.pin();
        let mut out = Output::default();
        out.bytes().resize(512 << 10, b'x');
        for _ in 0..4096 {
            out.bytes().extend_from_slice(&[b'x'; 16 << 10]);
            let all = out.flush(|_| Ok(16 << 10), &|_, _| &reader, &pin).expect("nothing fails");
            assert!(!all && out.waiting() == 512 << 10);
        }
        assert!(out.capacity() <= 4 << 20, "{} bytes are held", out.capacity());
    }
}
