"""redis-cli and redis-benchmark, as Debian ships them, against the server. No terminal needed."""

import csv
import subprocess
import unittest

from server import Server, tested_kind, tool

NIGH = tested_kind() == "nigh"
LIMIT_S = 60


def setUpModule():
    global server
    server = Server()


def tearDownModule():
    server.stop()


def cli(*args, stdin="", expect=0):
    done = subprocess.run(
        [tool("redis-cli"), "-p", str(server.port), *args],
        input=stdin.encode(),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == expect, (args, done.returncode, done.stdout, done.stderr)
    return (done.stdout + done.stderr).decode()


class RedisCli(unittest.TestCase):
    def setUp(self):
        cli("FLUSHALL")

    def test_one_command_a_start(self):
        self.assertEqual(cli("PING"), "PONG\n")
        self.assertEqual(cli("SET", "greeting", "hello"), "OK\n")
        self.assertEqual(cli("GET", "greeting"), "hello\n")
        self.assertEqual(cli("-3", "INCR", "n"), "1\n")
        self.assertEqual(cli("-x", "SET", "in", stdin="from stdin"), "OK\n")
        self.assertEqual(cli("GET", "in"), "from stdin\n")
        self.assertIn("wrong number of arguments", cli("-e", "GET", expect=1))

    def test_commands_from_standard_input(self):
        out = cli(stdin="SET a 1\nINCR a\nMULTI\nGET a\nDBSIZE\nEXEC\n")
        self.assertEqual(out.split(), ["OK", "2", "OK", "QUEUED", "QUEUED", "2", "1"])

    def test_scan_lists_all_keys(self):
        cli(stdin="".join(f"SET user:{i} {i}\n" for i in range(300)))
        self.assertEqual(
            sorted(cli("--scan", "--pattern", "user:*").split()),
            sorted(f"user:{i}" for i in range(300)),
        )

    def test_mass_insertion_by_pipe(self):
        commands = "".join(
            f"*3\r\n$3\r\nSET\r\n${len(str(i)) + 2}\r\nk:{i}\r\n$1\r\nv\r\n" for i in range(10_000)
        )
        self.assertIn("errors: 0, replies: 10000", cli("--pipe", stdin=commands))
        self.assertEqual(cli("DBSIZE"), "10000\n")

    def test_statistics_have_a_line_for_the_keys(self):
        cli("SET", "a", "1")
        # --stat reads INFO for ever; two lines of it are enough.
        process = subprocess.Popen(
            [tool("redis-cli"), "-p", str(server.port), "-i", "0.1", "--stat"],
            stdout=subprocess.PIPE,
        )
        try:
            lines = [process.stdout.readline().decode() for _ in range(4)]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        self.assertIn("keys", lines[1])
        self.assertEqual(lines[2].split()[0], "1")

    def test_info_has_the_sections_that_monitoring_reads(self):
        info = cli("INFO")
        for section in ("Server", "Clients", "Memory", "Stats", "Keyspace"):
            self.assertIn(f"# {section}\r\n", info)
        self.assertIn("# Memory", cli("INFO", "memory"))
        self.assertNotIn("# Server", cli("INFO", "memory"))

    def test_big_keys_and_latency_modes_work(self):
        cli("SET", "big", "x" * 1000)
        self.assertIn('"big"', cli("--bigkeys"))
        self.assertRegex(cli("--raw", "--latency", "-i", "1"), r"^\d+ \d+ [\d.]+ \d+")

    @unittest.skipUnless(NIGH, "Redis has MONITOR")
    def test_monitor_is_absent_and_says_so(self):
        self.assertIn("unknown command", cli("-e", "MONITOR", expect=1))

    def test_functions_are_loaded_from_a_file(self):
        if not NIGH:
            return
        source = "#!js name=cli\nexport const twice = (db, [n]) => 2 * n;\n"
        self.assertEqual(cli("-x", "FUNCTION", "LOAD", "REPLACE", stdin=source), "cli\n")
        self.assertEqual(cli("FCALL", "twice", "0", "21"), "42\n")
        self.assertEqual(cli("FUNCTION", "DELETE", "cli"), "OK\n")


class RedisBenchmark(unittest.TestCase):
    """Bounded runs. The tests assert only that they end, without an error."""

    def benchmark(self, *args):
        done = subprocess.run(
            [tool("redis-benchmark"), "-p", str(server.port), "--csv", *args],
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(b"Error", done.stdout + done.stderr)
        return list(csv.DictReader(done.stdout.decode().splitlines()))

    def test_pipelined_set_and_get_end(self):
        rows = self.benchmark("-t", "set,get", "-n", "100000", "-P", "16", "-r", "10000")
        self.assertEqual([row["test"] for row in rows], ["SET", "GET"])

    def test_the_other_commands_that_it_knows_and_nigh_has_end(self):
        rows = self.benchmark("-t", "ping,incr,mset", "-n", "20000", "-c", "20")
        self.assertEqual(len(rows), 4)


if __name__ == "__main__":
    unittest.main()
