//! Options of `nigh-bench local`. Plain data.

use crate::child::Program;
use std::path::PathBuf;

/// Options of `nigh-bench local`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) program: Program,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub(super) keys: u64,
    /// Bytes of a value, at least those of a key
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    pub(super) value_size: usize,
    /// Seconds over which a figure is taken in each round
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    pub(super) seconds: f64,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(super) rounds: usize,
    /// Core of the server and of the writer; -1 for any
    #[arg(long, default_value_t = 0, value_name = "CPU", allow_negative_numbers = true)]
    pub(super) server_core: i32,
    /// Core of the measured client; -1 for any
    #[arg(long, default_value_t = 1, value_name = "CPU", allow_negative_numbers = true)]
    pub(super) client_core: i32,
    /// The server's partitions
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) partitions: u32,
    /// Keep the writer at rest during the reads
    #[arg(long)]
    pub(super) no_writer: bool,
    /// Redis server to compare with
    #[arg(long, value_name = "PROGRAM")]
    pub(super) redis: Option<String>,
    /// memcached to compare with
    #[arg(long, value_name = "PROGRAM")]
    pub(super) memcached: Option<String>,
    /// Program with arguments, quoted as for a shell, for LMDB: `nigh-bench-embedded beside`
    #[arg(long, value_name = "COMMAND")]
    pub(super) lmdb: Option<String>,
    /// Program with arguments, quoted as for a shell, for a client in Python; `env NAME=VALUE`
    /// before it sets a variable
    #[arg(long, value_name = "COMMAND")]
    pub(super) python: Option<String>,
    /// Program with arguments, quoted as for a shell, for a client in Node.js; `env` as above
    #[arg(long, value_name = "COMMAND")]
    pub(super) node: Option<String>,
    /// File to write a page to, with a picture beside it [default: only print the table]
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}
