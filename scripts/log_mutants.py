#!/usr/bin/env python3
"""Seeds mistakes into the code of journal and log, one at a time: does a test notice each?

  scripts/log_mutants.py [WORD...]    only those whose title has one of these words

A mistake is a piece of text in a file, and what stands there instead. Each is made in a copy of the
checkout below target/, and the tests that should notice it run: none may pass all of them. Exit
code 1 if one lived, or if a piece of text isn't there any more.
"""

import pathlib
import subprocess
import sys
import time

LOG, SHM, STORE = "nigh-log", "nigh-shm", "nigh-store"
W, R = "crates/log/src/writer/", "crates/log/src/reader/"
D, O = "crates/store/src/durability/", "crates/store/src/open/durable/"
S = "crates/shm/src/"

# title, file, text, instead, crate whose tests run, filter of tests
MISTAKES = [
    ("the next file begins before the old one is synced", W + "log_writer.rs",
     "        self.sync_file()?;\n        self.files.ended", "        self.files.ended", LOG, ""),
    ("frames follow a BEGIN that isn't synced", W + "log_writer.rs",
     "next.begin(&start).and_then(|()| next.sync())", "next.begin(&start)", LOG, ""),
    ("a watermark counts what isn't synced", W + "log_writer.rs",
     "            watermark: self.watermark,\n            oldest", "            watermark: self.file.at(),\n            oldest", LOG, ""),
    ("a failed write or sync is tried again", W + "log_writer.rs",
     "done.inspect_err(|error| self.broken = Some(error.to_string()))", "done", LOG, ""),
    ("needs of other logs are forgotten", W + "log_writer.rs",
     "own(stream) || durable(stream) >= lsn", "own(stream) || durable(stream) >= lsn || true", LOG, ""),
    ("a sync is skipped", W + "sync_job.rs",
     "done: file.sync_data().map_err(io)", "done: file.len().map(drop).map_err(io)", LOG, ""),
    ("a sync covers what is written while it runs", W + "log_writer.rs",
     "self.watermark = self.syncing.take().expect(\"a sync that was begun\");",
     "drop(self.syncing.take());\n        self.watermark = self.file.at();", LOG, ""),
    ("LSNs are durable that were written while a sync ran", W + "streams.rs",
     "state.durable = state.covered;", "state.durable = state.written;", LOG, ""),
    ("a file begins while a sync of the one before runs", W + "log_writer.rs",
     "        if self.syncing.is_some() {\n            return Ok(false);\n        }\n        self.next_file(",
     "        if self.syncing.take().is_some() {\n            self.streams.sync_ends();\n        }\n        self.next_file(", LOG, ""),
    ("a file goes at the end of a sync that began before its release", W + "chain_files.rs",
     "        if let VictimState::Covered(victim) = self.victim {",
     "        if let VictimState::Covered(victim) | VictimState::Released(victim) = self.victim {", LOG, ""),
    ("a sync that failed beside is passed over", W + "log_writer.rs",
     "        self.or_break(done)?;\n        self.sync_ended();", "        drop(done);\n        self.sync_ended();", LOG, ""),
    ("everysec doesn't know how long syncs take", D + "log_sync.rs",
     ".saturating_sub(longest)", ".saturating_sub(longest.min(0))", STORE, "slow_syncs"),
    ("a file that isn't the oldest goes", W + "chain_files.rs",
     "let victim = self.counted.front()?;", "let victim = self.counted.get(1)?;", LOG, ""),
    ("a synced group ends on a sector", W + "log_writer.rs",
     "self.write_frame(FrameEnd::Block)?;\n        }\n        if self.file.at()",
     "self.write_frame(FrameEnd::Sector)?;\n        }\n        if self.file.at()", LOG, ""),
    ("a recycled file keeps its salt", W + "prepare.rs",
     "let salt = self.world.chance.word();", "let salt = 7;", LOG, ""),
    ("a new file's name isn't synced", W + "prepare.rs",
     "self.world.storage.rename(&from, &to).map_err(failed(\"renaming\"))?;\n                self.world.storage.sync_folder().map_err(failed(\"syncing the folder\"))?;",
     "self.world.storage.rename(&from, &to).map_err(failed(\"renaming\"))?;", LOG, ""),
    ("damage below a watermark is cut off as a torn tail", R + "ends.rs",
     "        if mark > at {", "        if mark > at && false {", LOG, ""),
    ("headers behind a BEGIN that rotted aren't looked for", R + "ends.rs",
     "            if let Some(mark) = mark {", "            if let Some(mark) = mark.filter(|_| false) {", LOG, ""),
    ("a body's sum isn't compared", R + "frames.rs",
     "if SumKey::more(self.file.sums.body(self.position), rest) != body_sum {",
     "if SumKey::more(self.file.sums.body(self.position), rest) != body_sum && false {", LOG, ""),
    ("the frame before isn't compared", R + "frames.rs",
     "if self.before.is_some_and(|sum| sum != word32(bytes, f::BEFORE_SUM)) {",
     "if self.before.is_some_and(|sum| sum != word32(bytes, f::BEFORE_SUM)) && false {", LOG, ""),
    ("a file's end isn't compared with its successor", R + "counted.rs",
     "if self.walk.before() != Some(self.end_sum) {", "if false {", LOG, ""),
    ("gaps in a stream's LSNs are taken", R + "so_far.rs",
     "if known.is_some_and(|known| known + 1 != first) {", "if known.is_some_and(|known| known + 1 > first) {", LOG, ""),
    ("meta counts before its renaming is synced", "crates/log/src/folder/meta_file.rs",
     "sync_folder()", "names().map(drop)", LOG, ""),
    ("the journal is told that a change was written before it was", D + "log_thread.rs",
     "        self.sink.writer.write(syncs)?;\n        let position = self.reader.position();\n        self.reader.written(position);",
     "        let position = self.reader.position();\n        self.reader.written(position);\n        if syncs {\n            self.sink.writer.write(syncs)?;\n        }", STORE, "durable"),
    ("written counts as durable", D + "log_sink.rs",
     "let durable = self.writer.durable(*stream);", "let durable = self.writer.written(*stream);", STORE, "durable"),
    ("a record is appended again behind later changes", D + "log_thread.rs",
     "let end = self.ahead.front().map_or(tail, |order| order.tail.min(tail));", "let end = tail;", STORE, "durable"),
    ("a broken log isn't noted in the journal", D + "log_thread.rs",
     "        self.reader.file().set_broken(self.sink.writer.chain().generation);\n", "", STORE, "durable"),
    ("compaction drops live records", D + "shard_compaction.rs",
     "                self.again.push(AgainRecord { stream, lsn, record, value });",
     "                drop(AgainRecord { stream, lsn, record, value });", STORE, "durable"),
    ("compaction forgets keys that stand on the file", D + "shard_compaction.rs",
     "                pass.left.extend(keys.into_iter().map(|key| (*stream, key)));",
     "                drop((keys, stream));", STORE, "durable"),
    ("a BASED change's root is its own", S + "write/root_map.rs",
     "|root| Root { whole: 0, ..*root })",
     "|_| Root { lsn, file: 0, appended: 0, whole: 0 })", STORE, "durable"),
    ("the log's rest isn't written", O + "start.rs",
     "let written = write_rest(&findings, &streams, &mut writers);",
     "let written = Ok::<u64, StoreError>(0);", STORE, "durable"),
    ("another number of shards goes on in the old chains", O + "start.rs",
     "} else if findings.chains.len() != log.shards {", "} else if findings.chains.len() != log.shards && false {", STORE, "durable"),
    ("a broken log goes on", O + "start.rs",
     "let is_broken = findings.some_is_broken(&streams);", "let is_broken = false;", STORE, "durable"),
    ("a base counts without its records", O + "base.rs",
     "            append_all(&mut writer, it)?;\n", "            let _ = it;\n", STORE, "durable"),
    ("ids aren't compared", O + "found.rs",
     "        findings.check_ids(options)?;\n", "", STORE, "durable"),
    ("arenas of another boot are adopted beside an older state", O + "plan.rs",
     "            None => arena.last >= log,", "            None => true,", STORE, ""),
    ("an older log is taken for all", O + "plan.rs",
     "            (None, Some(_)) if continues => Origin::Log,", "            (None, Some(_)) => Origin::Log,", STORE, ""),
    ("the journal isn't redone in an adopted arena", S + "recover/adopt.rs",
     "            if entry.last_lsn() <= left.committed_lsn {", "            if entry.last_lsn() > 0 {", SHM, "left"),
    ("entries leave before the arena has the change", S + "journal/ring_writer.rs",
     "let head = self.side.file.written().min(cursors.settled.get());", "let head = self.side.file.written();", SHM, "journal"),
    ("runs that entries name are freed", S + "write/tell.rs",
     "                self.space.name_in_journal(name.slot, position);", "                let _ = (name, position);", SHM, "told"),
    ("a replayed value's sum isn't compared", S + "recover/replay.rs",
     "    it.check_sum().map_err(wrong)?;\n", "", SHM, "told"),
]


