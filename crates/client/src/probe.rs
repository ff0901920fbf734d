//! Whether a server that gave no answer in time goes on.
//!
//! ```text
//! no answer in time ── Probe: connects, PING ──┬─ nothing comes: each call fails soon
//!                                              └─ something comes: the client attaches
//! ```
//!
//! 1. A look takes [`LOOK`] at most, whatever the server does: no call blocks.
//! 2. Any answer counts, also an error or an end: attaching tells what is wrong then.
//! 3. A probe is renewed after [`RENEWED`]: its connection may be lost without a sign.
//!
//! Belongs to one thread at a time.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use crate::address::Endpoint;

/// How long a look waits for an answer: a server that goes on needs less.
const LOOK: Duration = Duration::from_millis(20);
/// Between two glances at the sockets within a look.
const STEP: Duration = Duration::from_millis(1);
/// How long a probe is believed.
const RENEWED: Duration = Duration::from_secs(10);

/// Connections on which a sign of life was asked for.
pub(crate) struct Probe {
    endpoint: Endpoint,
    begun: Instant,
    /// One for each address of the server; those that failed are gone.
    peers: Vec<Peer>,
}

struct Peer {
    socket: OwnedFd,
    place: PeerAddress,
    is_asked: bool,
}

enum PeerAddress {
    Tcp(SocketAddr),
    Unix(SocketAddrUnix),
}

/// What a glance at a peer tells.
enum Sign {
    Silent,
    Failed,
    Answered,
}

impl Probe {
    /// Asks the server at an address for a sign of life.
    pub(crate) fn of(endpoint: &Endpoint) -> Probe {
        let places: Vec<PeerAddress> = match endpoint {
            Endpoint::Unix(path) => {
                SocketAddrUnix::new(path).map(PeerAddress::Unix).into_iter().collect()
            }
            Endpoint::Tcp { host, port } => {
                let found = (host.as_str(), *port).to_socket_addrs();
                found.into_iter().flatten().map(PeerAddress::Tcp).collect()
            }
        };
        let peers = places.into_iter().filter_map(|place| Peer::of(place).ok()).collect();
        let mut probe = Probe { endpoint: endpoint.clone(), begun: Instant::now(), peers };
        probe.has_answered();
        probe
    }

    /// Whether nothing has come yet.
    pub(crate) fn is_silent(&mut self) -> bool {
        if self.begun.elapsed() >= RENEWED {
            *self = Probe::of(&self.endpoint);
        }
        let begin = Instant::now();
        while !self.has_answered() {
            if begin.elapsed() >= LOOK {
                return true;
            }
            std::thread::sleep(STEP);
        }
        false
    }

    fn has_answered(&mut self) -> bool {
        let mut has_answered = false;
        self.peers.retain_mut(|peer| match peer.glance() {
            Sign::Silent => true,
            Sign::Failed => false,
            Sign::Answered => {
                has_answered = true;
                true
            }
        });
        has_answered || self.peers.is_empty()
    }
}

impl Peer {
    fn of(place: PeerAddress) -> Result<Peer, Errno> {
        let family = match &place {
            PeerAddress::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            PeerAddress::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            PeerAddress::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        Ok(Peer { socket, place, is_asked: false })
    }

    /// Goes a step on, and looks for an answer.
    fn glance(&mut self) -> Sign {
        let step = if self.is_asked { Ok(()) } else { self.ask() };
        match step.and_then(|()| recv(&self.socket, &mut [0; 1], RecvFlags::PEEK)) {
            Ok((_, 0)) => Sign::Failed,
            Ok(_) => Sign::Answered,
            // Also: its queue of connections is full.
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => Sign::Silent,
            Err(_) => Sign::Failed,
        }
    }

    fn ask(&mut self) -> Result<(), Errno> {
        let connected = match &self.place {
            PeerAddress::Tcp(address) => connect(&self.socket, address),
            PeerAddress::Unix(address) => connect(&self.socket, address),
        };
        match connected {
            Ok(()) | Err(Errno::ISCONN) => {}
            Err(error) => return Err(error),
        }
        send(&self.socket, b"PING\r\n", SendFlags::NOSIGNAL)?;
        self.is_asked = true;
        Ok(())
    }
}
