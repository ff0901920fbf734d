//! Which server a command talks to: shared flags of shell, call, fn and top.

use anyhow::{Result, bail};
use nigh_client::{Address, Connection, Frame, Options, Protocol};
use std::time::Duration;

/// Where the server is, and how to be let in.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// Server: host:port, port, redis://… or a Unix socket's path
    #[arg(
        long,
        alias = "address",
        default_value = "127.0.0.1:6379",
        env = "NIGH_CONNECT",
        value_name = "ADDRESS"
    )]
    connect: Address,
    /// Password for AUTH
    #[arg(long, env = "NIGH_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Speak protocol version 2 instead of 3
    #[arg(long)]
    resp2: bool,
    /// Seconds to wait for a reply; 0 waits for ever
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    timeout: u64,
}

impl Target {
    /// Connects and authenticates.
    pub(crate) fn open(&self) -> Result<Connection> {
        let options = Options {
            password: self.password.clone(),
            protocol: if self.resp2 { Protocol::Resp2 } else { Protocol::Resp3 },
            timeout: (self.timeout > 0).then(|| Duration::from_secs(self.timeout)),
            ..Options::default()
        };
        Ok(Connection::connect(&self.connect, &options)?)
    }

    /// Where the server is.
    pub(crate) fn address(&self) -> &Address {
        &self.connect
    }
}

/// A reply, unless it is an error: then that, with its text.
pub(crate) fn accepted(reply: Frame) -> Result<Frame> {
    match reply.error() {
        Some(text) => bail!("{}", crate::render::printable(text)),
        None => Ok(reply),
    }
}
