//! Values that grow, and values that are made from others.
//!
//! ```text
//! run   | published value | staged, or written in vain |   room, backed a little ahead   |
//!                         ^ length of the record       ^ end: nobody writes below it again
//! ```
//!
//! 1. A run is extended in place only for a record whose length is the run's `end`, the highest
//!    that was ever written, even if it was for nothing. Any other value is copied. So no byte that
//!    a record names is written again.
//! 2. A value that was extended once gets a run with room for twice its length. So its bytes are
//!    copied as often as it doubles.
//! 3. Only a record whose checksum is right has its value carried on, and what stands behind a
//!    run's goes on with the sum that the run's name has: damage stays visible.
//!
//! The arena's writer only.

use crate::error::WriteError;
use crate::format::head::{Head, RunName};
use crate::format::layout::{inline_record_bytes, record as r};
use crate::format::record::{Record, RecordRef};
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::qsbr::Pin;
use crate::write::append::{Append, Prefix};
use crate::write::writer::Writer;

/// Longest value that is copied each time that it is extended: some 6 microseconds at 12 GB/s. A
/// longer one gets a run.
const COPIED_BYTES_MAX: usize = 64 << 10;

impl Writer {
    /// Gives a key the value of a record, published or staged, with `parts` behind it.
    ///
    /// # Errors
    /// As [`Writer::put`], or if the record has other bytes than were written; nothing has changed
    /// then.
    ///
    /// # Panics
    /// If the pin is another domain's, or `from` was kept for too long.
    pub fn extend(
        &mut self,
        pin: &Pin<'_>,
        from: RecordRef,
        (hash, key): (u32, &[u8]),
        parts: &[&[u8]],
        expiry_ms: u64,
    ) -> Result<(), WriteError> {
        self.check_pin(pin);
        self.check_ref(from);
        let append = Append { grows: true, ..Append::string(hash, key, parts, expiry_ms) };
        self.replace_based(from.reference, append)
    }

    /// The same without publishing it.
    ///
    /// # Errors
    /// As [`Writer::put`], or if the record has other bytes than were written; nothing has changed
    /// then.
    ///
    /// # Panics
    /// If the pin is another domain's, or `from` was kept for too long.
    pub fn stage_extended(
        &mut self,
        pin: &Pin<'_>,
        from: RecordRef,
        (hash, key): (u32, &[u8]),
        parts: &[&[u8]],
        expiry_ms: u64,
    ) -> Result<RecordRef, WriteError> {
        let append = Append { grows: true, ..Append::string(hash, key, parts, expiry_ms) };
        self.stage_from(pin, from, append)
    }

    /// Stages `append` behind the value of a record that a caller has kept.
    pub(crate) fn stage_from(
        &mut self,
        pin: &Pin<'_>,
        from: RecordRef,
        append: Append<'_>,
    ) -> Result<RecordRef, WriteError> {
        self.check_pin(pin);
        self.check_ref(from);
        self.stage_based(from.reference, append)
    }

