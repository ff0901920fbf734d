//! Which changes of a tenant's streams are on disk: what replies wait for.
//!
//! 1. A reply depends on what its commands have looked at. That came with changes up to the begun
//!    LSN that is loaded behind the look.
//! 2. A reply that only reads doesn't wait for a log that isn't well: reads go on. What such a
//!    reply shows may be lost with the machine; INFO says so.
//! 3. A reply to a write never says of a change that it is done before it is on disk. If it can't
//!    get there, the reply never leaves.
//!
//! Belongs to the shard's thread.

use crate::net::depends::{LIBRARY_STREAM, Need, Streams};
use crate::state::State;
use crate::state::place::LIBRARIES;
use crate::tenant::TenantId;
use nigh_shm::Reader;
use nigh_store::LogHealth;

/// What is to become of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// They may leave.
    Leave,
    /// They wait.
    Wait,
    /// A write of theirs will not be on disk.
    Never,
}

impl State {
    #[inline]
    fn stream(&self, tenant: TenantId, stream: usize) -> &Reader {
        let keyspace = &self.tenants[tenant].keyspace;
        match stream {
            LIBRARY_STREAM => keyspace.librarian().library_reader(),
            partition => keyspace.reader(partition),
        }
    }

    /// The shard that owns a stream, and has it in its log.
    fn stream_owner(&self, tenant: TenantId, stream: usize) -> usize {
        let partition = if stream == LIBRARY_STREAM { LIBRARIES } else { stream };
        self.tenants[tenant].keyspace.owner(partition)
    }

    pub(crate) fn streams(&self, tenant: TenantId) -> Streams {
        let partitions = self.tenants[tenant].keyspace.partitions();
        Streams::of_all(partitions).and(Streams::LIBRARIES)
    }

    /// Those of some streams whose logs may still take writes.
    pub(crate) fn writable(&self, tenant: TenantId, streams: Streams) -> Streams {
        let takes = |stream: &usize| self.logs.takes_changes(self.stream_owner(tenant, *stream));
        streams.iter().filter(takes).map(Streams::of).fold(Streams::NONE, Streams::and)
    }

    /// The changes that have begun in some streams and aren't on disk.
    pub(crate) fn unsynced(
        &self,
        tenant: TenantId,
        streams: Streams,
    ) -> impl Iterator<Item = Need> {
        streams.iter().filter_map(move |stream| self.unsynced_of(tenant, stream))
    }

    /// The last change that has begun in a stream, if it isn't on disk.
    #[inline]
    pub(crate) fn unsynced_of(&self, tenant: TenantId, stream: usize) -> Option<Need> {
        let reader = self.stream(tenant, stream);
        let (durable, lsn) = (reader.durable_lsn(), reader.begun_lsn());
        // What no log has that counts isn't safe, whatever an earlier one had.
        let is_unsafe = durable < lsn || lsn > 0 && !self.logs.promise();
        is_unsafe.then_some(Need { stream, lsn })
    }

    pub(crate) fn is_durable(&self, tenant: TenantId, need: &Need) -> bool {
        self.stream(tenant, need.stream).durable_lsn() >= need.lsn && self.logs.promise()
    }

    /// Leaves those of the needs for which replies wait; `wrote`: where their commands have
    /// written.
    pub(crate) fn look_at_needs(
        &self,
        tenant: TenantId,
        needs: &mut Vec<Need>,
        wrote: Streams,
    ) -> Outlook {
        let mut is_lost = false;
        needs.retain(|need| {
            if self.is_durable(tenant, need) {
                return false;
            }
            let health = self.logs.health(self.stream_owner(tenant, need.stream));
            let is_write = wrote.has(need.stream);
            is_lost |= is_write && health == LogHealth::Broken;
            is_write || health == LogHealth::Well
        });
        match needs.is_empty() {
            _ if is_lost => Outlook::Never,
            true => Outlook::Leave,
            false => Outlook::Wait,
        }
    }

    /// The shards in whose logs these changes are to be synced, a bit for each.
    pub(crate) fn loggers(&self, tenant: TenantId, needs: &[Need]) -> u64 {
        needs.iter().fold(0, |shards, need| shards | 1 << self.stream_owner(tenant, need.stream))
    }
}
