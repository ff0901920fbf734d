//! Three languages, one layout: the constants of the prelude and of the shim against Rust's own,
//! and against the crate that writes arenas.
#![expect(clippy::cast_possible_wrap, reason = "small constants")]

use nigh_shm::layout;

use super::{call_writer, results, write_set};
use crate::io;

const LAYOUT: &str = include_str!("../../prelude/01_layout.js");
const DB: &str = include_str!("../../prelude/04_db.js");
const ENCODE: &str = include_str!("../../prelude/05_encode.js");
const DISPATCH: &str = include_str!("../../prelude/06_dispatch.js");
const SHIM: &str = include_str!("../../shim/internal.h");

/// The number in `const NAME = …;` of the prelude (or `constexpr … NAME = …;` of the shim).
fn constant(source: &str, name: &str) -> i64 {
    let line = source.lines().find(|line| line.contains(&format!(" {name} = ")));
    let line = line.unwrap_or_else(|| panic!("{name} is not a constant"));
    let value = line.split(" = ").nth(1).unwrap().split(';').next().unwrap();
    value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}"))
}

#[test]
fn the_prelude_knows_the_arena_as_shm_does() {
    // A constant that differs from shm's would read other bytes of a record than its writer meant.
    let check = |name: &str, bytes: u64| {
        assert_eq!(constant(LAYOUT, name), bytes as i64, "{name}");
    };
    check("SEED_WORD", layout::header::SEED / 4);
    check("SLOT_SHIFT_WORD", layout::header::SLOT_SHIFT / 4);
    check("EPOCH_WORD", layout::header::EPOCH / 4);
    check("CURRENT_WORD", layout::header::CURRENT / 4);
    check("OLD_WORD", layout::header::OLD / 4);
    check("INTENT_WORD", layout::header::INTENT / 4);
    check("BEGUN_WORD", layout::header::BEGUN_LSN / 4);
    check("COMMITTED_WORD", layout::header::COMMITTED_LSN / 4);
    check("CLOCK_WORD", layout::header::CLOCK / 4);
    check("CLEAR_STAMP_WORD", layout::header::CLEAR_STAMP / 4);
    check("STAMPS_WORD", layout::stamp_offset(0) / 4);
    check("STAMPS_MASK", layout::STAMPS - 1);
    check("REC_LSN_LOW", layout::record::LSN / 4);
    check("REC_LSN_HIGH", layout::record::LSN / 4 + 1);
    check("REC_PREV", layout::record::PREV / 4);
    check("LINE_WORDS", layout::LINE_BYTES / 4);
    check("LINE_WORDS_SHIFT", u64::from((layout::LINE_BYTES / 4).trailing_zeros()));
    check("MAX_PROBES", layout::PROBE_LINES);
    check("LAST_RESERVED_REF", u64::from(layout::REF_MOVED));
    check("REC_VALUE_LENGTH", layout::record::VALUE_LEN / 4);
    check("REC_EXPIRY_LOW", layout::record::EXPIRY / 4);
    check("REC_EXPIRY_HIGH", layout::record::EXPIRY / 4 + 1);
    check("REC_META", layout::record::KEY_LEN / 4);
    check("REC_KEY", layout::record::KEY / 4);
    check("FLAG_RUN", u64::from(layout::record::FLAG_RUN));
    check("KEY_BYTES_MAX", layout::KEY_BYTES_MAX as u64);
    check("WINDOW_BYTES", layout::WINDOW_BYTES);
    check("WINDOWS_SHIFT", u64::from((layout::CAPACITY_MAX / layout::WINDOW_BYTES).ilog2()));
    assert_eq!(layout::record::UNIT, 16, "references count in units of 16 bytes");
    assert_eq!(layout::record::FLAGS, layout::record::KEY_LEN + 3, "flags are the meta's top byte");
    assert_eq!(constant(SHIM, "kSeedWord"), (layout::header::SEED / 4) as i64);
    assert_eq!(constant(SHIM, "kKeyBytesMax"), layout::KEY_BYTES_MAX as i64);
}

