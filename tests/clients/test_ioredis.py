"""ioredis against the server: starts it and runs node/ioredis.test.js, which holds the tests."""

import os
import shutil
import subprocess
import unittest

from server import ROOT, TOOLS, Server

LIMIT_S = 120


class IoRedis(unittest.TestCase):
    def test_node_tests_pass(self):
        node = shutil.which("node")
        modules = TOOLS / "node/node_modules"
        self.assertTrue(node and modules.is_dir(), "run scripts/test-tools.sh")
        with Server() as server:
            environment = dict(
                os.environ,
                NODE_PATH=str(modules),
                PORT=str(server.port),
                SOCKET=server.unix_path,
                SERVER=server.kind,
            )
            done = subprocess.run(
                [node, str(ROOT / "tests/clients/node/ioredis.test.js")],
                env=environment,
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
        output = (done.stdout + done.stderr).decode()
        self.assertEqual(done.returncode, 0, output)
        self.assertIn("functions are loaded", output)


if __name__ == "__main__":
    unittest.main()
