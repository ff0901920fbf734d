//! The view, drawn from recorded answers of a server.

use super::*;
use nigh_client::Frame;

/// Two answers of a server with two shards, a second apart, cut to what the view reads.
const BEFORE: &str = include_str!("before.txt");
const AFTER: &str = include_str!("after.txt");

fn histogram(get: [i64; 3], set: i64) -> Frame {
    let bulk = |text: &str| Frame::Bulk(text.into());
    let command = |name: &str, buckets: Vec<(i64, i64)>| {
        let buckets = buckets.into_iter().map(|(a, b)| (Frame::Integer(a), Frame::Integer(b)));
        let about = vec![(bulk("histogram_usec"), Frame::Map(buckets.collect()))];
        (bulk(name), Frame::Map(about))
    };
    Frame::Map(vec![
        command("get", vec![(1, get[0]), (2, get[1]), (1056, get[2])]),
        command("set", vec![(4, set)]),
    ])
}

fn looks() -> [Sample; 2] {
    [
        Sample::parse(BEFORE, &histogram([1_000, 1_500, 1_600], 100)),
        Sample::parse(AFTER, &histogram([401_000, 411_400, 411_600], 20_100)),
    ]
}

fn report(size: Size, note: Option<&str>) -> Vec<ScreenLine> {
    let [before, after] = looks();
    lines("127.0.0.1:6379", Between::new(&before, &after), note, size)
}

const PLAIN: Size = Size { columns: 400, rows: None };

/// The report has every part, from two recorded answers.
#[test]
fn a_recorded_server_is_drawn() {
    let text: String = report(PLAIN, None).into_iter().map(|line| line.text + "\n").collect();
    assert_eq!(text, include_str!("expected.txt"), "\n{text}");
}

/// On a screen there are no more lines than rows, no line is longer than the screen is wide, and
/// every part is there.
#[test]
fn lines_fit_the_screen() {
    for (columns, rows) in [(80, 24), (120, 50), (40, 15), (10, 14)] {
        let lines = report(Size { columns, rows: Some(rows) }, Some("a note"));
        assert!(lines.len() <= rows, "{} lines in {rows} rows", lines.len());
        assert!(lines.iter().all(|line| line.text.chars().count() <= columns));
        assert!(lines.iter().any(|line| line.text.starts_with("a note")));
        assert!(lines.iter().any(|line| line.text.starts_with("hottest")));
    }
    let small = report(Size { columns: 80, rows: Some(16) }, None);
    assert!(small.iter().any(|line| line.text == "and 1 more shards"), "{small:?}");
}

/// A server can't drive the terminal by its name, nor by the names of its keys.
#[test]
fn no_control_character_reaches_the_screen() {
    let info = "nigh_version:\x1b[2J\nhotkeys_samples:9\nhotkey_1:samples=9,key=\x1b]0;x\x07\n";
    let sample = Sample::parse(info, &Frame::Null);
    for line in lines("a", Between::new(&sample, &sample), None, PLAIN) {
        assert!(!line.text.chars().any(char::is_control), "{line:?}");
    }
}

/// Numbers are shown in the unit that suits them, and bars never leave their brackets.
#[test]
fn numbers_have_units() {
    let shown = [bytes(0.0), bytes(999.0), bytes(1024.0), bytes(5e9), bytes(1e15)];
    assert_eq!(shown, ["0 B", "999 B", "1.0 KiB", "4.7 GiB", "909.5 TiB"]);
    assert_eq!([micros(7.0), micros(1056.0), micros(2e6)], ["7 us", "1.1 ms", "2.0 s"]);
    let shown = [duration(5.0), duration(65.0), duration(7_380.0), duration(90_000.0)];
    assert_eq!(shown, ["5s", "1m 05s", "2h 03m", "1d 01h"]);
    assert_eq!(bar(&[(0.5, '|'), (0.25, 'x'), (9.0, '-')]), "[||||||||||xxxxx-----]");
    assert_eq!(bar(&[(f64::NAN, '|'), (-1.0, 'x')]), "[....................]");
}