#[test]
fn the_prelude_and_the_shim_know_the_io_memory_as_rust_does() {
    // A constant that differs would make one side read what the other wrote for something else.
    let check = |name: &str, value: usize| {
        assert_eq!(constant(LAYOUT, name), value as i64, "{name}");
    };
    check("STATE", io::STATE);
    check("HEAP_HIT", io::HEAP_HIT);
    check("KILL", io::KILL);
    check("OVERTIME", io::OVERTIME);
    check("IN_RESULT_BYTES", io::IN_RESULT_BYTES);
    check("IN_RESULT_DEPTH", io::IN_RESULT_DEPTH);
    check("IN_WRITE_BYTES", io::IN_WRITE_BYTES);
    check("IN_WRITE_KEYS", io::IN_WRITE_KEYS);
    check("IN_FIRST_STATE", io::IN_FIRST_STATE);
    check("IN_FIRST_INDEX", io::IN_FIRST_INDEX);
    check("IN_FIRST_HEAD", io::IN_FIRST_HEAD);
    check("IN_COUNT", io::IN_COUNT);
    check("IN_FLUSH_BYTES", io::IN_FLUSH_BYTES);
    check("IN_NOW_F64", io::IN_NOW_F64);
    check("OUT_DONE", io::OUT_DONE);
    check("OUT_END", io::OUT_END);
    check("OUT_WRITES", io::OUT_WRITES);
    check("OUT_WRITE_HIGH", io::OUT_WRITE_HIGH);
    check("REQUEST_AT", io::REQUEST_AT);
    check("RESPONSE_ROOM", io::RESPONSE_ROOM);
    check("WRITES_ROOM", io::WRITES_ROOM);
    check("WRITES_TABLE", io::WRITES_TABLE);
    for (name, low) in
        [("IN_STILL", io::IN_STILL), ("IN_NOW", io::IN_NOW), ("IN_SEED", io::IN_SEED)]
    {
        check(&format!("{name}_LOW"), low);
        check(&format!("{name}_HIGH"), low + 1);
    }
    check("WINDOWS_SHIFT", call_writer::WINDOWS_SHIFT as usize);
    let response = format!("const RESPONSE_AT = REQUEST_AT + {};", io::REQUEST_ROOM);
    assert!(LAYOUT.contains(&response));
    assert!(LAYOUT.contains("const WRITES_AT = RESPONSE_AT + RESPONSE_ROOM;"));
    assert!(LAYOUT.contains("const SCAN_AT = WRITES_AT + WRITES_ROOM;"));
    for (name, prelude) in [
        ("kKeyLengthWord", "KEY_LENGTH"),
        ("kKeyAt", "KEY_AT"),
        ("kPlaceWord", "PLACE"),
        ("kWindowsShift", "WINDOWS_SHIFT"),
    ] {
        assert_eq!(constant(SHIM, name), constant(LAYOUT, prelude), "{name}");
    }
    for (name, value) in [("kStateWord", io::STATE), ("kHeapHitWord", io::HEAP_HIT)] {
        assert_eq!(constant(SHIM, name), value as i64, "{name}");
    }
}

#[test]
fn the_prelude_writes_and_reads_calls_as_rust_does() {
    // The heads of calls and results, and the entries of write sets.
    let flags = [
        ("CALL_RESP3", call_writer::CALL_RESP3),
        ("CALL_NO_WRITES", call_writer::CALL_NO_WRITES),
        ("CALL_OVERLAY", call_writer::CALL_OVERLAY),
        ("CALL_CLEARED", call_writer::CALL_CLEARED),
        ("CALL_STABLE", call_writer::CALL_STABLE),
        ("CALL_CROSS_SLOT", call_writer::CALL_CROSS_SLOT),
        ("CALL_CONTINUES", call_writer::CALL_CONTINUES),
    ];
    for (name, flag) in flags {
        assert_eq!(constant(DISPATCH, name), i64::from(flag), "{name}");
    }
    assert_eq!(constant(DISPATCH, "C_LISTS"), call_writer::HEAD_WORDS as i64);
    assert_eq!(constant(DISPATCH, "ARG_BYTES"), i64::from(call_writer::ARG_BYTES));
    let lengths = format!("const ARG_LENGTH = {:#x};", (1 << call_writer::ARG_KIND_SHIFT) - 1);
    assert!(DISPATCH.contains(&lengths), "{lengths}");
    for (name, value) in [
        ("R_KIND", results::R_KIND),
        ("R_LENGTH", results::R_LENGTH),
        ("R_STACK", results::R_STACK),
        ("R_UNTOLD", results::R_UNTOLD),
        ("R_HEAD", results::R_HEAD),
        ("KIND_REPLY", results::KIND_REPLY as usize),
        ("KIND_UNSTABLE", results::KIND_UNSTABLE as usize),
    ] {
        assert_eq!(constant(ENCODE, name), value as i64, "{name}");
    }
    for (name, value) in [
        ("W_OP", write_set::W_OP),
        ("W_KEY", write_set::W_KEY),
        ("W_KEY_LENGTH", write_set::W_KEY_LENGTH),
        ("W_VALUE", write_set::W_VALUE),
        ("W_VALUE_LENGTH", write_set::W_VALUE_LENGTH),
        ("W_EXPIRY_LOW", write_set::W_EXPIRY),
        ("W_EXPIRY_HIGH", write_set::W_EXPIRY + 1),
        ("OP_PUT", write_set::OP_PUT as usize),
        ("OP_DELETE", write_set::OP_DELETE as usize),
    ] {
        assert_eq!(constant(DB, name), value as i64, "{name}");
    }
    assert_eq!(4 << constant(DB, "ENTRY_WORDS_SHIFT"), io::WRITES_ENTRY as i64);
}
