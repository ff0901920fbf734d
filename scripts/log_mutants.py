#!/usr/bin/env python3
"""Seeds mistakes into the code of journal and log, one at a time: does a test notice each?

  scripts/log_mutants.py [WORD...]          only those whose title has one of these words
  scripts/log_mutants.py --dry [WORD...]    runs nothing: does each piece of text stand there once?

A mistake is a piece of text in a file, and what stands there instead. Each is made in a copy of the
checkout below target/, and the tests that should notice it run: none may pass all of them. Before,
all these tests run without a mistake, and have to pass. Exit code 1 if a mistake isn't found: it
lives, it can't be built, its tests don't end (they may be slow for other reasons) or fail without
it, or its piece of text isn't there any more, or more than once.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

# Packages, with the targets whose tests run; all, if none is named.
LOG, SHM, STORE = "nigh-log", "nigh-shm", "nigh-store"
LIBRARY, SERVER = "nigh --test db", "nigh-server --lib"
W, R = "crates/log/src/writer/", "crates/log/src/reader/"
D, O = "crates/store/src/durability/", "crates/store/src/open/durable/"
S, T = "crates/shm/src/", "crates/server/src/"

# Tests that take longer have no end; without a mistake they pass to their last one, which takes longer.
# Builds may take as long as they want.
TEST_SECONDS = 400
BASE_SECONDS = 4 * TEST_SECONDS

# title, file, text, instead, package whose tests run, filter of tests
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
    ("everysec leaves a sync no time", D + "log_sync.rs",
     "since + SECOND_US - SYNC_US - SLACK_US", "since + SECOND_US - SLACK_US", STORE, "slow_syncs"),
    ("a file that isn't the oldest goes", W + "chain_files.rs",
     "let victim = self.counted.front()?;", "let victim = self.counted.get(1)?;", LOG, ""),
    ("a synced group ends on a sector", W + "log_writer.rs",
     "self.write_frame(FrameEnd::Block)?;\n        }\n        if self.file.at()",
     "self.write_frame(FrameEnd::Sector)?;\n        }\n        if self.file.at()", LOG, ""),
    ("a recycled file keeps its salt", W + "prepare.rs",
     "(self.world.chance.word(), self.key.name(", "(7, self.key.name(", LOG, ""),
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
     "storage.sync_folder().map_err(in_doubt(", "storage.names().map(drop).map_err(in_doubt(", LOG, ""),
    ("a renaming counts that a start has found, and not synced", "crates/log/src/folder/meta_file.rs",
     "storage.sync_folder().map_err(|error|", "storage.names().map(drop).map_err(|error|", LOG, ""),
    ("the journal is told that a change was written while its frame is open", D + "base_thread.rs",
     "if !self.sink.writer.has_open_frame() {", "if true {", STORE, "durable"),
    ("an entry that begins a frame is told with the frame before", D + "taking.rs",
     "            self.framed = from;", "            self.framed = self.reader.position();", STORE, "durable"),
    ("a plain entry that removes is written as one that puts", D + "log_sink.rs",
     "kind: kind_of(effect), payload: &[payload] }];", "kind: if lsn == 0 { kind_of(effect) } else { ChangeKind::Put }, payload: &[payload] }];",
     STORE, "durable"),
    ("an entry that names a value is taken for a plain one", S + "journal/ring_reader.rs",
     "if effect == Effect::Put && Payload::has_run(payload) {", "if effect == Effect::Put && Payload::has_run(payload) && false {",
     STORE, "durable"),
    ("a watch isn't told of plain entries", D + "taking.rs",
     "if !is_seen && let Some(entry)", "if let Some(entry)", LIBRARY, "watches"),
    ("written counts as durable", D + "log_sink.rs",
     "let durable = self.writer.durable(*stream);", "let durable = self.writer.written(*stream);", STORE, "slow_syncs"),
    ("a record is appended again behind later changes", D + "taking.rs",
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
     "let written = write_rest(&findings, &streams, &values, &mut writers);",
     "let written = Ok::<u64, StoreError>(0);", STORE, "durable"),
    ("another number of shards goes on in the old chains", O + "start.rs",
     "(meta.chains.len() != log.shards, BaseCause::Shards)", "(false, BaseCause::Shards)", STORE, "durable"),
    ("a broken log goes on", O + "start.rs",
     "let is_broken = findings.some_is_broken(&streams);", "let is_broken = false;", STORE, "durable"),
    ("a base counts without its records", O + "base.rs",
     "        append_all(&mut writer, *stream, arena, goes_on)?;\n", "        let _ = (stream, arena, goes_on);\n", STORE, "durable"),
    ("what a base has left stays while the next is written", O + "base.rs",
     "    remove_unnamed(&*world.storage, &list(&*world.storage)?, meta)?;\n    let shards", "    let shards", STORE, "base_room"),
    ("a base that may count takes its files along", O + "base.rs",
     "            MetaFault::InDoubt(_) => breaks(generation),\n",
     "            MetaFault::InDoubt(_) => {\n                breaks(generation);\n                drop_chains(world, generation, shards);\n            }\n",
     STORE, "durable"),
    ("compaction gets no sync from appendfsync no", D + "log_thread.rs",
     "SyncMode::No => now >= due && (is_full || self.sink.writer.is_releasing()),", "SyncMode::No => false,", STORE, "syncs"),
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
     "            self.space.name_in_journal(name.slot, position);", "            let _ = (name, position);", SHM, "told"),
    ("a replayed value's sum isn't compared", S + "recover/replay.rs",
     "    it.check_sum().map_err(wrong)?;\n", "", SHM, "told"),
    # Syncs beside.
    ("LSNs are durable when their sync begins", W + "log_writer.rs",
     "self.streams.sync_begins();", "self.streams.sync_begins();\n        self.streams.sync_ends();", LOG, ""),
    ("a sync counts before its end is taken", D + "log_sink.rs",
     "            Some(job) => self.sync.syncer.begin(job),",
     "            Some(job) => {\n                self.sync.syncer.begin(job);\n                self.words.iter().for_each(|(stream, word)| word.store(self.writer.written(*stream)));\n            }",
     STORE, "slow_syncs"),
    ("a sync that was asked for while one ran isn't begun", D + "log_thread.rs",
     "        if self.sink.writer.is_syncing() {\n            return false;\n",
     "        if self.sink.writer.is_syncing() {\n            return self.sink.status.take_wanted() && false;\n",
     STORE, "asked_for_while_one_runs"),
    # Logs that begin, heal and end while serving.
    ("a base counts before it is synced", O + "live_log.rs",
     "if all(LogStage::Synced) { BaseLook::Whole }", "if all(LogStage::Syncs) { BaseLook::Whole }", STORE, "live"),
    ("a base counts before all its records are written", O + "live_log.rs",
     "if all(LogStage::Walked) {", "if !all(LogStage::Synced) {", STORE, "live"),
    ("a base tells what is durable before it counts", D + "log_sink.rs",
     "            if !self.status.counts() {", "            if !self.status.counts() && false {", STORE, "while_a_log_heals"),
    ("the journal gives back what only a base has that doesn't count", D + "base_thread.rs",
     "        if !self.sink.status.heals() {", "        if !self.sink.status.heals() || true {", STORE, "log_that_heals_may_be_cut_off"),
    ("changes are taken while a log heals", D + "base_stage.rs",
     "| if heals { HEALS } else { 0 };", "| if heals { 0 } else { 0 };", STORE, "while_a_log_heals"),
    ("a base ends before the keys that stand on others", D + "shard_base.rs",
     "            return self.look_at_standing(arenas);", "            return self.look_at_standing(arenas) || true;", STORE, "that_move_behind_the_walk"),
    ("the files of a broken log go before the new one counts", O + "live_log.rs",
     "let (before, shards) = (self.meta.clone(), self.shards());\n",
     "let (before, shards) = (self.meta.clone(), self.shards());\n        let _ = self.remove(&before.chains);\n", STORE, "log_that_heals_may_be_cut_off"),
    ("a renaming in doubt is taken for none", O + "live_log.rs",
     "        if !is_in_doubt {", "        if !is_in_doubt || true {", STORE, "live"),
    ("a base begins while threads of the broken log run", O + "log_keeper.rs",
     "            Stage::Ends(cause) if port.threads_ended() => {",
     "            Stage::Ends(cause) if port.threads_ended() || true => {", STORE, "live"),
    ("a log that is retired still counts", O + "live_log.rs",
     "        self.meta.chains.clear();\n", "", STORE, "live"),
    ("the journals of a retired log stay", O + "log_keeper.rs",
     "        if let Err(error) = live.remove_journals() {", "        let _ = &live;\n        if let Err(error) = Ok::<(), StoreError>(()) {", STORE, "live"),
    # Salvage.
    ("a salvage takes what is behind a bad record", R + "salvage.rs",
     "                self.read(oldest, Some(&stop), &mut |_, _, _| Ok(()))?",
     "                drop(stop);\n                read", LOG, "its_reader_refuses"),
    ("a salvage keeps keys that stand on nothing", "crates/store/src/salvage/log_salvage.rs",
     "in watch.into_dangling() {", "in watch.into_dangling().into_iter().take(0) {", STORE, "salvage"),
    ("a salvage keeps the log's id", "crates/store/src/salvage/log_salvage.rs",
     "..Meta::new(random(), Secret(random()))", "..Meta::new(meta.id, Secret(random()))", STORE, "salvage"),
    ("a salvage doesn't name what is lost", R + "salvage.rs",
     "(first <= last).then_some(LostLsns", "(first < first && first <= last).then_some(LostLsns", LOG, "salvage"),
    ("a salvage begins at a file that no frame counts any more", R + "salvage.rs",
     "            oldest = oldest.max(Some(seen.oldest).filter(|&oldest| oldest <= number));",
     "            oldest = oldest.or(Some(seen.oldest).filter(|&oldest| oldest <= number));", LOG, "salvage"),
    # Backups.
    ("a backup's mark stands before changes that were answered", D + "taking.rs",
     "let end = self.ahead.front().map_or(tail, |order| order.tail.min(tail));",
     "let end = self.ahead.front().map_or(tail, |order| match order.what {\n                crate::durability::orders::Ordered::EndFrame(_) => self.reader.position(),\n                _ => order.tail.min(tail),\n            });",
     STORE, "backup"),
    ("a backup's marks are put while shards go on", T + "state/backup_run.rs",
     "        while !shared.still.ask(OUTSIDE,", "        while false && !shared.still.ask(OUTSIDE,", SERVER,
     "no_mark_is_ordered"),
    ("a backup's mark isn't synced", W + "log_writer.rs",
     "        self.refuse_if_broken()?;\n        self.sync_file()?;\n        let (shard, at)",
     "        self.write(true)?;\n        let (shard, at)", LOG, "backup"),
    ("a backup is put into place before it is read back", "crates/log/src/backup/make.rs",
     "        let read = verify(&copy, self.meta, progress, BackupError::NotWhole);",
     "        self.place.publish()?;\n        let read = verify(&copy, self.meta, progress, BackupError::NotWhole);", LOG, "backup"),
    ("a restored log keeps its id", "crates/log/src/backup/restore.rs",
     "let id = random_id(&*backup.chance);", "let id = meta.id;", LOG, "backup"),
    # Replies.
    ("reads under always are answered before what they show is on disk", T + "turn/unsynced.rs",
     "            if self.state.unsynced_of(prepared.tenant, prepared.partition).is_some() {",
     "            if self.state.unsynced_of(prepared.tenant, prepared.partition).is_some() && false {", SERVER, "turn::tests::durable"),
    ("a hit counts as on disk without a look at its LSN", T + "turn/unsynced.rs",
     "is_some_and(|record| record.lsn() <= reader.durable_lsn())",
     "is_some_and(|record| record.lsn() <= reader.durable_lsn() || true)", SERVER, "turn::tests::durable"),
    ("replies of other shards aren't waited for under always", T + "turn/unsynced.rs",
     "    kept.needs.extend(state.unsynced(tenant, pipe.depends.looked));\n    kept.bytes = pipe.out.waiting();\n    state.look",
     "    kept.bytes = pipe.out.waiting();\n    state.look", SERVER, "turn::tests::durable"),
    ("a durable call is answered when it has run", T + "turn/unsynced.rs",
     "        depends.insists = true;\n", "", SERVER, "turn::tests::durable"),
    ("a durable call waits for what it wrote at its own shard only", T + "turn/unsynced.rs",
     "        depends.add(all, all);", "        depends.add(Streams::of(0), Streams::of(0));", SERVER, "waits_for_all_parts"),
    ("a write whose log broke is answered", T + "state/streams.rs",
     "            is_lost |= is_write && health == LogHealth::Broken;",
     "            is_lost |= false;\n            if health == LogHealth::Broken {\n                return false;\n            }", SERVER, ""),
    ("a durable call is taken while a log is broken", T + "handlers/insistence.rs",
     "        return state.logs.refusal_of_any();", "        return state.logs.refusal_of_any().filter(|_| false);", SERVER, "turn::tests::durable"),
    ("WAITAOF answers at once", T + "turn/unsynced.rs",
     "            let is_granted = (wish.needs.is_empty() || !local) && !replicas;",
     "            let is_granted = !replicas;", SERVER, ""),
]


def ends_within(seconds, command, copy, **how):
    """The exit code of a command; None if it doesn't end. Nothing that it has begun is left then."""
    # The copy has no .v8 of its own.
    v8 = os.environ.get("NIGH_V8_DIR", pathlib.Path(".v8").resolve())
    target = pathlib.Path("target/log-mutants").resolve()
    env = dict(os.environ, CARGO_TARGET_DIR=str(target), RUST_BACKTRACE="0", NIGH_V8_DIR=str(v8))
    process = subprocess.Popen(command, cwd=copy, env=env, start_new_session=True, **how)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(seconds, copy, crate, tests, **how):
    """How the tests end."""
    package, *targets = crate.split()
    command = ["cargo", "test", "-q", "--locked", "-p", package, *(targets or ["--lib", "--tests"])]
    if ends_within(None, [*command, "--no-run"], copy, **how) != 0:
        return "DOESN'T COMPILE"
    code = ends_within(seconds, [*command, "--", tests], copy, **how)
    return {None: "NO END", 0: "passes"}.get(code, "fails")


