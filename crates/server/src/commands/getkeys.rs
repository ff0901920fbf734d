//! Finds the keys of a whole command, for COMMAND GETKEYS.

use super::spec::{CommandSpec, Find, NO_MANDATORY_KEYS};

const NO_KEYS: &str = "ERR The command has no key arguments";
const WRONG_ARGUMENTS: &str = "ERR Invalid number of arguments specified for command";
/// The number of keys is no number, or more than there are arguments.
const INVALID: &str = "ERR Invalid arguments specified for command";

/// Positions of the keys in `args` (the name is 0), each with the flags of its specification. An
/// error is the error reply, if there are none or they can't be told.
pub(crate) fn find_keys(
    spec: &CommandSpec,
    args: &[&[u8]],
) -> Result<Vec<(usize, &'static str)>, &'static str> {
    if spec.keys.is_empty() {
        return Err(NO_KEYS);
    }
    if !spec.takes(args.len()) {
        return Err(WRONG_ARGUMENTS);
    }
    match positions(spec, args) {
        // A command that may do without keys has none then, whatever is wrong with their number.
        Err(_) if spec.has(NO_MANDATORY_KEYS) => Ok(Vec::new()),
        other => other,
    }
}

fn positions(
    spec: &CommandSpec,
    args: &[&[u8]],
) -> Result<Vec<(usize, &'static str)>, &'static str> {
    let mut found = Vec::new();
    for key in spec.keys {
        let begin = usize::from(key.begin);
        let (first, last, step) = match key.find {
            Find::Range { last, step } => {
                let last = if last < 0 {
                    args.len().checked_sub(usize::from(last.unsigned_abs()))
                } else {
                    begin.checked_add(usize::from(last.unsigned_abs()))
                };
                (begin, last.ok_or(INVALID)?, usize::from(step))
            }
            Find::Counted => {
                let count = args.get(begin).and_then(|text| std::str::from_utf8(text).ok());
                let count: usize = count.and_then(|text| text.parse().ok()).ok_or(INVALID)?;
                if count > args.len() - begin - 1 {
                    return Err(INVALID);
                }
                (begin + 1, begin + count, 1)
            }
        };
        let positions = (first..=last).step_by(step.max(1));
        found.extend(
            positions.filter(|at| *at < args.len()).map(|at| (at, flags_for(key.flags, args))),
        );
    }
    if found.is_empty() {
        return Err(NO_KEYS);
    }
    Ok(found)
}

/// The flags of a key. SET's vary: without GET it doesn't read.
fn flags_for(flags: &'static str, args: &[&[u8]]) -> &'static str {
    if !flags.ends_with("variable_flags") {
        return flags;
    }
    let reads = args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"get"));
    if reads { "RW access update" } else { "OW update" }
}

#[cfg(test)]
mod tests {
    use super::super::{find, of};
    use super::*;

    fn keys(command: &str) -> Result<Vec<usize>, &'static str> {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let row = find(args[0]).expect("a command");
        find_keys(of(row), &args).map(|found| found.into_iter().map(|(at, _)| at).collect())
    }

    /// Ranges, pairs, two specifications and counted keys are all found where they are.
    #[test]
    fn keys_are_found_where_rows_say() {
        assert_eq!(keys("get a"), Ok(vec![1]));
        assert_eq!(keys("mset a 1 b 2"), Ok(vec![1, 3]));
        assert_eq!(keys("rename a b"), Ok(vec![1, 2]));
        assert_eq!(keys("fcall f 2 a b c"), Ok(vec![3, 4]));
        assert_eq!(keys("fcall f 3 a b"), Ok(vec![]));
        assert_eq!(keys("fcall f -1 a b"), Ok(vec![]));
        assert_eq!(keys("fcall f 0 a"), Ok(vec![]));
        assert_eq!(keys("get"), Err(WRONG_ARGUMENTS));
        assert_eq!(keys("ping"), Err(NO_KEYS));
    }
}
