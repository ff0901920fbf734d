//! A local client as small as can be: it attaches, and speaks RESP by its rings.

use nigh_client::Frame;
use nigh_resp::decode::Replies;
use nigh_resp::encode;
use nigh_resp::limits::Limits;
use nigh_shm::local::{Awaits, LocalClientEnd, LocalSpec, attach};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the server.
const WAIT: Duration = Duration::from_secs(60);
/// Most descriptors that a server gives.
const MOST_GIVEN: usize = 65;
/// How long a client looks before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// A client that is attached.
pub(crate) struct LocalClient {
    pub(crate) socket: UnixStream,
    pub(crate) end: LocalClientEnd,
    pub(crate) arenas: Vec<OwnedFd>,
    /// The rings' memory.
    pub(crate) memory: OwnedFd,
    /// The reply to LOCAL ATTACH, and those before it.
    pub(crate) reply: Frame,
    pub(crate) before: Vec<Frame>,
    replies: Replies,
    input: Vec<u8>,
    /// How long it looks before it sleeps.
    pub(crate) spin: Duration,
}

/// A number of the reply to LOCAL ATTACH.
pub(crate) fn figure(reply: &Frame, name: &str) -> Option<i64> {
    let pairs: Vec<(&Frame, &Frame)> = match reply {
        Frame::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Frame::Array(all) => all.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => return None,
    };
    let found = pairs.into_iter().find(|(key, _)| key.bytes() == Some(name.as_bytes()));
    found.and_then(|(_, value)| value.integer())
}

/// Sends commands by a socket, the last of which is LOCAL ATTACH; returns its reply and what was
/// given with it.
pub(crate) fn ask_to_attach(
    socket: &mut UnixStream,
    commands: &[&[&str]],
) -> (Frame, Vec<OwnedFd>, Vec<Frame>) {
    socket.set_read_timeout(Some(WAIT)).expect("a socket takes it");
    let mut bytes = Vec::new();
    commands.iter().for_each(|words| encode::request(&mut bytes, *words));
    socket.write_all(&bytes).expect("the server reads");
    let (mut input, mut given, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    let mut replies = Replies::new(Limits::replies());
    while frames.len() < commands.len() {
        let mut buf = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_GIVEN))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut buf)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = recvmsg(&*socket, &mut slices, &mut control, flags).expect("an answer");
        assert!(!message.flags.contains(ReturnFlags::CTRUNC), "all descriptors have come");
        assert!(message.bytes > 0, "the server hung up");
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                assert!(given.is_empty(), "one message has all");
                given.extend(fds);
            }
        }
        input.extend_from_slice(&buf[..message.bytes]);
        while let Some(frame) = replies.decode(&input).expect("RESP") {
            input.drain(..replies.consume());
            frames.push(frame);
        }
    }
    assert!(input.is_empty(), "nothing comes behind the reply");
    let last = frames.pop().expect("a reply");
    (last, given, frames)
}

impl LocalClient {
    /// Attaches; `before` are commands that go by the socket, such as AUTH and HELLO.
    pub(crate) fn attach(path: &Path, before: &[&[&str]]) -> Result<Self, String> {
        let mut socket = UnixStream::connect(path).map_err(|error| error.to_string())?;
        let commands = [before, &[&["LOCAL", "ATTACH", "1"]]].concat();
        let (reply, mut arenas, before) = ask_to_attach(&mut socket, &commands);
        if let Some(error) = reply.error() {
            return Err(String::from_utf8_lossy(error).into_owned());
        }
        let bytes = |name| u32::try_from(figure(&reply, name).expect("a size")).expect("a size");
        let spec =
            LocalSpec { request_bytes: bytes("request-bytes"), reply_bytes: bytes("reply-bytes") };
        let memory = arenas.pop().expect("the memory is the last one");
        let end = attach(&memory, spec).map_err(|error| error.to_string())?;
        socket.set_nonblocking(true).expect("a socket takes it");
        let replies = Replies::new(Limits::replies());
        let input = Vec::new();
        Ok(Self { socket, end, arenas, memory, reply, before, replies, input, spin: SPIN })
    }

