//! `nigh-bench floor`: a server that parses RESP and answers at once, without a store. It shows the
//! cost of the kernel, the loopback and the protocol. No server can be much faster, and a ratio to
//! the floor tells the cost of a store.
//!
//! ```text
//! GET …  ─► $100 xxxx…      SET …, anything else  ─► +OK      PING ─► +PONG
//! ```
//!
//! Invariants:
//! 1. One thread serves all clients. It polls for `spin` after the last request, then sleeps, as
//!    Nigh does.
//! 2. Requests are arrays of bulks. The floor answers all requests of one read by one write.

use super::stream::Stream;
use anyhow::{Context, Result};
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Most bytes of a client: of a request that is not whole, and of replies that the client has not
/// read. Beyond them the floor closes the connection.
const BACKLOG_BYTES: usize = 64 << 20;
/// Events of one `epoll_wait`.
const EVENTS: usize = 256;
/// Mark of the listener's events; connections count from 0.
const LISTENER: u64 = u64::MAX;
/// Bytes of the value that answers GET: the size in the rows of `peers`.
const VALUE_BYTES: usize = 100;

/// Options of `nigh-bench floor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Port on loopback; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Microseconds to poll for the next request before sleeping
    #[arg(long, default_value_t = 50, value_name = "US")]
    spin_us: u64,
}

struct FloorClient {
    stream: Stream,
    carry: Vec<u8>,
    unsent: Vec<u8>,
}

struct Floor {
    epoll: OwnedFd,
    clients: Vec<Option<FloorClient>>,
    free: Vec<usize>,
    input: Vec<u8>,
    output: Vec<u8>,
    get: Vec<u8>,
}

/// Serves until killed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let address = ("127.0.0.1", args.port);
    let listener = TcpListener::bind(address)
        .with_context(|| format!("can't listen on port {}: is it in use?", args.port))?;
    listener.set_nonblocking(true)?;
    println!("floor listens on {}", listener.local_addr()?);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("can't create an epoll")?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut get = format!("${VALUE_BYTES}\r\n").into_bytes();
    get.resize(get.len() + VALUE_BYTES, b'x');
    get.extend_from_slice(b"\r\n");
    let mut floor = Floor {
        epoll,
        clients: Vec::new(),
        free: Vec::new(),
        input: vec![0; READ_BYTES],
        output: Vec::new(),
        get,
    };
    floor.serve(&listener, Duration::from_micros(args.spin_us))
}

impl Floor {
    fn serve(&mut self, listener: &TcpListener, spin: Duration) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut heard = Instant::now();
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let timeout = if heard.elapsed() < spin { Some(&zero) } else { None };
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("can't wait for requests"),
            }
            if !events.is_empty() {
                heard = Instant::now();
            }
            for event in events.drain(..) {
                let data = event.data.u64();
                if data == LISTENER {
                    self.accept(listener)?;
                    continue;
                }
                let index = usize::try_from(data)?;
                if self.turn(index, event.flags).is_err() {
                    self.clients[index] = None;
                    self.free.push(index);
                }
            }
        }
    }

    fn accept(&mut self, listener: &TcpListener) -> Result<()> {
        // A client that hangs up before `accept` is no error of the floor.
        let Ok((stream, _)) = listener.accept() else { return Ok(()) };
        let stream = Stream::tcp(stream)?;
        stream.set_nonblocking()?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        epoll::add(&self.epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
        self.clients[index] = Some(FloorClient { stream, carry: Vec::new(), unsent: Vec::new() });
        Ok(())
    }

    /// Serves one client's event. After an error the caller closes the connection.
    fn turn(&mut self, index: usize, flags: EventFlags) -> Result<()> {
        let Some(client) = &mut self.clients[index] else { return Ok(()) };
        let data = EventData::new_u64(index as u64);
        if flags.contains(EventFlags::OUT) {
            let sent = client.stream.write(&client.unsent)?;
            client.unsent.drain(..sent);
            if client.unsent.is_empty() {
                epoll::modify(&self.epoll, &client.stream, data, EventFlags::IN)?;
            }
        }
        if !flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            return Ok(());
        }
        let carried = client.carry.len();
        if self.input.len() < carried + READ_BYTES {
            self.input.resize(carried + READ_BYTES, 0);
        }
        self.input[..carried].copy_from_slice(&client.carry);
        let Some(read) = client.stream.read(&mut self.input[carried..])? else { return Ok(()) };
        anyhow::ensure!(read > 0, "closed");
        let bytes = &self.input[..carried + read];
        self.output.clear();
        let used = answer(bytes, &self.get, &mut self.output)?;
        client.carry.clear();
        client.carry.extend_from_slice(&bytes[used..]);
        let sent = if client.unsent.is_empty() { client.stream.write(&self.output)? } else { 0 };
        if sent < self.output.len() {
            client.unsent.extend_from_slice(&self.output[sent..]);
            epoll::modify(&self.epoll, &client.stream, data, EventFlags::IN | EventFlags::OUT)?;
        }
        anyhow::ensure!(client.carry.len() + client.unsent.len() <= BACKLOG_BYTES, "too much");
        Ok(())
    }
}

/// Answers all whole requests in `bytes`; returns their length in bytes.
fn answer(bytes: &[u8], get: &[u8], output: &mut Vec<u8>) -> Result<usize> {
    let mut used = 0;
    'requests: while let Some((arguments, mut at)) = header(bytes, used, b'*')? {
        let mut name: &[u8] = b"";
        for argument in 0..arguments {
            let Some((length, body)) = header(bytes, at, b'$')? else { break 'requests };
            at = body.saturating_add(length).saturating_add(2);
            if at > bytes.len() {
                break 'requests;
            }
            if argument == 0 {
                name = &bytes[body..body + length];
            }
        }
        used = at;
        match name.first().map(u8::to_ascii_uppercase) {
            Some(b'G') => output.extend_from_slice(get),
            Some(b'P') => output.extend_from_slice(b"+PONG\r\n"),
            _ => output.extend_from_slice(b"+OK\r\n"),
        }
    }
    Ok(used)
}

/// The number in the line at `at`, which starts with `kind`, and the offset of the next line.
/// `None` if the line isn't whole.
#[inline]
fn header(bytes: &[u8], at: usize, kind: u8) -> Result<Option<(usize, usize)>> {
    let Some((&first, rest)) = bytes[at..].split_first() else { return Ok(None) };
    anyhow::ensure!(first == kind, "not RESP");
    let mut number = 0usize;
    for (index, &byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' if number <= BACKLOG_BYTES => {
                number = number * 10 + usize::from(byte - b'0');
            }
            b'\r' if index + 1 < rest.len() => return Ok(Some((number, at + index + 3))),
            b'\r' => return Ok(None),
            _ => anyhow::bail!("not RESP"),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that is cut anywhere is answered once it is whole. Other protocols are refused.
    #[test]
    fn whole_requests_are_answered() {
        let requests = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nset\r\n$1\r\na\r\n$2\r\nbb\r\n";
        for cut in 0..requests.len() {
            let mut output = Vec::new();
            let used = answer(&requests[..cut], b"G", &mut output).expect("RESP");
            assert_eq!(used, if cut < 20 { 0 } else { 20 }, "cut at {cut}");
            let rest = answer(&requests[used..], b"G", &mut output).expect("RESP");
            assert_eq!(used + rest, requests.len());
            assert_eq!(output, b"G+OK\r\n");
        }
        assert!(answer(b"GET a\r\n", b"", &mut Vec::new()).is_err());
        assert!(answer(b"*1\r\n$99999999999999999999\r\n", b"", &mut Vec::new()).is_err());
    }
}
