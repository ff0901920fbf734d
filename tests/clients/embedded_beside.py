"""What runs beside a Python program's calls on the embedded library: snapshots, watches, readers in
other processes, and threads while a write waits. test_embedded.py runs these tests.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import embedded
from embedded import Child, Folder
from stopped import Stopped

HOUR_S = 3600.0
LIMIT_S = 60


class Beside(Folder):
    def run_beside(self, source):
        """Starts a program that opens a database and says so."""
        import_ = "import nigh, sys, threading, time\nfolder, memory = sys.argv[1:]\n"
        open_ = "db = nigh.Db(folder, memory_dir=memory, capacity_bytes=64 << 20, journal_bytes=1 << 20)\n"
        line = [sys.executable, "-c", import_ + open_ + "print('open', flush=True)\n" + source]
        pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": embedded.site()}
        child = subprocess.Popen([*line, self.path, self.options["memory_dir"]], stdin=pipe,
                                 stdout=pipe, stderr=pipe, text=True, env=environment)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "open\n")
        return child

    def test_writes_wait_for_a_log_that_stands_still_and_other_threads_run(self):
        # The journal is full, and nobody takes from it.
        child = self.run_beside(
            "def write():\n"
            "    for n in range(30): db.put(b'%d' % n, bytes(60_000))\n"
            "thread = threading.Thread(target=write)\n"
            "sys.stdin.readline()\n"
            "thread.start()\n"
            "time.sleep(0.3)\n"
            "print('waits' if thread.is_alive() else 'is over', flush=True)\n"
            "thread.join()\n"
            "print(len(db))\n")
        with Stopped(child.pid, "nigh-log"):
            child.stdin.write("go on\n")
            child.stdin.flush()
            self.assertEqual(child.stdout.readline(), "waits\n")
        self.assertEqual(child.stdout.readline(), "30\n")

    def test_a_snapshot_is_of_one_moment(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = self.open(snapshot_hold_bytes=2 << 20)
        wanted = {b"user:%d" % n: b"%d" % n for n in range(200)}
        for key, value in [*wanted.items(), (b"order:1", b"tea")]:
            db[key] = value
        with db.snapshot(b"user:") as snapshot:
            read = []
            for key, value in snapshot:
                read.append((key, value))
                db[key] = b"another"
            self.assertEqual((dict(read), len(read)), (wanted, 200))
        self.assertRaisesRegex(nigh.ClosedError, "the snapshot is closed", next, snapshot)
        slow = db.snapshot()
        for number in range(10_000):
            db[b"user:%d" % (number % 200)] = bytes(1000)
        self.assertRaisesRegex(nigh.SnapshotTooOldError, f"{self.path}: .* take another", list, slow)
        left = db.snapshot()
        db.close()
        self.assertRaises(nigh.ClosedError, next, left)
        self.assertRaises(nigh.ClosedError, db.snapshot)

    def test_several_threads_read_one_snapshot(self):
        """While one looked for its next keys, the others got a RuntimeError."""
        db, read, faults = self.open(), [], []
        wanted = {b"user:%d" % n: b"%d" % n for n in range(2000)}
        for key, value in wanted.items():
            db[key] = value
            db[b"other " + key] = value
        snapshot = db.snapshot(b"user:")

        def take():
            try:
                read.extend(snapshot)
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual((faults, len(read), dict(read)), ([], 2000, wanted))

    def test_a_watch_and_a_snapshot_keep_their_database(self):
        """`for event in nigh.Db(path).watch():` ended at once without a word: nobody had the
        database any more."""
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = nigh.Db(self.path, **self.options)
        db[b"key"] = b"value"
        watch, snapshot = db.watch(), db.snapshot()
        del db
        gc.collect()
        self.assertIsNone(watch.next(0.01))
        self.assertEqual(list(snapshot), [(b"key", b"value")])
        del snapshot
        with self.assertRaises(nigh.InUseError):
            nigh.Db(self.path, **self.options)
        del watch
        gc.collect()
        self.assertEqual(self.open()[b"key"], b"value")

    def test_a_watch_tells_each_change_in_order_and_ends(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = self.open(watch_bytes=4096)
        watch, told = db.watch(b"user:"), []
        self.assertIsNone(watch.next(0))
        thread = threading.Thread(target=lambda: told.extend(watch))
        with db.batch() as batch:
            batch.put(b"order:1", b"tea")
        db.put(b"user:1", b"Ada", expires_in=HOUR_S)
        event = watch.next(LIMIT_S)
        self.assertEqual((event.kind, event.change, event.key, event.value, event.first),
                         ("put", 2, b"user:1", b"Ada", None))
        self.assertTrue(HOUR_S / 2 < event.expires_at - time.time() <= HOUR_S)
        self.assertEqual(repr(event), "<nigh.Event put change=2 key=b'user:1'>")
        thread.start()  # it waits, and this thread goes on
        del db[b"user:1"]
        db[b"user:2"] = b"Alan"
        db.close()
        thread.join(LIMIT_S)
        self.assertEqual([(it.kind, it.change, it.key) for it in told],
                         [("removed", 3, b"user:1"), ("put", 4, b"user:2")])
        self.assertRaises(nigh.ClosedError, watch.next)
        self.assertRaises(nigh.ClosedError, db.watch)

    def test_the_place_of_a_closed_watch_is_behind_what_was_taken(self):
        """A thread that waited took what came while another one closed the watch: that came again from the place."""
        db = self.open(watch_bytes=4096)
        for n in range(20):
            watch, told = db.watch(b"key"), []
            thread = threading.Thread(target=told.extend, args=(watch,))
            thread.start()
            watch.close()
            db.put(b"key", b"%d" % n)
            thread.join(LIMIT_S)
            with db.watch(b"key", place=watch.place) as again:
                event = again.next(0.05 if told else LIMIT_S)
            self.assertEqual([*told, event].count(None), len(told), n)

    def test_a_watch_goes_on_from_a_place_behind_a_restart(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db, told, last = self.open(partitions=3), [], {}

        def put(numbers):
            for number in numbers:
                db[b"key %d" % (number % 17)] = b"%d" % number

        def take(watch, count):
            for _ in range(count):
                event = watch.next(LIMIT_S)
                self.assertGreater(event.change, last.get(event.partition, 0))
                last[event.partition] = event.change
                told.append(int(event.value))

        put(range(50))
        with db.snapshot() as snapshot:
            moment = snapshot.place
            self.assertEqual({int(value) for _, value in snapshot}, {*range(33, 50)})
        put(range(50, 150))
        with db.watch(b"key", place=moment) as watch:
            self.assertEqual(watch.place, moment)
            take(watch, 40)
        place = watch.place
        db.close()
        db = self.open()
        watch = db.watch(b"key", place=place)
        put(range(150, 200))
        db[b"other"] = b""
        take(watch, 110)
        self.assertEqual((sorted(told), set(last)), ([*range(50, 200)], {0, 1, 2}))
        for _ in range(1000):
            if watch.place == db.snapshot().place:
                break
            time.sleep(0.01)
        else:
            self.fail("it doesn't go on behind what has another prefix")
        self.assertRaisesRegex(ValueError, "'17' is no place of a watch".replace("'", '"'),
                               db.watch, place="17")
        self.assertRaisesRegex(ValueError, "its end is missing", db.watch, place=place[:-1])
        self.assertRaises(TypeError, db.watch, place=17)
        self.path += " of others"
        other = nigh.Db(self.path, **{**self.options, "memory_dir": self.options["memory_dir"] + "2"})
        self.assertRaisesRegex(ValueError, "with 3 partitions, and this one has 1", other.watch, place=place)
        other.close()
        watch.close()
        left = moment  # then those places from which on something is left, until one holds
        for _ in range(200):
            for number in range(20 if left == moment else 0):
                db[b"%d" % number] = bytes(60_000)
            try:
                db.watch(place=left).close()
                if left != moment:
                    break
            except nigh.ChangesGoneError as error:
                left = str(error).split("those behind ")[1].split(": ")[0]
        else:
            self.fail("the log is never compacted, or nothing is left")

    def test_a_watch_that_nobody_takes_loses_changes_says_so_and_goes_on(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db, lost, next_ = self.open(watch_bytes=4096), 0, 1
        with db.watch() as watch:
            for _ in range(200):
                db[b"key"] = bytes(100)
            db.flush()
            db[b"end"] = b""
            while next_ <= 201:
                event = watch.next(LIMIT_S)
                first = event.first if event.kind == "lost" else event.change
                self.assertEqual(first, next_)
                lost, next_ = lost + event.change - first, event.change + 1
            self.assertGreater(lost, 100)
            self.assertRaisesRegex(ValueError, "timeout is -1", watch.next, -1.0)
            waits = threading.Thread(target=list, args=(watch,))
            waits.start()
        waits.join(LIMIT_S)  # the end of the block has ended it
        self.assertFalse(waits.is_alive())
        self.assertRaisesRegex(nigh.ClosedError, "the watch is closed", watch.next)

    def test_a_signal_ends_a_wait_for_changes(self):
        child = self.run_beside("print('waits', flush=True)\ndb.watch().next()\n")
        self.assertEqual(child.stdout.readline(), "waits\n")
        child.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", child.communicate(timeout=LIMIT_S)[1])

    def test_another_process_reads_while_one_writes(self):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        memory_dir = self.options["memory_dir"]
        owner = Child("python", self.path, **self.options)
        self.addCleanup(owner.kill)
        with self.assertRaisesRegex(nigh.OpenError, r"is private: open it with the option shared in the process"):
            nigh.open_reader(self.path, memory_dir=memory_dir)
        owner.close()
        self.assertRaisesRegex(ValueError, "option shared", self.open, keep_memory=True)
        self.options["shared"] = True
        owner = Child("python", self.path, **self.options)
        self.addCleanup(owner.kill)
        with nigh.open_reader(self.path, memory_dir=memory_dir) as reader:
            for number in range(50):
                value = b"%d" % number
                owner.call("write", [(b"a", value), (b"b", value), (b"key %d" % number, b"")])
                self.assertEqual(reader.multi_get([b"a", b"b", b"none"]), [value, value, None])
            self.assertEqual((reader.get(b"a"), reader[b"b"], reader.get(b"none", 7)), (b"49", b"49", 7))
            self.assertTrue(b"a" in reader and b"none" not in reader)
            self.assertRaises(KeyError, lambda: reader[b"none"])
            self.assertEqual(set(reader.items(b"key ")), {(b"key %d" % n, b"") for n in range(50)})
            cursor, found = reader.scan(count=5)
            self.assertTrue(cursor and 0 < len(found) < 52)
            self.assertEqual((reader.ttl(b"a"), reader.ttl(b"none")), (float("inf"), None))
            owner.call("put", b"brief", b"x", expires_in=HOUR_S)
            self.assertTrue(HOUR_S - 100 < reader.ttl(b"brief") <= HOUR_S)
            owner.close()
            self.assertRaisesRegex(nigh.NotOpenError, f"{self.path} isn't open", reader.get, b"a")
            self.assertRaises(nigh.NotOpenError, reader.wait, 0.02)
            self.assertRaises(ValueError, reader.wait, -1.0)
            waits = threading.Thread(target=reader.wait, args=(LIMIT_S,))
            waits.start()
            owner = Child("python", self.path, **self.options)
            self.addCleanup(owner.kill)
            waits.join(LIMIT_S)
            reader.wait()
            self.assertEqual(reader.get(b"a"), b"49")
            self.assertEqual(reader[b"b"], b"49")
        self.assertRaisesRegex(nigh.ClosedError, "the reader is closed", reader.get, b"a")
        self.assertRaisesRegex(nigh.OpenError, "no database in", nigh.open_reader, self.folder.name)
