//! Sockets that accept connections: TCP addresses and a Unix path.
//!
//! Each shard has sockets of its own on the TCP addresses, among which the kernel spreads
//! connections (SO_REUSEPORT). A Unix path has one socket, the first shard's, which gives the
//! others their part.
//!
//! 1. The server that made a socket file removes it. A stale one (it refuses connections) is
//!    replaced, and nothing else that has its path.
//! 2. The first socket of an address is bound without SO_REUSEPORT, so that a port that another
//!    server has is refused, though that one would share it.
//! 3. All TCP addresses have one port, also if the system chose it for the first.
//! 4. Before anybody can connect, a Unix socket has its permissions, and refuses descriptors: no
//!    client has one to send. (Linux before 6.16 can't refuse them: docs/limits.md.)
//!
//! Made by the thread that starts the server, then owned by the shards' threads.

use crate::config::Config;
use crate::error::ServeError;
use crate::net::connection::Stream;
use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use nigh_shm::local::refuse_descriptors;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most addresses that a server listens on, as in Redis.
const MOST_ADDRESSES: usize = 16;

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// All sockets of a shard that accept.
#[derive(Default)]
pub(crate) struct Listeners {
    sockets: Vec<Socket>,
    /// The first TCP address, with the port that the system chose if 0 was asked for.
    pub(crate) address: Option<SocketAddr>,
}

/// An accepted connection and where it comes from.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    pub(crate) address: String,
    pub(crate) local_address: String,
    /// Comes from this host.
    pub(crate) is_local: bool,
}

impl Listeners {
    /// Binds everything that the settings name, for so many shards.
    pub(crate) fn bind(config: &Config, shards: usize) -> Result<Vec<Self>, ServeError> {
        let backlog = i32::try_from(config.number("tcp-backlog")).unwrap_or(i32::MAX);
        let mut all: Vec<Self> = (0..shards).map(|_| Self::default()).collect();
        let tcp_wanted = config.port() != 0 || config.text("unixsocket").is_empty();
        let (mut port, mut lacking) = (config.port(), None);
        for Wanted { ip, is_optional } in addresses(config)?.into_iter().filter(|_| tcp_wanted) {
            let wanted = SocketAddr::new(ip, port);
            let refused = |cause| ServeError::listen(wanted, cause, ["bind", "port"]);
            let (address, sockets) = match bind_tcp(wanted, backlog, shards) {
                Ok(bound) => bound,
                Err(cause) if is_optional && is_lacking(&cause) => {
                    lacking = Some(refused(cause));
                    continue;
                }
                Err(cause) => return Err(refused(cause)),
            };
            port = address.port();
            for (listeners, socket) in all.iter_mut().zip(sockets) {
                listeners.sockets.push(Socket::Tcp(socket));
                listeners.address.get_or_insert(address);
            }
        }
        if let Some(error) = lacking.filter(|_| all[0].address.is_none()) {
            return Err(error);
        }
        let path = config.text("unixsocket");
        if !path.is_empty() {
            let path = PathBuf::from(path);
            let mode = u32::from_str_radix(&config.text("unixsocketperm"), 8).map_err(|_| {
                ServeError::Setting("setting `unixsocketperm` has to be octal digits".to_owned())
            })?;
            let listener = bind_unix(&path, mode, backlog).map_err(|cause| ServeError::Listen {
                address: path.display().to_string(),
                cause,
                setting: "unixsocket",
            })?;
            all[0].sockets.push(Socket::Unix(listener, path));
        }
        Ok(all)
    }

