#!/usr/bin/env python3
"""Builds all test programs, then runs their tests and the client suites, some at a time: `make test`.

  scripts/run_tests.py [WORD...]           only the jobs whose name has one of these words
  scripts/run_tests.py --within SECONDS    jobs that could begin only later are left out, and named;
                                           those of WHOLE begin all the same
  scripts/run_tests.py --list              builds, and prints the names of the jobs

A job is one test of a program in Rust, a program whose tests load the machine, the doc tests, the
tests of benches/embedded, or a suite of tests/clients/run. Each is a process of its own: one that
hangs, ends its process or is left out takes no other with it, and most wait longer than they compute.
A job's output comes when it has ended; of a test, only if it failed. At the end stand all failures,
once more and in short, and sums of each program. Exit code 1 if one failed.

What failed beside other jobs runs again when nothing else does. If it passes two times of three at
most, it counts as passed and is told apart: the machine was too slow. It wants a look. What a test of
SELDOM finds shows itself seldom: such a failure counts, unless its output shows that time was over.

A test that needs mounts, strace or the superuser says so where these can't be had, and passes. Such
tests stand at the end; with NIGH_TESTS_ALL=1 they have failed.

All build with the features of the whole workspace, so each crate is built once. Two programs need
features of their own: with `nigh/functions` all that builds on the library would link V8.
"""

import argparse
import collections
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
# More than cores, since most jobs wait.
AT_ONCE = 2 * (os.cpu_count() or 2)
# A job that takes longer hangs. Where all takes four times as long as elsewhere, a suite took 1,000 s.
LIMIT_S = 1800
# Lines of a failed job's output that stand at the end again.
DIGEST_LINES = 40
CARGO = ["cargo", "test", "--locked", "--workspace"]
FEATURES = ["--features", "nigh/functions,nigh-client/async", "--test"]
LEFT_OUT = "left out"
# More failed jobs than these aren't chance, and all that runs again may take so long.
MOST_AGAIN = 20
AGAIN_S = 900
# Programs whose tests load the machine, and wait for each other.
WHOLE = ["nigh-cli kills", "nigh-cli memory"]
# It needs headers of packages that nothing else wants. Where they aren't, it is named and not missed.
BENCHES = "benches embedded"
# What loads the machine most begins last: where it is slow and time is short, all else has run.
LAST = [*WHOLE, BENCHES, "nigh-js walk", "client transfer", "client embedded", "client embedded_node",
        "client hostile_functions"]
# Tests whose failures no second run takes back, and what they say when time was over.
SELDOM = re.compile("kill|model|histor|soak|seriali|lineari|moment|crash|power|snapshot|watch")
TOO_SLOW = re.compile(
    rb"elapsed\(|timed? ?out|os error 11\b|no answer|answer within|doesn't end|never (?:comes|has)|never: |not within"
    rb"|deadline|(?:is|are) no load", re.I)