def failing_without(copy, mistakes):
    """The tests that don't pass without a mistake either."""
    wanted = dict.fromkeys((crate, tests) for *_, crate, tests in mistakes)
    return {pair for pair in wanted if run(BASE_SECONDS, copy, *pair) != "passes"}


def seed(copy, mistake, failing):
    """Whether the mistake is found; says so."""
    title, file, text, instead, *pair = mistake
    path = copy / file
    before = path.read_text() if path.exists() else ""
    if before.count(text) != 1:
        print(f"GONE    {title}: its text isn't in {file}, or not once")
        return False
    if tuple(pair) in failing:
        print(f"BASE    {title}: its tests ({' '.join(pair)}) don't pass without it either")
        return False
    began = time.time()
    path.write_text(before.replace(text, instead))
    try:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        how = run(TEST_SECONDS, copy, *pair, **quiet)
    finally:
        path.write_text(before)
    word = "LIVED" if how == "passes" else how
    print(f"{word:<16}{title} ({time.time() - began:.0f} s)", flush=True)
    return how == "fails"


def dry(mistakes):
    """How many of them can't be made in this tree."""
    wrong = 0
    for title, file, text, instead, *_ in mistakes:
        path = pathlib.Path(file)
        count = path.read_text().count(text) if path.exists() else 0
        if count != 1 or text == instead:
            print(f"GONE    {title}: its text stands {count} times in {file}")
            wrong += 1
    print(f"{len(mistakes)} mistakes, {wrong} can't be made")
    return wrong


def main():
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    words = sys.argv[1:]
    is_dry = "--dry" in words
    words = [word for word in words if word != "--dry"]
    for word in words:
        if not any(word in title for title, *_ in MISTAKES):
            sys.exit(f"scripts/log_mutants.py: no mistake's title has {word!r}")
    mistakes = [it for it in MISTAKES if not words or any(word in it[0] for word in words)]
    if is_dry:
        sys.exit(1 if dry(mistakes) else 0)
    copy = pathlib.Path("target/log-mutants-copy")
    subprocess.run(["git", "worktree", "remove", "--force", copy], stderr=subprocess.DEVNULL)
    subprocess.run(["git", "worktree", "add", "-q", "--detach", copy, "HEAD"], check=True)
    try:
        failing = failing_without(copy, mistakes)
        wrong = sum(not seed(copy, mistake, failing) for mistake in mistakes)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", copy])
    print(f"{len(mistakes)} mistakes, {wrong} not found")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
