//! A library as it was loaded: its name and its functions. Plain data; any thread.

mod load_error;
pub(crate) mod source;

pub use load_error::LoadError;
pub(crate) use load_error::too_long_to_start;

/// A library as `FUNCTION LOAD` reads it from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// From the first line, `#!js name=<name>`.
    pub name: String,
    /// The exported functions, in order of their names.
    pub functions: Vec<Function>,
}

impl Library {
    /// The name that a source gives in its first line.
    ///
    /// # Errors
    /// [`LoadError`] if that isn't `#!js name=<name>`.
    pub fn name_of(source: &[u8]) -> Result<String, LoadError> {
        source::library_name(source)
    }
}

/// One exported function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the export.
    pub name: String,
    /// Whether it has the flag `no-writes`.
    pub no_writes: bool,
    /// Whether it has the flag `allow-cross-slot-keys`.
    pub allow_cross_slot_keys: bool,
    /// Whether it has the flag `durable`.
    pub durable: bool,
    /// Text of the JSDoc comment right before the function.
    pub description: Option<String>,
}

impl Function {
    /// The flags by their names, as `FUNCTION LIST` shows them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let no_writes = self.no_writes.then_some("no-writes");
        let cross_slot = self.allow_cross_slot_keys.then_some("allow-cross-slot-keys");
        no_writes.into_iter().chain(cross_slot).chain(self.durable.then_some("durable"))
    }
}
