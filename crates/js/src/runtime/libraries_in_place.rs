//! Story: a library comes, changes or goes, and what is known of the others' functions stays where
//! it is, however many there are.

use super::given_back::{run, runtime};
use crate::Call;
use std::sync::Arc;

#[test]
fn a_change_of_one_library_leaves_the_functions_of_the_others_in_place() {
    // Each change made the table of all functions anew, twice if it replaced a library: the more
    // libraries there were, the longer a change held its shard.
    let (mut runtime, tenant) = runtime(b"#!js name=t\nexport const first = () => 1;");
    let call = |function: &'static [u8]| Call { function, ..Call::default() };
    let mut table = None;
    for (library, source, answers) in [
        (
            "u",
            Some("#!js name=u\nexport const second = () => 1; export const third = () => 1;"),
            ":::",
        ),
        ("v", Some("#!js name=v\nexport const fourth = () => 1;"), "::::"),
        ("u", Some("#!js name=u\nexport const third = () => 1;"), ":-::"),
        ("v", None, ":-:-"),
        ("v", Some("#!js name=v\nexport const second = () => 1;"), ":::-"),
        ("u", None, "::--"),
    ] {
        match source {
            Some(source) => {
                let loaded = runtime.load(tenant, source.as_bytes()).unwrap();
                runtime.install(tenant, &loaded, source.as_bytes()).unwrap();
            }
            None => assert!(runtime.remove(tenant, library)),
        }
        let now = Arc::as_ptr(&runtime.state(tenant).functions);
        assert_eq!(*table.get_or_insert(now), now, "{library}");
        // A batch has them, and they change all the same.
        let calls = [&b"first"[..], b"second", b"third", b"fourth"].map(call);
        let replies = run(&mut runtime, tenant, &calls);
        let marks: String = replies.iter().map(|(_, mark)| *mark).collect();
        let wanted = format!("{answers:-<4}");
        assert_eq!(marks, wanted, "{library}");
    }
}
