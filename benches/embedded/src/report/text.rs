//! Numbers and prose for pages.
//!
//! Invariant: prose is within [`COLUMNS`] columns; tables, headings and pictures stay as they are.

/// Columns of prose.
const COLUMNS: usize = 100;
/// From here on a figure has one decimal, and none.
const TENTHS_FROM: f64 = 10.0;
const WHOLE_FROM: f64 = 100.0;

/// A figure with commas; small ones with decimals.
pub(super) fn figure(value: f64) -> String {
    if value < TENTHS_FROM {
        format!("{value:.2}")
    } else if value < WHOLE_FROM {
        format!("{value:.1}")
    } else {
        with_commas(value.round() as u64)
    }
}

/// A number with a comma between thousands.
pub(super) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Mebibytes.
pub(super) fn mebibytes(bytes: u64) -> String {
    with_commas((bytes + (1 << 19)) >> 20)
}

/// The page with its prose in lines.
pub(super) fn wrapped(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        if line.len() <= COLUMNS || line.starts_with(['|', '#', '!']) {
            text.push_str(line);
        } else {
            let indent = if line.starts_with("- ") { "  " } else { "" };
            let mut length = 0;
            for word in line.split(' ') {
                if length > 0 && length + 1 + word.chars().count() > COLUMNS {
                    text.push('\n');
                    text.push_str(indent);
                    length = indent.len();
                } else if length > 0 {
                    text.push(' ');
                    length += 1;
                }
                text.push_str(word);
                length += word.chars().count();
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long paragraph of a list is broken between words, and stays one; a table isn't touched.
    #[test]
    fn prose_is_wrapped_and_tables_are_not() {
        let table = format!("| {} |", "cell ".repeat(40));
        let page = format!("# Title\n\n- {}\n\n{table}\n", "word ".repeat(40).trim());
        let text = wrapped(&page);
        assert!(text.lines().all(|line| line.starts_with('|') || line.len() <= COLUMNS), "{text}");
        assert!(text.contains("\n- word ") && text.contains("\n  word "), "{text}");
        assert!(text.contains(&table));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text), words(&page));
    }

    /// Large figures have commas, small ones decimals.
    #[test]
    fn figures_are_for_readers() {
        assert_eq!(figure(5.127), "5.13");
        assert_eq!(figure(51.27), "51.3");
        assert_eq!(figure(1234.6), "1,235");
        assert_eq!(with_commas(1_000_000), "1,000,000");
        assert_eq!(mebibytes(3 << 30), "3,072");
    }
}
