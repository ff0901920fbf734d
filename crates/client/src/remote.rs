//! A blocking connection over TCP, a Unix socket, or the rings of a local client.
//!
//! ```text
//! send -> out ──flush──> socket ──> server
//! receive <- Replies <- input <──── socket
//! ```
//!
//! 1. A pipeline can't deadlock. At most [`WINDOW_BYTES`] of requests are unanswered, or half of a
//!    local client's ring. The sockets' buffers, or the ring, hold them, even if the server reads
//!    nothing while it writes replies. A longer request is sent only when no other is unanswered:
//!    then the server has nothing to write.
//! 2. Pushes never count as replies. They go to the handler; without a handler they are skipped.
//! 3. After a [`ClientError`], or a panic of a handler or of [`ConnectionOptions::while_waiting`],
//!    the connection can't be used any more: a reply that comes late is never taken for another
//!    call's.
//! 4. A server that sends pushes, or one reply, without an end holds no call for ever: skipped
//!    pushes count as a wait, and `Limits::reply_bytes` bounds a reply.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_resp::Protocol;
use nigh_resp::decode::Replies;
use nigh_resp::encode;
use nigh_resp::frame::Frame;
use nigh_resp::limits::Limits;

use nigh_shm::ForeignReader;

use crate::address::Address;
use crate::attach::{self, Grant};
use crate::client_error::{AttachError, ClientError};
use crate::raw::RawStream;
use crate::ring_stream::RingStream;
use crate::stream::Stream;
use crate::waits::{Taken, WaitBounds};

/// Most bytes of unanswered requests in a pipeline: a quarter of a Linux socket's default buffer,
/// since the kernel charges more for a buffer than its bytes.
const WINDOW_BYTES: usize = 32 << 10;
/// Most bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Longest wait for a server by default: longer than any pause that isn't a fault.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a connection.
#[derive(Clone)]
pub struct ConnectionOptions {
    /// Longest wait to connect, and for each read and write; no limit if `None`. Pushes that are
    /// skipped are no end of a wait.
    pub timeout: Option<Duration>,
    /// The user for AUTH; the address's, or the default user, if `None`. Without a password it has
    /// an empty one.
    pub user: Option<String>,
    /// The password for AUTH; the address's if `None`.
    pub password: Option<String>,
    /// The protocol version. RESP3 takes a HELLO; RESP2 needs no greeting.
    pub protocol: Protocol,
    /// The name in CLIENT LIST.
    pub client_name: Option<String>,
    /// Called every 50 ms while a call waits for the server, and when a signal cuts the wait for a
    /// socket short, in the thread of the call: whether it waits on. A caller looks for signals by
    /// it, for example.
    pub while_waiting: Option<fn() -> bool>,
}

impl Default for ConnectionOptions {
    /// RESP2, no name, credentials from the address, ten seconds.
    fn default() -> Self {
        Self {
            timeout: Some(TIMEOUT),
            user: None,
            password: None,
            protocol: Protocol::Resp2,
            client_name: None,
            while_waiting: None,
        }
    }
}

impl fmt::Debug for ConnectionOptions {
    /// Hides the password, so that no log shows it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ConnectionOptions")
            .field("timeout", &self.timeout)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("protocol", &self.protocol)
            .field("client_name", &self.client_name)
            .finish()
    }
}

/// Takes the pushes of the server.
type PushHandler = Box<dyn FnMut(Frame) + Send>;