# What a test says that can't do its work here.
UNTESTED = re.compile(rb"^.*(?:nothing is tested|story is left out|aren't tested).*$", re.M)
TOLD = re.compile(rb"^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


class Job:
    """A command, and what came of it. Its program or suite is what the sums tell of."""

    def __init__(self, program, command, test="", folder=ROOT, **environment):
        self.program, self.test, self.name = program, test, f"{program} {test}".rstrip()
        self.command, self.folder, self.environment = command, folder, environment
        self.output, self.result, self.seconds, self.passed_alone = b"", LEFT_OUT, 0, False

    def run(self, running, limit_s=LIMIT_S):
        begun = time.monotonic()
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
            running.remove(process)
            output.seek(0)
            self.output = output.read()
        self.seconds = time.monotonic() - begun
        self.result = "ok" if code == 0 else f"FAILED with {code}"
        if hangs.is_set():
            self.result = f"FAILED, no end after {limit_s:.0f} s"
        elif code == 0 and self.test and sum(self.counts()) != 1:
            self.result = "FAILED, no test or several have its name"

    def has_failed(self):
        return self.result not in ("ok", LEFT_OUT)

    def counts(self):
        """Tests passed, failed and ignored, as the program tells; nothing is known of a suite's."""
        if self.test and self.has_failed():
            return [0, 1, 0]
        return [sum(map(int, column)) for column in zip(*TOLD.findall(self.output))] or [0, 0, 0]

    def untested(self):
        """Why it tested nothing, or not all; empty if it did."""
        return "; ".join(line.decode(errors="replace").strip() for line in UNTESTED.findall(self.output))

    def may_be_slow(self):
        """Whether its failure may come from its company alone."""
        is_seldom = SELDOM.search(self.name) and "no end" not in self.result
        return not is_seldom or TOO_SLOW.search(self.output) is not None

    def show(self, when=""):
        if self.test and self.result == "ok":
            untested = self.untested()
            print(f"   {when}{self.name}: ok, {self.seconds:.1f} s{untested and ', but ' + untested}", flush=True)
            return
        print(f"\n== {when}{self.name}: {self.result}, {self.seconds:.0f} s", flush=True)
        sys.stdout.buffer.write(self.output)
        sys.stdout.flush()


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


class Waiting:
    """The jobs that haven't begun: single tests, and what takes long."""

    def __init__(self, jobs, until):
        self.lock, self.until = threading.Lock(), until
        self.tests = collections.deque(job for job in jobs if job.test)
        self.long = collections.deque(job for job in jobs if not job.test)

    def next(self, likes_long):
        """The next job, of the kind that is liked as long as there are any; none if time is over."""
        with self.lock:
            if time.monotonic() > self.until:
                self.tests.clear()
                self.long = collections.deque(job for job in self.long if job.program in WHOLE)
            liked, other = (self.long, self.tests) if likes_long else (self.tests, self.long)
            return (liked or other).popleft() if liked or other else None

    def forget(self):
        with self.lock:
            self.tests.clear()
            self.long.clear()


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
            jobs += test_jobs(f"{package} {kind}", artifact["executable"], folder)
        elif target["name"] == "nigh" and target["kind"] == ["bin"]:
            nigh = artifact["executable"]
    if nigh is None:
        raise SystemExit("scripts/run_tests.py: cargo has built no binary `nigh`")
    return jobs, nigh


def test_jobs(program, executable, folder):
    """A job for each test of a program, with the folder and the variable that cargo gives it."""
    environment = {"folder": folder, "CARGO_MANIFEST_DIR": str(folder)}
    if program in WHOLE:
        return [Job(program, [executable, "--show-output"], **environment)]
    listed = subprocess.run([executable, "--list", "--format", "terse"], cwd=folder, stdout=subprocess.PIPE, check=True)
    return [Job(program, [executable, "--exact", test, "--show-output"], test, **environment)
            for test in re.findall(r"^(\S+): test$", listed.stdout.decode(), re.M)]


def client_jobs(nigh):
    script = ROOT / "tests/clients/run"
    suites = subprocess.run([script, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return [Job(f"client {suite}", [script, "--nigh", nigh, suite]) for suite in suites]


def bench_job():
    """The tests of benches/embedded, a workspace of its own, where it can be built."""
    folder = ROOT / "benches/embedded"
    headers = ["leveldb/db.h", "rocksdb/version.h", "lmdb.h"]
    places = [pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include")]
    missing = [it for it in headers if not any((place / it).is_file() for place in places)]
    if missing:
        told = f"{' '.join(missing)}: not there, so nothing is tested (scripts/bench-embedded-setup.sh)"
        return Job(BENCHES, ["echo", told])
    return Job(BENCHES, ["cargo", "test", "--locked"], folder=folder)


def run_all(jobs, until):
    """Runs them side by side. One at a time is of those that take long, as long as there are any."""
    running, waiting = Running(), Waiting(jobs, until)

    def work(likes_long):
        while job := waiting.next(likes_long):
            try:
                job.run(running)
            except Exception as error:  # such as no process left: a job that isn't run has failed
                job.result = f"FAILED, not run: {error}"
            with shown:
                job.show()

    shown = threading.Lock()
    workers = [threading.Thread(target=work, args=[number == 0]) for number in range(AT_ONCE)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except BaseException:
        waiting.forget()
        running.end_all()
        raise


def run_again(jobs):
    """What failed runs alone: it may have been the company."""
    failed = [job for job in jobs if job.has_failed()]
    if len(failed) > MOST_AGAIN:
        return
    running, until = Running(), time.monotonic() + AGAIN_S
    try:
        for job in failed:
            result, output, may_be_slow = job.result, job.output, job.may_be_slow()
            passed = passes(job, running, until)
            job.passed_alone = passed and may_be_slow
            if not job.passed_alone:
                job.result, job.output = result + (", passes alone" if passed else ""), output
    except BaseException:
        running.end_all()
        raise


def passes(job, running, until):
    """Whether it passes two times of three at most."""
    wrong = 0
    for tries in range(1, 4):
        job.run(running, max(1, until - time.monotonic()))
        job.show("again, alone: ")
        wrong += job.has_failed()
        if wrong > 1 or tries - wrong > 1:
            break
    return wrong < 2


def tell(jobs, seconds):
    """Failures in short, a line for each program and suite, and sums. Whether all went well."""
    alone = [job for job in jobs if job.passed_alone]
    for job in alone:
        job.result = "ok"
    failed = [job for job in jobs if job.has_failed()]
    for job in failed:
        print(f"\n== FAILED: {job.name}: {job.result}", flush=True)
        sys.stdout.buffer.write(b"".join(job.output.splitlines(True)[-DIGEST_LINES:]))
    for job in alone:
        print(f"\n== PASSED ONLY ALONE: {job.name}")
    untested = [job for job in jobs if job.untested()]
    for job in untested:
        print(f"\n== NOTHING OR NOT ALL IS TESTED: {job.name}: {job.untested()}")
    programs = collections.defaultdict(list)
    for job in jobs:
        programs[job.program].append(job)
    print("\n== tests")
    for program, its in sorted(programs.items(), key=lambda item: -sum(job.seconds for job in item[1])):
        told = [f"{sum(job.seconds for job in its):.0f} s"]
        told += [f"{count} {word}" for count, word in zip(sums(its), ("passed", "failed", "ignored")) if count]
        told += [f"{job.result}" for job in its if not job.test and job.result != "ok"]
        left_out = [job.test for job in its if job.test and job.result == LEFT_OUT]
        told += [f"{len(left_out)} left out: {' '.join(left_out)}"] if left_out else []
        print(f"   {program:<28} {', '.join(told)}")
    left_out = [job for job in jobs if job.result == LEFT_OUT]
    for job in left_out:
        if job.program in LAST:
            print(f"\n== LEFT OUT, time was over: {job.name}")
    print(f"   {len(jobs)} jobs in {seconds:.0f} s, {len(failed)} failed, {len(left_out)} left out, {len(untested)} "
          "can't be done here; of tests in Rust {} passed, {} failed, {} ignored".format(*sums(jobs)))
    needed = [job for job in untested if job.program != BENCHES]
    return not failed and not (needed and os.environ.get("NIGH_TESTS_ALL") == "1")


def sums(jobs):
    return [sum(column) for column in zip(*(job.counts() for job in jobs))]


def main():
    parser = argparse.ArgumentParser(description="Builds all test programs, then runs their tests and the client suites.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only jobs whose name has one of these words")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS",
                        help="jobs that could begin only later are left out, and named")
    parser.add_argument("--list", action="store_true", help="build, and print the names of the jobs")
    asked = parser.parse_args()
    jobs, nigh = build()
    jobs.append(Job("doc tests", [*CARGO, "--doc"]))
    jobs += [Job(f"features {test}", [*CARGO, *FEATURES, test]) for test in ("in_process", "tasks")]
    jobs += [*client_jobs(nigh), bench_job()]
    if asked.list:
        print("\n".join(job.name for job in jobs))
        return
    if asked.words:
        jobs = [job for job in jobs if any(word in job.name for word in asked.words)]
    if not jobs:
        raise SystemExit("scripts/run_tests.py: no job's name has one of these words; --list prints all")
    jobs.sort(key=lambda job: LAST.index(job.program) if job.program in LAST else -1)
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
