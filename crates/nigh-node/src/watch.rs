//! Changes under a prefix.
//!
//! ```text
//! log's thread, strong writer ── waker ── threadsafe function ──> the event loop: on_event ── take, until none
//! ```
//!
//! 1. The waker notes only that something is there: the events wait in the watch, which bounds
//!    them.
//! 2. It doesn't keep the process alive. A caller that awaits an event does that, in `beside.js`.
//! 3. While the watch reads what was, each look reads a frame of the log and calls the waker. So
//!    `beside.js` looks once in a turn of the loop: Node.js calls `on_event` up to a thousand times
//!    in one.
//!
//! The thread of the JavaScript; the waker: any.

use crate::fault::{Code, Fault, answer, made};
use crate::pairs::buffer;
use napi::bindgen_prelude::{BufferSlice, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};
use napi_derive::napi;
use nigh::{DbError, WatchEvent, WatchPlace};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

/// Weak, without an error as its first argument.
type Callback = ThreadsafeFunction<(), (), (), Status, false, true>;

struct Bell(Callback);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // A loop that has ended needs no call.
        let _ = self.0.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

/// The waker that has `on_event` called, soon, in its own thread.
pub(crate) fn waker(on_event: &Function<'_, (), ()>) -> std::result::Result<Waker, Fault> {
    let callback = on_event.build_threadsafe_function::<()>();
    let callback = callback.weak::<true>().callee_handled::<false>();
    Ok(Waker::from(Arc::new(Bell(made(callback.build())?))))
}

/// An event: its kind, the partition, the change's number (of lost ones the last), the first of
/// those that are lost, the key, the value, and Unix ms from which on the key is gone.
type Event<'env> =
    (u32, u32, i64, i64, Option<BufferSlice<'env>>, Option<BufferSlice<'env>>, Option<i64>);

fn number(change: u64) -> i64 {
    i64::try_from(change).unwrap_or(i64::MAX)
}

fn unix_ms(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A change that finds no memory for its copy is lost.
fn event<'env>(env: &'env Env, event: &WatchEvent) -> std::result::Result<Event<'env>, Fault> {
    let (partition, change) = numbers(event);
    copy(env, event).or_else(|fault| match fault.is_no_memory() {
        true => Ok((4, partition, change, change, None, None, None)),
        false => Err(fault),
    })
}

/// The partition, and the change's number in it.
fn numbers(event: &WatchEvent) -> (u32, i64) {
    (u32::try_from(event.partition()).unwrap_or(u32::MAX), number(event.change()))
}

fn copy<'env>(env: &'env Env, event: &WatchEvent) -> std::result::Result<Event<'env>, Fault> {
    let (part, change) = numbers(event);
    let bytes = |bytes| buffer(env, bytes).map(Some);
    Ok(match event {
        WatchEvent::Put { key, value, expires_at, .. } => {
            (0, part, change, 0, bytes(key)?, bytes(value)?, expires_at.map(unix_ms))
        }
        WatchEvent::Expires { key, expires_at, .. } => {
            (1, part, change, 0, bytes(key)?, None, expires_at.map(unix_ms))
        }
        WatchEvent::Removed { key, .. } => (2, part, change, 0, bytes(key)?, None, None),
        WatchEvent::Cleared { .. } => (3, part, change, 0, None, None, None),
        WatchEvent::Lost { first, .. } => (4, part, change, number(*first), None, None, None),
        other => return Err(Fault::unknown_event(&format!("{other:?}"))),
    })
}

/// A watch, which is asked for one event after the other.
#[napi]
pub struct Watch {
    path: String,
    waker: Waker,
    watch: WatchState,
}

enum WatchState {
    Open(nigh::Watch),
    /// Where it was.
    Closed(std::result::Result<WatchPlace, DbError>),
}

impl Watch {
    pub(crate) fn of(path: &str, waker: Waker, watch: nigh::Watch) -> Watch {
        Watch { path: path.to_owned(), waker, watch: WatchState::Open(watch) }
    }
}

#[napi]
impl Watch {
    /// The next event. If there is none, `on_event` is called when there is, or at the end.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Option<Event<'env>>, Code> {
        answer(|| {
            let WatchState::Open(watch) = &self.watch else {
                return Err(Fault::ended(&self.path, "watch"));
            };
            match watch.poll_next(&Context::from_waker(&self.waker)) {
                Poll::Pending => Ok(None),
                Poll::Ready(Ok(it)) => event(env, &it).map(Some),
                Poll::Ready(Err(error)) => Err(Fault::of_call(&self.path, &error)),
            }
        })
    }

    /// Where it is: behind the events that were taken.
    #[napi]
    pub fn place(&self) -> Result<String, Code> {
        let told = |place: &std::result::Result<WatchPlace, DbError>| match place {
            Ok(place) => Ok(place.to_string()),
            Err(error) => Err(Fault::of_call(&self.path, error)),
        };
        answer(|| match &self.watch {
            WatchState::Open(watch) => told(&watch.place()),
            WatchState::Closed(place) => told(place),
        })
    }

    /// Ends it. What waits in it is gone.
    #[napi]
    pub fn close(&mut self) {
        if let WatchState::Open(watch) = &self.watch {
            self.watch = WatchState::Closed(watch.place());
        }
    }
}
