"""The embedded library for Python and C: what only Python has; and, in other files, the same calls on
a database and on a dictionary (embedded_model.py), and what runs beside them (embedded_beside.py).
"""

import array
import ast
import gc
import inspect
import math
import os
import subprocess
import sys
import threading
import time
import unittest

import embedded
from embedded import ROOT, Folder, gives_the_lock
from embedded_beside import Beside  # its tests are run too  pylint: disable=unused-import
from embedded_model import SameAsADictionary  # the same  pylint: disable=unused-import

HOUR_S = 3600.0
LIMIT_S = 60


class Python(Folder):
    def test_it_is_a_dictionary(self):
        db = self.open()
        db[b"key"] = b"value"
        self.assertEqual(db[b"key"], b"value")
        self.assertIn(b"key", db)
        self.assertNotIn(b"other", db)
        self.assertEqual((db.get(b"other"), db.get(b"other", 7)), (None, 7))
        self.assertEqual((len(db), list(db), list(db.values())), (1, [b"key"], [b"value"]))
        with self.assertRaises(KeyError) as told:
            db[b"other"]  # pylint: disable=pointless-statement
        self.assertEqual(told.exception.args, (b"other",))
        del db[b"key"]
        with self.assertRaises(KeyError):
            del db[b"key"]
        db.close()

    def test_any_buffer_is_bytes_and_text_is_refused(self):
        db = self.open()
        db[bytearray(b"key")] = memoryview(b"a.b.c")[::2]
        self.assertEqual(db[b"key"], b"abc")
        db[b"numbers"] = array.array("H", [1, 2])
        self.assertEqual(db[b"numbers"], b"\1\0\2\0")
        for call in (lambda: db["key"], lambda: db.put(b"key", 7), lambda: db.multi_get(["key"])):
            with self.assertRaisesRegex(TypeError, "bytes or a buffer are needed, not (str|int)"):
                call()

    def test_a_batch_is_written_if_its_block_ends_well(self):
        db = self.open()
        with db.batch(strong=True) as batch:
            batch.put(b"a", b"1", expires_in=HOUR_S)
            batch[b"b"] = b"2"
            batch.delete(b"b")
            self.assertEqual(len(batch), 3)
            self.assertEqual(len(db), 0)
        self.assertEqual(list(db.items()), [(b"a", b"1")])
        self.assertEqual(db.stats().expires, 1)
        self.assertEqual(db.stats().durable_change, db.stats().last_change)
        with self.assertRaises(ZeroDivisionError), db.batch() as batch:
            batch.put(b"c", b"3")
            print(1 / 0)
        self.assertNotIn(b"c", db)
        batch.put(b"d", b"4")
        batch.write()
        self.assertEqual((db[b"d"], len(batch)), (b"4", 0))

    def test_several_threads_add_to_a_batch_and_write_it(self):
        """A thread that added to it while another one wrote it got a RuntimeError."""
        db, faults = self.open(), []
        batch = db.batch(strong=True)

        def add(thread):
            try:
                for number in range(40):
                    batch.put(b"%d %d" % (thread, number), b"value")
                    if number % 8 == 0:
                        batch.write()
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        batch.write()
        self.assertEqual((faults, len(db), len(batch)), ([], 160, 0))

    def test_an_expiry_beyond_all_time_is_none(self):
        db = self.open()
        db.put(b"brief", b"", expires_in=HOUR_S)
        self.assertTrue(HOUR_S - 100 < db.ttl(b"brief") <= HOUR_S)
        self.assertIsNone(db.ttl(b"none"))
        del db[b"brief"]
        for number, when in enumerate([math.inf, 1e300]):
            db.put(b"in %d" % number, b"", expires_in=when)
            self.assertEqual(db.ttl(b"in %d" % number), math.inf)
            db.put(b"at %d" % number, b"", expires_at=when)
        self.assertTrue(db.expire(b"in 0", expires_in=math.inf))
        self.assertEqual((len(db), db.stats().expires), (4, 0))
        for wrong in (-1.0, -math.inf, math.nan):
            with self.assertRaisesRegex(ValueError, "give seconds that aren't negative"):
                db.put(b"key", b"", expires_in=wrong)
        with db.watch() as watch:
            threading.Timer(0.05, db.put, (b"key", b"")).start()
            self.assertEqual(watch.next(math.inf).key, b"key")

    def test_the_child_of_a_fork_is_refused_and_comes_to_its_end(self):
        """Other threads are within a call at the fork, and aren't in the child. It waited for their
        lock for ever, also when it left the block."""
        code = """if True:
            import os, signal, sys, threading, time, nigh
            db = nigh.Db(sys.argv[1], memory_dir=sys.argv[2], capacity_bytes=64 << 20,
                         journal_bytes=1 << 20, shared=True)
            reader = nigh.open_reader(sys.argv[1], memory_dir=sys.argv[2])
            [db.put(b"%d" % number, b"value") for number in range(1000)]
            snapshot, watch, batch, is_over = db.snapshot(), db.watch(), db.batch(), threading.Event()
            batch.put(b"child", b"value")
            def uses(call):
                while not is_over.is_set():
                    call()
            def is_refused(call):
                try:
                    call()
                except nigh.Error as error:
                    return "forked" in str(error)
            def leaves():
                with db:
                    pass
            calls = [lambda: db[b"1"], lambda: db.put(b"child", b"value", strong=True), db.flush,
                     lambda: next(db.items()), lambda: next(snapshot), lambda: watch.next(60),
                     lambda: watch.place, db.snapshot, batch.write, leaves, lambda: reader[b"1"]]
            threads = [threading.Thread(target=uses, args=(call,)) for call in
                       (lambda: db.put(b"strong", b"", strong=True), db.flush,
                        lambda: next(snapshot, None), lambda: watch.next(0.001))]
            for thread in threads:
                thread.start()
            for _ in range(10):
                time.sleep(0.003)
                child = os.fork()
                if child == 0:
                    signal.alarm(30)  # it ends a child that hangs
                    refused = [is_refused(call) for call in calls]
                    snapshot.close(), watch.close(), db.close()
                    print(refused.count(True), db.closed, flush=True)
                    os._exit(0)
                print(os.waitpid(child, 0)[1], flush=True)
            is_over.set()
            for thread in threads:
                thread.join()
            print(b"child" in db, next(db.items()) is not None)
        """
        line = [sys.executable, "-W", "ignore", "-c", code, self.path, self.options["memory_dir"]]
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        ended = subprocess.run(line, env=environment, capture_output=True, text=True, check=False,
                               timeout=6 * LIMIT_S)
        told = ["11 True", "0"] * 10 + ["False True", ""]
        self.assertEqual(ended.stdout.split("\n"), told, ended.stderr)

    def test_a_batch_is_one_partitions(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = self.open(partitions=3)
        for number in range(40):
            db.put(b"%d" % number, b"1")
        with self.assertRaisesRegex(nigh.Error, "lie in two partitions"), db.batch() as batch:
            for number in range(40):
                batch.put(b"%d" % number, b"2")
        self.assertEqual(len(batch), 0, "also if it failed")
        with db.batch() as batch:
            for number in range(40):
                batch.put(b"{tag}%d" % number, b"2")
        self.assertEqual((len(db), db[b"0"], db[b"{tag}0"]), (80, b"1", b"2"))

    def test_a_walk_meets_all_keys_and_scan_is_its_step(self):
        db = self.open()
        wanted = {b"user:%d" % n: b"%d" % n for n in range(500)}
        for key, value in wanted.items():
            db[key] = value
        db[b"order:1"] = b"tea"
        self.assertEqual(dict(db.items(b"user:")), wanted)
        self.assertEqual(set(db.keys(prefix=b"order")), {b"order:1"})
        cursor, found = db.scan(count=10)
        self.assertTrue(found and cursor)
        while cursor:
            cursor, more = db.scan(b"", cursor, 10)
            found += more
        self.assertEqual(dict(found), {**wanted, b"order:1": b"tea"})

    def test_a_value_that_finds_no_memory_is_an_error(self):
        """A process may take little memory (ulimit -v), and has a long value copied. It was a panic,
        which is no Exception."""
        code = """if True:
            import resource, sys, nigh
            db = nigh.Db(sys.argv[1], memory_dir=sys.argv[2], capacity_bytes=128 << 20,
                         journal_bytes=1 << 20, shared=True)
            db[b"long"], db[b"short"] = bytes(24 << 20), b"hello"
            reader = nigh.open_reader(sys.argv[1], memory_dir=sys.argv[2])
            def write(value):
                with db.batch() as batch:
                    batch.put(b"batch", value)
            snapshot, long = db.snapshot(b"long"), db[b"long"]
            pages = int(open("/proc/self/statm").read().split()[0])
            no_limit = resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (8 << 20), no_limit))
            for call in (lambda: db[b"long"], lambda: db.multi_get([b"long"]),
                         lambda: list(db.items()), lambda: reader[b"long"], lambda: next(snapshot),
                         lambda: next(snapshot), lambda: write(long)):
                try:
                    call()
                    print("it fits")
                except (MemoryError, nigh.FullError):
                    print("told", db[b"short"].decode())
            # There is room for the snapshot's copy, and none for Python's.
            resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (40 << 20), no_limit))
            try:
                next(snapshot)
            except MemoryError:
                print("told again")
            resource.setrlimit(resource.RLIMIT_AS, (no_limit, no_limit))
            print(len(db[b"long"]), [len(value) for _, value in snapshot], b"batch" in db)
        """
        line = [sys.executable, "-c", code, self.path, self.options["memory_dir"]]
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        ended = subprocess.run(line, env=environment, capture_output=True, text=True, check=False,
                               timeout=LIMIT_S)
        whole = f"{24 << 20} [{24 << 20}] False"
        self.assertEqual(ended.stdout.split("\n"), ["told hello"] * 7 + ["told again", whole, ""], ended.stderr)

    def test_errors_name_the_database_and_what_to_do(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = self.open(capacity_bytes=8 << 20)
        within = lambda error, text: self.assertRaisesRegex(error, text)
        with within(nigh.InUseError, f"{self.path} is open in this process.*close it"):
            nigh.Db(self.path, **self.options)
        with within(nigh.TooLargeError, f"{self.path}: a key of 70000 bytes.*shorten it"):
            db.put(b"k" * 70_000, b"")
        db[b"0"] = b"five"
        with within(nigh.NotANumberError, "isn't a decimal integer"):
            db.incr(b"0")
        with within(nigh.TooLargeError, "a write of .* bytes"), db.batch() as batch:
            for number in range(300):
                batch.put(b"%d" % number, bytes(1000))
        with within(nigh.FullError, f"{self.path}: the database is full: delete keys"):
            for number in range(1000):
                db[b"%d" % number] = bytes(60_000)
        with within(ValueError, "expires_in is -1"):
            db.put(b"0", b"", expires_in=-1.0)
        with within(ValueError, "both expires_in and expires_at"):
            db.expire(b"0", expires_in=1.0, expires_at=1.0)
        with within(ValueError, "capacity_bytes is 1"):
            nigh.Db(self.path + "2", capacity_bytes=1)
        for name in ("capacity_bytes", "journal_bytes", "log_file_bytes", "threads_most", "snapshot_hold_bytes",
                     "watch_bytes", "partitions"):
            for number in (-1, 2**64):
                with within(ValueError, f"the option {name} is {number}: a number from 0"):
                    nigh.Db(self.path + "2", **{name: number})
            with within(TypeError, f"the option {name} needs a whole number, not float"):
                nigh.Db(self.path + "2", **{name: 1.5})
            with within((ValueError, nigh.OpenError), f"the option {name} is {2**64 - 1}, and may be"):
                nigh.Db(self.path + "2", **{name: 2**64 - 1})
        with within(nigh.OpenError, "is a file"):
            nigh.Db(__file__)
        self.assertTrue(issubclass(nigh.InUseError, nigh.OpenError) and issubclass(nigh.OpenError, nigh.Error))

    def test_a_fault_of_its_own_is_an_exception(self):
        """It was PyO3's PanicException, which no `except Exception` catches."""
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = self.open()
        text = rf"{self.path}: a fault of Nigh's own \(as the test wants\): please report it"
        for waits in (False, True):
            with self.assertRaisesRegex(nigh.Error, text):
                nigh._panics(db, waits)  # of a debug build  pylint: disable=protected-access
        db[b"key"] = b"value"
        self.assertEqual(db[b"key"], b"value")

    def test_a_closed_database_says_so_and_closing_again_is_nothing(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        with self.open() as db:
            db[b"key"] = b"value"
            walk, batch = db.items(), db.batch()
            batch.put(b"other", b"value")
        self.assertTrue(db.closed)
        db.close()
        calls = [lambda: db[b"key"], lambda: db.put(b"key", b""), db.flush, db.stats, lambda: len(db),
                 db.__enter__, lambda: next(walk), batch.write, lambda: db.incr(b"n", strong=True)]
        for call in calls:
            with self.assertRaisesRegex(nigh.ClosedError, f"{self.path}: the database is closed"):
                call()
        self.assertIn("closed", repr(db))

    def test_a_forgotten_database_is_closed(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = nigh.Db(self.path, **self.options)
        db[b"key"] = b"value"
        del db
        gc.collect()
        self.assertEqual(self.open()[b"key"], b"value")

    def test_close_waits_for_other_threads_and_they_are_told(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db, begun, written, faults = self.open(), threading.Semaphore(0), [0] * 4, []

        def write(thread):
            try:
                while True:
                    db.put(b"%d" % thread, b"%d" % (written[thread] + 1), strong=True)
                    written[thread] += 1
                    begun.release()
            except nigh.ClosedError:
                pass
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(8):
            self.assertTrue(begun.acquire(timeout=LIMIT_S))
        db.close()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual(faults, [])
        db = self.open()
        for thread, count in enumerate(written):
            self.assertEqual(db.get(b"%d" % thread, b"0"), b"%d" % count)

    def test_waits_for_the_disk_let_other_threads_run_and_short_calls_do_not(self):
        db = self.open()
        number = lambda n: b"%d" % n
        self.assertTrue(gives_the_lock(lambda n: db.put(b"k", number(n), strong=True)))
        self.assertTrue(gives_the_lock(lambda n: db.put(b"k", bytes(200 << 10))))
        self.assertTrue(gives_the_lock(lambda n: (db.put(b"k", number(n)), db.flush())))
        self.assertFalse(gives_the_lock(lambda n: db.put(b"k", number(n))))
        self.assertFalse(gives_the_lock(lambda n: db.get(b"k")))

    def test_the_stub_has_all_that_the_module_has(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        package = os.path.dirname(nigh.__file__)
        self.assertTrue(os.path.exists(os.path.join(package, "py.typed")))
        with open(os.path.join(package, "__init__.pyi"), encoding="utf-8") as file:
            stub = ast.parse(file.read())
        classes = {it.name: it for it in stub.body if isinstance(it, ast.ClassDef)}
        public = {name for name in dir(nigh) if isinstance(getattr(nigh, name), type)}
        self.assertEqual(set(classes), public)
        ignored = set(dir(object)) - {"__iter__"}
        functions = {it.name for it in stub.body if isinstance(it, ast.FunctionDef)}
        there = {it for it in dir(nigh) if inspect.isbuiltin(getattr(nigh, it))}
        self.assertEqual(functions, there - {"_panics"})
        for name in ("Db", "Batch", "Walk", "Snapshot", "Event", "Watch", "Reader", "Stats", "Client",
                     "Pipeline", "View"):
            methods = {it.name: it for it in classes[name].body if isinstance(it, ast.FunctionDef)}
            there = {it for it in dir(getattr(nigh, name)) if it not in ignored}
            self.assertEqual(set(methods) - ignored, there - {"__doc__", "__module__"}, name)
            for method in (it for it in methods if not it.startswith("__") and name not in ("Stats", "Event")):
                has = getattr(nigh.__dict__[name], method)
                if not callable(has):
                    continue
                args = methods[method].args
                more = [args.vararg] if args.vararg else []
                names = [arg.arg for arg in args.posonlyargs + args.args + more + args.kwonlyargs]
                self.assertEqual(names, list(inspect.signature(has).parameters), f"{name}.{method}")

    def test_the_pages_example_runs(self):
        example = (ROOT / "examples/python/greeting.py").read_text(encoding="utf-8")
        page = (ROOT / "docs/embedded.md").read_text(encoding="utf-8")
        self.assertTrue(f"```python\n{example}```\n" in page, "docs/embedded.md shows another example")
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        line = [sys.executable, ROOT / "examples/python/greeting.py"]
        done = subprocess.run(line, cwd=self.folder.name, env=environment, capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "hello None\n[(b'user:1', b'Ada'), (b'user:2', b'Alan')]\n")


if __name__ == "__main__":
    unittest.main()
