#!/usr/bin/env python3
"""Builds all test programs, then runs them and the client suites, some at a time: `make test`.

  scripts/run_tests.py [WORD...]           only the jobs whose name has one of these words
  scripts/run_tests.py --within SECONDS    jobs that could begin only later are left out, and named
  scripts/run_tests.py --list              builds, and prints the names of the jobs

A job is a test program of Rust, the doc tests, a program behind features, or a suite of
tests/clients/run. `cargo test` would run one after the other, though most wait longer than they
compute. A job's output comes in one piece, when it has ended. At the end stand all failures, once
more and in short, and one line for each job. Exit code 1 if one failed.

What failed beside other jobs runs again when nothing else does: the failed tests of a program, or a
whole suite. If it passes two times of three at most, the job counts as passed and is told apart:
either the machine was too slow, or a mistake shows itself seldom. It wants a look.

All build with the features of the whole workspace, so each crate is built once. Two tests need
features of their own: with `nigh/functions` all that builds on the library would link V8.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# More than cores, since most jobs wait; not many more, since some load the machine on purpose.
AT_ONCE = (os.cpu_count() or 2) + 1
# A job that takes longer hangs. The longest took 1,360 s where all takes four times as long as elsewhere, and another
# one more than 1,800 s where it took longer still.
LIMIT_S = 2700
# Lines of a failed job's output that stand at the end again.
DIGEST_LINES = 40
CARGO = ["cargo", "test", "--locked", "--workspace"]
FEATURES = ["--features", "nigh/functions,nigh-client/async", "--test"]
LEFT_OUT = "left out"
# More failed tests of a program than these aren't chance, and all that runs again may take so long.
MOST_AGAIN = 5
AGAIN_S = 900
# Jobs that take long begin first. Those that load the machine most begin last: where it is slow and time is short, all
# others have been run.
FIRST = ["nigh-cli cli", "nigh-server server", "nigh-store store", "nigh-shm lib", "nigh-js js", "nigh db"]
LAST = ["nigh-cli kills", "client transfer", "client embedded", "client embedded_node", "nigh-js walk", "nigh-cli memory",
        "client hostile_functions"]
FAILURES = re.compile(rb"^failures:\n((?:    \S+\n)+)", re.M)
TESTS = re.compile(rb"^test (\S+) \.\.\. ", re.M)
TOLD = re.compile(rb"^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


class Job:
    """A command, and what came of it."""

    def __init__(self, name, command, folder=ROOT, **environment):
        self.name, self.command, self.folder, self.environment = name, command, folder, environment
        self.output, self.result, self.seconds = b"", "not run", 0
        self.passed_alone = []

    def run(self, running, until=math.inf, limit_s=LIMIT_S):
        """Runs it, unless the monotonic clock is past `until`."""
        begun = time.monotonic()
        if begun > until:
            self.result = LEFT_OUT
            return
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.command, cwd=self.folder, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            running.add(process)
            hangs = threading.Event()
            timer = threading.Timer(limit_s, lambda: (hangs.set(), end(process)))
            timer.start()
            try:
                code = process.wait()  # with a timeout it would look again and again
            finally:
                timer.cancel()
            self.result = "ok" if code == 0 else f"FAILED with {code}"
            if hangs.is_set():
                self.result = f"FAILED, no end after {limit_s:.0f} s"
            running.remove(process)
            output.seek(0)
            self.output = output.read()
        self.seconds = time.monotonic() - begun

    def parts_that_failed(self):
        """Jobs that run again what failed; none if that isn't known."""
        if not self.result.startswith("FAILED with"):
            return []
        if self.name.startswith("client "):
            return [Job(self.name, self.command, self.folder, **self.environment)]
        # The last list: a test may have shown what a program that it ran has told. Its length is as the sums say.
        told = FAILURES.findall(self.output)
        names = told[-1].decode().split() if told else []
        sums = TOLD.findall(self.output)  # none of a program that a signal ended
        if not sums or len(names) != int(sums[-1][1]):
            return []
        words = [*self.command, "--"] if self.command[0] == "cargo" else self.command
        return [Job(name, [*words, name, "--exact"], self.folder, **self.environment) for name in names]

    def without_end(self):
        """Tests of a program that didn't come to their end."""
        listed = subprocess.run([*self.command, "--list"], cwd=self.folder, stdout=subprocess.PIPE, check=False).stdout
        return [name for name in re.findall(r"^(\S+): test$", listed.decode(), re.M)
                if name.encode() not in TESTS.findall(self.output)]

    def counts(self):
        """Tests passed, failed and ignored; of a client suite it isn't known."""
        return [sum(map(int, column)) for column in zip(*TOLD.findall(self.output))] or [0, 0, 0]