/// A connection to a server.
pub struct Connection {
    stream: Stream,
    address: Address,
    bounds: WaitBounds,
    protocol: Protocol,
    /// Requests that are not written yet.
    pub(crate) out: Vec<u8>,
    /// Bytes read and not consumed.
    input: Vec<u8>,
    scratch: Box<[u8]>,
    replies: Replies,
    on_push: Option<PushHandler>,
    /// Most bytes of unanswered requests.
    pub(crate) window_bytes: usize,
    /// A write, a call or a pipeline was begun, and hasn't come to its end.
    pub(crate) is_amid: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection")
            .field("address", &self.address)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, and greets as the options ask: HELLO 3 for RESP3, AUTH for a password, CLIENT
    /// SETNAME for a name.
    ///
    /// # Errors
    /// [`ClientError::NothingListens`], [`ClientError::NotPermitted`],
    /// [`ClientError::Unreachable`], [`ClientError::TimedOut`], [`ClientError::PasswordNeeded`],
    /// [`ClientError::PasswordRefused`], [`ClientError::Refused`], and those of
    /// [`Connection::call`].
    pub fn connect(address: &Address, options: &ConnectionOptions) -> Result<Self, ClientError> {
        let bounds = WaitBounds { timeout: options.timeout, while_waiting: options.while_waiting };
        let stream = Stream::connect(address, &bounds)?;
        let mut connection = Self {
            stream,
            address: address.clone(),
            bounds,
            protocol: options.protocol,
            out: Vec::new(),
            input: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            replies: Replies::new(Limits::replies()),
            on_push: None,
            window_bytes: WINDOW_BYTES,
            is_amid: false,
        };
        connection.set_timeout(options.timeout)?;
        connection.greet(options)?;
        Ok(connection)
    }

    /// The server's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The protocol version asked for.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Replaces the timeout of reads and writes; `None` is no limit.
    ///
    /// # Errors
    /// [`ClientError::Failed`] if the socket refuses it (a timeout of zero).
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ClientError> {
        self.bounds.timeout = timeout;
        self.stream.set_timeout(self.bounds.at_once()).map_err(|cause| self.failed(cause))
    }

    /// Hands every further push to `handler`. Without a handler pushes are skipped.
    pub fn on_push(&mut self, handler: impl FnMut(Frame) + Send + 'static) {
        self.on_push = Some(Box::new(handler));
    }

