//! One attachment of a client: a connection, and the server's memory if it has handed it over.
//!
//! ```text
//! connect ── AUTH … ── LOCAL ATTACH ──┬─ arenas, rings: local
//!                                     └─ refused: RESP, or an error if local access is required
//! ```
//!
//! 1. A link never comes back: when its connection or its memory is over, another one is opened.
//! 2. The end of a server, or of its memory, is noticed [`LOOK_MS`] later at most, by a client that
//!    calls.
//! 3. A link on which a caller's code has panicked amid a call is over: a reply was left behind.
//!
//! Belongs to one thread at a time.

use std::sync::Arc;

use nigh_resp::frame::Frame;
use nigh_shm::{ForeignArenas, LastLook};

use crate::address::{Address, Endpoint};
use crate::call_error::CallError;
use crate::client_error::{AttachError, ClientError};
use crate::client_options::{ClientOptions, LocalUse};
use crate::local_side::{LocalSide, OTHER_WRITER};
use crate::remote::Connection;

/// Between two looks whether the link is over: some 0.3 us each.
pub(crate) const LOOK_MS: u64 = 10;
/// How a server begins that refuses a connection: it has too many, or this one is of another host.
const TOO_MANY: &str = "ERR max number of clients";
const PROTECTED: &str = "DENIED";

/// A connection, and what it shares.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// The memory, if this is a local client.
    pub(crate) local: Option<Arc<LocalSide>>,
    /// Why it isn't.
    pub(crate) why_not_local: String,
    /// Whether it is over.
    looked: LastLook,
}

/// Why there is no link.
pub(crate) enum LinkError {
    /// It may pass: the server is away, or isn't ready.
    Passing(String),
    /// It may pass: the server takes connections, and didn't answer in time.
    Silent(String),
    /// It may pass, as a server makes its socket before it lets others in; else it is this.
    Denied(CallError),
    /// It won't.
    Lasting(CallError),
}

impl Link {
    pub(crate) fn open(address: &Address, options: &ClientOptions) -> Result<Link, LinkError> {
        let mut connection = connect(address, options)?;
        if options.local == LocalUse::Never {
            return Link::by_resp(connection, "the options say so".to_owned());
        }
        let why_not = match connection.attach(options.spin) {
            Ok(Ok(arenas)) => {
                let arenas = ForeignArenas::new(arenas);
                arenas.check().map_err(|error| LinkError::Passing(error.to_string()))?;
                let side = LocalSide::new(arenas, options.reads_unsynced);
                return Ok(Link::new(connection, Some(Arc::new(side)), String::new()));
            }
            Ok(Err(refusal)) => match not_served(address, &refusal) {
                Some(error) => return Err(error),
                None => refusal,
            },
            Err(AttachError::Client(error)) => return Err(of_client(error)),
            Err(AttachError::Unusable(why)) => {
                if options.local == LocalUse::Auto {
                    connection = connect(address, options)?;
                }
                why
            }
        };
        if options.local == LocalUse::Required {
            let cause = match &address.endpoint {
                Endpoint::Tcp { .. } => {
                    "connect to the server's Unix socket (unix:/path) on the same host".to_owned()
                }
                Endpoint::Unix(_) => why_not,
            };
            return Err(LinkError::Lasting(CallError::NotLocal {
                address: address.to_string(),
                cause,
            }));
        }
        Link::by_resp(connection, why_not)
    }

    /// A link of a connection alone, to a server that is ready.
    fn by_resp(mut connection: Connection, why_not_local: String) -> Result<Link, LinkError> {
        let pong = connection.call(["PING"]).map_err(of_client)?;
        let error = pong.error().map(String::from_utf8_lossy);
        match error.and_then(|text| not_served(connection.address(), &text)) {
            Some(error) => Err(error),
            None => Ok(Link::new(connection, None, why_not_local)),
        }
    }

    fn new(connection: Connection, local: Option<Arc<LocalSide>>, why_not_local: String) -> Link {
        Link { connection, local, why_not_local, looked: LastLook::now() }
    }

    /// Whether it wasn't over a moment ago.
    #[inline]
    pub(crate) fn is_open(&mut self) -> bool {
        !self.connection.is_amid && (!self.looked.is_due(LOOK_MS) || self.why_over().is_none())
    }

    /// Why it is over, by a look now; `None` if it isn't.
    #[cold]
    pub(crate) fn why_over(&mut self) -> Option<&'static str> {
        if self.connection.is_amid {
            return Some("an earlier call was broken off by a panic");
        }
        if self.connection.has_ended() {
            return Some("the server has ended the connection");
        }
        // A thread with the memory alone may have noticed it, and asks by this link.
        let is_left = self.local.as_ref().is_some_and(|side| !side.has_its_writers());
        is_left.then_some(OTHER_WRITER)
    }

    /// Sends a request, and waits for its reply. Meanwhile it asks for the memory that the server
    /// looks up for the first key: both cores share a cache, and a write of a cold key takes some
    /// 0.2 us less.
    pub(crate) fn call(&mut self, args: &[&[u8]]) -> Result<Frame, ClientError> {
        let Link { connection, local, .. } = self;
        let prefetch = || {
            if let (Some(side), Some(key)) = (local, args.get(1)) {
                side.prefetch(key);
            }
        };
        connection.call_meanwhile(args, prefetch).map(Frame::without_attributes)
    }
}

fn connect(address: &Address, options: &ClientOptions) -> Result<Connection, LinkError> {
    Connection::connect(address, &options.connection).map_err(of_client)
}

fn of_client(error: ClientError) -> LinkError {
    match error {
        ClientError::PasswordNeeded { .. }
        | ClientError::PasswordRefused { .. }
        | ClientError::Broken { .. } => {
            LinkError::Lasting(CallError::CantConnect { cause: error.to_string() })
        }
        ClientError::NotPermitted { .. } => {
            LinkError::Denied(CallError::NotPermitted { cause: error.to_string() })
        }
        ClientError::Refused { ref reply, .. } if lasts(reply) => {
            LinkError::Lasting(CallError::CantConnect { cause: error.to_string() })
        }
        ClientError::TimedOut { .. } | ClientError::BrokenOff { .. } => {
            LinkError::Silent(error.to_string())
        }
        error => LinkError::Passing(error.to_string()),
    }
}

/// Why there is no link, if the reply to the first request says that the server doesn't serve this
/// connection.
fn not_served(address: &Address, reply: &str) -> Option<LinkError> {
    let address = address.to_string();
    if reply.starts_with("LOADING") {
        return Some(LinkError::Passing(reply.to_owned()));
    }
    if reply.starts_with("NOAUTH") {
        return Some(of_client(ClientError::PasswordNeeded { address }));
    }
    // The server has written this before it read a request, and closes the connection.
    let is_refused = reply.starts_with(TOO_MANY) || reply.starts_with(PROTECTED);
    is_refused.then(|| {
        let (command, reply) = ("the connection", reply.to_owned());
        of_client(ClientError::Refused { address, command, reply })
    })
}

/// Whether a server that refuses a connection or a greeting so will do it again: a client of
/// another host, a password where there is none, a name with a space. That it has too many clients
/// passes.
fn lasts(reply: &str) -> bool {
    reply.starts_with(PROTECTED) || reply.starts_with("ERR ") && !reply.starts_with(TOO_MANY)
}
