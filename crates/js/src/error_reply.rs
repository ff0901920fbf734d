//! Texts of error replies. A reply is one line: a code, the event, its function and its place.
//! Pure; any thread.

use std::borrow::Cow;

use crate::caller::function_limits::FunctionLimits;
use crate::ffi;
use crate::library::too_long_to_start;
use crate::stop::cause::{Cause, Reason};

/// The beginning of a place in the prelude, which the shim names so.
const PRELUDE: &str = "nigh:prelude:";
/// Longest error reply, bytes.
const REPLY_MAX: usize = 4096;
/// Longest function name taken from a stack.
const FRAME_NAME_MAX: usize = 64;

/// A reply `-CODE text\r\n` from a message that may contain anything.
pub(crate) fn reply(message: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 8);
    out.push(b'-');
    if !has_code(message) {
        out.extend_from_slice(b"ERR ");
    }
    out.extend(
        message.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }),
    );
    out.truncate(REPLY_MAX);
    out.extend_from_slice(b"\r\n");
    out
}

/// Whether the first word is a code: upper-case letters, at least two (so "I give up" has none).
fn has_code(message: &str) -> bool {
    let word = message.split(' ').next().unwrap_or_default();
    word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// The reply to a thrown error: message, function, line and column.
pub(crate) fn thrown(message: &str, stack: &str, library: &str, function: &str) -> Vec<u8> {
    let place = match position(frames(stack, message), library) {
        Some((name, line, column)) => {
            let name = if name.is_empty() { function } else { name };
            format!(" (function {name}, line {line}, column {column})")
        }
        None => format!(" (function {function})"),
    };
    // The place is kept even if the message is long.
    let mut end = message.len().min(REPLY_MAX - 512);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    reply(&format!("{}{place}", &message[..end]))
}

/// The stack behind the error's message, which V8 begins it with, as in `TypeError: message`: the
/// message may have lines that look like frames, such as those of another error's stack. A message
/// that was changed since isn't in the stack.
fn frames<'s>(stack: &'s str, message: &str) -> &'s str {
    match stack.split_once(message) {
        Some((class, frames))
            if class.is_empty() || class.ends_with(": ") && !class.contains('\n') =>
        {
            frames
        }
        _ => stack,
    }
}

/// The innermost frame of a stack that lies in the library: function ("" if it has no name), line,
/// column.
fn position<'s>(stack: &'s str, library: &str) -> Option<(&'s str, u32, u32)> {
    stack.lines().find_map(|line| {
        let frame = line.trim_start().strip_prefix("at ")?;
        let (name, place) = match frame.rsplit_once(" (") {
            Some((name, place)) => (name, place.strip_suffix(')')?),
            None => ("", frame),
        };
        let (place, column) = place.rsplit_once(':')?;
        let (script, line) = place.rsplit_once(':')?;
        if script != library {
            return None;
        }
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '#' | ' ');
        let named = name.len() <= FRAME_NAME_MAX && name.chars().all(plain);
        let name = if named && name != "async" { name } else { "" };
        Some((name, line.parse().ok()?, column.parse().ok()?))
    })
}

/// A text for the log without stack frames of the prelude, whose files a library's author doesn't
/// have.
pub(crate) fn without_prelude(text: &str) -> Cow<'_, str> {
    if !text.contains(PRELUDE) {
        return Cow::Borrowed(text);
    }
    let is_prelude = |line: &&str| line.trim_start().starts_with("at ") && line.contains(PRELUDE);
    text.lines().filter(|line| !is_prelude(line)).collect::<Vec<_>>().join("\n").into()
}

/// The reply to a call that was stopped.
pub(crate) fn stopped(function: &str, cause: Cause, limits: &FunctionLimits) -> Vec<u8> {
    let time = (limits.call_ms, "function-time-limit-ms");
    reply(&stopped_text(&format!("function '{function}'"), cause, time, limits))
}

/// The reply to a call that is not started any more.
pub(crate) fn closing(function: &str) -> Vec<u8> {
    reply(&format!("ERR the server is shutting down: function '{function}' was not started"))
}

/// The reply to a call of a function in which another call is stuck: `for_good`, or still being
/// stopped.
pub(crate) fn lingers(function: &str, for_good: bool) -> Vec<u8> {
    let why = if for_good {
        "is refused here until its library's source changes or the server restarts: V8 gave up in it"
    } else {
        "ran too long and is still being stopped; try again later"
    };
    reply(&format!("ERR function '{function}' {why}"))
}

