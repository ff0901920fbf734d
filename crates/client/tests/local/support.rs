//! A small server for local clients, in threads: it owns an arena, hands it over, and answers some
//! commands by the rings.

use nigh_client::{Address, Client, ClientOptions, LocalUse};
use nigh_resp::decode::{Batch, Requests};
use nigh_resp::encode;
use nigh_resp::limits::Limits;
use nigh_shm::local::{LocalServerEnd, LocalSpec, create};
use nigh_shm::{ArenaSpec, Domain, Participant, UpkeepBudget, Writer};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) type Request = Vec<Vec<u8>>;

/// The rings of a test: the smallest that there are.
pub(crate) const SPEC: LocalSpec = LocalSpec { request_bytes: 4096, reply_bytes: 4096 };

/// An arena, and its only writer.
pub(crate) struct Owner {
    pub(crate) writer: Writer,
    me: Participant,
    /// The file that clients get.
    pub(crate) path: PathBuf,
}

impl Owner {
    pub(crate) fn new(path: &Path) -> Owner {
        let spec = ArenaSpec {
            path: path.to_path_buf(),
            tenant: "default".into(),
            partition: 0,
            partitions: 1,
            seed: None,
            capacity_bytes: 96 << 20,
        };
        let domain = Domain::new(1);
        let writer = Writer::create(&spec, &domain).expect("an arena");
        Owner { writer, me: domain.join(), path: path.to_path_buf() }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) {
        let hash = self.writer.hash(key);
        self.writer.put(&self.me.pin(), hash, key, &[value], expiry_ms).expect("room");
        self.me.quiescent();
        self.writer.maintain(UpkeepBudget::default());
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let hash = self.writer.hash(key);
        self.writer.delete(&self.me.pin(), hash, key)
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let (reader, hash) = (self.writer.reader(), self.writer.hash(key));
        let pin = self.me.pin();
        reader.get(&pin, hash, key).map(|record| record.value().to_vec())
    }

    /// Answers as a server does.
    fn answer(&mut self, request: &Request, out: &mut Vec<u8>) {
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"SET" | b"GET" | b"LATER", b"queued", ..] => encode::simple(out, "QUEUED"),
            [b"PING"] => encode::simple(out, "PONG"),
            [b"SET", key, value] => {
                self.put(key, value, 0);
                encode::ok(out);
            }
            [b"GET", key] => match self.get(key) {
                Some(value) => encode::bulk(out, &value),
                None => out.extend_from_slice(b"$-1\r\n"),
            },
            [b"EXISTS", key] => encode::integer(out, i64::from(self.get(key).is_some())),
            [b"DEL", key] => {
                let was_there = self.delete(key);
                encode::integer(out, i64::from(was_there));
            }
            [b"MGET", ref keys @ ..] => {
                encode::array(out, keys.len());
                for key in keys {
                    match self.get(key) {
                        Some(value) => encode::bulk(out, &value),
                        None => out.extend_from_slice(b"$-1\r\n"),
                    }
                }
            }
            _ => encode::error(out, "ERR unknown command"),
        }
    }
}

