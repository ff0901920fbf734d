//! The report of a load: a table for people, or JSON for scripts.
//!
//! Invariant: fields of the JSON keep their names and units.

use super::figures::{EndpointReport, Series};
use super::load_options::{Args, Distribution};
use anyhow::Result;
use indicatif::HumanFloatCount;
use serde::Serialize;

/// The JSON of one measurement. Times are in seconds, or in microseconds if the name says so.
#[derive(Serialize)]
struct Report<'a> {
    tool: &'static str,
    version: &'static str,
    command: &'a str,
    connections: usize,
    pipeline: u64,
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    distribution: &'static str,
    theta: Option<f64>,
    seed: u64,
    pairs: usize,
    pinned_cpu: Option<usize>,
    checked: bool,
    endpoints: Vec<EndpointReport>,
}

/// Prints the report in the requested form.
pub(super) fn print(args: &Args, series: &[Series]) -> Result<()> {
    let first = series.first().map(Series::rates);
    let endpoints: Vec<_> = series
        .iter()
        .zip(&args.connect)
        .enumerate()
        .map(|(at, (series, address))| {
            series.report(&address.to_string(), if at == 0 { None } else { first.as_deref() })
        })
        .collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report(args, endpoints))?);
    } else {
        text(args, &endpoints);
    }
    Ok(())
}

fn report(args: &Args, endpoints: Vec<EndpointReport>) -> Report<'_> {
    let zipfian = args.distribution == Distribution::Zipfian;
    Report {
        tool: "nigh-bench",
        version: env!("CARGO_PKG_VERSION"),
        command: &args.command,
        connections: args.connections,
        pipeline: args.pipeline,
        keys: args.keys,
        key_bytes: args.key_size,
        value_bytes: args.value_size,
        distribution: match args.distribution {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Sequential => "sequential",
        },
        theta: zipfian.then_some(args.theta),
        seed: args.seed,
        pairs: args.pairs,
        pinned_cpu: args.pin,
        checked: args.check,
        endpoints,
    }
}

fn text(args: &Args, endpoints: &[EndpointReport]) {
    println!(
        "{}   connections {}, pipeline {}, {} keys of {} B, values of {} B, {} runs each",
        args.command,
        args.connections,
        args.pipeline,
        args.keys,
        args.key_size,
        args.value_size,
        args.pairs
    );
    println!();
    println!(
        "{:<24} {:>12} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "", "per second", "p50 µs", "p90", "p99", "p99.9", "p99.99", "max"
    );
    for endpoint in endpoints {
        let latency = endpoint.latency_us;
        println!(
            "{:<24} {:>12} {:>9.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1}",
            endpoint.address,
            thousands(endpoint.per_second.median),
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.p9999,
            latency.max
        );
    }
    for endpoint in &endpoints[1..] {
        if let Some(ratio) = endpoint.ratio_of_first {
            println!(
                "\n{} / {}: {:.3}  (quartiles {:.3} to {:.3})",
                endpoints[0].address, endpoint.address, ratio.median, ratio.q1, ratio.q3
            );
        }
    }
    for endpoint in endpoints {
        details(endpoint);
    }
}

fn details(endpoint: &EndpointReport) {
    let EndpointReport { address, requests, sets, nulls, errors, mismatches, .. } = endpoint;
    let mut parts = vec![format!("{} replies", thousands(*requests as f64))];
    for (count, name) in
        [(sets, "SETs"), (nulls, "nulls"), (errors, "errors"), (mismatches, "wrong values")]
    {
        if *count > 0 {
            parts.push(format!("{} {name}", thousands(*count as f64)));
        }
    }
    println!("\n{address}: {}", parts.join(", "));
    if let Some(error) = &endpoint.first_error {
        println!("  the first error: {error}");
    }
}

/// A number rounded to an integer, with commas.
pub(super) fn thousands(number: f64) -> String {
    format!("{:.0}", HumanFloatCount(number))
}
