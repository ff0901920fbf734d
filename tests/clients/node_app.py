"""A program's folder with the package `nigh` for Node.js, installed as a user does."""

import atexit
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from server import ROOT, TOOLS

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LIMIT_S = 600

_app = None


def app():
    """The folder; its node_modules has the package."""
    global _app
    if _app is None:
        _app = tempfile.mkdtemp(prefix="nigh-node-app-")
        atexit.register(shutil.rmtree, _app, ignore_errors=True)
        run("cargo", "build", "--locked", "-q", "-p", "nigh-node", cwd=ROOT)
        package = run(ROOT / "scripts/pack-node.sh", TARGET / "debug", _app).strip()
        run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", package, cwd=_app)
    return _app


def environment(**more):
    """Of a program there; ioredis, too, is found."""
    modules = [os.path.join(app(), "node_modules"), str(TOOLS / "node/node_modules")]
    return {**os.environ, "NODE_PATH": ":".join(modules), **more}


def run(*line, **options):
    """Runs a program in a group of its own, which ends with it: node's tests are processes, too."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                          **options) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise AssertionError(f"{line[0]} had no end after {LIMIT_S} s:\n{out}{err}") from None
            raise
    if process.returncode != 0:
        raise AssertionError(f"{line[0]} ended with {process.returncode}:\n{out}{err}")
    return out


def test_files(folder):
    """The files of tests in a folder of node/."""
    return sorted((ROOT / "tests/clients/node" / folder).glob("*.test.js"))


def run_tests(test, files, **more):
    """Runs files of tests; each test passes."""
    output = run("node", "--test", *files, cwd=app(), env=environment(**more))
    told = {name: int(re.search(rf"\b{name} (\d+)", output)[1]) for name in ("tests", "pass", "fail")}
    written = sum(file.read_text(encoding="utf-8").count("\ntest(") for file in files)
    test.assertEqual((told["fail"], told["pass"]), (0, told["tests"]), output)
    test.assertGreaterEqual(told["pass"], written)
