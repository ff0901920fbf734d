//! Answers each HTTP request with one page: as much of HTTP/1 as Prometheus and curl need.
//!
//! ```text
//! accept ──> read up to the empty line ──> answer, as fast as the client reads ──> close
//! ```
//!
//! 1. Whatever clients do is bounded: how many there are, how much each asks, how long each stays.
//!    When one too many comes, the oldest goes, so clients that only wait keep nobody out.
//! 2. No client touches a shard: a shard changes the page unless it is being looked at, and never
//!    waits.
//!
//! [`Http`] belongs to the thread that starts the server; connections belong to the thread
//! `nigh-metrics` alone.

use crate::sync::lock;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STOP: Token = Token(0);
const LISTEN: Token = Token(1);
const FIRST_VISIT: usize = 2;

/// The page that is answered. A change replaces it as a whole.
pub(crate) type Page = Mutex<Arc<str>>;

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpLimits {
    /// Connections at a time.
    pub(crate) connections: usize,
    /// Bytes of a request: several times what browsers send.
    pub(crate) request_bytes: usize,
    /// From accepting to closing: Prometheus gives up after ten seconds by default.
    pub(crate) time: Duration,
}

pub(crate) const HTTP_LIMITS: HttpLimits =
    HttpLimits { connections: 32, request_bytes: 8 << 10, time: Duration::from_secs(10) };

/// The thread that answers; ends when this is dropped.
pub(crate) struct Http {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Begins to answer.
    pub(crate) fn start(
        mut listener: TcpListener,
        page: Arc<Page>,
        limits: HttpLimits,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTEN, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let (visits, next) = (BTreeMap::new(), FIRST_VISIT);
        let mut desk = PageDesk { poll, listener, page, limits, visits, next };
        let thread = std::thread::Builder::new().name("nigh-metrics".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = desk.serve() {
                tracing::error!(?error, "metrics can't be served");
            }
        })?;
        Ok(Self { waker, thread: Some(thread) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.waker.wake().is_ok() {
            let _ = thread.join();
        }
    }
}

/// The listener, and the clients that have come.
struct PageDesk {
    poll: Poll,
    listener: TcpListener,
    page: Arc<Page>,
    limits: HttpLimits,
    /// By token; tokens rise, so the first is the oldest.
    visits: BTreeMap<usize, HttpVisit>,
    next: usize,
}

impl PageDesk {
    /// Answers until it is woken to stop.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(self.limits.connections + FIRST_VISIT);
        let mut some_wait = false;
        loop {
            let oldest = self.visits.first_key_value().map(|(_, visit)| visit.until);
            let wait = oldest.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = if some_wait { Some(Duration::ZERO) } else { wait };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    STOP => return Ok(()),
                    LISTEN => some_wait = true,
                    Token(number) => self.go_on(number),
                }
            }
            // After the clients that were here: as many as go again by then.
            some_wait = some_wait && self.accept();
            let now = Instant::now();
            while self.visits.first_key_value().is_some_and(|(_, visit)| visit.until <= now) {
                self.visits.pop_first();
            }
        }
    }

    /// Takes some clients that wait; whether there may be more.
    fn accept(&mut self) -> bool {
        for _ in 0..self.limits.connections {
            // Without files there is none to take; the next client that comes rings again.
            let Ok((mut stream, _)) = self.listener.accept() else { return false };
            let token = Token(self.next);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, token, interest).is_err() {
                continue;
            }
            if self.visits.len() >= self.limits.connections {
                self.visits.pop_first();
            }
            let until = Instant::now() + self.limits.time;
            let (request, answer, written) = (Vec::new(), Vec::new(), 0);
            self.visits.insert(self.next, HttpVisit { stream, until, request, answer, written });
            self.next += 1;
        }
        true
    }

    fn go_on(&mut self, number: usize) {
        let Some(visit) = self.visits.get_mut(&number) else { return };
        match visit.go_on(&self.page, self.limits.request_bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Answered, or gone.
            _ => drop(self.visits.remove(&number)),
        }
    }
}

/// A client's connection.
struct HttpVisit {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    /// Empty until the request is whole.
    answer: Vec<u8>,
    written: usize,
}

