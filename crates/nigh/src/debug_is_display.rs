//! How errors are shown where a program ends with one.
//!
//! Any thread: plain data.

/// `main` and `unwrap` show an error by its `Debug`: people read that too.
macro_rules! debug_is_display {
    ($($error:ty),+) => { $(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+ };
}
pub(crate) use debug_is_display;
