//! The view of `nigh top`: lines of text with styles, from two looks at a server.
//!
//! ```text
//! nigh 0.1.0 at 127.0.0.1:6379   up 2h 03m   2 shards   51 clients   1,000,000 keys
//! shard  utilisation                       ops/s clients hops out/s  hops in/s   calls/s  mail ...
//!     0  [||||||||||||........]  61 %    400,000      26          0     20,000    30,000     0 ...
//! ```
//!
//! Invariants:
//! 1. The functions are pure: the same looks give the same lines.
//! 2. No line has a control character, whatever the server sent. No line is longer than the screen
//!    is wide.

use super::sample::{Between, Sample};
use crate::render::thousands;

/// Width of a bar, in cells.
const BAR_CELLS: usize = 20;
/// Most commands, and most keys, in a report without a screen.
const PLAIN_ROWS: usize = 10;
/// Lines that are always there: titles, totals, memory and separators.
const FIXED_LINES: usize = 14;

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Title,
    /// It needs the reader's attention.
    Alarm,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub(super) style: Style,
    pub(super) text: String,
}

/// The size of the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) columns: usize,
    /// `None`: no limit.
    pub(super) rows: Option<usize>,
}

/// The lines for the difference of two looks, with `note` if there is one.
pub(super) fn lines(
    address: &str,
    between: Between<'_>,
    note: Option<&str>,
    size: Size,
) -> Vec<ScreenLine> {
    let room = ListRows::of(size, between.now.shards.len());
    let mut lines = Vec::new();
    let mut put = |style, text: String| lines.push(line(style, &text, size.columns));
    put(Style::Title, headline(address, between.now));
    put(Style::Alarm, note.unwrap_or_default().to_owned());
    put(Style::Plain, totals(between));
    put(Style::Title, shard_titles());
    for number in 0..between.now.shards.len().min(room.shards) {
        put(Style::Plain, shard(between, number));
    }
    let hidden = between.now.shards.len().saturating_sub(room.shards);
    put(Style::Plain, if hidden > 0 { format!("and {hidden} more shards") } else { String::new() });
    memory(between).into_iter().for_each(|text| put(Style::Plain, text));
    put(Style::Plain, String::new());
    put(Style::Title, format!("{:<24}{:>12}{:>12}{:>12}", "command", "per second", "p50", "p99"));
    let commands = between.commands();
    for rates in commands.iter().take(room.commands) {
        put(
            Style::Plain,
            format!(
                "{:<24}{:>12}{:>12}{:>12}",
                cut(&rates.name, 23),
                thousands(rates.per_second),
                at_most(rates.p50_us),
                at_most(rates.p99_us)
            ),
        );
    }
    put(Style::Plain, String::new());
    put(Style::Title, format!("{:<24}{:>12}{:>12}  key", "hottest keys", "share", "per second"));
    hot_keys(between, room.keys).into_iter().for_each(|text| put(Style::Plain, text));
    lines
}

/// Most rows of each list.
struct ListRows {
    shards: usize,
    commands: usize,
    keys: usize,
}

impl ListRows {
    fn of(size: Size, shards: usize) -> Self {
        let Some(rows) = size.rows else {
            return Self { shards, commands: PLAIN_ROWS, keys: PLAIN_ROWS };
        };
        let free = rows.saturating_sub(FIXED_LINES);
        let shards = shards.min(free / 2);
        let commands = (free - shards) / 2;
        Self { shards, commands, keys: free - shards - commands }
    }
}

