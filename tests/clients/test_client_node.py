"""The client for Node.js against a server: installs the package, and runs node/client, which holds
the tests, ioredis beside it.
"""

import shutil
import unittest

from node_app import app, environment, run, run_tests, test_files
from server import ROOT, Server, nigh_binary, tested_kind


def setUpModule():
    if tested_kind() != "nigh":
        raise unittest.SkipTest("Redis hands nobody its memory")


class Client(unittest.TestCase):
    def test_node_tests_pass(self):
        # A server for each file: what one removes, another would miss.
        for file in test_files("client"):
            with self.subTest(file.name), Server() as server:
                paths = {"SOCKET": server.unix_path, "PORT": str(server.port)}
                run_tests(self, [file], NIGH_BIN=nigh_binary(), **paths)

    def test_the_pages_example_runs(self):
        example = (ROOT / "examples/node/client.mjs").read_text(encoding="utf-8")
        page = (ROOT / "docs/local.md").read_text(encoding="utf-8")
        self.assertTrue(f"```mjs\n{example}```\n" in page, "docs/local.md shows another example")
        shutil.copy(ROOT / "examples/node/client.mjs", app())
        with Server() as server:
            output = run("node", "client.mjs", f"unix:{server.unix_path}", cwd=app(), env=environment())
        self.assertIn(f"$ node client.mjs\n{output}", page)


if __name__ == "__main__":
    unittest.main()
