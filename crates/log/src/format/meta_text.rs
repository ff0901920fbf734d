//! The text of `meta`: a line for each thing, in one order, and a checksum of all before it.
//!
//! One state has one text: a parsed text that wouldn't be written again just so is refused.

use crate::error::LogError;
use crate::format::layout::VERSION;
use crate::format::meta::{ChainEnd, Meta, TenantLine};
use crate::format::names::META;
use crate::format::sum::{Secret, of_text};
use crate::position::{Chain, LogPosition};
use std::fmt::Write;
use std::str::{FromStr, SplitWhitespace};

const FIRST: &str = "nigh-log";

/// The text of a meta.
#[must_use]
pub(crate) fn encode(meta: &Meta) -> String {
    let mut text = format!("{FIRST} {VERSION}\nid {}\n", hex(&meta.id));
    let mut line = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args).expect("a string takes all");
        text.push('\n');
    };
    line(format_args!("secret {}", hex(&meta.secret.0)));
    line(format_args!("next-generation {}", meta.next_generation));
    line(format_args!("next-tenant {}", meta.next_tenant));
    for (number, t) in &meta.tenants {
        line(format_args!("tenant {number} {} {} {:08x}", t.name, t.partitions, t.seed));
    }
    for number in &meta.dropped {
        line(format_args!("dropped {number}"));
    }
    for c in &meta.chains {
        line(format_args!("chain {} {} {}", c.generation, c.shard, c.shards));
    }
    for ChainEnd { shard, at, sum } in &meta.ends {
        line(format_args!("end {shard} {} {} {sum:08x}", at.file, at.position));
    }
    if let Some(mark) = &meta.mark {
        line(format_args!("mark {}", hex(mark)));
    }
    let sum = of_text(text.as_bytes());
    text + &format!("sum {sum:08x}\n")
}

/// Parses the text of a meta.
///
/// # Errors
/// `NewerVersion`, or `Meta`, which names the line.
pub(crate) fn parse(bytes: &[u8]) -> Result<Meta, LogError> {
    let text = str::from_utf8(bytes).map_err(|_| wrong(1, "it isn't text"))?;
    let version = text.lines().next().and_then(|line| line.strip_prefix(FIRST));
    let version = version.and_then(|version| version.trim().parse::<u32>().ok());
    match version {
        None => return Err(wrong(1, "it is no meta of a log")),
        Some(found) if found > VERSION => {
            let file = META.to_string();
            return Err(LogError::NewerVersion { file, found, known: VERSION });
        }
        Some(_) => {}
    }
    let mut meta = Meta::new([0; 16], Secret([0; 16]));
    for (line, number) in text.lines().zip(1..) {
        let mut words = line.split_whitespace();
        let known = take(&mut meta, words.next().unwrap_or_default(), &mut words);
        if known.is_none() || words.next().is_some() {
            return Err(wrong(number, "it isn't a line that a server writes"));
        }
    }
    let lines = text.lines().count().max(1);
    meta.check().map_err(|what| wrong(lines, what))?;
    let again = encode(&meta);
    if again == text {
        return Ok(meta);
    }
    let differs = |(a, b): (&str, &str)| a != b;
    let at = text.lines().zip(again.lines()).position(differs).map_or(lines, |at| at + 1);
    let sum = at == lines;
    Err(wrong(at, if sum { "the checksum is wrong" } else { "it isn't in its place" }))
}

fn wrong(line: usize, what: impl Into<String>) -> LogError {
    LogError::Meta { line, what: what.into() }
}

fn take(meta: &mut Meta, what: &str, words: &mut SplitWhitespace<'_>) -> Option<()> {
    match what {
        FIRST => drop(number::<u32>(words)?),
        "id" => meta.id = bytes16(words.next()?)?,
        "secret" => meta.secret = Secret(bytes16(words.next()?)?),
        "next-generation" => meta.next_generation = number(words)?,
        "next-tenant" => meta.next_tenant = number(words)?,
        "tenant" => {
            let (tenant, name) = (number(words)?, words.next()?.to_string());
            let line = TenantLine { name, partitions: number(words)?, seed: hex32(words.next()?)? };
            meta.tenants.insert(tenant, line);
        }
        "dropped" => drop(meta.dropped.insert(number(words)?)),
        "chain" => {
            let (generation, shard, shards) = (number(words)?, number(words)?, number(words)?);
            meta.chains.push(Chain { generation, shard, shards });
        }
        "end" => {
            let shard = number(words)?;
            let at = LogPosition { file: number(words)?, position: number(words)? };
            meta.ends.push(ChainEnd { shard, at, sum: hex32(words.next()?)? });
        }
        "mark" => meta.mark = Some(bytes16(words.next()?)?),
        "sum" => drop(hex32(words.next()?)?),
        _ => return None,
    }
    Some(())
}

fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

fn hex32(word: &str) -> Option<u32> {
    (word.len() == 8).then(|| u32::from_str_radix(word, 16).ok())?
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

fn bytes16(word: &str) -> Option<[u8; 16]> {
    (word.len() == 32).then(|| u128::from_str_radix(word, 16).ok())?.map(u128::to_be_bytes)
}
