//! Where data comes from, as a user writes it.
//!
//! | written | means |
//! |---|---|
//! | `redis://…`, `unix:…` | a running server; `/N` at the end of the former is a database of it |
//! | `-` | an RDB on stdin |
//! | else | a file, or the folder of an AOF |

use std::path::PathBuf;
use std::str::FromStr;

use nigh_client::{Address, AddressError};

/// A source.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A running server.
    Server {
        /// Where it is.
        address: Address,
        /// The database that is named with it.
        db: Option<u64>,
    },
    /// An RDB on stdin.
    Stdin,
    /// An RDB file, an AOF, or the folder of an AOF.
    Path(PathBuf),
}

/// The fault of a source's text.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// Its address is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// What stands for a database behind it isn't one.
    #[error("'{db}' is no database: behind host and port stands /N, a number")]
    Database {
        /// What stands there.
        db: String,
    },
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        Ok(match text {
            "-" => Self::Stdin,
            _ if text.starts_with("redis://") => server(text)?,
            _ if text.starts_with("unix:") || text.contains("://") => {
                Self::Server { address: text.parse()?, db: None }
            }
            _ => Self::Path(text.into()),
        })
    }
}

/// Takes the database from a server's address: other servers than ours have more than one.
fn server(text: &str) -> Result<Origin, OriginError> {
    // A password may have slashes.
    let host = text.rfind('@').map_or("redis://".len(), |at| at + 1);
    let (address, db) = match text[host..].split_once('/') {
        None | Some((_, "")) => (text, None),
        Some((place, db)) => (&text[..host + place.len()], Some(db)),
    };
    let number = |db: &str| db.parse().map_err(|_| OriginError::Database { db: db.to_owned() });
    Ok(Origin::Server { address: address.parse()?, db: db.map(number).transpose()? })
}
