//! Story: the numbers of calls begin anew, and objects that an old call has left stay invalid.

use super::given_back::{run, runtime};
use crate::Call;

/// Calls behind the wrap: their numbers are those of the first calls.
const CALLS: usize = 10;

#[test]
fn a_kept_db_stays_invalid_when_the_numbers_begin_anew() {
    // It knows its call by the number alone. Once, 2^30 calls later it was valid again: a Record
    // read whatever lay at its place then.
    let source = b"#!js name=t\n\
        let kept;\n\
        export const keep = (db) => { kept ??= db; return 1; };\n\
        export const use = () => String(kept.get('key'));";
    let (mut runtime, tenant) = runtime(source);
    let [keep, used] = [&b"keep"[..], b"use"].map(|function| Call { function, ..Call::default() });
    assert_eq!(run(&mut runtime, tenant, &[keep])[0].1, ':');
    runtime.isolate.use_up_states();
    assert_eq!(run(&mut runtime, tenant, &[used])[0].1, '-', "another call's");
    for _ in 0..CALLS {
        assert_eq!(run(&mut runtime, tenant, &[used])[0].1, '-', "another call's of that number");
    }
}
