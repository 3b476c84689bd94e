"""Hosts that are not as most are: with a shared cache, open BLOBs, an authorizer, views without an end."""
import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest

import harness

SHORT = '{"max_tokens":3}'


class HostsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "host.db")

    def connect(self, path=None):
        db = harness.connect(path or self.path)
        self.addCleanup(db.close)
        return db

    def with_job(self, db, query="SELECT rowid, x FROM t WHERE y IS NULL"):
        db.execute("PRAGMA journal_mode = wal").fetchall()
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x, y)")
        db.executemany("INSERT INTO t(x) VALUES (?)", [(f"row {i}",) for i in range(4)])
        db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', ?, 'UPDATE t SET y = :value WHERE rowid = :id', ?)", (query, SHORT))

    def in_time(self, db, sql):
        """What the statement returns, which may take a minute."""
        timer = threading.Timer(60, db.interrupt)
        timer.start()
        try:
            return db.execute(sql).fetchall()
        finally:
            timer.cancel()

    def test_threads_leave_the_hosts_signals_to_the_host(self):
        """A host may block one in all its threads, and wait for it."""
        db = self.connect()
        db.execute("SELECT generate('x', NULL, ?)", (SHORT,)).fetchall()
        harness.value(db, "SELECT count(*) FROM lm_running")
        own = {thread.native_id for thread in threading.enumerate()}
        others = 0
        for task in os.listdir("/proc/self/task"):
            if int(task) in own:
                continue
            with open(f"/proc/self/task/{task}/status") as status:
                blocked = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))
            for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1):
                self.assertTrue(blocked >> (number - 1) & 1, (task, number))
            self.assertFalse(blocked >> (signal.SIGSEGV - 1) & 1)
            others += 1
        self.assertGreater(others, 0)

    def test_a_host_that_rounds_otherwise(self):
        """What is loaded then is what others use."""
        script = (
            "import ctypes, sys, harness\n"
            "rounding = int(sys.argv[1])\n"
            "fenv = ctypes.CDLL('libm.so.6')\n"
            "def ask():\n"
            "    db = harness.connect(':memory:')\n"
            "    return (harness.value(db, 'SELECT lm_logprobs(?)', 'It was in the year of')\n"
            "            + harness.value(db, 'SELECT hex(lm_embed(?))', 'a text')\n"
            "            + harness.value(db, 'SELECT generate_json(?, ?)', 'x', '{\"enum\":[0.1,0.3]}'))\n"
            "fenv.fesetround(rounding)\n"
            "first = ask()\n"
            "fenv.fesetround(0)\n"
            "print(first == ask(), first)\n")
        model = os.path.join(os.path.dirname(__file__), "../testdata/models/gemma3-f32.gguf")
        said = set()
        for rounding in (0, 0x400, 0x800, 0xC00):  # to nearest, down, up, to zero, of x86
            ran = subprocess.run([sys.executable, "-c", script, str(rounding)], capture_output=True, text=True, check=True,
                                 env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)), "LM_MODEL": model})
            said.add(ran.stdout)
        self.assertEqual(len(said), 1)
        self.assertTrue(said.pop().startswith("True"))

    def stopped_once(self, sql):
        """Within a transaction with three rows, a progress handler ends the statement at its nth question, for each n."""
        for n in range(1, 10_000, 3):
            db = self.connect(":memory:")
            db.execute("CREATE TABLE t(a)")
            db.execute("BEGIN")
            db.execute("INSERT INTO t VALUES (1), (2), (3)")
            asked = 0

            def ask():
                nonlocal asked
                asked += 1
                return asked == n

            db.set_progress_handler(ask, 1)
            try:
                db.execute(sql).fetchall()
                failed = False
            except sqlite3.OperationalError:
                failed = True
            db.set_progress_handler(None, 0)
            yield db, n, failed
            db.close()
            if asked < n:
                return

    def test_what_an_interrupt_rolls_back_is_an_error(self):
        insert = "INSERT INTO lm_jobs(name, query, target) VALUES ('j', 'SELECT a, a FROM t', 'UPDATE t SET a = :value WHERE a = :id')"
        for sql, stored in (("SELECT * FROM lm_running", 0), (insert, 1)):
            for db, n, failed in self.stopped_once(sql):
                if failed:
                    continue
                with self.subTest(sql=sql, n=n):
                    self.assertTrue(db.in_transaction)
                    self.assertEqual(harness.value(db, "SELECT count(*) FROM t"), 3)
                    if stored:
                        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_jobs"), 1)

    def test_jobs_beside_a_cache_that_connections_share(self):
        """The job's connection would wait for the lock of the statement that runs the job."""
        library = ctypes.CDLL("libsqlite3.so.0")
        self.assertEqual(library.sqlite3_enable_shared_cache(1), 0)
        try:
            db = self.connect()
            self.with_job(db)
            # It is shared indeed, if this is the library that Python uses.
            other = self.connect()
            db.execute("BEGIN")
            db.execute("INSERT INTO t(x) VALUES ('more')")
            with self.assertRaisesRegex(sqlite3.OperationalError, "table is locked"):
                other.execute("SELECT x FROM t").fetchall()
            db.execute("ROLLBACK")
            other.close()
            open_cursor = db.execute("SELECT x FROM t")
            open_cursor.fetchone()
            self.assertEqual(db.execute("SELECT name, (SELECT max(done) FROM lm_run(name)) FROM lm_jobs").fetchall(), [("j", 4)])
            open_cursor.close()
        finally:
            library.sqlite3_enable_shared_cache(0)
        self.assertEqual(harness.value(db, "SELECT count(y) FROM t"), 4)

    @unittest.skipUnless(hasattr(sqlite3, "Blob"), "Python 3.11")
    def test_an_open_blob_lets_no_constraint_generate(self):
        other = sqlite3.connect(self.path, isolation_level=None)
        other.create_function("generate", -1, lambda *words: "fine")
        other.executescript("CREATE TABLE b(data BLOB); INSERT INTO b VALUES (zeroblob(10)); CREATE TABLE t(x, CHECK (generate('tell me ' || x) IS NOT NULL));")
        other.close()
        db = self.connect()
        with self.assertRaisesRegex(sqlite3.OperationalError, "unsafe use"):
            db.execute("INSERT INTO t VALUES ('a')")
        with db.blobopen("b", "data", 1):
            with self.assertRaisesRegex(sqlite3.OperationalError, "unsafe use"):
                db.execute("INSERT INTO t VALUES ('b')")
            self.assertTrue(harness.value(db, f"SELECT generate('a', NULL, '{SHORT}')"))
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t"), 0)

    def test_what_an_authorizer_forbids_no_job_of_an_attached_database_calls(self):
        recursion = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 4) SELECT i, 'row ' || i FROM c"
        for query, forbidden, words in (("SELECT id, hex(x) FROM t", (31, "hex"), r"calls hex\(\), which this connection's authorizer forbids"),
                                        ("SELECT id, printf('%s', x) FROM t", (31, "printf"), r"calls printf\(\), which"),
                                        ("SELECT id, first_value(x) OVER () FROM t", (31, "first_value"), r"calls first_value\(\), which"),
                                        (recursion, (33, None), "uses a recursive table, which this connection's authorizer forbids")):
            for denies in (False, True):
                with self.subTest(query=query, denies=denies):
                    path = f"{self.path}.{forbidden[1]}.{denies}"
                    self.with_job(self.connect(path), query)
                    db = self.connect()
                    db.execute("ATTACH ? AS two", (path,))
                    run = """SELECT max(done) FROM lm_run('j', '{"database":"two"}')"""
                    if denies:
                        db.set_authorizer(lambda code, table, name, *rest: sqlite3.SQLITE_DENY if (code, name) == forbidden else sqlite3.SQLITE_OK)
                        with self.assertRaisesRegex(sqlite3.OperationalError, words):
                            db.execute(run).fetchall()
                    else:
                        self.assertEqual(harness.value(db, run), 4)

    def test_statements_that_end_where_a_recursion_does_not(self):
        """What the statement does not read of it, looking ahead must not read either."""
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c{}) SELECT x FROM {}"
        db = self.connect()
        db.execute("CREATE TEMP VIEW n AS " + endless.format("", "c"))
        db.execute("CREATE TEMP VIEW \"of n\" AS SELECT x FROM n")
        asks = f"generate('note ' || x, NULL, '{SHORT}')"
        for number, sql in enumerate((f"SELECT x FROM n WHERE x IN (5, 7) AND {asks} IS NOT NULL LIMIT 2",
                                      f"SELECT x FROM \"of n\" WHERE x IN (5, 7) AND {asks} IS NOT NULL LIMIT 2",
                                      f"SELECT EXISTS (SELECT 1 FROM n WHERE x IN (5, 7) AND length({asks}) > (x = 5) * 1000)",
                                      endless.format(" LIMIT 100000000000", f"c WHERE x IN (5, 7) AND {asks} IS NOT NULL LIMIT 2"),
                                      endless.format(" LIMIT -1", f"c WHERE x IN (5, 7) AND {asks} IS NOT NULL LIMIT 2"),
                                      endless.format(" LIMIT 0, -1", f"c WHERE x IN (5, 7) AND {asks} IS NOT NULL LIMIT 2"),
                                      endless.format(" LIMIT (SELECT -1)", f"c WHERE x IN (5, 7) AND {asks} IS NOT NULL LIMIT 2"))):
            with self.subTest(sql=sql):
                sql = sql.replace("note", f"note {number}")
                self.assertEqual(self.in_time(db, sql), [(1,)] if "EXISTS" in sql else [(5,), (7,)])

    def test_recursions_that_end_are_looked_ahead_in(self):
        db = self.connect()
        numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c{}) SELECT x FROM c"
        db.execute("CREATE TEMP VIEW n AS " + numbers.format(" WHERE x < 40"))
        db.execute("CREATE TEMP VIEW m AS " + numbers.format(" LIMIT 40"))
        db.execute("CREATE TEMP VIEW plain AS SELECT value AS x, 'plain ' || value AS body FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]')")
        foreseen = 0
        for number, (sql, rows) in enumerate((("SELECT x, {} FROM n", 40), ("SELECT x, {} FROM m", 40),
                                              (numbers.format(" WHERE x < 20").replace("SELECT x FROM c", "SELECT c.x, {} FROM c JOIN plain ON plain.x = c.x"), 20),
                                              (numbers.format(" WHERE x < 40").replace("SELECT x FROM c", "SELECT c.x, {} FROM c JOIN plain ON plain.x = c.x LIMIT 20"), 20))):
            with self.subTest(sql=sql):
                body = "plain.body" if "plain" in sql else "x"
                answers = db.execute(sql.format(f"generate('row {number} ' || {body}, NULL, '{SHORT}')")).fetchall()
                self.assertEqual(len(answers), rows)
                before, foreseen = foreseen, harness.value(db, "SELECT max(foreseen) FROM lm_stats")
                self.assertGreater(foreseen - before, rows - 5)


if __name__ == "__main__":
    unittest.main()
