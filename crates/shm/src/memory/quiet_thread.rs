//! Threads of a library in a program that isn't its own: signals go to the program's threads.
//!
//! 1. A thread inherits the mask of the one that starts it. So signals are blocked there meanwhile,
//!    and the new thread takes none from its first moment on.
//! 2. Signals for what the thread itself does stay (SIGBUS in a file that others cut off): if such
//!    a signal is blocked, the system ends the process, whatever its handler.
//!
//! Any thread.

use libc::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, c_int, sigset_t};
use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Signals for what a thread does.
const OF_A_THREAD: [c_int; 6] = [SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];

/// Starts a thread that takes no signals of the process.
///
/// # Errors
/// The system gives no thread.
pub fn spawn_without_signals<T: Send + 'static>(
    name: String,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name);
    if cfg!(miri) {
        return builder.spawn(run); // it has no signals
    }
    let before = set_mask(&of_the_process())?;
    let started = builder.spawn(run);
    set_mask(&before)?;
    started
}

/// All signals, but for those of a thread.
fn of_the_process() -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: it is memory for a set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: zeros are a set, and the call has made another one of them.
    let mut set = unsafe { set.assume_init() };
    for signal in OF_A_THREAD {
        // SAFETY: it is a set.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}

/// Blocks these signals, and no others, in this thread. Returns those that were.
fn set_mask(mask: &sigset_t) -> io::Result<sigset_t> {
    let mut before = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: a set, and memory for one.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: zeros are a set, and the system has written it.
    Ok(unsafe { before.assume_init() })
}