def run(copy, crate, tests):
    """Whether the tests pass."""
    target = pathlib.Path("target/log-mutants").resolve()
    command = ["cargo", "test", "-q", "--locked", "-p", crate, "--lib", "--tests", "--", tests]
    env = dict(__import__("os").environ, CARGO_TARGET_DIR=str(target), RUST_BACKTRACE="0")
    try:
        done = subprocess.run(command, cwd=copy, env=env, timeout=400,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        return False, "no end"
    compiled = "could not compile" not in done.stderr
    return done.returncode == 0, "fails" if compiled else "DOESN'T COMPILE"


def main():
    words = sys.argv[1:]
    copy = pathlib.Path("target/log-mutants-copy")
    subprocess.run(["git", "worktree", "remove", "--force", copy], stderr=subprocess.DEVNULL)
    subprocess.run(["git", "worktree", "add", "-q", "--detach", copy, "HEAD"], check=True)
    wrong = 0
    try:
        for title, file, text, instead, crate, tests in MISTAKES:
            if words and not any(word in title for word in words):
                continue
            path = copy / file
            before = path.read_text()
            if text not in before:
                print(f"GONE    {title}: its text isn't in {file}")
                wrong += 1
                continue
            path.write_text(before.replace(text, instead, 1))
            began = time.time()
            passes, how = run(copy, crate, tests)
            path.write_text(before)
            bad = passes or how == "DOESN'T COMPILE"
            wrong += bad
            word = "LIVED" if passes else how
            print(f"{word:<16}{title} ({time.time() - began:.0f} s)", flush=True)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", copy])
    print(f"{len(MISTAKES)} mistakes, {wrong} not found")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