/// Text about `what` (a function, a top level) that was stopped. `time` is its limit in ms, and the
/// limit's setting.
fn stopped_text(what: &str, cause: Cause, time: (u64, &str), limits: &FunctionLimits) -> String {
    match cause {
        Cause::Heap => format!(
            "ERR {what} used more than {} bytes of heap and was stopped; nothing was written \
             (setting: function-heap-limit-bytes)",
            limits.heap_bytes
        ),
        Cause::Time => format!(
            "ERR {what} ran longer than {} ms and was stopped; nothing was written (setting: {})",
            time.0, time.1
        ),
        Cause::Fatal => {
            format!(
                "ERR {what} asked for more than V8 can hold and was stopped; nothing was written"
            )
        }
        // The same text as Redis's.
        Cause::Order(Reason::Kill) => "ERR Script killed by user with FUNCTION KILL.".to_owned(),
        Cause::Order(Reason::Shutdown) => {
            format!("ERR the server is shutting down: {what} was stopped; nothing was written")
        }
    }
}

/// Why module `library` was refused, from the shim's report.
pub(crate) fn module(
    fault: &ffi::Fault,
    library: &str,
    cause: Cause,
    limits: &FunctionLimits,
) -> String {
    // SAFETY: the shim keeps the texts until the isolate's next call.
    let message = unsafe { fault.message.text() };
    // SAFETY: as above.
    let stack = unsafe { fault.stack.text() };
    let thrown = message.trim_start_matches("Uncaught ");
    let place = if fault.line > 0 {
        format!(" (line {}, column {})", fault.line, fault.column)
    } else if let Some((_, line, column)) = position(frames(&stack, thrown), library) {
        format!(" (line {line}, column {column})")
    } else {
        String::new()
    };
    let text = match fault.kind {
        ffi::FAULT_IMPORT => {
            format!("it imports '{message}', but a library stands alone: imports are not possible")
        }
        ffi::FAULT_ASYNC => "its top level waits for a promise that nothing can settle".to_owned(),
        ffi::FAULT_TERMINATED if cause == Cause::Time => too_long_to_start(limits.load_ms),
        ffi::FAULT_TERMINATED => stopped_text("its top level", cause, (0, ""), limits)
            .trim_start_matches("ERR ")
            .to_owned(),
        _ => thrown.to_owned(),
    };
    let one_line: String = text
        .chars()
        .take(REPLY_MAX / 4)
        .map(|c| if c == '\r' || c == '\n' { ' ' } else { c })
        .collect();
    format!("{one_line}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_error_reply_is_one_line_with_a_code() {
        // Line breaks in a message would let a function forge replies.
        assert_eq!(text(reply("a\r\n+OK")), "-ERR a  +OK\r\n");
        assert_eq!(text(reply("NOTFOUND no such user")), "-NOTFOUND no such user\r\n");
        assert_eq!(text(reply("I give up")), "-ERR I give up\r\n");
        assert_eq!(text(reply("")), "-ERR \r\n");
    }

    #[test]
    fn logs_have_no_frames_of_the_prelude() {
        // A library's author has none of the prelude's files. A text that only looks like a frame
        // stays.
        let stack = "Error: nigh:prelude:1\n    at Db.get (nigh:prelude:9:9)\n    at f (t:1:1)";
        assert_eq!(without_prelude(stack), "Error: nigh:prelude:1\n    at f (t:1:1)");
    }

    #[test]
    fn the_place_is_the_users_innermost_frame() {
        // Frames of the prelude stand above the user's; an anonymous one gets the called function's
        // name.
        let stack = "TypeError: x\n    at Db.get (nigh:prelude:9:9)\n    at walk (graph:7:12)\n    at f (graph:1:1)";
        assert_eq!(
            text(thrown("x", stack, "graph", "f")),
            "-ERR x (function walk, line 7, column 12)\r\n"
        );
        let stack = "Error: x\n    at graph:3:4";
        assert_eq!(
            text(thrown("x", stack, "graph", "f")),
            "-ERR x (function f, line 3, column 4)\r\n"
        );
        assert_eq!(text(thrown("x", "", "graph", "f")), "-ERR x (function f)\r\n");
    }
}
