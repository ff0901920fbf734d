//! Answers while the log is read: nobody waits in silence, and clients learn how far it is.
//!
//! ```text
//! listeners ── accept ──> INFO: loading:1 …    handshakes (AUTH, HELLO, CLIENT SETINFO, …): as usual
//!                         anything else: -LOADING
//! ```
//!
//! 1. It runs beside the thread that reads the log, and ends with it. Connections are closed then:
//!    clients connect again, and find the server.
//! 2. A start that takes no longer than half a second answers nobody: a client that has connected
//!    is served behind it.
//! 3. Connections, and what each may send and leave unread, are bounded.
//!
//! A thread of its own, while the server starts.

use crate::commands::args::is;
use crate::config::Config;
use crate::handlers::session::{
    BAD_CLIENT_NAME, HELLO_FIRST, NO_PASSWORD, REDIS_VERSION, WRONG_PASSWORD, is_printable,
    is_right, read_hello, write_hello,
};
use crate::net::connection::Stream;
use crate::net::listener::Listeners;
use crate::net::output::Output;
use crate::sync::OnDrop;
use nigh_resp::decode::{Batch, Requests};
use nigh_resp::limits::Limits;
use nigh_resp::{Protocol, encode};
use nigh_store::ReplayProgress;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// So long nobody is answered.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at the sockets.
const STEP: Duration = Duration::from_millis(5);
/// Connections at a time; more wait to be accepted.
const CONNECTIONS_MOST: usize = 256;
/// Bytes that a connection may send before its command is whole, and leave unread.
const BYTES_MOST: usize = 64 << 10;
/// Commands of a connection in a look.
const COMMANDS_MOST: usize = 64;

/// How far the log is read, for all threads.
#[derive(Debug)]
pub(crate) struct LoadingState {
    began: Instant,
    /// The name of this run of the server, as when it serves.
    pub(crate) run_id: String,
    read_bytes: AtomicU64,
    all_bytes: AtomicU64,
    is_over: AtomicBool,
}

impl LoadingState {
    pub(crate) fn new(run_id: &str) -> Self {
        let (read_bytes, all_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (began, run_id) = (Instant::now(), run_id.to_owned());
        Self { began, run_id, read_bytes, all_bytes, is_over: AtomicBool::new(false) }
    }

    pub(crate) fn tell(&self, progress: ReplayProgress) {
        self.all_bytes.store(progress.all_bytes, Relaxed);
        self.read_bytes.fetch_max(progress.read_bytes, Relaxed);
    }

    /// The log is read when this is dropped.
    pub(crate) fn end(&self) -> impl Drop + '_ {
        OnDrop(move || self.is_over.store(true, Relaxed))
    }

    /// INFO's fields, as Redis names them, and those by which a Nigh is known.
    fn info(&self) -> String {
        let (read, all) = (self.read_bytes.load(Relaxed), self.all_bytes.load(Relaxed));
        let seconds = self.began.elapsed().as_secs();
        let percent = (read * 100).checked_div(all).unwrap_or(0);
        let eta = (all.saturating_sub(read) * seconds.max(1)).checked_div(read).unwrap_or(1).max(1);
        format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\n\
             nigh_version:{}\r\nrun_id:{}\r\n\r\n\
             # Persistence\r\nloading:1\r\nasync_loading:0\r\nloading_total_bytes:{all}\r\n\
             loading_loaded_bytes:{read}\r\nloading_loaded_perc:{percent}.00\r\n\
             loading_eta_seconds:{eta}\r\n",
            env!("CARGO_PKG_VERSION"),
            self.run_id
        )
    }
}

/// A client that came while the log is read. Its number is 0.
struct EarlyClient {
    stream: Stream,
    requests: Requests,
    input: Vec<u8>,
    output: Vec<u8>,
    protocol: Protocol,
    name: Vec<u8>,
    is_authenticated: bool,
}

/// Serves until the log is read.
pub(crate) fn serve(listeners: &[Listeners], config: &Config, state: &LoadingState) {
    let password = config.text("requirepass");
    let mut clients: Vec<EarlyClient> = Vec::new();
    while !state.is_over.load(Relaxed) && state.began.elapsed() < PATIENCE {
        std::thread::sleep(STEP);
    }
    while !state.is_over.load(Relaxed) {
        for listener in listeners {
            for number in 0..listener.len() {
                if clients.len() < CONNECTIONS_MOST
                    && let Ok(Some(accepted)) = listener.accept(number, 0)
                {
                    // The fence against strangers: no password, and not of this host.
                    let is_open = password.is_empty() && config.flag("protected-mode");
                    if accepted.is_local || !is_open {
                        clients.push(EarlyClient::new(accepted.stream, password.is_empty()));
                    }
                }
            }
        }
        clients.retain_mut(|client| client.turn(&password, state));
        std::thread::sleep(STEP);
    }
}

