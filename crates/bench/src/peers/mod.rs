//! `nigh-bench peers`: Nigh beside Debian's Redis and the floor, on one machine, in turn.
//!
//! ```text
//! core 0   nigh serve, redis-server, nigh-bench floor      only the measured one is busy
//! core 1   this process: rows ─► results ─► markdown, svg
//! ```
//!
//! Invariants:
//! 1. A ratio is taken between runs that follow each other at once, or that alternate in slices. It
//!    is reported with quartiles.
//! 2. A target is met if the lower quartile misses it by at most 5 %.
//! 3. All servers stop and their files are removed, also after an error.

mod arena;
mod contest;
mod growing;
mod levels;
mod machine;
mod markdown;
mod rows;
mod svg;

use crate::load;
use anyhow::{Context, Result, ensure};
pub(crate) use contest::Args;
use contest::{LOAD_CPU, Servers};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;

/// Runs all rows and writes the page and the chart.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.pairs >= 1, "--pairs must be at least 1");
    let nigh = args.program.path()?;
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:32} {pos}/{len} runs  {msg}")?);
    bar.set_message("starting servers");
    // Before this thread is pinned and the load begins: both would change the facts.
    let machine = machine::Machine::look(&nigh, &args.redis);
    let servers = Servers::start(args, &nigh)?;
    load::pin(LOAD_CPU)?;
    let rows = rows::measure(args, &servers, &bar)?;
    ensure!(!rows.is_empty(), "no row's title contains {:?}", args.only);
    bar.finish_and_clear();
    drop(servers);
    let chart = args.out.with_extension("svg");
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
    };
    write(&chart, svg::chart(&rows))?;
    write(&args.out, markdown::report(args, &machine, &rows, &chart))?;
    for row in &rows {
        for verdict in row.verdicts() {
            let met = if verdict.met { "met   " } else { "missed" };
            println!("{met}  {}: {} (target {})", row.title, verdict.reached, verdict.target);
        }
    }
    println!("written to {} and {}", args.out.display(), chart.display());
    Ok(())
}
