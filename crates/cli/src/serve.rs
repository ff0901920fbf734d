//! `nigh serve`: a server in the foreground.
//!
//! Invariants:
//! 1. The flags are the rows of the server's table of settings, so a setting has one name and one
//!    help text everywhere.
//! 2. A flag wins over the settings file.

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use nigh_server::Config;
use nigh_server::config::{SettingKind, settings};
use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The server's settings, as flags.
pub(crate) struct Args {
    file: Option<PathBuf>,
    /// Name and text of each flag that was given.
    flags: Vec<(&'static str, String)>,
}

const FILE: &str = "config";

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long(FILE)
            .value_name("FILE")
            .help("TOML file with settings, one key each; flags win")
            .value_parser(clap::value_parser!(PathBuf));
        settings().iter().fold(command.arg(file), |command, setting| {
            let arg = Arg::new(setting.name)
                .long(setting.name)
                .help(format!("{} [default: {:?}]", setting.help, setting.default))
                .action(ArgAction::Set);
            command.arg(match setting.kind {
                // `--fresh` alone means yes.
                SettingKind::Flag => {
                    arg.value_name("yes|no").num_args(0..=1).default_missing_value("yes")
                }
                SettingKind::Choice(_) => arg.value_name("WORD"),
                SettingKind::Number(..) | SettingKind::Bytes(..) => {
                    arg.value_name("N").allow_negative_numbers(true)
                }
                SettingKind::PowerOfTwo(..) => arg.value_name("N"),
                SettingKind::Text(_) | SettingKind::Secret(_) => {
                    arg.value_name("TEXT").allow_hyphen_values(true)
                }
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = settings().iter().filter_map(|setting| {
            let text = matches.get_one::<String>(setting.name)?;
            Some((setting.name, text.clone()))
        });
        Ok(Self { file: matches.get_one::<PathBuf>(FILE).cloned(), flags: flags.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Serves until SHUTDOWN, SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut config = Config::default();
    if let Some(file) = &args.file {
        nigh_server::config::load(&mut config, file)?;
        // Whatever folder the process is in later.
        config.file = Some(std::path::absolute(file).context("--config")?);
    }
    for (name, text) in &args.flags {
        config.set(name, text).with_context(|| format!("--{name}"))?;
    }
    start_log(&config.text("loglevel"));
    nigh_js::name_what_crashes();
    let socket = config.text("unixsocket");
    let hint = |address: Option<SocketAddr>| {
        if std::io::stdout().is_terminal() {
            print_hints(address, &socket);
        }
    };
    // This is the running program, even if its file has been replaced.
    config.checker = Some(PathBuf::from("/proc/self/exe"));
    Ok(nigh_server::run(config, hint)?)
}

/// Starts the log on stderr: our lines from `level` on, and the libraries' warnings.
fn start_log(level: &str) {
    let filter = tracing_subscriber::EnvFilter::new(format!(
        "warn,nigh_server={level},nigh_store={level},nigh_shm={level},nigh_js={level},function={level}"
    ));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that stderr doesn't take is lost. A complaint about it on stderr would end the
        // thread.
        .log_internal_errors(false)
        .init();
}

/// Prints three commands to try, by TCP if the server listens there.
fn print_hints(address: Option<SocketAddr>, socket: &str) {
    let (to, of_redis) = match address.map(|address| (address.ip(), address.port())) {
        None => (format!("unix:{socket}"), format!("-s {socket}")),
        Some((ip, port)) if ip == Ipv4Addr::LOCALHOST || ip.is_unspecified() => {
            (port.to_string(), format!("-p {port}"))
        }
        Some((ip, port)) => (SocketAddr::new(ip, port).to_string(), format!("-h {ip} -p {port}")),
    };
    let mut out = std::io::stdout().lock();
    // A closed terminal is no reason not to serve.
    let _ = writeln!(
        out,
        "Try:\n  nigh shell --connect {to}\n  nigh fn load examples/functions/counter.js --connect {to}\n  \
         redis-cli {of_redis} set greeting hello"
    );
}
