"""Transactions that watch keys, beside redis-py's. For test_local_client.py."""

import threading

import redis

from client_case import LIMIT_S, Clients, begin, each_way, nigh


def setUpModule():
    begin()


class Watches(Clients):
    def raced(self, of, key, disturb):
        """Adds one to a key by a transaction that watches it. The result, or the exception's name."""
        with of.pipeline() as pipe:
            pipe.watch(key)
            number = int(pipe.get(key) or 0)
            found = [pipe.watching, len(pipe), pipe.exists(key), pipe.ttl(key), pipe.mget(key, "none")]
            disturb()
            pipe.multi()
            found.append(pipe.set(key, number + 1).get(key) is pipe)
            try:
                found.append(pipe.execute())
            except (nigh.WatchError, redis.WatchError) as error:
                found.append(type(error).__name__)
            return found + [pipe.watching, len(pipe), of.get(key)]

    @each_way
    def test_a_watched_key_guards_a_transaction_as_with_redis_py(self, client):
        other = self.client("tcp")
        for of in (client, self.redis):
            of.flushall()
            gave = [self.raced(of, "n", lambda: None),
                    self.raced(of, "n", lambda: other.set("other", 1)),
                    self.raced(of, "n", lambda: other.set("n", 7)),
                    self.raced(of, "n", lambda: of.set("n", 8)),
                    self.raced(of, "n", lambda: other.delete("n"))]
            if of is client:
                ours = gave
        self.assertEqual(ours, gave)
        self.assertEqual([it[6] for it in ours], [[True, b"1"], [True, b"2"], *["WatchError"] * 3])
        # What doesn't watch is sent together, and the client's own connection watches nothing.
        with client.pipeline(transaction=False) as pipe:
            pipe.watch("n")
            self.assertIs(pipe.unwatch(), True)
            self.assertEqual((pipe.watching, pipe.set("n", 1) is pipe, len(pipe)), (False, True, 1))
            client.set("n", 9)
            self.assertEqual(pipe.get("n").execute(), [True, b"1"])
            pipe.watch("n")
            self.assertEqual((pipe.incr("n"), pipe.execute_command("GET", "n")), (2, b"2"), "at once")
            with self.raises(nigh.WatchError, "a watched key has changed, so nothing was done"):
                pipe.execute()  # without commands: as in redis-py

    @each_way
    def test_threads_that_watch_lose_no_update(self, client):
        count, rounds, faults = 4, 25, []

        def work():
            try:
                for _ in range(rounds):
                    for _ in range(10_000):
                        with client.pipeline() as pipe:
                            try:
                                pipe.watch("sum")
                                number = int(pipe.get("sum") or 0)
                                pipe.multi()
                                pipe.set("sum", number + 1).execute()
                                break
                            except nigh.WatchError:
                                pass
                    else:
                        raise AssertionError("it never happens")
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual((faults, client.get("sum")), ([], b"%d" % (count * rounds)))
        listed = self.redis.client_list()
        self.assertLess(len(listed), 4 * count + 10, "connections that watch are used again")

    def test_calls_out_of_order_are_errors(self):
        client = self.client()
        pipe = client.pipeline()
        pipe.multi()
        for text, call in (("multi within multi", pipe.multi), ("watch after multi", lambda: pipe.watch("a")),
                           ("unwatch after multi", pipe.unwatch)):
            with self.raises(nigh.Error, text):
                call()
        self.assertEqual(pipe.set("a", 1).execute(), [True])
        with self.raises(nigh.Error, "gathered already"):
            pipe.set("a", 2).multi()
        pipe.reset()
        with self.raises(nigh.ResponseError, "refused WATCH: ERR wrong number"):
            pipe.watch()
        self.assertFalse(pipe.watching)
        pipe.watch("a")
        with self.raises(nigh.ResponseError, "refused WATCH"):
            pipe.watch()
        client.set("a", 3)
        with self.raises(nigh.ResponseError, "refused command 1 of the pipeline, NOSUCH: ERR unknown"):
            pipe.multi()
            pipe.execute_command("NOSUCH").execute()
        self.assertFalse(pipe.watching)
        pipe.watch("a")
        pipe.reset()
        self.assertEqual((pipe.watching, pipe.set("a", 4) is pipe, pipe.execute()), (False, True, [True]))
        pipe.watch("a")
        client.close()
        # The connection that watches is there until the pipeline goes: what is sent at once went by it.
        for call in (lambda: pipe.set("a", 5), lambda: pipe.exists("a"), pipe.execute, lambda: pipe.watch("a")):
            with self.raises(nigh.ClosedError, "the client is closed"):
                call()
        self.assertEqual(self.redis.get("a"), b"4")