impl EarlyClient {
    fn new(stream: Stream, is_authenticated: bool) -> Self {
        let requests = Requests::new(Limits::requests());
        let (input, output, name) = (Vec::new(), Vec::new(), Vec::new());
        let protocol = Protocol::Resp2;
        Self { stream, requests, input, output, protocol, name, is_authenticated }
    }

    /// Reads, answers and writes what is there; false at its end.
    fn turn(&mut self, password: &str, state: &LoadingState) -> bool {
        let mut bytes = [0; 4096];
        match rustix::io::read(self.stream.as_fd(), &mut bytes) {
            Ok(0) => return false,
            Ok(read) => self.input.extend_from_slice(&bytes[..read]),
            Err(error) if std::io::Error::from(error).kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        let mut batch = Batch::new();
        let decoded = self.requests.decode(&self.input, &mut batch, COMMANDS_MOST);
        let input = std::mem::take(&mut self.input);
        let mut goes_on = true;
        for index in 0..batch.len() {
            let args: Vec<&[u8]> = batch.args(index).iter(&input).collect();
            goes_on &= self.answer(&args, password, state);
        }
        let used = self.requests.consume();
        self.input = input[used..].to_vec();
        if let Err(error) = decoded {
            error.write_reply(&mut self.output);
            goes_on = false;
        }
        let written = rustix::io::write(self.stream.as_fd(), &self.output).unwrap_or(0);
        self.output.drain(..written);
        goes_on && self.input.len() <= BYTES_MOST && self.output.len() <= BYTES_MOST
    }

    /// Answers a command; false if it ends the connection.
    fn answer(&mut self, args: &[&[u8]], password: &str, state: &LoadingState) -> bool {
        let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| is(arg, word));
        let is_open = password.is_empty();
        match args {
            _ if is(0, "quit") => {
                encode::ok(&mut self.output);
                return false;
            }
            [_] if is(0, "reset") => {
                (self.protocol, self.is_authenticated) = (Protocol::Resp2, is_open);
                self.name.clear();
                encode::simple(&mut self.output, "RESET");
            }
            [_, _] if is(0, "auth") && is_open => encode::error(&mut self.output, NO_PASSWORD),
            [_, word] if is(0, "auth") => self.auth(password, b"default", word),
            [_, user, word] if is(0, "auth") => self.auth(password, user, word),
            _ if is(0, "hello") => self.hello(args, password),
            _ if !self.is_authenticated => {
                encode::error(&mut self.output, "NOAUTH Authentication required.");
            }
            _ if is(0, "info") => {
                let info = state.info();
                encode::verbatim(&mut self.output, self.protocol, *b"txt", info.as_bytes());
            }
            [_, word] if is(0, "echo") => encode::bulk(&mut self.output, word),
            [_, _] if is(0, "client") && is(1, "id") => encode::integer(&mut self.output, 0),
            [_, _] if is(0, "client") && is(1, "getname") => match self.name.as_slice() {
                [] => encode::null(&mut self.output, self.protocol),
                name => encode::bulk(&mut self.output, name),
            },
            [_, _, name] if is(0, "client") && is(1, "setname") => match is_printable(name) {
                true => {
                    self.name = name.to_vec();
                    encode::ok(&mut self.output);
                }
                false => encode::error(&mut self.output, BAD_CLIENT_NAME),
            },
            _ if is(0, "client") && is(1, "setinfo") || is(0, "select") && is(1, "0") => {
                encode::ok(&mut self.output);
            }
            _ => {
                let text = "LOADING Nigh is reading its log: see INFO persistence";
                encode::error(&mut self.output, text);
            }
        }
        true
    }

    fn auth(&mut self, password: &str, user: &[u8], word: &[u8]) {
        if is_right(password, user, word) {
            self.is_authenticated = true;
            encode::ok(&mut self.output);
        } else {
            encode::error(&mut self.output, WRONG_PASSWORD);
        }
    }

