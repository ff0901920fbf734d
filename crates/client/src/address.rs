//! The address of a server, as a user writes it.
//!
//! | written | means |
//! |---|---|
//! | `host:port`, `[::1]:port`, `host` | TCP; port 6379 if none is given |
//! | `port` | TCP on loopback, 127.0.0.1 |
//! | `tcp:host:port`, `tcp://host:port` | TCP |
//! | `redis://[[user]:password@]host[:port][/0]` | TCP, with credentials; `%41` stands for `A` in them |
//! | `unix:/path`, `unix:///path`, `/path` | a Unix socket |
//!
//! Invariant: an address prints without its password.

use nigh_shm::debug_is_display;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of Redis, and so of Nigh.
pub const DEFAULT_PORT: u16 = 6379;

debug_is_display!(AddressError);

/// The fault of an address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is empty, or has no host.
    #[error("'{address}' names no host: write host:port, redis://host:port or unix:/path")]
    NoHost {
        /// The given text.
        address: String,
    },
    /// The port is no number from 1 to 65535.
    #[error("'{port}' in '{address}' is no port: expected a number from 1 to 65535")]
    Port {
        /// The text in the place of the port.
        port: String,
        /// The given text.
        address: String,
    },
    /// A scheme other than `redis` and `unix`.
    #[error("'{scheme}://' isn't supported: write host:port, redis://host:port or unix:/path")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// A database other than 0.
    #[error("database '{database}' isn't there: Nigh has database 0 alone")]
    Database {
        /// The database.
        database: String,
    },
    /// A `%` in user or password without two hexadecimal digits after it, or bytes that aren't
    /// UTF-8.
    #[error("user or password is badly escaped: after '%' stand two hexadecimal digits")]
    Escape,
}

/// The socket to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP socket.
    Tcp {
        /// A name or an IP address (IPv6 without brackets).
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The socket of a server, and the client's credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The socket.
    pub endpoint: Endpoint,
    /// The user for AUTH; the default user if `None`.
    pub user: Option<String>,
    /// The password for AUTH; no AUTH if `None` and there is no user.
    pub password: Option<String>,
}

impl Address {
    /// An address without credentials.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, user: None, password: None }
    }

    /// A TCP address.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Endpoint::Tcp { host: host.into(), port })
    }

    /// A Unix socket's address.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(Endpoint::Unix(path.into()))
    }
}

impl Default for Address {
    /// `127.0.0.1:6379`.
    fn default() -> Self {
        Self::tcp("127.0.0.1", DEFAULT_PORT)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(out, "{host}:{port}"),
            Endpoint::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    /// Hides the password, so that no log shows it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Address")
            .field("endpoint", &self.endpoint)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .finish()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.starts_with('/') {
            return Ok(Self::unix(text));
        }
        match text.parse() {
            Ok(0) => return Err(AddressError::Port { port: text.into(), address: text.into() }),
            Ok(port) => return Ok(Self::tcp("127.0.0.1", port)),
            Err(_) => {}
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(AddressError::NoHost { address: text.into() });
            }
            return Ok(Self::unix(path));
        }
        if let Some(place) = text.strip_prefix("tcp:") {
            return Ok(Self::new(host_port(place.strip_prefix("//").unwrap_or(place), text)?));
        }
        match text.split_once("://") {
            Some(("redis", rest)) => url(rest, text),
            Some((scheme, _)) => Err(AddressError::Scheme { scheme: scheme.into() }),
            None => Ok(Self::new(host_port(text, text)?)),
        }
    }
}

/// Reads the part after `redis://`.
fn url(rest: &str, address: &str) -> Result<Address, AddressError> {
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, rest),
    };
    let (place, database) = place.split_once('/').unwrap_or((place, ""));
    if !matches!(database, "" | "0") {
        return Err(AddressError::Database { database: database.into() });
    }
    let (mut user, mut password) = (None, None);
    if let Some(credentials) = credentials {
        // Without a colon it is a password, as for redis-cli.
        let (name, secret) = credentials.split_once(':').unwrap_or(("", credentials));
        user = Some(unescape(name)?).filter(|name| !name.is_empty());
        password = Some(unescape(secret)?);
    }
    Ok(Address { endpoint: host_port(place, address)?, user, password })
}