    /// Publishes `append` behind the value of a record.
    pub(crate) fn replace_based(
        &mut self,
        from: u32,
        append: Append<'_>,
    ) -> Result<(), WriteError> {
        let replace = |writer: &mut Writer, append: &Append<'_>| {
            writer.check_journal(false, |size| {
                let inline: usize = append.parts.iter().map(|part| part.len()).sum();
                let len = inline + append.prefix.map_or(0, |prefix| prefix.len as usize);
                match append.in_run || writer.takes_run(append.key.len(), len) {
                    true => {
                        let source = append.base.map_or(0, |base| writer.key_of(base).len());
                        size.based(append.key.len(), source, inline);
                    }
                    false => size.put(append.key.len(), len, false),
                }
            })?;
            writer.replace(append).map_err(|e| writer.refused(e))
        };
        self.behind(from, append, replace)?;
        self.pay_if_due();
        Ok(())
    }

    /// Stages `append` behind the value of a record.
    pub(crate) fn stage_based(
        &mut self,
        from: u32,
        append: Append<'_>,
    ) -> Result<RecordRef, WriteError> {
        self.behind(from, append, |writer, append| writer.stage_append(append))
    }

    /// `append` with the value of a record before its own parts.
    pub(crate) fn behind<T>(
        &mut self,
        from: u32,
        append: Append<'_>,
        done: impl FnOnce(&mut Writer, &Append<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let offset = u64::from(from) * r::UNIT;
        let head = Head::load(&self.words, offset);
        let is_staged = head.lsn == 0;
        if !is_staged && !self.is_whole(offset, &head) {
            return Err(WriteError::BadRecord);
        }
        let append = Append { base: Some(from), ..append };
        if head.has_run() {
            let run = RunName::load(&self.words, offset, &head);
            let prefix = Some(Prefix { run, len: head.value_len });
            return done(self, &Append { prefix, ..append });
        }
        let value = self.bytes_of(offset, &head);
        match append.parts {
            [] => done(self, &Append { parts: &[value], ..append }),
            [part] => done(self, &Append { parts: &[value, part], ..append }),
            parts => {
                let parts: Vec<&[u8]> =
                    std::iter::once(value).chain(parts.iter().copied()).collect();
                done(self, &Append { parts: &parts, ..append })
            }
        }
    }

    /// The value of a published or staged record.
    pub(crate) fn bytes_of<'p>(&self, offset: u64, head: &Head) -> &'p [u8] {
        let at = match head.has_run() {
            true => {
                let run = RunName::load(&self.words, offset, head);
                self.space.geometry().slot_offset(run.slot)
            }
            false => offset + head.value_at(),
        };
        // SAFETY: the record is published or staged, and no slot is reused while this writer is in
        // one of its calls with a pin of the domain; the slice doesn't leave that call.
        unsafe { self.words.bytes(at, head.value_len as usize) }
    }

    /// Whether a record's value would get so many bytes more without being copied.
    #[must_use]
    pub fn extends_in_place(&self, record: &Record<'_>, added: usize) -> bool {
        let (len, at) = (record.value_len(), record.value_ref().offset());
        let slot = self.space.geometry().slot_of(at);
        record.has_run() && self.space.reaches(slot, len.into(), u64::from(len) + added as u64)
    }

    /// Whether a value of `len` bytes lies in a run, in a record of `inline` bytes otherwise.
    #[inline]
    pub(crate) fn lies_in_run(&mut self, a: &Append<'_>, inline: u64, len: usize) -> bool {
        a.prefix.is_some()
            || a.in_run
            || self.space.geometry().wants_run(inline, len as u64)
            || a.grows && len > COPIED_BYTES_MAX && self.space.has_room(len as u64, a.urgent)
    }

    /// Whether the value of `a`, `len` bytes, is too long for a segment.
    fn must_lie_in_run(&self, a: &Append<'_>, len: usize) -> bool {
        let inline = inline_record_bytes(a.key.len(), len);
        self.space.geometry().wants_run(inline, len as u64)
    }

    /// Whether a value that finds no memory for a run of its own can lie in a segment instead.
    #[cold]
    pub(crate) fn may_lie_inline(&self, a: &Append<'_>, len: usize) -> bool {
        a.prefix.is_none() && !a.in_run && !self.must_lie_in_run(a, len)
    }

    /// A run with the whole value of `a`, `len` bytes.
    pub(crate) fn run_for(&mut self, a: &Append<'_>, len: u32) -> Result<RunName, WriteError> {
        let Some(Prefix { run, len: had }) = a.prefix else { return self.fill_run(&[], 0, a, len) };
        if a.parts.is_empty() {
            return Ok(run);
        }
        let at = self.space.geometry().slot_offset(run.slot);
        if self.space.extend_run(run.slot, had, len, a.urgent)? {
            let checksum = self.write_parts(at + u64::from(had), a.parts, run.checksum);
            self.appended += u64::from(len - had);
            return Ok(RunName { checksum, ..run });
        }
        // SAFETY: a published or staged record names these bytes, so they are not written, and the
        // run is not reused while this writer is in one of its calls; the slice doesn't leave that
        // call.
        let value = unsafe { self.words.bytes(at, had as usize) };
        self.fill_run(value, run.checksum, a, len)
    }

    /// A new run with `prefix`, which has this sum, and the parts of `a`.
    fn fill_run(
        &mut self,
        prefix: &[u8],
        checksum: u32,
        a: &Append<'_>,
        len: u32,
    ) -> Result<RunName, WriteError> {
        let must = self.must_lie_in_run(a, len as usize);
        let (slot, slots) = self.space.take_value_run(len.into(), must, a.grows, a.urgent)?;
        let at = self.space.geometry().slot_offset(slot);
        self.words.copy_in(at, prefix);
        let checksum = self.write_parts(at + prefix.len() as u64, a.parts, checksum);
        self.appended += u64::from(len);
        Ok(self.space.name_run((slot, slots), must, len, checksum))
    }

    /// Writes bytes of a run that no reader knows of. Returns the sum, which was `checksum` before
    /// them.
    fn write_parts(&self, mut at: u64, parts: &[&[u8]], mut checksum: u32) -> u32 {
        for part in parts {
            self.words.copy_in(at, part);
            at += part.len() as u64;
            checksum = sum::more(checksum, part);
        }
        checksum
    }
}
