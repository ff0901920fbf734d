//! The page docs/benchmarks-embedded.md and its pictures, of all results.
//!
//! Invariant: the page names each missed target, and each engine that is faster than Nigh in a row;
//! no path of the machine is in it.

mod dragondb;
mod losses;
mod page;
mod pictures;
mod svg;
mod tables;
mod targets;
mod text;

use crate::results::Results;
use crate::workloads::is_dragon_row;
use anyhow::{Context, Result, ensure};
use pictures::{STEM, groups, rates_picture, targets_picture, threads_pictured};
use std::path::{Path, PathBuf};
use targets::threads_text;
use text::with_commas;

/// Where results are, and where pages go.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The file of results.
    #[arg(long, default_value = crate::results::RESULTS_PATH)]
    results: PathBuf,
    /// The folder for the page and its pictures.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))]
    docs: PathBuf,
}

/// Writes page and pictures.
pub(crate) fn write(args: &ReportArgs) -> Result<()> {
    let results = Results::read(&args.results)?;
    let put = |name: &str, text: &str| {
        let path = args.docs.join(name);
        std::fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
    };
    let all_keys = results.keys_of(|row| !is_dragon_row(row));
    ensure!(!all_keys.is_empty(), "{} has rows of DragonDB only", args.results.display());
    for keys in all_keys.iter().copied() {
        let verdicts = targets::verdicts(&results, keys);
        if !verdicts.is_empty() {
            let title = format!("Nigh's targets, {} keys", with_commas(keys));
            put(&targets_picture(keys), &svg::targets(&title, &verdicts))?;
        }
        for threads in threads_pictured(&results, keys) {
            let title = format!("{}, {} keys", threads_text(threads), with_commas(keys));
            put(
                &rates_picture(keys, threads),
                &svg::rates(&title, &groups(&results, keys, threads)),
            )?;
        }
    }
    put(&format!("{STEM}.md"), &page::page(&results, &all_keys))?;
    eprintln!("{} is written", Path::new(&args.docs).join(format!("{STEM}.md")).display());
    Ok(())
}
