//! Options of a load.

use nigh_client::Address;
use std::path::PathBuf;

/// Key distributions.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq)]
pub(super) enum Distribution {
    Uniform,
    Zipfian,
    Sequential,
}

/// Options of a load.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Server: host:port, port, redis://… or a Unix socket's path; several are measured in turn
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDRESS")]
    pub(super) connect: Vec<Address>,
    /// Connections to each server
    #[arg(short, long, default_value_t = 50, value_name = "N")]
    pub(super) connections: usize,
    /// Requests that a connection sends before it waits for their replies
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    pub(super) pipeline: u64,
    /// get, set, mixed, or any command with __key__ __value__ __rand__ (12 digits) __line__
    #[arg(long, default_value = "get")]
    pub(super) command: String,
    /// File with the text of __line__: one line a request, in turn
    #[arg(long, value_name = "FILE")]
    pub(super) lines: Option<PathBuf>,
    /// Share of SETs in `mixed`
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    pub(super) set_share: f64,
    /// Number of keys
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub(super) keys: u64,
    /// Bytes of a key
    #[arg(long, default_value_t = 16, value_name = "BYTES")]
    pub(super) key_size: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    pub(super) value_size: usize,
    /// Which keys are drawn how often
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    pub(super) distribution: Distribution,
    /// Skew of the zipfian distribution, above 0 and below 1
    #[arg(long, default_value_t = 0.99)]
    pub(super) theta: f64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub(super) duration: f64,
    /// Requests of each run, instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub(super) requests: Option<u64>,
    /// Runs against each server
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) pairs: usize,
    /// Seconds of warm-up before the first run against each server
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    pub(super) warm_up: f64,
    /// SET all keys first
    #[arg(long)]
    pub(super) preload: bool,
    /// Verify each reply (get, set, mixed)
    #[arg(long)]
    pub(super) check: bool,
    /// Password for AUTH
    #[arg(long, env = "NIGH_PASSWORD", hide_env_values = true)]
    pub(super) password: Option<String>,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pub(super) pin: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}