    /// How many there are; their tokens are 0 and on.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Asks `registry` for events.
    pub(crate) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            let source: &mut dyn Source = match socket {
                Socket::Tcp(listener) => listener,
                Socket::Unix(listener, _) => listener,
            };
            source.register(registry, Token(number), Interest::READABLE)?;
        }
        Ok(())
    }

    /// Accepts one connection of socket `number`; `None` if none waits.
    pub(crate) fn accept(&self, number: usize, keepalive_s: u64) -> io::Result<Option<Accepted>> {
        let accepted = match &self.sockets[number] {
            Socket::Tcp(listener) => listener.accept().map(|(stream, peer)| {
                // Both only fail for a socket that is gone already: reading will tell.
                let _ = stream.set_nodelay(true);
                let _ = set_keepalive(&stream, keepalive_s);
                let local = stream.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
                Accepted {
                    address: peer.to_string(),
                    local_address: local,
                    is_local: peer.ip().to_canonical().is_loopback(),
                    stream: Stream::Tcp(stream),
                }
            }),
            Socket::Unix(listener, path) => listener.accept().map(|(stream, _)| {
                let address = format!("{}:0", path.display());
                Accepted {
                    stream: Stream::Unix(stream),
                    local_address: address.clone(),
                    address,
                    is_local: true,
                }
            }),
        };
        match accepted {
            Ok(accepted) => Ok(Some(accepted)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for socket in &self.sockets {
            if let Socket::Unix(_, path) = socket {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// An address of `bind`.
struct Wanted {
    ip: IpAddr,
    /// Left out if the machine hasn't it: written behind `-`, as in Redis.
    is_optional: bool,
}

fn addresses(config: &Config) -> Result<Vec<Wanted>, ServeError> {
    let text = config.text("bind");
    let mut addresses = Vec::new();
    for word in text.split_whitespace() {
        let name = word.strip_prefix('-');
        let ip = match name.unwrap_or(word) {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            other => other.parse().map_err(|_| {
                ServeError::Setting(format!("setting `bind`: `{other}` is no IP address"))
            })?,
        };
        addresses.push(Wanted { ip, is_optional: name.is_some() });
    }
    if addresses.is_empty() || addresses.len() > MOST_ADDRESSES {
        let reason = format!("setting `bind` needs 1 to {MOST_ADDRESSES} addresses");
        return Err(ServeError::Setting(reason));
    }
    Ok(addresses)
}

/// Whether the machine lacks an address, or all of its kind.
fn is_lacking(cause: &io::Error) -> bool {
    let lacks = [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT].map(Errno::raw_os_error);
    cause.raw_os_error().is_some_and(|error| lacks.contains(&error))
}

/// So many sockets that listen on one address, and that address.
fn bind_tcp(
    wanted: SocketAddr,
    backlog: i32,
    count: usize,
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let first = tcp_socket(wanted)?;
    rustix::net::bind(&first, &wanted)?;
    sockopt::set_socket_reuseport(&first, count > 1)?;
    rustix::net::listen(&first, backlog)?;
    let mut listeners = vec![TcpListener::from_std(std::net::TcpListener::from(first))];
    let address = listeners[0].local_addr()?;
    for _ in 1..count {
        let socket = tcp_socket(address)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, backlog)?;
        listeners.push(TcpListener::from_std(std::net::TcpListener::from(socket)));
    }
    Ok((address, listeners))
}

fn tcp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Connections of an earlier server in TIME_WAIT don't hold the port; a listening one does.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

fn bind_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    remove_stale(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    let _ = refuse_descriptors(socket.as_fd()); // a system that can't goes on without
    rustix::net::listen(&socket, backlog)?;
    Ok(UnixListener::from_std(socket.into()))
}

/// Removes a socket that a killed server has left. Nothing at the path is fine, too.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let text = "a file that is no socket has this path: move it, if nobody needs it there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => {
            let text = format!(
                "a socket has this path, and who listens there can't be asked ({error}): stop its \
                 server, or remove the socket"
            );
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Probes after `seconds` of silence, three times, a third of that apart, as Redis does.
fn set_keepalive(stream: &mio::net::TcpStream, seconds: u64) -> rustix::io::Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(seconds))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs((seconds / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(stream, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses that so many shards listen on; all shards on the same.
    fn bound(text: &str) -> Result<Vec<SocketAddr>, ServeError> {
        let mut config = Config::default();
        config.set("port", "0").expect("a port");
        config.set("bind", text).expect("a text");
        let all = Listeners::bind(&config, 2)?;
        let addresses = |listeners: &Listeners| -> Vec<SocketAddr> {
            let addresses = listeners.sockets.iter().map(|socket| match socket {
                Socket::Tcp(listener) => listener.local_addr().expect("it is bound"),
                Socket::Unix(..) => panic!("no path was given"),
            });
            addresses.collect()
        };
        assert_eq!(addresses(&all[0]), addresses(&all[1]));
        Ok(addresses(&all[0]))
    }

    /// A line of Redis's file, `bind 127.0.0.1 -::1`, stopped the start. An address behind `-` is
    /// left out where the machine hasn't it. All addresses have one port, also if it was chosen.
    #[test]
    fn an_address_that_the_machine_lacks_may_be_left_out() {
        let both = bound("127.0.0.1 -127.0.0.2").expect("addresses of every machine");
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].port(), both[1].port());
        // Of the documentation's net.
        assert_eq!(bound("-192.0.2.1 127.0.0.1").expect("one is there").len(), 1);
        assert!(matches!(bound("-192.0.2.1"), Err(ServeError::Listen { .. })));
        assert!(matches!(bound("127.0.0.1 192.0.2.1"), Err(ServeError::Listen { .. })));
        assert!(matches!(bound("127.0.0.1 --::1"), Err(ServeError::Setting(_))));
    }

    /// Where `localhost` is `::1` first, clients that try no other address were refused.
    #[test]
    fn localhost_is_served_by_both_its_addresses() {
        let has_v6 = std::net::TcpListener::bind("[::1]:0").is_ok();
        let text = Config::default().text("bind");
        let bound = bound(&text).expect("loopback").into_iter();
        assert_eq!(bound.filter(SocketAddr::is_ipv6).count(), usize::from(has_v6));
    }
}