impl HttpVisit {
    /// Reads and writes what can be; `WouldBlock` if there is more to do.
    fn go_on(&mut self, page: &Page, most_bytes: usize) -> io::Result<()> {
        while self.answer.is_empty() {
            let mut some = [0; 1024];
            let read = self.stream.read(&mut some)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let begin = self.request.len().saturating_sub(b"\r\n\r".len());
            self.request.extend_from_slice(&some[..read]);
            if self.request[begin..].windows(4).any(|end| end == b"\r\n\r\n") {
                self.answer = answer(&self.request, page);
            } else if self.request.len() > most_bytes {
                self.answer = response("431 Request Header Fields Too Large", 0);
            }
        }
        while self.written < self.answer.len() {
            self.written += self.stream.write(&self.answer[self.written..])?;
        }
        self.stream.shutdown(Shutdown::Write)
    }
}

/// The answer to a request that is whole.
fn answer(request: &[u8], page: &Page) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else { return response("400 Bad Request", 0) };
    if !version.starts_with(b"HTTP/1.") {
        return response("505 HTTP Version Not Supported", 0);
    }
    if method != b"GET" && method != b"HEAD" {
        return response("405 Method Not Allowed", 0);
    }
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let body = if path == b"/health" { Arc::from("OK") } else { Arc::clone(&lock(page)) };
    let mut answer = response("200 OK", body.len());
    if method == b"GET" {
        answer.extend_from_slice(body.as_bytes());
    }
    answer
}

/// All but the body. 0.0.4 is the version of Prometheus's text.
fn response(status: &str, body_bytes: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\n\
         content-length: {body_bytes}\r\nconnection: close\r\n\r\n"
    );
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpStream};

    const LIMITS: HttpLimits =
        HttpLimits { connections: 4, request_bytes: 1000, time: Duration::from_secs(60) };

    /// A server of the page `page`, and its address.
    fn server(limits: HttpLimits) -> (Http, SocketAddr) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any).expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let page = Arc::new(Mutex::new(Arc::from("page")));
        (Http::start(listener, page, limits).expect("it starts"), address)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it may be set");
        stream
    }

    /// All that comes until the end.
    fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it ends");
        text
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).expect("it reads");
        rest(stream)
    }

    /// Each kind of request, also one that comes byte by byte.
    #[test]
    fn requests_are_answered_or_refused() {
        let (_http, address) = server(LIMITS);
        let get = "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n";
        let page = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n\
                    content-length: 4\r\nconnection: close\r\n\r\npage";
        assert_eq!(ask(address, get), page);
        assert_eq!(ask(address, &get.replace("GET", "HEAD")), page.trim_end_matches("page"));
        assert!(ask(address, "GET /health HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nOK"));
        for (request, status) in [
            ("POST / HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/2\r\n\r\n", "505"),
            ("GET /\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            let told = ask(address, request);
            assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {told}");
        }
        let mut slow = connect(address);
        for byte in get.as_bytes() {
            slow.write_all(&[*byte]).expect("it reads");
        }
        assert_eq!(rest(slow), page);
    }

    /// One that never ends its request is told so, and one that says nothing is left when its time
    /// is over.
    #[test]
    fn a_client_takes_no_more_bytes_and_time_than_it_may() {
        let (_http, address) = server(LIMITS);
        let told = ask(address, &"x".repeat(LIMITS.request_bytes + 1));
        assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
        let (_http, address) = server(HttpLimits { time: Duration::from_millis(50), ..LIMITS });
        let (began, idle) = (Instant::now(), connect(address));
        assert_eq!(rest(idle), "");
        assert!(began.elapsed() >= Duration::from_millis(50));
    }

    /// More clients than it takes say nothing: the oldest go, and one that asks is answered at
    /// once.
    #[test]
    fn clients_that_wait_keep_nobody_out() {
        let (http, address) = server(LIMITS);
        let idle: Vec<_> = (0..3 * LIMITS.connections).map(|_| connect(address)).collect();
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").ends_with("page"));
        let stays = idle.len() - (LIMITS.connections - 1);
        for old in idle.into_iter().take(stays) {
            let told = (&old).read(&mut [0]).map_err(|error| error.kind());
            assert!(matches!(told, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{told:?}");
        }
        drop(http); // though some are still there
        assert!(TcpStream::connect(address).is_err());
    }
}
