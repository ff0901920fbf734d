//! Sizes on the command line, and flags of databases of the library.

use anyhow::Result;

/// The bytes of a size, which is written as for the server's setting.
pub(crate) fn bytes_of(text: &str) -> Result<u64> {
    let mut config = nigh_server::Config::default();
    config.set("maxmemory", text)?;
    Ok(config.unsigned("maxmemory"))
}

/// How a database of the library is made.
#[derive(clap::Args)]
pub(crate) struct DatabaseFlags {
    /// Memory that a database may take, such as 512mb; half of what is free unless given
    #[arg(long, value_name = "SIZE", value_parser = capacity_of)]
    capacity: Option<u64>,
    /// Partitions of a database that isn't there yet; one unless given
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,
    /// Let other processes read along
    #[arg(long)]
    shared: bool,
}

impl DatabaseFlags {
    /// These options, with what was given.
    pub(crate) fn apply(&self, mut options: nigh::Options) -> nigh::Options {
        if let Some(bytes) = self.capacity {
            options = options.capacity_bytes(bytes);
        }
        if let Some(partitions) = self.partitions {
            options = options.partitions(partitions);
        }
        options.shared(self.shared)
    }

    /// The first that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let capacity = self.capacity.map(|_| "--capacity");
        let partitions = self.partitions.map(|_| "--partitions");
        capacity.or(partitions).or(self.shared.then_some("--shared"))
    }
}

fn capacity_of(text: &str) -> Result<u64> {
    bytes_of(text).map_err(|_| anyhow::anyhow!("a size is written as 512mb or 4gb"))
}