def end(process):
    """Ends a process that runs, with its children: it has a group of its own."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(5)
            return
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


class Running:
    """The processes that run."""

    def __init__(self):
        self.lock, self.processes, self.is_over = threading.Lock(), set(), False

    def add(self, process):
        with self.lock:
            self.processes.add(process)
            is_late = self.is_over
        if is_late:
            end(process)

    def remove(self, process):
        with self.lock:
            self.processes.discard(process)

    def end_all(self):
        with self.lock:
            self.is_over, left = True, list(self.processes)
        for process in left:
            end(process)


def build():
    """Builds all; the test programs' jobs, and the binary `nigh`."""
    told = subprocess.run(
        [*CARGO, "--no-run", "--message-format", "json-render-diagnostics"],
        cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if told.returncode != 0:
        raise SystemExit(told.returncode)
    jobs, nigh = [], None
    for line in told.stdout.splitlines():
        artifact = json.loads(line)
        if artifact.get("reason") != "compiler-artifact" or not artifact["executable"]:
            continue
        folder, target = pathlib.Path(artifact["manifest_path"]).parent, artifact["target"]
        if artifact["profile"]["test"]:
            package = re.search(r'^name = "(.*)"', (folder / "Cargo.toml").read_text(encoding="utf-8"), re.M)[1]
            kind = {"test": target["name"], "bin": "bin"}.get(target["kind"][0], "lib")
            # As cargo does it.
            jobs.append(Job(f"{package} {kind}", [artifact["executable"]], folder, CARGO_MANIFEST_DIR=str(folder)))
        elif target["name"] == "nigh" and target["kind"] == ["bin"]:
            nigh = artifact["executable"]
    if nigh is None:
        raise SystemExit("scripts/run_tests.py: cargo has built no binary `nigh`")
    return jobs, nigh


def client_jobs(nigh):
    script = ROOT / "tests/clients/run"
    suites = subprocess.run([script, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return [Job(f"client {suite}", [script, "--nigh", nigh, suite]) for suite in suites]


def place(job):
    """Where a job stands among all."""
    if job.name in FIRST:
        return FIRST.index(job.name)
    return len(FIRST) + 1 + LAST.index(job.name) if job.name in LAST else len(FIRST)


def show(job):
    print(f"\n== {job.name}: {job.result}, {job.seconds:.0f} s", flush=True)
    sys.stdout.buffer.write(job.output)
    sys.stdout.flush()


def run_all(jobs, until):
    running = Running()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        begun = [(job, pool.submit(job.run, running, until)) for job in jobs]
        try:
            waiting = {future: job for job, future in begun}
            for future in concurrent.futures.as_completed(waiting):
                future.result()
                if waiting[future].result != LEFT_OUT:
                    show(waiting[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.end_all()
            raise


def run_again(jobs):
    """What failed runs alone: it may have been the company."""
    running, until = Running(), time.monotonic() + AGAIN_S
    for job in jobs:
        parts = job.parts_that_failed()
        if not parts or len(parts) > MOST_AGAIN:
            continue
        try:
            if all(passes(part, running, until) for part in parts):
                job.result, job.passed_alone = "ok", [part.name for part in parts]
        except BaseException:
            running.end_all()
            raise


def passes(part, running, until):
    """Whether it passes two times of three at most."""
    wrong = 0
    for tries in range(1, 4):
        part.run(running, until, max(1, until - time.monotonic()))
        print(f"\n== again, alone: {part.name}: {part.result}, {part.seconds:.0f} s", flush=True)
        # A name that no test has runs none.
        is_well = part.result == "ok" and (part.name.startswith("client ") or part.counts()[0] == 1)
        if not is_well:
            print("".join(f"   {line}\n" for line in part.output.decode(errors="replace").splitlines()[-DIGEST_LINES:]))
        wrong += not is_well
        if wrong > 1 or tries - wrong > 1:
            break
    return wrong < 2


def tell(jobs, seconds):
    """Failures in short, one line for each job, and sums. Whether all went well."""
    failed = [job for job in jobs if job.result not in ("ok", LEFT_OUT)]
    left_out = [job for job in jobs if job.result == LEFT_OUT]
    for job in failed + [job for job in jobs if job.passed_alone]:
        print(f"\n== PASSED ONLY ALONE: {', '.join(job.passed_alone)} of {job.name}" if job.passed_alone
              else f"\n== FAILED: {job.name}")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(job.output.splitlines(True)[-DIGEST_LINES:]))
        if "no end" in job.result and not job.name.startswith("client "):
            print(f"   without an end: {' '.join(job.without_end())}")
    print("\n== tests")
    for job in sorted(jobs, key=lambda job: -job.seconds):
        passed, wrong, ignored = job.counts()
        told = "" if job.name.startswith("client ") else f", {passed} passed, {wrong} failed, {ignored} ignored"
        told += f"; passed only alone: {', '.join(job.passed_alone)}" if job.passed_alone else ""
        print(f"   {job.name:<28} {job.result}, {job.seconds:.0f} s{told}")
    sums = [sum(column) for column in zip(*(job.counts() for job in jobs))]
    print(f"   {len(jobs)} jobs in {seconds:.0f} s, {len(failed)} failed, {len(left_out)} left out; of tests in Rust "
          "{} passed, {} failed, {} ignored".format(*sums))
    return not failed


def main():
    parser = argparse.ArgumentParser(description="Builds all test programs, then runs them and the client suites.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only jobs whose name has one of these words")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS",
                        help="jobs that could begin only later are left out, and named")
    parser.add_argument("--list", action="store_true", help="build, and print the names of the jobs")
    asked = parser.parse_args()
    jobs, nigh = build()
    jobs.append(Job("doc tests", [*CARGO, "--doc"]))
    jobs += [Job(f"features {test}", [*CARGO, *FEATURES, test]) for test in ("in_process", "tasks")]
    jobs += client_jobs(nigh)
    if asked.list:
        print("\n".join(job.name for job in jobs))
        return
    if asked.words:
        jobs = [job for job in jobs if any(word in job.name for word in asked.words)]
    if not jobs:
        raise SystemExit("scripts/run_tests.py: no job's name has one of these words; --list prints all")
    jobs.sort(key=place)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = time.monotonic()
    try:
        run_all(jobs, begun + asked.within)
        run_again(jobs)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    if not tell(jobs, time.monotonic() - begun):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