    fn hello(&mut self, args: &[&[u8]], password: &str) {
        let hello = match read_hello(args) {
            Ok(hello) => hello,
            Err(text) => return encode::error_bytes(&mut self.output, &text),
        };
        if let Some((user, word)) = hello.credentials {
            if !is_right(password, user, word) {
                return encode::error(&mut self.output, WRONG_PASSWORD);
            }
            self.is_authenticated = true;
        }
        if !self.is_authenticated {
            return encode::error(&mut self.output, HELLO_FIRST);
        }
        if let Some(name) = hello.name {
            self.name = name.to_vec();
        }
        self.protocol = hello.protocol.unwrap_or(self.protocol);
        let mut out = Output::default();
        write_hello(&mut out, self.protocol, 0);
        self.output.append(out.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn says(client: &mut TcpStream, request: &str, reply: &str) {
        client.write_all(request.as_bytes()).expect("it reads");
        let (mut got, mut bytes) = (Vec::new(), [0; 4096]);
        while got.len() < reply.len() {
            let read = client.read(&mut bytes).expect("an answer within ten seconds");
            assert!(read > 0, "{request}: closed after {:?}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&bytes[..read]);
        }
        let got = String::from_utf8_lossy(&got);
        assert!(got.starts_with(reply), "{request}: {got:?}, wanted {reply:?}");
    }

    /// While the log is read, clients learn that and how far it is, and libraries can set their
    /// connections up. Behind it they are hung up on, and connect again.
    #[test]
    fn clients_learn_that_the_log_is_read() {
        let mut config = Config::default();
        config.set("port", "0").expect("a port");
        let listeners = Listeners::bind(&config, 2).expect("free ports");
        let address = listeners[0].address.expect("a TCP address");
        let state = LoadingState::new("aa");
        state.tell(ReplayProgress { read_bytes: 25, all_bytes: 100 });
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listeners, &config, &state));
            let end = state.end();
            let mut client = TcpStream::connect(address).expect("it listens");
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
            let loading = "-LOADING Nigh is reading its log: see INFO persistence\r\n";
            says(&mut client, "GET a\r\n", loading);
            says(&mut client, "CLIENT SETINFO lib-name x\r\nSELECT 0\r\n", "+OK\r\n+OK\r\n");
            says(&mut client, "HELLO 3\r\n", "%7\r\n$6\r\nserver\r\n");
            client.write_all(b"INFO persistence\r\n").expect("it reads");
            let mut text = String::new();
            while !text.contains("loading_eta_seconds") {
                let mut bytes = [0; 4096];
                let read = client.read(&mut bytes).expect("an answer");
                text += &String::from_utf8_lossy(&bytes[..read]);
            }
            assert!(text.contains("loading:1\r\n"), "{text}");
            // `nigh top` took it for a Redis.
            assert!(
                text.contains("\r\nnigh_version:0") && text.contains("run_id:aa\r\n"),
                "{text}"
            );
            assert!(text.contains("loading_loaded_perc:25.00\r\n"), "{text}");
            drop(end);
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).expect("it is closed in order");
        });
    }

    /// A password guards what is told here too.
    #[test]
    fn strangers_learn_nothing() {
        let mut config = Config::default();
        config.set("port", "0").expect("a port");
        config.set("requirepass", "secret").expect("a password");
        let listeners = Listeners::bind(&config, 1).expect("a free port");
        let address = listeners[0].address.expect("a TCP address");
        let state = LoadingState::new("aa");
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listeners, &config, &state));
            let _end = state.end();
            let mut client = TcpStream::connect(address).expect("it listens");
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
            says(&mut client, "INFO\r\n", "-NOAUTH ");
            says(&mut client, "AUTH wrong\r\n", "-WRONGPASS ");
            says(&mut client, "AUTH nobody secret\r\n", "-WRONGPASS ");
            says(&mut client, "HELLO 3 AUTH nobody secret\r\n", "-WRONGPASS ");
            says(&mut client, "AUTH secret\r\nINFO\r\n", "+OK\r\n$");
        });
    }

    /// Handshakes were answered otherwise than behind the start: a wrong HELLO logged in, and one
    /// with a name before its password was refused.
    #[test]
    fn handshakes_are_answered_as_usual() {
        for password in ["", "secret"] {
            let mut config = Config::default();
            config.set("port", "0").expect("a port");
            config.set("requirepass", password).expect("a password");
            let listeners = Listeners::bind(&config, 1).expect("a free port");
            let address = listeners[0].address.expect("a TCP address");
            let state = LoadingState::new("aa");
            std::thread::scope(|scope| {
                scope.spawn(|| serve(&listeners, &config, &state));
                let _end = state.end();
                let mut client = TcpStream::connect(address).expect("it listens");
                client.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
                says(&mut client, "HELLO 4\r\n", "-NOPROTO ");
                if password.is_empty() {
                    let none = "-ERR AUTH <password> called without any password";
                    says(&mut client, "AUTH x\r\n", none);
                } else {
                    says(&mut client, "HELLO 3\r\n", "-NOAUTH HELLO must be called");
                    says(&mut client, "ECHO x\r\n", "-NOAUTH Authentication");
                }
                let wrong = "HELLO 3 AUTH default secret BOGUS\r\n";
                says(&mut client, wrong, "-ERR Syntax error in HELLO option 'BOGUS'");
                if !password.is_empty() {
                    says(&mut client, "INFO\r\n", "-NOAUTH ");
                }
                says(&mut client, "HELLO 3 SETNAME n AUTH default secret\r\n", "%7\r\n");
                says(&mut client, "CLIENT GETNAME\r\nCLIENT ID\r\n", "$1\r\nn\r\n:0\r\n");
                says(&mut client, "CLIENT SETNAME a\x01b\r\n", "-ERR Client names cannot");
                says(&mut client, "CLIENT SETNAME m\r\nECHO hi\r\n", "+OK\r\n$2\r\nhi\r\n");
                says(&mut client, "CLIENT GETNAME\r\n", "$1\r\nm\r\n");
                says(&mut client, "RESET\r\n", "+RESET\r\n");
                let after = if password.is_empty() { "$-1\r\n" } else { "-NOAUTH " };
                says(&mut client, "CLIENT GETNAME\r\n", after);
            });
        }
    }
}
