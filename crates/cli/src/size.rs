//! Sizes on the command line.

use anyhow::Result;

/// The bytes of a size, which is written as for the server's setting.
pub(crate) fn bytes_of(text: &str) -> Result<u64> {
    let mut config = nigh_server::Config::default();
    config.set("maxmemory", text)?;
    Ok(config.unsigned("maxmemory"))
}

/// How much memory a database of the library may take.
#[derive(clap::Args)]
pub(crate) struct CapacityFlag {
    /// Memory that a database may take, such as 512mb; half of what is free unless given
    #[arg(long, value_name = "SIZE", value_parser = capacity_of)]
    capacity: Option<u64>,
}

impl CapacityFlag {
    /// These options, with the capacity that was given.
    pub(crate) fn apply(&self, options: nigh::Options) -> nigh::Options {
        match self.capacity {
            Some(bytes) => options.capacity_bytes(bytes),
            None => options,
        }
    }

    /// Whether one was given.
    pub(crate) fn is_given(&self) -> bool {
        self.capacity.is_some()
    }
}

fn capacity_of(text: &str) -> Result<u64> {
    bytes_of(text).map_err(|_| anyhow::anyhow!("a size is written as 512mb or 4gb"))
}
