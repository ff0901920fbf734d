//! Mappings of files that others may cut off: a read finds zeros there, and no SIGBUS ends the
//! process.
//!
//! ```text
//! load ── SIGBUS ── in a guarded mapping ──> zeros over all of it ── the load again ──> 0
//!                └─ elsewhere ──> what had the signal before
//! ```
//!
//! 1. A page of a mapping faults if the file has become shorter, or if it is a hole and the file
//!    system has no memory left. Then all of the mapping is replaced, so its arena's incarnation is
//!    0 from then on: no read counts whose copies came behind that.
//! 2. A mapping is in the table as long as it is mapped: it comes before the first load, and goes
//!    before the addresses do.
//! 3. The signal's handler takes no lock and no memory. It stays for the life of the process. A
//!    program that has one of its own for SIGBUS installs it before the first reader, or calls this
//!    one from it.
//!
//! Any thread; the handler: the thread that faulted.

use crate::format::layout::PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{Mutex, PoisonError};

/// Guarded mappings of a process, at most.
const MAPPINGS_MOST: usize = 1024;
/// Bits of a word of the table that say how many pages a mapping has: more than 64 GiB have.
const PAGES_BITS: u32 = 25;

/// The mappings: first page and number of pages, in one word each, so that no load sees half of
/// one.
static MAPPINGS: [AtomicU64; MAPPINGS_MOST] = [const { AtomicU64::new(0) }; MAPPINGS_MOST];
/// What had the signal before; null until the handler is there. One that is there is never freed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());
/// Held while the table or the handler is changed.
static CHANGE: Mutex<()> = Mutex::new(());

/// A mapping's place in the table; it leaves it when this is dropped.
pub(crate) struct Guarded(usize);

impl Guarded {
    /// Guards `len` bytes of pages at `base`.
    pub(crate) fn new(base: *const u8, len: usize) -> Result<Guarded, Errno> {
        let word = word_of(base.addr() as u64, len as u64).ok_or(Errno::NOMEM)?;
        let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        if BEFORE.load(Acquire).is_null() {
            install()?;
        }
        let free = MAPPINGS.iter().position(|it| it.load(Acquire) == 0).ok_or(Errno::NOMEM)?;
        MAPPINGS[free].store(word, Release);
        Ok(Guarded(free))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        MAPPINGS[self.0].store(0, Release);
    }
}

/// A mapping's word in the table; `None` if it has no place in a word.
fn word_of(base: u64, len: u64) -> Option<u64> {
    let (page, pages) = (base / PAGE_BYTES, len.div_ceil(PAGE_BYTES));
    let fits = pages > 0 && pages < 1 << PAGES_BITS && page < 1 << (64 - PAGES_BITS);
    fits.then_some(page << PAGES_BITS | pages)
}

/// The first byte of a word's mapping and the byte behind its last.
fn range_of(word: u64) -> (u64, u64) {
    let (page, pages) = (word >> PAGES_BITS, word & ((1 << PAGES_BITS) - 1));
    (page * PAGE_BYTES, (page + pages) * PAGE_BYTES)
}

/// Installs the handler, and keeps what there was.
fn install() -> Result<(), Errno> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks, into memory of the right size.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, null(), before.as_mut_ptr()) };
    if asked != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: zeros are a valid `sigaction`, and the system has written it.
    let before = unsafe { before.assume_init() };
    // The handler may run as soon as it is installed.
    BEFORE.store(Box::into_raw(Box::new(before)), Release);
    // SAFETY: zeros are a valid `sigaction`: no flags, an empty mask.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that SA_SIGINFO wants, and keeps to what a handler may
    // do.
    let installed = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, null_mut()) };
    if installed == 0 { Ok(()) } else { Err(Errno::INVAL) }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the signal's information.
    let told = unsafe { &*info };
    // SAFETY: of a SIGBUS it has an address, or bytes that aren't looked at.
    let at = unsafe { told.si_addr() }.addr() as u64;
    let is_fault = told.si_code > 0;
    let hit = MAPPINGS.iter().map(|it| range_of(it.load(Acquire)));
    let hit = hit.filter(|_| is_fault).find(|(from, to)| (*from..*to).contains(&at));
    if hit.is_none_or(|(from, to)| zero(from, to).is_err()) {
        pass_on(signal, info, context, is_fault);
    }
}

/// Maps zeros over a guarded mapping.
fn zero(from: u64, to: u64) -> Result<(), Errno> {
    let to_usize = |n: u64| usize::try_from(n).map_err(|_| Errno::INVAL);
    let (at, len) = (to_usize(from)?, to_usize(to - from)?);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    let at = std::ptr::without_provenance_mut(at);
    // SAFETY: a guarded mapping of this process, of which nobody holds a reference to its bytes:
    // they are only read as atomic words, and those of another's file may change to anything.
    unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::READ, flags) }.map(drop)
}

/// Gives the signal to what had it before.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    // SAFETY: it was stored before the handler was installed, and is never freed.
    let before = unsafe { &*BEFORE.load(Acquire) };
    match before.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: zeros are a valid `sigaction`: the system's default.
            let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: gives the signal its default action, by which the process ends: by the same
            // load again, or by the signal that follows here.
            unsafe { libc::sigaction(signal, &raw const default, null_mut()) };
            if !is_fault {
                // SAFETY: sends this thread the signal, which a handler may do.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: with SA_SIGINFO it is the address of such a function.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO it is the address of such a function.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_table_has_the_whole_mapping() {
        for (base, len) in [(1 << 46, 64 << 30), (0x7FFF_FFFF_F000, 4096), (4096, 8192)] {
            let word = word_of(base, len).unwrap();
            assert_eq!(range_of(word), (base, base + len));
        }
        assert_eq!(word_of(4096, 0), None);
        assert_eq!(word_of(4096, 1 << 40), None);
        assert_eq!(word_of(1 << 60, 4096), None);
        assert!(range_of(0).0 == range_of(0).1, "a free place has no address");
    }
}
