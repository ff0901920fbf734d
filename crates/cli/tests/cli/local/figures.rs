//! How fast the rings are: only when asked for.

use super::Host;
use nigh_resp::encode;
use std::time::{Duration, Instant};

/// Prints how long a SET and a GET by the rings take, and how many pipelined SETs a second has;
/// only with `NIGH_LOCAL_FIGURES`, which names how many to make.
#[test]
fn figures_of_the_rings() {
    let Ok(count) = std::env::var("NIGH_LOCAL_FIGURES") else { return };
    let count: usize = count.parse().expect("a number");
    let host = Host::start(&["--shards", "1", "--pin-core", "0", "--spin-us", "10000"]);
    let mut client = host.attach();
    client.spin = Duration::from_secs(1);
    let value = "v".repeat(100);
    let percentile = |times: &mut Vec<u64>, permille: usize| {
        times.sort_unstable();
        times[(times.len() - 1) * permille / 1000]
    };
    for _ in 0..3 {
        for command in ["SET", "GET", "PING"] {
            let mut times = Vec::with_capacity(count);
            for n in 0..count {
                let key = format!("key:{}", n % 10_000);
                let words: &[&str] = match command {
                    "SET" => &["SET", &key, &value],
                    "GET" => &["GET", &key],
                    _ => &["PING"],
                };
                let mut request = Vec::new();
                encode::request(&mut request, words);
                let began = Instant::now();
                client.exchange_raw(&request, 1);
                times.push(u64::try_from(began.elapsed().as_nanos()).expect("a short time"));
            }
            let [p50, p99, p999] = [500, 990, 999].map(|at| percentile(&mut times, at));
            eprintln!("{command}: p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns");
        }
        let mut requests = Vec::new();
        for n in 0..64 {
            encode::request(&mut requests, ["SET", &format!("key:{n}"), &value]);
        }
        let many: Vec<u8> = requests.repeat(32);
        let (began, rounds) = (Instant::now(), count.div_ceil(64 * 32));
        for _ in 0..rounds {
            client.exchange_raw(&many, 64 * 32);
        }
        let rate = (rounds * 64 * 32) as f64 / began.elapsed().as_secs_f64();
        eprintln!("pipelined SETs: {rate:.0} a second");
    }
}
