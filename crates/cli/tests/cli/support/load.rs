//! Values that tell which write they come from, for tests that kill servers. A seed determines
//! them.

/// A key's value: number and length of its write, which determine all bytes.
pub(crate) type Value = Option<(u64, usize)>;

/// Numbers from a seed (Knuth's MMIX generator, upper bits).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`.
    pub(crate) fn draw(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A length in `range`.
    pub(crate) fn length(&mut self, range: std::ops::Range<usize>) -> usize {
        range.start + usize::try_from(self.draw(range.len() as u64)).expect("below a length")
    }
}

/// A number that the environment gives, or this one.
pub(crate) fn number(name: &str, unless_told: u64) -> u64 {
    std::env::var(name).map_or(unless_told, |text| text.parse().expect("a number"))
}

/// The number of kills: `NIGH_KILLS`, or this number.
pub(crate) fn kills(unless_told: u64) -> u64 {
    number("NIGH_KILLS", unless_told)
}

/// What is allowed on top of a promised time: `NIGH_SLACK_MS`, or this number.
pub(crate) fn slack(unless_told: u64) -> std::time::Duration {
    std::time::Duration::from_millis(number("NIGH_SLACK_MS", unless_told))
}

/// The seed of a test: this number, and `NIGH_SEED`.
pub(crate) fn seed(of_test: u64) -> u64 {
    of_test + 1 + 100 * number("NIGH_SEED", 0)
}

/// The bytes of a write.
pub(crate) fn bytes((sequence, length): (u64, usize)) -> Vec<u8> {
    let unit = format!("{sequence}:");
    let mut value = unit.repeat(length / unit.len() + 1).into_bytes();
    value.truncate(length);
    value
}

/// The write from which a value comes.
///
/// # Panics
/// If the value comes from no write.
pub(crate) fn write_of(value: &[u8]) -> (u64, usize) {
    let number = value.split(|&byte| byte == b':').next().unwrap_or_default();
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    let write = (number.unwrap_or(0), value.len());
    assert!(value == bytes(write), "{} bytes that nobody wrote", value.len());
    write
}

/// A command.
pub(crate) fn words(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.to_vec()).collect()
}