    /// Appends a request, which the next [`Connection::flush`] writes. If much has gathered, writes
    /// at once. For many requests use [`Connection::pipeline`], which can't deadlock.
    ///
    /// # Errors
    /// Those of [`Connection::flush`]; [`ClientError::NoRoom`].
    pub fn send<I>(&mut self, args: I) -> Result<(), ClientError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.append(args)?;
        if self.out.len() >= self.window_bytes { self.flush() } else { Ok(()) }
    }

    /// Writes the gathered requests.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`], [`ClientError::Closed`], [`ClientError::Failed`],
    /// [`ClientError::BrokenOff`], [`ClientError::LeftBehind`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.begin()?;
        self.write(self.out.len())?;
        self.is_amid = false;
        Ok(())
    }

    /// Begins what has to come to its end, unless something before it hasn't.
    fn begin(&mut self) -> Result<(), ClientError> {
        if self.is_amid {
            return Err(ClientError::LeftBehind { address: self.address.to_string() });
        }
        self.is_amid = true;
        Ok(())
    }

    /// Appends a request to those that are not written yet.
    pub(crate) fn append<I>(&mut self, args: I) -> Result<(), ClientError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        encode::try_request(&mut self.out, args)
            .map_err(|bytes| ClientError::NoRoom { address: self.address.to_string(), bytes })
    }

    /// The next reply. Writes the gathered requests first. Pushes don't count.
    ///
    /// # Errors
    /// Those of [`Connection::flush`], [`ClientError::Broken`] and [`ClientError::NoMemory`].
    pub fn receive(&mut self) -> Result<Frame, ClientError> {
        self.begin()?;
        let frame = self.next_frame()?;
        self.is_amid = false;
        Ok(frame)
    }

    /// The next reply to what is written or gathered.
    pub(crate) fn next_frame(&mut self) -> Result<Frame, ClientError> {
        self.write(self.out.len())?;
        let (mut taken, mut has_read) = (Taken::default(), false);
        loop {
            match self.decoded()? {
                Some(push @ Frame::Push(_)) => {
                    let is_skipped = self.on_push.is_none();
                    if let Some(handler) = &mut self.on_push {
                        handler(push);
                    }
                    self.bounds.take_on(&mut taken, is_skipped, &self.address)?;
                }
                Some(frame) => return Ok(frame),
                None => {
                    // Most replies come in one read, which needs no look at the clock.
                    if std::mem::replace(&mut has_read, true) {
                        self.bounds.take_on(&mut taken, false, &self.address)?;
                    }
                    self.read()?;
                }
            }
        }
    }

    /// The next frame, if it has come.
    fn decoded(&mut self) -> Result<Option<Frame>, ClientError> {
        let decoded = self.replies.decode(&self.input);
        decoded.map_err(|cause| ClientError::Broken { address: self.address.to_string(), cause })
    }

    /// Sends one request and receives its reply. An error reply is an `Ok` frame.
    ///
    /// # Errors
    /// Those of [`Connection::receive`]; [`ClientError::NoRoom`].
    pub fn call<I>(&mut self, args: I) -> Result<Frame, ClientError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.call_meanwhile(args, || ())
    }

    /// The same; does something between the request and the wait for its reply.
    pub(crate) fn call_meanwhile<I>(
        &mut self,
        args: I,
        meanwhile: impl FnOnce(),
    ) -> Result<Frame, ClientError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let written = self.out.len();
        self.append(args)?;
        if self.out[written..] == *NO_WORDS {
            self.out.truncate(written);
            return Ok(no_words());
        }
        self.begin()?;
        self.write(self.out.len())?;
        meanwhile();
        let reply = self.next_frame()?;
        self.is_amid = false;
        Ok(reply)
    }

    /// Asks for local access. Behind `Ok(Ok(…))` all bytes go by the rings; behind `Ok(Err(…))`,
    /// why there is none, the connection is as it was.
    ///
    /// # Errors
    /// There is no answer, or what came with it can't be used; the connection can't either.
    pub(crate) fn attach(
        &mut self,
        spin: Option<Duration>,
    ) -> Result<Result<Vec<ForeignReader>, String>, AttachError> {
        let Stream::Unix(socket) = &self.stream else {
            return Ok(Err("local access takes the server's Unix socket".to_owned()));
        };
        let socket = match socket.try_clone() {
            Ok(socket) => socket,
            Err(cause) => {
                return Ok(Err(format!(
                    "no second descriptor for the socket: {cause}: is this process at its limit of \
                     open files (ulimit -n)?"
                )));
            }
        };
        self.append(attach::request())?;
        self.flush()?;
        let (mut fds, mut begin, mut taken) = (Vec::new(), None, Taken::default());
        let answer = loop {
            let decoded = self.decoded()?;
            let is_skipped = matches!(decoded, Some(Frame::Push(_)));
            self.bounds.take_on(&mut taken, is_skipped, &self.address)?;
            match decoded {
                Some(Frame::Push(_)) => {}
                Some(frame) => break frame,
                None => match attach::receive(&socket, &mut self.scratch, &mut fds) {
                    Ok(0) => {
                        Err(ClientError::Closed { address: self.address.to_string() })?;
                    }
                    Ok(len) => self.input.extend_from_slice(&self.scratch[..len]),
                    Err(error) => self.waits_on(error, &mut begin)?,
                },
            }
        };
        if let Some(text) = answer.error() {
            return Ok(Err(String::from_utf8_lossy(text).into_owned()));
        }
        let grant = Grant::of(&answer, fds).map_err(AttachError::Unusable)?;
        // What follows the answer are wake-ups.
        self.replies.consume();
        self.input.clear();
        self.window_bytes = WINDOW_BYTES.min(grant.request_bytes / 2);
        let piece_bytes = grant.reply_bytes / 4;
        let ring = RingStream::new(socket, grant.end, piece_bytes, spin, self.bounds.at_once());
        self.stream = Stream::Ring(Box::new(ring));
        Ok(Ok(grant.arenas))
    }

    /// Whether the server has ended the connection, by a look that doesn't wait.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.stream.has_ended()
    }

    /// The socket beside the rings of a local client.
    pub(crate) fn ring_socket(&self) -> Option<&Arc<UnixStream>> {
        self.stream.ring_socket()
    }

    /// Ends the connection, also for a [`crate::ClientMemory`] that has its socket.
    pub(crate) fn shut(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Gives up the form of requests and replies: the socket, with what was read and not consumed.
    pub fn into_raw(mut self) -> RawStream {
        self.input.drain(..self.replies.consume());
        RawStream::new(self.stream, self.input)
    }

    fn greet(&mut self, options: &ConnectionOptions) -> Result<(), ClientError> {
        let user = options.user.clone().or_else(|| self.address.user.clone());
        let given = options.password.clone().or_else(|| self.address.password.clone());
        let is_given = given.is_some();
        // A user without a password is sent with an empty one, as other clients do it.
        let password = given.or_else(|| user.is_some().then(String::new));
        let name = options.client_name.as_deref();
        match options.protocol {
            Protocol::Resp3 => {
                let mut hello = vec!["HELLO", "3"];
                let user = user.as_deref().unwrap_or("default");
                if let Some(password) = &password {
                    hello.extend(["AUTH", user, password]);
                }
                if let Some(name) = name {
                    hello.extend(["SETNAME", name]);
                }
                self.demand("HELLO", &hello, is_given)
            }
            Protocol::Resp2 => {
                if let Some(password) = &password {
                    let words = ["AUTH"].into_iter().chain(user.as_deref());
                    let words: Vec<&str> = words.chain([password.as_str()]).collect();
                    self.demand("AUTH", &words, is_given)?;
                }
                let Some(name) = name else { return Ok(()) };
                self.demand("CLIENT SETNAME", &["CLIENT", "SETNAME", name], is_given)
            }
        }
    }

    /// Calls a command that must succeed. `is_given`: whether there was a password.
    fn demand(
        &mut self,
        command: &'static str,
        args: &[&str],
        is_given: bool,
    ) -> Result<(), ClientError> {
        let frame = self.call(args)?;
        let Some(reply) = frame.error() else { return Ok(()) };
        let address = self.address.to_string();
        Err(match reply.split(|byte| *byte == b' ').next() {
            Some(b"NOAUTH") => ClientError::PasswordNeeded { address },
            Some(b"WRONGPASS") if is_given => ClientError::PasswordRefused { address },
            Some(b"WRONGPASS") => ClientError::PasswordNeeded { address },
            _ => {
                let reply = String::from_utf8_lossy(reply).into_owned();
                ClientError::Refused { address, command, reply }
            }
        })
    }

    /// Writes the first `len` gathered bytes.
    pub(crate) fn write(&mut self, len: usize) -> Result<(), ClientError> {
        if len == 0 {
            return Ok(());
        }
        let (mut written, mut begin) = (0, None);
        while written < len {
            match self.stream.write(&self.out[written..len]) {
                Ok(more) => (written, begin) = (written + more, None),
                Err(error) => self.waits_on(error, &mut begin)?,
            }
        }
        self.out.drain(..len);
        self.out.shrink_to(WINDOW_BYTES * 2);
        Ok(())
    }

    /// Reads the available bytes: at least one.
    fn read(&mut self) -> Result<(), ClientError> {
        self.input.drain(..self.replies.consume());
        if self.input.is_empty() {
            self.input.shrink_to(READ_BYTES * 2);
        }
        let mut begin = None;
        loop {
            match self.stream.read_into(&mut self.input, &mut self.scratch) {
                Ok(0) => return Err(ClientError::Closed { address: self.address.to_string() }),
                Ok(_) => return Ok(()),
                Err(error) => self.waits_on(error, &mut begin)?,
            }
        }
    }

    /// Behind an error of the stream: goes on if it was a wait in vain, within the bounds.
    #[cold]
    fn waits_on(&self, error: io::Error, begin: &mut Option<Instant>) -> Result<(), ClientError> {
        let is_cut = match (error.kind(), self.bounds.at_once()) {
            (io::ErrorKind::Interrupted, _) => true,
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some(_)) => false,
            _ => return Err(self.failed(error)),
        };
        self.bounds.go_on(begin, is_cut, &self.address)
    }

    fn failed(&self, cause: io::Error) -> ClientError {
        let address = self.address.to_string();
        match cause.kind() {
            io::ErrorKind::OutOfMemory => ClientError::NoMemory { address },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                ClientError::Closed { address }
            }
            _ => ClientError::Failed { address, cause },
        }
    }
}

/// What a server would not answer: it waits for the next request.
pub(crate) const NO_WORDS: &[u8] = b"*0\r\n";

/// The reply to a request without words, which isn't sent.
pub(crate) fn no_words() -> Frame {
    Frame::Error(b"ERR a request without words".into())
}
