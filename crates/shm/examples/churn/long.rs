//! The long run: the arenas in turns for so many seconds, sampled every few.
//!
//! A machine that lends its cores to others lets any step look long now and then, in CPU time too.
//! So a twin takes the same writes as the arena that is cleaned, and does the same steps: a step
//! has taken the lesser of its two times.

use crate::chart::{Panel, Series, svg};
use crate::{Arena, HEADER_BYTES, KEY_BYTES, SLOW_NS, mib, noise_ns};
use std::path::Path;
use std::time::Instant;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Overwrites that one arena takes before it is the other's turn.
const ROUND_WRITES: u64 = 20_000;
/// Capacity of the arena that is never cleaned; it is made anew when half of that is used.
const ROOMY_BYTES: u64 = 8 << 30;
/// Seconds of the run that a point of the picture stands for, one in so many.
const POINTS: u64 = 120;
/// CPU time in which a look at the clock alone is watched, per point, nanoseconds.
const NOISE_NS: u64 = 50_000_000;

/// What a point says.
#[derive(Clone, Copy, Default)]
struct Point {
    at_s: f64,
    writes: f64,
    full_s: f64,
    roomy_s: f64,
    blocks: u64,
    backed: u64,
    /// Of each step the lesser of both twins' times, the longest of these.
    longest_ns: u64,
    /// The longest step of one twin alone.
    seen_ns: u64,
    noise_ns: u64,
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

fn roomy(dir: &Path, keys: u64, value: &[u8]) -> Arena {
    let mut arena = Arena::new(dir, "roomy", ROOMY_BYTES);
    arena.writer.leave_sparse();
    arena.fill(keys, value);
    arena
}

/// Of each write and turn since the last look the lesser of both times, the longest of these; and
/// the longest of the first alone.
fn longest(a: &mut Arena, twin: &mut Arena) -> (u64, u64) {
    let others = std::mem::take(&mut twin.slow);
    let both = a.slow.iter().filter_map(|(step, ns)| others.get(step).map(|other| *ns.min(other)));
    let longest = both.max().unwrap_or(SLOW_NS);
    (longest, a.longest_ns())
}

pub(crate) fn run(for_s: u64, picture: &Path, keys: u64, percent: u64) {
    let value = [7; VALUE_BYTES];
    let record = (HEADER_BYTES + (KEY_BYTES + VALUE_BYTES) as u64).next_multiple_of(16);
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs directory");
    let mut other = roomy(dir.path(), keys, &value);
    let index = other.writer.stats().index_lines * 64;
    let capacity = (keys * record + index) * 100 / percent;
    let mut full = Arena::new(dir.path(), "full", capacity);
    full.fill(keys, &value);
    let mut twin = Arena::new(dir.path(), "twin", capacity);
    twin.fill(keys, &value);
    let (growing_ns, _) = longest(&mut full, &mut twin);
    let before = full.writer.stats();
    let mut points = Vec::new();
    let began = Instant::now();
    while began.elapsed().as_secs() < for_s {
        let mut point = Point::default();
        let (full_ns, full_writes) = (full.spent_ns, full.counted);
        let mut roomy_ns = 0;
        let until = began.elapsed().as_secs_f64()
            + std::time::Duration::from_secs(for_s).as_secs_f64() / seconds(POINTS * 1_000_000_000);
        while began.elapsed().as_secs_f64() < until {
            full.overwrite(ROUND_WRITES, keys, &value);
            twin.overwrite(ROUND_WRITES, keys, &value);
            let spent = other.spent_ns;
            other.overwrite(ROUND_WRITES, keys, &value);
            roomy_ns += other.spent_ns - spent;
            let stats = full.writer.stats();
            point.backed = point.backed.max(stats.backed_bytes);
            if other.writer.stats().backed_bytes > ROOMY_BYTES / 2 {
                assert_eq!(other.writer.stats().cleaner.steps, 0, "the roomy arena was cleaned");
                let (path, rounds) = (other.path.clone(), other.rounds);
                drop(other);
                std::fs::remove_file(path).expect("the roomy arena's file");
                other = roomy(dir.path(), keys, &value);
                other.rounds = rounds;
            }
        }
        point.blocks = std::mem::take(&mut full.most_blocks_bytes);
        assert!(point.blocks <= capacity, "{} blocks of {capacity}", point.blocks);
        point.at_s = began.elapsed().as_secs_f64();
        (point.full_s, point.roomy_s) = (seconds(full.spent_ns - full_ns), seconds(roomy_ns));
        point.writes = f64::from(u32::try_from(full.counted - full_writes).expect("few"));
        (point.longest_ns, point.seen_ns) = longest(&mut full, &mut twin);
        point.noise_ns = noise_ns(NOISE_NS);
        points.push(point);
    }
    let now = full.writer.stats();
    let same = twin.writer.stats().cleaner.relocated_bytes == now.cleaner.relocated_bytes;
    assert!(same, "the twins have not done the same");
    let appended = now.appended_bytes - before.appended_bytes;
    let moved = now.cleaner.relocated_bytes - before.cleaner.relocated_bytes;
    let share = before.used_bytes * 100 / capacity;
    let title = format!(
        "{keys} keys of {KEY_BYTES} + {VALUE_BYTES} bytes overwritten at random for {for_s} s, live data {percent} % of {}",
        mib(capacity),
    );
    println!("longest write or turn while the index grew from nothing: {} us", growing_ns / 1000);
    table(&title, &points, (appended + moved) * 100 / appended, share);
    draw(picture, &title, &points, capacity);
}

fn table(title: &str, points: &[Point], amplification: u64, share: u64) {
    println!("{title}; records alone {share} %");
    let sum = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>();
    let (writes, full_s, roomy_s) = (sum(|p| p.writes), sum(|p| p.full_s), sum(|p| p.roomy_s));
    let mut ratios: Vec<f64> = points.iter().map(|p| p.roomy_s / p.full_s).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |q: usize| ratios.get((ratios.len().max(1) - 1) * q / 100).copied().unwrap_or(0.0);
    println!("| figure | value |");
    println!("|---|---|");
    println!("| writes to each arena | {:.1} million |", writes / 1e6);
    println!("| writes per second of thread CPU time, cleaned | {:.0} |", writes / full_s);
    println!("| writes per second of thread CPU time, never cleaned | {:.0} |", writes / roomy_s);
    println!("| throughput ratio | {:.2} |", roomy_s / full_s);
    println!(
        "| ratio of a point: least, 10 %, median | {:.2}, {:.2}, {:.2} |",
        at(0),
        at(10),
        at(50)
    );
    println!("| write amplification | {}.{:02} |", amplification / 100, amplification % 100);
    let most = |of: fn(&Point) -> u64| points.iter().map(of).max().unwrap_or(0);
    println!(
        "| longest write or turn, lesser of the twins' | {} us |",
        most(|p| p.longest_ns) / 1000
    );
    println!("| the same, one of them alone | {} us |", most(|p| p.seen_ns) / 1000);
    println!("| longest look at the clock alone | {} us |", most(|p| p.noise_ns) / 1000);
    println!("| most blocks of the file system | {} |", mib(most(|p| p.blocks)));
    println!("| backed at most, as counted | {} |", mib(most(|p| p.backed)));
}

fn draw(picture: &Path, title: &str, points: &[Point], capacity: u64) {
    let line = |name, color, dashed, of: &dyn Fn(&Point) -> f64| Series {
        name,
        color,
        dashed,
        values: points.iter().map(of).collect(),
    };
    let mebi = |bytes: u64| f64::from(u32::try_from(bytes >> 10).expect("below 4 TiB")) / 1024.0;
    let panels = [
        Panel {
            label: "writes, million per second of thread CPU time",
            series: vec![
                line("never cleaned", "#777777", false, &|p| p.writes / p.roomy_s / 1e6),
                line("cleaned", "#0a6e8a", false, &|p| p.writes / p.full_s / 1e6),
            ],
        },
        Panel {
            label: "blocks of the file system, MiB",
            series: vec![
                line("capacity", "#b03030", true, &|_| mebi(capacity)),
                line("cleaned", "#0a6e8a", false, &|p| mebi(p.blocks)),
            ],
        },
        Panel {
            label: "longest write or turn, ms of thread CPU time",
            series: vec![
                line("bound", "#b03030", true, &|_| 2.0),
                line("one of the twins alone", "#aaaaaa", false, &|p| seconds(p.seen_ns) * 1e3),
                line("lesser of the twins'", "#0a6e8a", false, &|p| seconds(p.longest_ns) * 1e3),
            ],
        },
    ];
    let times: Vec<f64> = points.iter().map(|p| p.at_s).collect();
    let note =
        "a point: the sum, or the most, of a 120th of the run; all arenas in turns on one thread";
    std::fs::write(picture, svg(title, note, &times, &panels)).expect("the picture's file");
}
