//! The ids in an arena's header, whenever its writer dies.

use super::{Arena, directory, spec};
use crate::failpoints::before_each_step;
use crate::header_of;
use std::cell::RefCell;
use std::rc::Rc;

const NONE: [u8; 16] = [0; 16];
const ONE: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];

#[test]
fn a_kill_leaves_a_whole_id_or_none() {
    // A log was begun or retired, and its server was killed between the two words of an arena's log
    // id. Half of an id was left, which is no log's: no start took the folder any more.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 << 20));
    let ids = |path: &std::path::Path| {
        let header = header_of(path).expect("a header");
        [header.log_id, header.boot_id]
    };
    let mut old = NONE;
    for new in [ONE, ONE, OTHER, NONE, NONE, OTHER] {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (noted, path) = (Rc::clone(&seen), a.spec.path.clone());
        let look = move || noted.borrow_mut().extend(ids(&path));
        before_each_step(look, || {
            a.writer.set_log_id(&new);
            a.writer.set_boot_id(&new);
        });
        assert!(seen.borrow().len() >= 8, "two stores for each id, and both looked at");
        // The id of one log gives way to that of another by none.
        let may_be = |id: &[u8; 16]| [old, new].contains(id) || old != new && *id == NONE;
        assert!(seen.borrow().iter().all(may_be), "{old:?} to {new:?}: {seen:?}");
        assert_eq!(ids(&a.spec.path), [new; 2]);
        old = new;
    }
}