/// How a server behaves.
#[derive(Clone, Default)]
pub(crate) struct Manner {
    /// Answers `LOCAL ATTACH` by this.
    pub(crate) refusal: Option<&'static str>,
    /// What it says instead of the protocol's number.
    pub(crate) protocol: Option<u32>,
    /// Sends no descriptor of the rings.
    pub(crate) forgets_rings: bool,
    /// Ends the connection in place of an answer to a request that begins so.
    pub(crate) dies_at: Option<&'static [u8]>,
    /// Gives no answer to a request that begins so.
    pub(crate) ignores: Option<&'static [u8]>,
    /// Reads its log: answers nothing else.
    pub(crate) is_loading: bool,
    /// Refuses each connection by this, and ends it.
    pub(crate) turns_away: Option<&'static str>,
}

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) owner: Arc<Mutex<Owner>>,
    pub(crate) manner: Arc<Mutex<Manner>>,
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(manner: Manner) -> Server {
        let folder = tempfile::Builder::new()
            .prefix("nigh-client-test-")
            .tempdir_in("/dev/shm")
            .expect("a tmpfs directory");
        let owner = Owner::new(&folder.path().join("arena"));
        let mut server = Server {
            folder,
            owner: Arc::new(Mutex::new(owner)),
            manner: Arc::new(Mutex::new(manner)),
            seen: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        server.listen();
        server
    }

    /// Ends all connections and the listener, as a killed process would.
    pub(crate) fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server didn't panic");
        }
    }

    /// Begins again, at the same address.
    pub(crate) fn listen(&mut self) {
        let path = self.folder.path().join("sock");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        self.stop = Arc::default();
        let (owner, manner, seen, stop) = (
            Arc::clone(&self.owner),
            Arc::clone(&self.manner),
            Arc::clone(&self.seen),
            Arc::clone(&self.stop),
        );
        self.thread = Some(std::thread::spawn(move || {
            std::thread::scope(|scope| {
                while !stop.load(Ordering::Acquire) {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            let session = Session {
                                owner: &owner,
                                manner: &manner,
                                seen: &seen,
                                stop: &stop,
                            };
                            scope.spawn(move || session.serve(stream));
                        }
                        Err(_) => std::thread::sleep(Duration::from_micros(200)),
                    }
                }
            });
        }));
    }

    pub(crate) fn address(&self) -> Address {
        Address::unix(self.folder.path().join("sock"))
    }

    pub(crate) fn client(&self, options: ClientOptions) -> Client {
        Client::connect_with(&self.address(), options).expect("a client")
    }

    /// A client that must be local.
    pub(crate) fn local(&self) -> Client {
        self.client(ClientOptions { local: LocalUse::Required, ..ClientOptions::default() })
    }

    pub(crate) fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().expect("no panic")
    }

    /// Puts a value into the key "a", and hands a copy of the arena out from now on, which may be
    /// cut off: the owner's own may not. The copy's file.
    pub(crate) fn hand_out(&self, name: &str, value: &[u8]) -> File {
        let mut owner = self.owner();
        owner.put(b"a", value, 0);
        owner.path = self.folder.path().join(name);
        std::fs::copy(self.folder.path().join("arena"), &owner.path).expect("there is room");
        File::options().write(true).open(&owner.path).expect("it is ours")
    }

    /// The first words of the requests since the last call, but for greetings.
    pub(crate) fn asked(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock().expect("no panic"));
        let first = |it: &Request| String::from_utf8_lossy(&it[0]).into_owned();
        seen.iter().map(first).filter(|it| it != "LOCAL").collect()
    }
}

/// Lets this process take so many bytes more than it has, or any number again.
pub(crate) fn limit(more_bytes: Option<u64>) {
    let has_pages = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this process");
        statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
    };
    let current = more_bytes.map(|bytes| has_pages() * 4096 + bytes);
    setrlimit(Resource::As, Rlimit { current, maximum: None }).expect("it is ours");
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// One connection.
struct Session<'a> {
    owner: &'a Mutex<Owner>,
    manner: &'a Mutex<Manner>,
    seen: &'a Mutex<Vec<Request>>,
    stop: &'a AtomicBool,
}

/// The requests in some bytes, which they are taken from.
struct Decoder {
    requests: Requests,
    batch: Batch,
    bytes: Vec<u8>,
}

impl Decoder {
    fn new() -> Decoder {
        let requests = Requests::new(Limits::requests());
        Decoder { requests, batch: Batch::new(), bytes: Vec::new() }
    }

    fn take(&mut self) -> Vec<Request> {
        self.batch.clear();
        self.requests.decode(&self.bytes, &mut self.batch, usize::MAX).expect("RESP");
        let one = |at| self.batch.args(at).iter(&self.bytes).map(<[u8]>::to_vec).collect();
        let all = (0..self.batch.len()).map(one).collect();
        self.bytes.drain(..self.requests.consume());
        all
    }
}

