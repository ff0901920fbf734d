//! The server that a subcommand talks to: flags that all of them share.

use anyhow::{Result, bail};
use clap::error::{Error, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use nigh_client::{
    Address, CallError, Client, ClientError, ClientOptions, Connection, ConnectionOptions, Frame,
    Protocol,
};
use std::time::Duration;

/// The address of the server, and the credentials.
#[derive(clap::Args)]
pub(crate) struct ServerFlags {
    /// Server: host:port, port, redis://… or a Unix socket's path
    #[arg(
        long,
        alias = "address",
        default_value = "127.0.0.1:6379",
        env = "NIGH_CONNECT",
        value_name = "ADDRESS"
    )]
    connect: Address,
    /// Password for AUTH, if the address has none
    #[arg(long, env = "NIGH_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Speak protocol version 2 instead of 3
    #[arg(long)]
    resp2: bool,
    /// Seconds to wait for a reply; 0 for no limit
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    timeout: u64,
}

impl ServerFlags {
    /// Connects and authenticates.
    pub(crate) fn connect(&self) -> Result<Connection, ClientError> {
        Connection::connect(&self.connect, &self.options())
    }

    /// The same, and waits no longer than `most` for anything.
    pub(crate) fn connect_within(&self, most: Duration) -> Result<Connection, ClientError> {
        let mut options = self.options();
        options.timeout = Some(options.timeout.map_or(most, |timeout| timeout.min(most)));
        Connection::connect(&self.connect, &options)
    }

    /// A client: local if it can be.
    pub(crate) fn client(&self) -> Result<Client> {
        let options = ClientOptions { connection: self.options(), ..ClientOptions::default() };
        match Client::connect_with(&self.connect, options) {
            // What else its text says is for programs.
            Err(CallError::NotAttached { cause, .. }) => bail!(cause),
            client => Ok(client?),
        }
    }

    fn options(&self) -> ConnectionOptions {
        ConnectionOptions {
            // Beside an address with a password it is the environment's: `check_password`.
            password: self.password.clone().filter(|_| self.connect.password.is_none()),
            protocol: if self.resp2 { Protocol::Resp2 } else { Protocol::Resp3 },
            timeout: (self.timeout > 0).then(|| Duration::from_secs(self.timeout)),
            ..ConnectionOptions::default()
        }
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &Address {
        &self.connect
    }
}

/// An error of the client, with flags in place of a program's options.
pub(crate) fn in_flags(text: &str) -> String {
    text.replace("password: give one,", "password: give one by --password or NIGH_PASSWORD,")
}

/// Flags that mean a server: the fields of [`ServerFlags`].
const OF_SERVER: [&str; 4] = ["connect", "password", "resp2", "timeout"];

/// Refuses flags of a server. `why` continues a sentence that begins with the flag.
pub(crate) fn refuse_server_flags(
    matches: &ArgMatches,
    command: &mut Command,
    why: &str,
) -> Result<(), Error> {
    refuse_flags(&OF_SERVER, matches, command, why)
}

/// Refuses these flags. An environment variable isn't refused: it says which server to use if one
/// is used.
pub(crate) fn refuse_flags(
    names: &[&str],
    matches: &ArgMatches,
    command: &mut Command,
    why: &str,
) -> Result<(), Error> {
    let is_given = |name: &&&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    match names.iter().find(is_given) {
        Some(name) => {
            let text = format!("--{} {why}", name.replace('_', "-"));
            Err(command.error(ErrorKind::ArgumentConflict, text))
        }
        None => Ok(()),
    }
}

/// Refuses `--password` beside an address that has one, for a subcommand of any depth.
pub(crate) fn check_password(matches: &ArgMatches, command: &mut Command) -> Result<(), Error> {
    if let Some((name, matches)) = matches.subcommand() {
        let command = command.find_subcommand_mut(name).expect("it is declared");
        return check_password(matches, command);
    }
    match matches.try_get_one::<Address>("connect") {
        Ok(Some(address)) if address.password.is_some() => {
            let why = "isn't needed, since the server's address has a password: give one of them";
            refuse_flags(&["password"], matches, command, why)
        }
        _ => Ok(()),
    }
}

/// Refuses flags of a server beside `--local`, with which none is asked.
pub(crate) fn check_local(matches: &ArgMatches, command: &mut Command) -> Result<(), Error> {
    if !matches.contains_id("local") {
        return Ok(());
    }
    let why = "is about a server, and with --local none is asked: give one of them";
    refuse_server_flags(matches, command, why)
}

/// The reply; an `Err` with its text if it is an error reply.
pub(crate) fn accepted(reply: Frame) -> Result<Frame> {
    match reply.error() {
        Some(text) => bail!("{}", crate::render::printable(text)),
        None => Ok(reply),
    }
}