    /// Sends requests and takes so many replies; an error if the server ends the client.
    pub(crate) fn exchange(&mut self, requests: &[u8], count: usize) -> Result<Vec<Frame>, String> {
        let (mut sent, mut frames, began) = (0, Vec::with_capacity(count), Instant::now());
        let mut idle_since = None;
        loop {
            let written = self.end.write(&requests[sent..]).map_err(|error| error.to_string())?;
            sent += written;
            let socket = &self.socket;
            let wake = || _ = send(socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            self.end.flush(wake);
            let read =
                self.end.read(&mut self.input, 1 << 20).map_err(|error| error.to_string())?;
            self.end.flush(wake);
            if read > 0 {
                self.take_frames(&mut frames);
            }
            if frames.len() >= count && sent == requests.len() {
                assert_eq!(frames.len(), count, "a reply for each request");
                return Ok(frames);
            }
            if read > 0 || written > 0 {
                idle_since = None;
                continue;
            }
            if idle_since.get_or_insert_with(Instant::now).elapsed() < self.spin {
                std::hint::spin_loop();
                continue;
            }
            assert!(began.elapsed() < WAIT, "no answer, {sent} bytes sent, {} came", frames.len());
            let awaits = Awaits { input: true, room: sent < requests.len() };
            if self.end.prepare_sleep(awaits).map_err(|error| error.to_string())? {
                let is_there = self.sleep();
                self.end.woken();
                // What the server had published before it ended is still to be read.
                if !is_there && self.end.has_input() != Ok(true) {
                    return Err("the server has ended the client".to_owned());
                }
            }
        }
    }

    /// Sends requests and waits for so many replies of one line or one short bulk string, spinning:
    /// for figures, which a decoder of this crate's debug build would spoil.
    pub(crate) fn exchange_raw(&mut self, requests: &[u8], count: usize) {
        let (mut sent, mut lines) = (0, 0);
        self.input.clear();
        while sent < requests.len() || lines < count {
            let socket = &self.socket;
            let wake = || _ = send(socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            if sent < requests.len() {
                sent += self.end.write(&requests[sent..]).expect("a fair server");
                self.end.flush(wake);
            }
            if self.end.read(&mut self.input, 1 << 20).expect("a fair server") > 0 {
                let mut at = 0;
                while let Some(end) = self.input[at..].windows(2).position(|two| two == b"\r\n") {
                    let is_header = self.input[at] == b'$';
                    at += end + 2;
                    lines += usize::from(!is_header);
                }
                self.input.drain(..at);
                self.end.flush(wake);
            }
        }
        assert_eq!(lines, count, "a reply for each request");
    }

    fn take_frames(&mut self, frames: &mut Vec<Frame>) {
        while let Some(frame) = self.replies.decode(&self.input).expect("RESP") {
            self.input.drain(..self.replies.consume());
            frames.push(frame);
        }
    }

    /// Sleeps until something comes by the socket; false if that is its end.
    pub(crate) fn sleep(&mut self) -> bool {
        let timeout = WAIT.try_into().expect("a short time");
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
        let mut bytes = [0; 256];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                assert!(bytes[..count].iter().all(|byte| *byte == b'w'), "wake-ups only");
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    /// Whether the server ends the client, which it does soon.
    pub(crate) fn is_ended(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < WAIT {
            if !self.sleep() {
                return true;
            }
        }
        false
    }

    pub(crate) fn call(&mut self, words: &[&str]) -> Frame {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.call_bytes(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn call_bytes(&mut self, words: &[&[u8]]) -> Result<Frame, String> {
        let mut request = Vec::new();
        encode::request(&mut request, words);
        self.exchange(&request, 1).map(|mut frames| frames.remove(0))
    }

    /// The reply's text.
    pub(crate) fn text(&mut self, words: &[&str]) -> String {
        String::from_utf8_lossy(self.call(words).bytes().unwrap_or_default()).into_owned()
    }
}