impl Session<'_> {
    fn serve(&self, mut stream: UnixStream) {
        let (mut decoder, mut chunk) = (Decoder::new(), [0; 4096]);
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        while !self.stop.load(Ordering::Acquire) {
            match stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(len) => decoder.bytes.extend_from_slice(&chunk[..len]),
                Err(_) => continue,
            }
            for request in decoder.take() {
                let manner = self.manner.lock().expect("no panic").clone();
                if let Some(text) = manner.turns_away {
                    let mut out = Vec::new();
                    encode::error(&mut out, text);
                    let _ = stream.write_all(&out);
                    return;
                }
                let grants = manner.refusal.is_none() && !manner.is_loading;
                if request[0] == b"LOCAL" && grants {
                    let end = self.grant(&stream, &manner);
                    return self.serve_rings(&stream, end);
                }
                let Some(out) = self.answer(&request) else { return };
                if stream.write_all(&out).is_err() {
                    return;
                }
            }
        }
    }

    /// `None`: the connection ends.
    fn answer(&self, request: &Request) -> Option<Vec<u8>> {
        let manner = self.manner.lock().expect("no panic").clone();
        self.seen.lock().expect("no panic").push(request.clone());
        if manner.dies_at.is_some_and(|word| request[0] == word) {
            return None;
        }
        let mut out = Vec::new();
        if manner.ignores.is_some_and(|word| request[0] == word) {
            return Some(out);
        }
        match manner.refusal {
            _ if manner.is_loading => encode::error(&mut out, "LOADING Nigh is reading its log"),
            Some(text) if request[0] == b"LOCAL" => encode::error(&mut out, text),
            _ => self.owner.lock().expect("no panic").answer(request, &mut out),
        }
        Some(out)
    }

    fn grant(&self, stream: &UnixStream, manner: &Manner) -> LocalServerEnd {
        let (rings, end) = create(SPEC).expect("memory");
        let arena = File::open(&self.owner.lock().expect("no panic").path).expect("an arena");
        let mut answer = Vec::new();
        let protocol = manner.protocol.unwrap_or(1);
        encode::array(&mut answer, 12);
        for (name, number) in [
            ("protocol", protocol),
            ("shard", 0),
            ("something-new", 7),
            ("partitions", 1),
            ("request-bytes", SPEC.request_bytes),
            ("reply-bytes", SPEC.reply_bytes),
        ] {
            encode::bulk(&mut answer, name.as_bytes());
            encode::integer(&mut answer, i64::from(number));
        }
        let all = [arena.as_fd(), rings.as_fd()];
        let fds: &[BorrowedFd<'_>] = if manner.forgets_rings { &all[..1] } else { &all };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        // The answer comes in two pieces, and a wake-up right behind it.
        let (first, rest) = answer.split_at(1);
        let flags = SendFlags::NOSIGNAL;
        sendmsg(stream, &[IoSlice::new(first)], &mut control, flags).expect("a client");
        let _ = send(stream, &[rest, b"w"].concat(), flags);
        end
    }

    fn serve_rings(&self, stream: &UnixStream, mut end: LocalServerEnd) {
        let mut decoder = Decoder::new();
        let wake = || {
            let _ = send(stream, b"w", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        };
        while !self.stop.load(Ordering::Acquire) {
            if let Ok((_, 0)) = recv(stream, &mut [0; 64], RecvFlags::DONTWAIT) {
                return;
            }
            if end.read(&mut decoder.bytes, 1 << 16).expect("a client that keeps the rules") == 0 {
                end.flush(wake);
                std::thread::sleep(Duration::from_micros(20));
                continue;
            }
            for request in decoder.take() {
                let Some(out) = self.answer(&request) else { return };
                let mut rest = &out[..];
                while !rest.is_empty() && !self.stop.load(Ordering::Acquire) {
                    let written = end.write(rest).expect("a client that keeps the rules");
                    rest = &rest[written..];
                    end.flush(wake);
                }
            }
            end.flush(wake);
        }
    }
}

/// Runs a test of this program as a child, which bounds what it may take, with the server's socket
/// in this variable. It says so when all was told.
pub(crate) fn run_child(server: &Server, variable: &str, test: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    // Else the allocator has 64 MiB of addresses in reserve for each thread.
    command.env("MALLOC_ARENA_MAX", "1");
    command.args(["--exact", test, "--nocapture"]);
    let output =
        command.env(variable, server.folder.path().join("sock")).output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all was told"), "{said}");
}
