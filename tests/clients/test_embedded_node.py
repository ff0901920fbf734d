"""The embedded library for Node.js: builds the package, installs it as a user does, and runs
node/embedded, which holds the tests. A log that stands still needs ptrace, so that test is here.
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from node_app import LIMIT_S, app, environment, run, run_tests, test_files
from server import ROOT, SHM, tested_kind
from stopped import Stopped


def setUpModule():
    if tested_kind() != "nigh":
        raise unittest.SkipTest("Redis is no library")


class Node(unittest.TestCase):
    def test_node_tests_pass(self):
        run_tests(self, test_files("embedded"))

    def test_the_pages_example_runs_as_a_module(self):
        example = (ROOT / "examples/node/greeting.mjs").read_text(encoding="utf-8")
        page = (ROOT / "docs/embedded.md").read_text(encoding="utf-8")
        self.assertTrue(f"```mjs\n{example}```\n" in page, "docs/embedded.md shows another example")
        shutil.copy(ROOT / "examples/node/greeting.mjs", app())
        output = run("node", "greeting.mjs", cwd=app())
        lines = output.splitlines()
        self.assertEqual(lines[0], "hello undefined")
        self.assertEqual(sorted(lines[1:]), ["user:1 is Ada", "user:2 is Alan"])

    def test_the_package_has_the_workspaces_version_and_what_it_needs(self):
        package = pathlib.Path(app(), "node_modules/nigh")
        told = json.loads((package / "package.json").read_text(encoding="utf-8"))
        cargo = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
        self.assertEqual(told["version"], re.search(r'^version = "(.*)"$', cargo, re.M)[1])
        wanted = {"LICENSE", "nigh.node", "package.json"}
        for kind in ("*.js", "*.d.ts"):
            wanted |= {file.name for file in (ROOT / "crates/nigh-node").glob(kind)}
        self.assertEqual({file.name for file in package.iterdir()}, wanted)

    def test_writes_wait_for_a_log_that_stands_still_and_the_event_loop_goes_on(self):
        # The journal is full, and nobody takes from it: the writes of Async calls wait in the pool.
        source = """
            const nigh = require('nigh');
            const [folder, memoryDir] = process.argv.slice(1);
            const db = nigh.open(folder, { memoryDir, capacityBytes: 64 << 20, journalBytes: 1 << 20 });
            const said = () => new Promise((done) => process.stdin.once('data', done));
            (async () => {
              console.log('open');
              await said();
              let pending = 0;
              const writes = [];
              for (let n = 0; n < 30; n++) {
                pending += 1;
                writes.push(db.putAsync(String(n), Buffer.alloc(100_000)).then(() => { pending -= 1; }));
              }
              for (let turn = 0; turn < 20; turn++) await new Promise((done) => setTimeout(done, 5));
              console.log(pending);
              await said();
              await Promise.all(writes);
              console.log(pending, db.stats().keys);
              db.close();
              process.stdin.destroy();
            })();
        """
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=SHM) as shm:
            line = ["node", "-e", source, f"{folder}/data", f"{shm}/memory"]
            pipe = subprocess.PIPE
            child = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=environment())
            try:
                self.assertEqual(child.stdout.readline(), "open\n")
                with Stopped(child.pid, "nigh-log"):
                    child.stdin.write("go on\n")
                    child.stdin.flush()
                    pending = int(child.stdout.readline())
                self.assertGreater(pending, 15, "a journal of 1 MiB takes ten")
                child.stdin.write("go on\n")
                child.stdin.flush()
                self.assertEqual(child.stdout.readline(), "0 30\n")
                self.assertEqual(child.wait(LIMIT_S), 0)
            finally:
                child.kill()
                child.communicate()

    def test_a_write_that_waits_is_made_and_told_before_closeasync_ends(self):
        # It was refused as of a closed database, though it was made. The journal takes ten.
        source = """
            const nigh = require('nigh');
            const [folder, memoryDir] = process.argv.slice(1);
            const options = { memoryDir, capacityBytes: 64 << 20, journalBytes: 1 << 20 };
            const db = nigh.open(folder, options);
            const said = () => new Promise((done) => process.stdin.once('data', done));
            (async () => {
              console.log('open');
              await said();
              const writes = [];
              for (let n = 0; n < 20; n++) {
                writes.push(db.putAsync(String(n), Buffer.alloc(100_000), { strong: n > 12 }));
              }
              await new Promise((done) => setTimeout(done, 50));
              const closed = db.closeAsync();
              await new Promise((done) => setTimeout(done, 50));
              console.log('closes');
              const told = await Promise.allSettled(writes);
              await closed;
              console.log(told.filter(({ reason }) => reason).map(({ reason }) => reason.code).join());
              console.log(nigh.open(folder, options).stats().keys);
              process.exit();
            })();
        """
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=SHM) as shm:
            line = ["node", "-e", source, f"{folder}/data", f"{shm}/memory"]
            pipe = subprocess.PIPE
            child = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=environment())
            try:
                self.assertEqual(child.stdout.readline(), "open\n")
                with Stopped(child.pid, "nigh-log"):
                    child.stdin.write("go on\n")
                    child.stdin.flush()
                    self.assertEqual(child.stdout.readline(), "closes\n")
                self.assertEqual((child.stdout.readline(), child.stdout.readline()), ("\n", "20\n"))
                self.assertEqual(child.wait(LIMIT_S), 0)
            finally:
                child.kill()
                child.communicate()


if __name__ == "__main__":
    unittest.main()
