//! The policies of eviction, by their names in the settings.
//!
//! Thread: any; it is plain data.

/// What happens when memory is full. Names and meanings are Redis's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Writes are refused.
    #[default]
    NoEviction,
    /// The key that was used longest ago goes.
    AllKeysLru,
    /// Of the keys with an expiry, the one that was used longest ago goes.
    VolatileLru,
    /// Of the keys with an expiry, the one whose time is over soonest goes.
    VolatileTtl,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 4] =
        [Policy::NoEviction, Policy::AllKeysLru, Policy::VolatileLru, Policy::VolatileTtl];

    /// Its name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Policy::NoEviction => "noeviction",
            Policy::AllKeysLru => "allkeys-lru",
            Policy::VolatileLru => "volatile-lru",
            Policy::VolatileTtl => "volatile-ttl",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether it needs to know when keys were used.
    #[must_use]
    pub const fn is_lru(self) -> bool {
        matches!(self, Policy::AllKeysLru | Policy::VolatileLru)
    }
}