fn line(style: Style, text: &str, columns: usize) -> ScreenLine {
    let text: String =
        text.chars().map(|c| if c.is_control() { '?' } else { c }).take(columns).collect();
    ScreenLine { style, text: text.trim_end().to_owned() }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn headline(address: &str, now: &Sample) -> String {
    format!(
        "nigh {} at {address}   up {}   {} shards   {} clients   {} keys",
        now.text("nigh_version"),
        duration(now.number("uptime_in_seconds")),
        now.number("shards"),
        thousands(now.number("connected_clients")),
        thousands(now.keys()),
    )
}

fn totals(between: Between<'_>) -> String {
    format!(
        "{} commands/s   {} function calls/s   in {}/s   out {}/s   hits {}/s   misses {}/s   errors {}/s",
        thousands(between.rate("total_commands_processed")),
        thousands(between.rate("function_calls")),
        bytes(between.rate("total_net_input_bytes")),
        bytes(between.rate("total_net_output_bytes")),
        thousands(between.rate("keyspace_hits")),
        thousands(between.rate("keyspace_misses")),
        thousands(between.rate("total_error_replies")),
    )
}

fn shard_titles() -> String {
    format!(
        "{:>5}  {:<28} {:>10} {:>7} {:>10} {:>10} {:>9} {:>5} {:>9} {:>9} {:>7} {:>8}",
        "shard",
        "utilisation",
        "ops/s",
        "clients",
        "hops out/s",
        "hops in/s",
        "calls/s",
        "mail",
        "turn max",
        "step max",
        "full/s",
        "wakes/s"
    )
}

fn shard(between: Between<'_>, number: usize) -> String {
    let now = |name: &str| between.now.shards[number].get(name).copied().unwrap_or(0.0);
    let rate = |name: &str| thousands(between.shard_rate(number, name));
    let used = now("utilisation").clamp(0.0, 1.0);
    format!(
        "{number:>5}  {} {:>3.0} % {:>10} {:>7} {:>10} {:>10} {:>9} {:>5} {:>9} {:>9} {:>7} {:>8}",
        bar(&[(used, '|')]),
        used * 100.0,
        rate("operations"),
        thousands(now("connections")),
        rate("hops_out"),
        rate("hops_in"),
        rate("function_calls"),
        thousands(now("mailbox_depth")),
        micros(now("longest_turn_us")),
        micros(now("longest_step_us")),
        rate("mailbox_full"),
        rate("wakes"),
    )
}

fn memory(between: Between<'_>) -> Vec<String> {
    let now = |name: &str| between.now.number(name);
    let capacity = now("arena_capacity_bytes").max(1.0);
    let (used, backed) = (now("arena_used_bytes"), now("arena_backed_bytes"));
    let dead = now("arena_dead_bytes");
    let parts =
        [(used / capacity, '|'), (dead / capacity, 'x'), ((backed - used - dead) / capacity, '-')];
    vec![
        format!(
            "memory   {}  used | {}   dead x {}   backed - {}   capacity {}   resident {}",
            bar(&parts),
            bytes(used),
            bytes(dead),
            bytes(backed),
            bytes(capacity),
            bytes(now("used_memory_rss")),
        ),
        format!(
            "cleaner  {} relocated/s   {} segments/s   {} segments in all   index {}",
            bytes(between.rate("cleaner_relocated_bytes")),
            thousands(between.rate("cleaner_segments")),
            thousands(now("cleaner_segments")),
            if now("arena_index_growing") > 0.0 { "is being rebuilt" } else { "at rest" },
        ),
        format!(
            "keys     {} expired/s   {} evicted/s   appended {}/s",
            thousands(between.rate("expired_keys")),
            thousands(between.rate("evicted_keys")),
            bytes(between.rate("arena_appended_bytes")),
        ),
    ]
}

fn hot_keys(between: Between<'_>, most: usize) -> Vec<String> {
    let samples = between.now.number("hotkeys_samples");
    if samples < 1.0 {
        return vec!["none sampled yet".to_owned()];
    }
    let all = between.rate("total_commands_processed");
    let keys = between.now.hot_keys.iter();
    // If the whole count may be error, the key need not be hot.
    let keys = keys.filter(|key| key.samples > key.error).take(most);
    keys.map(|key| {
        let share = (key.samples / samples).min(1.0);
        format!("{:<24}{:>10.1} %{:>12}  {}", "", share * 100.0, thousands(share * all), key.key)
    })
    .collect()
}

/// A bar of shares of a whole, one after the other. The rest is dots.
fn bar(parts: &[(f64, char)]) -> String {
    let mut text = String::from("[");
    let (mut sum, mut cells) = (0.0, 0);
    for (share, mark) in parts {
        sum += share.max(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 20"
        )]
        let end = (sum.min(1.0) * BAR_CELLS as f64).round() as usize;
        while cells < end {
            text.push(*mark);
            cells += 1;
        }
    }
    text.extend(std::iter::repeat_n('.', BAR_CELLS - cells));
    text.push(']');
    text
}

fn at_most(us: u64) -> String {
    format!("<= {}", micros(us as f64))
}

fn micros(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0} us"),
        ..1_000_000.0 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// A number of bytes in the unit that suits it.
fn bytes(count: f64) -> String {
    let mut value = count.max(0.0);
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).floor();
    match seconds {
        ..60.0 => format!("{seconds:.0}s"),
        ..3_600.0 => format!("{minutes:.0}m {:02.0}s", seconds % 60.0),
        ..86_400.0 => format!("{:.0}h {:02.0}m", (minutes / 60.0).floor(), minutes % 60.0),
        _ => {
            format!("{:.0}d {:02.0}h", (minutes / 1440.0).floor(), (minutes / 60.0).floor() % 24.0)
        }
    }
}

#[cfg(test)]
mod tests;
