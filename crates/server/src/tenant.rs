//! Whose something is: a client, its commands, the messages about them, and what is counted.
//!
//! A plain number; any thread.

/// A tenant of this server: the place of its data, libraries and figures at each shard. So it is
/// small, and of no meaning beyond the process; across restarts a tenant has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct TenantId(pub(crate) u32);

impl TenantId {
    /// Whose a client is that has named no tenant.
    pub(crate) const DEFAULT: Self = Self(0);

    /// Its place in a list of all tenants.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
