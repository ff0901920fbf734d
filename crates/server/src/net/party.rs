//! The two that have commands executed: a client by its connection, and another shard.
//!
//! Belongs to the shard's thread.

use crate::hop::message::Manner;
use crate::net::connection::Connection;
use crate::net::peer::Peer;
use crate::net::pipeline::Pipeline;
use crate::tenant::TenantId;
use std::ops::{Deref, DerefMut};

/// A pipeline, and whose it is.
pub(crate) enum Party {
    Client(Box<Connection>),
    Peer(Box<Peer>),
}

impl Deref for Party {
    type Target = Pipeline;

    #[inline]
    fn deref(&self) -> &Pipeline {
        match self {
            Self::Client(connection) => &connection.pipe,
            Self::Peer(peer) => &peer.pipe,
        }
    }
}

impl DerefMut for Party {
    #[inline]
    fn deref_mut(&mut self) -> &mut Pipeline {
        match self {
            Self::Client(connection) => &mut connection.pipe,
            Self::Peer(peer) => &mut peer.pipe,
        }
    }
}

impl Party {
    /// The client's connection, if it is one's.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Client(connection) => Some(connection),
            Self::Peer(_) => None,
        }
    }

    /// The client's connection, if it is one's.
    pub(crate) fn connection_mut(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Client(connection) => Some(connection),
            Self::Peer(_) => None,
        }
    }

    /// The shard, if it is one.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Client(_) => None,
            Self::Peer(peer) => Some(peer),
        }
    }

    /// Whose command `index` of the batch is.
    #[inline]
    pub(crate) fn tenant(&self, index: usize) -> TenantId {
        match self {
            Self::Client(connection) => connection.pipe.client.tenant,
            Self::Peer(peer) => peer.commands[index].tenant,
        }
    }

    /// How command `index` of the batch is run.
    #[inline]
    pub(crate) fn manner(&self, index: usize) -> Manner {
        match self {
            Self::Client(connection) => connection.pipe.client.run_manner(),
            Self::Peer(peer) => peer.manner(index),
        }
    }

    /// Commands that a shard has still to answer. A shard that is asked asks nobody.
    #[inline]
    pub(crate) fn sent_to(&self, shard: usize) -> usize {
        self.connection().map_or(0, |connection| connection.later.sent_to(shard))
    }

    /// Whether the reply to the command at hand is copied: for another shard, or behind what others
    /// have to answer.
    #[inline]
    pub(crate) fn copies_replies(&self) -> bool {
        self.connection().is_none_or(|connection| !connection.later.is_empty())
    }

    /// A command has its reply.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.has_waited();
        if let Self::Peer(peer) = self {
            peer.answered();
        }
    }
}
