//! Where data comes from, as a user writes it.
//!
//! | written | means |
//! |---|---|
//! | `redis://…`, `unix:…` | a running server |
//! | `-` | an RDB on stdin |
//! | else | a file, or the folder of an AOF |

use std::path::PathBuf;
use std::str::FromStr;

use nigh_client::{Address, AddressError};

/// A source.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A running server.
    Server(Address),
    /// An RDB on stdin.
    Stdin,
    /// An RDB file, an AOF, or the folder of an AOF.
    Path(PathBuf),
}

/// The fault of a source's text.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct OriginError(#[from] AddressError);

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        Ok(match text {
            "-" => Self::Stdin,
            _ if text.starts_with("unix:") || text.contains("://") => Self::Server(text.parse()?),
            _ => Self::Path(text.into()),
        })
    }
}