fn host_port(text: &str, address: &str) -> Result<Endpoint, AddressError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or(port))),
        None => match text.split_once(':') {
            // More than one colon without brackets: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(AddressError::NoHost { address: without_credentials(address) });
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            AddressError::Port { port: port.into(), address: without_credentials(address) }
        })?,
    };
    Ok(Endpoint::Tcp { host: host.into(), port })
}

/// The address for an error's text, which must not show a password.
fn without_credentials(address: &str) -> String {
    match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) => format!("{}://…{}", &address[..scheme], &address[at..]),
        _ => address.to_owned(),
    }
}

fn unescape(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low, after @ ..] = rest else { return Err(AddressError::Escape) };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
            return Err(AddressError::Escape);
        };
        bytes.push(high << 4 | low);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Address {
        text.parse().expect(text)
    }

    /// Every way to write an address that the table above lists.
    #[test]
    fn addresses_are_read_as_documented() {
        assert_eq!(parsed("example:7000"), Address::tcp("example", 7000));
        assert_eq!(parsed("example"), Address::tcp("example", DEFAULT_PORT));
        assert_eq!(parsed("7000"), Address::tcp("127.0.0.1", 7000));
        assert_eq!(parsed("[::1]:7000"), Address::tcp("::1", 7000));
        assert_eq!(parsed("::1"), Address::tcp("::1", DEFAULT_PORT));
        assert_eq!(parsed("redis://example"), Address::tcp("example", DEFAULT_PORT));
        assert_eq!(parsed("redis://[::1]:7000/0"), Address::tcp("::1", 7000));
        assert_eq!(parsed("tcp:example:7000"), Address::tcp("example", 7000));
        assert_eq!(parsed("tcp://[::1]:7000"), Address::tcp("::1", 7000));
        assert_eq!(parsed("tcp:example"), Address::tcp("example", DEFAULT_PORT));
        assert_eq!(parsed("/run/nigh.sock"), Address::unix("/run/nigh.sock"));
        assert_eq!(parsed("unix:/run/nigh.sock"), Address::unix("/run/nigh.sock"));
        assert_eq!(parsed("unix:///run/nigh.sock"), Address::unix("/run/nigh.sock"));
        assert_eq!(parsed("unix:nigh.sock"), Address::unix("nigh.sock"));
    }

    /// User and password come out of a URL unescaped, and never print.
    #[test]
    fn credentials_are_unescaped_and_hidden() {
        let address = parsed("redis://ann:p%40ss:w@example:7000/");
        assert_eq!(address.user.as_deref(), Some("ann"));
        assert_eq!(address.password.as_deref(), Some("p@ss:w"));
        assert_eq!(parsed("redis://:secret@example").user, None);
        assert_eq!(parsed("redis://secret@example").password.as_deref(), Some("secret"));
        assert_eq!(address.to_string(), "example:7000");
        assert!(!format!("{address:?}").contains("p@ss"));
        let error = "redis://ann:hidden@example:x".parse::<Address>().expect_err("no port");
        assert!(!error.to_string().contains("hidden"), "{error}");
    }

    /// A printed address can be read again.
    #[test]
    fn addresses_print_as_they_can_be_written() {
        for text in ["example:7000", "[::1]:7000", "unix:/run/nigh.sock"] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }

    /// The error of a wrong address names the part that is wrong.
    #[test]
    fn broken_addresses_are_refused() {
        for (text, part) in [
            ("", "names no host"),
            (":7000", "names no host"),
            ("unix:", "names no host"),
            ("0", "'0'"),
            ("example:0", "'0'"),
            ("example:70000", "'70000'"),
            ("example:", "''"),
            ("rediss://example", "'rediss://'"),
            ("redis://example/3", "database '3'"),
            ("redis://a%4:b@example", "'%'"),
            ("redis://a%ff:b@example", "'%'"),
        ] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
