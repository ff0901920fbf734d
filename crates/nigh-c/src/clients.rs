//! Clients that are connected.
//!
//! ```text
//! handle ── not within a view? ── CLIENTS.with ── lock ──> Client
//! ```
//!
//! 1. Calls with one client follow each other: the next waits until the one before has returned.
//! 2. Within a view's callback no call gets a client. It would wait for the view's client, which
//!    the view has, or for a thread that waits for that.
//! 3. A fork's child gets no client of its parent's (`handles`): socket and rings are the parent's.
//!
//! Any thread.

use crate::fault::{Fault, nigh_status};
use crate::handles::Handles;
use nigh_client::{Address, Client, ClientOptions};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

/// Most bytes of a client's buffer that stay for its next call: a value of usual length.
const BUFFER_BYTES: usize = 64 << 10;

static CLIENTS: Handles<Mutex<Own>> = Handles::new("client", "nigh_client_connect");

thread_local! {
    static IS_IN_VIEW: Cell<bool> = const { Cell::new(false) };
}

struct Own {
    client: Client,
    /// Where values are read to.
    buffer: Vec<u8>,
}

/// Connects a client. Returns its handle.
pub(crate) fn connect(address: &Address, options: ClientOptions) -> Result<u64, Fault> {
    let name = address.to_string().into();
    CLIENTS.add(&name, || {
        let client = Client::connect_with(address, options)?;
        Ok(Mutex::new(Own { client, buffer: Vec::new() }))
    })
}

/// Passes the client that a handle names, and a buffer, to `call`.
#[inline]
pub(crate) fn with_client<R>(
    id: u64,
    call: impl FnOnce(&mut Client, &mut Vec<u8>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    with_named_client(id, |client, buffer, _| call(client, buffer))
}

/// The same with the server's address.
#[inline]
pub(crate) fn with_named_client<R>(
    id: u64,
    call: impl FnOnce(&mut Client, &mut Vec<u8>, &Arc<str>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    if IS_IN_VIEW.get() {
        return Err(within_view());
    }
    CLIENTS.with_named(id, |own, name| {
        let mut own = own.lock().map_err(|_| {
            let message = "a fault of Nigh's own ended an earlier call of this client, which may \
                           have left a reply behind: close it, and connect another one";
            Fault::new(nigh_status::NIGH_FAULT, message)
        })?;
        let Own { client, buffer } = &mut *own;
        let result = call(client, buffer, name);
        if buffer.capacity() > BUFFER_BYTES {
            *buffer = Vec::new();
        }
        result
    })
}

/// Ends a client, when the calls of other threads have returned.
pub(crate) fn close(id: u64) -> Result<(), Fault> {
    if IS_IN_VIEW.get() {
        return Err(within_view());
    }
    CLIENTS.remove(id).map(drop)
}

/// Runs a view's callback.
pub(crate) fn within_callback(callback: impl FnOnce()) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IS_IN_VIEW.set(false);
        }
    }
    IS_IN_VIEW.set(true);
    let _leave = Leave;
    callback();
}

#[cold]
fn within_view() -> Fault {
    Fault::invalid("a view's callback calls a client: read by nigh_view_get, or return first")
}
