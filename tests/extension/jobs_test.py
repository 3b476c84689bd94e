"""A job outlives what happens to it: kill -9 at any moment, several processes at once, other writers, interrupts.

JOB_ROWS and JOB_KILLS make it longer than CI has time for:
    JOB_ROWS=500 JOB_KILLS=20 LM0=... LM_MODEL=... python3 tests/extension/jobs_test.py
"""
import csv
import json
import os
import pathlib
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from slow_model import write_slow_model

ROWS = int(os.environ.get("JOB_ROWS", "96"))
KILLS = int(os.environ.get("JOB_KILLS", "3"))
CHUNK = 16
ROOT = harness.MODELS.parents[2]
MODEL = ROOT / "sql" / "models" / "debian-notes.gguf"
RUN = f"SELECT * FROM lm_run('label', '{{\"chunk\":{CHUNK},\"progress_ms\":0}}')"
WORKER = f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.enable_load_extension(True)
db.load_extension({harness.LM0!r})
for row in db.execute(sys.argv[2]):
    print(*row, flush=True)
"""

# One that has little more memory than it has taken when it begins.
SHORT = f"""
import resource, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.enable_load_extension(True)
db.load_extension({harness.LM0!r})
db.execute("SELECT generate('x', NULL, '{{\\"max_tokens\\":1}}')").fetchall()
taken = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize:")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    end = str(db.execute("SELECT total, done FROM lm_run('label', '{{\\"outage_seconds\\":1}}')").fetchall()[-1])
except sqlite3.OperationalError as error:
    end = str(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(end)
"""


def texts():
    with open(ROOT / "sql" / "demo" / "documents.csv", newline="", encoding="utf-8") as file:
        documents = [text for _, text in csv.reader(file)]
    return [f"{i}: {documents[i % len(documents)][i % 97:][:300]}" for i in range(ROWS)]


class JobsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make(self, name, journal="wal", system="Write a one-line summary of this package.", **job):
        """A database with a table of notes and a job over it."""
        path = str(self.folder / name)
        db = harness.connect(path)
        self.addCleanup(db.close)
        db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, short TEXT, stored INTEGER DEFAULT 0)")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(text,) for text in texts()])
        db.execute("CREATE TABLE log(at REAL)")
        job = {"name": "label", "query": "SELECT id, body FROM notes", "system": system, "options": '{"max_tokens":16}',
               "target": "UPDATE notes SET short = :value, stored = stored + 1 WHERE id = :id", **job}
        db.execute(f"INSERT INTO lm_jobs({', '.join(job)}) VALUES ({', '.join('?' * len(job))})", tuple(job.values()))
        return path, db

    def worker(self, path, sql=RUN, **options):
        worker = subprocess.Popen([sys.executable, "-c", WORKER, path, sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, "LM_MODEL": str(MODEL)}, **options)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        self.addCleanup(worker.stdout.close)
        self.addCleanup(worker.stderr.close)
        return worker

    def finish(self, worker):
        out, error = worker.communicate(timeout=100)
        self.assertEqual((worker.returncode, error), (0, ""))
        return [line.split() for line in out.splitlines()]

    def check(self, db):
        self.assertEqual(harness.value(db, "PRAGMA integrity_check"), "ok")
        # What is done is done with all of it.
        self.assertEqual(harness.value(db, """SELECT count(*) FROM notes JOIN lm_job_rows AS r USING (id)
            WHERE (r.state = 'done') IS NOT (stored = 1) OR stored > 1 OR short IS NOT r.value"""), 0)

    def result(self, db):
        return db.execute("SELECT id, short FROM notes ORDER BY id").fetchall()

    def write_all_along(self, path, stop, waits):
        """Commits a row again and again; waits gets the longest it took."""
        db = sqlite3.connect(path, isolation_level=None, timeout=20)
        while not stop.is_set():
            began = time.monotonic()
            db.execute("INSERT INTO log VALUES (?)", (began,))
            waits.append(time.monotonic() - began)
            time.sleep(0.005)
        db.close()

    def test_kill_at_any_moment(self):
        path, db = self.make("unbroken.db")
        began = time.monotonic()
        self.finish(self.worker(path))
        took = time.monotonic() - began
        expected = self.result(db)
        self.assertEqual(harness.value(db, "SELECT sum(attempts) FROM lm_job_rows"), ROWS)
        self.assertGreater(len({short for _, short in expected}), ROWS // 4)
        for journal in ("wal", "delete"):
            with self.subTest(journal=journal):
                path, db = self.make(f"{journal}.db", journal)
                stop, waits = threading.Event(), []
                writer = threading.Thread(target=self.write_all_along, args=(path, stop, waits))
                writer.start()
                try:
                    for _ in range(KILLS):
                        worker = self.worker(path)
                        time.sleep(random.uniform(0, took / 2))
                        worker.kill()
                        worker.wait()
                        self.check(db)
                    rows = self.finish(self.worker(path))
                finally:
                    stop.set()
                    writer.join()
                self.check(db)
                self.assertEqual(rows[-1][:3], [str(ROWS), str(ROWS), "0"])
                self.assertEqual(self.result(db), expected)
                repeated = harness.value(db, "SELECT sum(attempts) - count(*) FROM lm_job_rows")
                self.assertLessEqual(repeated, KILLS * CHUNK)
                self.assertGreater(len(waits), 20)
                self.assertEqual(harness.value(db, "SELECT count(*) FROM log"), len(waits))
                print(f"{journal}: {KILLS} kills, {repeated} of {ROWS} rows generated again; another writer's longest "
                      f"commit {max(waits):.3f} s of {len(waits)}", file=sys.stderr)
                self.assertLess(max(waits), 5)

    def long_texts(self, name, **options):
        """A database whose texts are longer than the context, with a job that reads them in parts."""
        options = {"max_tokens": 16, "summarize": True, **options}
        path, db = self.make(name, options=json.dumps(options), system=None)
        db.execute("DELETE FROM notes WHERE id > 12")
        with open(ROOT / "sql" / "demo" / "documents.csv", newline="", encoding="utf-8") as file:
            documents = [text for _, text in csv.reader(file)]
        for id in range(1, 13):
            text = "\n\n".join(f"{id}: {text}" for text in documents * 3) if id % 3 else f"{id}: {documents[id]}"
            db.execute("UPDATE notes SET body = ? WHERE id = ?", (text, id))
        db.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (str(MODEL),))
        return path, db

    def test_texts_longer_than_the_context(self):
        path, db = self.long_texts("unbroken.db")
        # Without reading them in parts.
        db.execute("INSERT INTO lm_jobs(name, query) VALUES ('plain', 'SELECT id, body FROM notes')")
        self.assertEqual(db.execute("SELECT done, failed FROM lm_run('plain')").fetchall()[-1], (4, 8))
        error = harness.value(db, "SELECT error FROM lm_job_rows WHERE job = 'plain' AND state = 'failed'")
        context = int(re.search("the context holds ([0-9]+)", error)[1])
        self.assertGreater(harness.value(db, "SELECT max(lm_token_count(body)) FROM notes"), 2 * context)
        db.execute("DELETE FROM lm_jobs WHERE name = 'plain'")
        db.execute("DELETE FROM lm_memo")
        began = time.monotonic()
        rows = self.finish(self.worker(path))
        took = time.monotonic() - began
        self.assertEqual(rows[-1][:3], ["12", "12", "0"])
        self.check(db)
        expected = self.result(db)
        # They are lm_summarize's answers.
        self.assertEqual(db.execute("SELECT id, lm_summarize(body, '{\"max_tokens\":16}') FROM notes ORDER BY id").fetchall(), expected)
        self.assertGreater(harness.value(db, "SELECT min(tokens_in) FROM lm_job_rows WHERE id % 3"), context)
        killed, db = self.long_texts("killed.db")
        for _ in range(KILLS):
            worker = self.worker(killed)
            time.sleep(random.uniform(0, took))
            worker.kill()
            worker.wait()
            self.check(db)
        self.assertEqual(self.finish(self.worker(killed))[-1][:3], ["12", "12", "0"])
        self.check(db)
        self.assertEqual(self.result(db), expected)
        # Other parts are another question.
        db.execute("UPDATE lm_jobs SET options = json_set(options, '$.part_tokens', 200)")
        self.assertEqual(db.execute("SELECT max(changed), max(done) FROM lm_run('label', '{\"refresh\":true}')").fetchall(), [(12, 12)])

    def test_a_budget_for_texts_longer_than_the_context(self):
        path, db = self.long_texts("budget.db")
        spent, runs = harness.value(db, "SELECT sum(lm_token_count(body)) FROM notes"), 0
        before = 0
        while (done := harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'done'")) < 12:
            db.execute("DELETE FROM lm_memo")
            stopped = db.execute(f"SELECT stopped FROM lm_run('label', '{{\"max_total_tokens\":{spent // 3}}}')").fetchall()[-1][0]
            runs += 1
            self.check(db)
            self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state NOT IN ('done', 'waiting')"), 0)
            now = harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'done'")
            # Each run ends some, for it does not begin with all of them.
            self.assertGreater(now, done)
            self.assertEqual(stopped is None, now == 12)
            self.assertLessEqual(harness.value(db, "SELECT sum(tokens_in + tokens_out) FROM lm_job_rows WHERE state = 'done'") - before, spent // 3)
            before = harness.value(db, "SELECT sum(tokens_in + tokens_out) FROM lm_job_rows WHERE state = 'done'")
        self.assertGreater(runs, 2)

    def test_several_processes_share_the_rows(self):
        for journal in ("wal", "delete"):
            path, db = self.make(f"shared-{journal}.db", journal)
            workers = [self.worker(path) for _ in range(3)]
            ends = [self.finish(worker)[-1] for worker in workers]
            self.assertEqual([end[:3] for end in ends], [[str(ROWS), str(ROWS), "0"]] * 3)
            self.check(db)
            self.assertEqual(harness.value(db, "SELECT max(attempts) FROM lm_job_rows"), 1)

    def test_a_lock_is_waited_for_wherever_it_is_met(self):
        path, db = self.make("locks.db", "delete")
        db.execute("PRAGMA busy_timeout = 60000")
        db.execute("SELECT * FROM lm_run('label')").fetchall()
        over = threading.Event()

        def lock_again_and_again():
            other = sqlite3.connect(path, isolation_level=None, timeout=60)
            while not over.is_set():
                other.execute("BEGIN EXCLUSIVE")
                time.sleep(0.004)
                other.execute("COMMIT")
                time.sleep(0.004)
            other.close()

        thread = threading.Thread(target=lock_again_and_again)
        thread.start()
        try:
            for _ in range(30):
                self.assertEqual(db.execute("SELECT done, failed FROM lm_run('label')").fetchall()[-1], (ROWS, 0))
        finally:
            over.set()
            thread.join()

    def test_claims_of_a_silent_worker_run_out(self):
        path, db = self.make("silent.db")
        self.finish(self.worker(path, "SELECT * FROM lm_run('label', '{\"progress_ms\":0}') LIMIT 1"))
        lease = int(1000 * (time.time() + 2))
        db.execute("UPDATE lm_job_rows SET state = 'running', worker = 'elsewhere', lease = ? WHERE state <> 'done' AND "
                   "number > ?", (lease, ROWS - 8))
        self.finish(self.worker(path))
        self.assertGreaterEqual(time.time() * 1000, lease)
        self.check(db)

    def test_an_unfinished_run_gives_its_rows_back(self):
        path, db = self.make("limit.db")
        self.finish(self.worker(path, RUN + " LIMIT 1"))
        states = dict(db.execute("SELECT state, count(*) FROM lm_job_rows GROUP BY 1"))
        self.assertEqual(set(states) - {"done"}, {"waiting"})
        self.check(db)

    def test_an_interrupted_job_in_memory_leaves_no_transaction_open(self):
        """The interrupt lasts until the statement around has ended, and ends a ROLLBACK, too."""
        interrupted = 0
        for i in range(20):
            db = harness.connect()
            db.executescript("CREATE TABLE d(id INTEGER PRIMARY KEY, y); WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3000) "
                             "INSERT INTO d(id) SELECT i FROM s; INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', "
                             "'SELECT id, id % 7 FROM d', 'UPDATE d SET y = :value WHERE id = :id', '{\"max_tokens\":1}')")
            timer = threading.Timer(0.03 * i, db.interrupt)
            timer.start()
            try:
                db.execute("SELECT * FROM lm_run('j', '{\"chunk\":400}')").fetchall()
            except sqlite3.OperationalError:
                interrupted += 1
            timer.join()
            self.assertFalse(db.in_transaction, i)
            db.close()
        self.assertGreater(interrupted, 0)

    def test_interrupt(self):
        path, db = self.make("interrupt.db", query="SELECT id, body || hex(zeroblob(2000)) FROM notes")
        slow = str(self.folder / "slow.gguf")
        write_slow_model(slow)
        db.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (slow,))
        harness.value(db, "SELECT lm_token_count('load it')")
        for _ in range(3):
            timer = threading.Timer(0.4, db.interrupt)
            timer.start()
            with self.assertRaisesRegex(sqlite3.OperationalError, "interrupted"):
                db.execute(RUN).fetchall()
            timer.join()
            self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'running'"), 0)
            self.check(db)

    def test_a_statement_that_reads_is_in_the_way_of_a_rollback_journal_only(self):
        for journal in ("wal", "delete"):
            path, db = self.make(f"reader-{journal}.db", journal)
            db.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (str(MODEL),))
            reader = db.execute("SELECT id FROM notes")
            reader.fetchone()
            if journal == "wal":
                db.execute(RUN).fetchall()
            else:
                with self.assertRaisesRegex(sqlite3.OperationalError, "journal_mode delete nothing can be committed"):
                    db.execute(RUN).fetchall()
            reader.close()

    def test_refusals(self):
        path, db = self.make("refusals.db")
        for before, sql, message in (
                ("BEGIN", RUN, r"from within a transaction: it commits; COMMIT first \(in Python db.commit\(\), or isolation_level=None\)$"),
                ("", f"CREATE TABLE t AS {RUN}", "inside a statement that writes"),
                ("", "SELECT * FROM lm_run('nobody')", "no job named 'nobody'; lm_jobs has 'label'")):
            if before:
                db.execute(before)
            with self.assertRaisesRegex(sqlite3.OperationalError, message):
                db.execute(sql).fetchall()
            if db.in_transaction:
                db.execute("ROLLBACK")
        db.execute("PRAGMA locking_mode = exclusive").fetchall()
        db.execute("INSERT INTO log VALUES (1)")
        with self.assertRaisesRegex(sqlite3.OperationalError, "locking_mode = exclusive"):
            db.execute(RUN).fetchall()

    def test_the_transaction_that_python_begins(self):
        path, _ = self.make("python.db")
        db = sqlite3.connect(path)  # by default a BEGIN goes before each statement that writes
        self.addCleanup(db.close)
        db.enable_load_extension(True)
        db.load_extension(harness.LM0)
        db.execute("INSERT INTO lm_jobs(name, query, options) VALUES ('two', 'SELECT id, body FROM notes LIMIT 2', '{\"max_tokens\":2}')")
        with self.assertRaisesRegex(sqlite3.OperationalError, r"in Python db\.commit\(\)"):
            db.execute("SELECT * FROM lm_run('two')").fetchall()
        db.commit()
        self.assertEqual(harness.value(db, "SELECT max(done) FROM lm_run('two')"), 2)

    @unittest.skipIf("LD_PRELOAD" in os.environ, "without memory a sanitizer ends the process")
    def test_no_row_fails_for_want_of_memory(self):
        path, db = self.make("short.db", options='{"max_tokens":16,"cache":false}')
        ends = []
        for more in (250_000, 500_000, 1_000_000):
            ran = subprocess.run([sys.executable, "-c", SHORT, path, str(more)], capture_output=True, text=True, timeout=200)
            ends.append(ran.stdout or ran.stderr)  # Python itself may lack it
            self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state NOT IN ('waiting', 'done') OR error IS NOT NULL"), 0, ends)
        for end in ends:
            self.assertRegex(end, "(?i)memory|^\\(")
        self.assertEqual(db.execute("SELECT total, done, failed FROM lm_run('label')").fetchall()[-1], (ROWS, ROWS, 0))
        self.check(db)

    def test_no_row_fails_because_the_models_file_was_cut(self):
        path, db = self.make("cut.db", system=None, options='{"max_tokens":4}')
        model = self.folder / "slow.gguf"
        write_slow_model(model, layers=18)
        whole = model.read_bytes()
        worker = subprocess.Popen([sys.executable, "-c", WORKER, path, RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "LM_MODEL": str(model)})
        while not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'lm_job_rows'").fetchall() or not db.execute(
                "SELECT 1 FROM lm_job_rows WHERE state = 'running'").fetchall():
            self.assertIsNone(worker.poll())
            time.sleep(0.002)
        os.truncate(model, len(whole) // 2)
        _, error = worker.communicate(timeout=200)
        states = "SELECT DISTINCT state, error FROM lm_job_rows"
        if worker.returncode != 0:  # it had not laid all weights out by then
            self.assertRegex(error, "job 'label' stopped: .*slow.gguf.*; the rows that are left wait, and lm_run\\(\\) goes on with them")
            self.assertIn(("waiting", None), db.execute(states).fetchall())
        self.assertLessEqual(set(db.execute(states)), {("waiting", None), ("done", None)})

    def test_one_bad_row_in_1000(self):
        model = {"on_error": None, "null": None, "json": None, "error": None}
        for on_error in model:
            with self.subTest(on_error=on_error):
                path = str(self.folder / f"bad-{on_error}.db")
                db = harness.connect(path)
                db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body, answer)")
                db.execute("""INSERT INTO t(id, body) SELECT value, CASE value WHEN 700 THEN x'00' ELSE 'n' || value END
                              FROM (WITH RECURSIVE c(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM c LIMIT 1000)
                                    SELECT value FROM c)""")
                policy = "" if on_error == "on_error" else f', "on_error":"{on_error}"'
                db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM t', "
                           "'UPDATE t SET answer = :value WHERE id = :id', ?)", ('{"max_tokens":2' + policy + "}",))
                if on_error == "error":
                    with self.assertRaisesRegex(sqlite3.OperationalError, "1 rows failed.*id 700: prompt must be text, got a BLOB"):
                        db.execute("SELECT * FROM lm_run('j')").fetchall()
                    # What was answered beside it has been committed: how much that is, is up to the machine.
                    self.assertGreater(harness.value(db, "SELECT count(answer) FROM t"), 0)
                    continue
                end = db.execute("SELECT total, done, failed FROM lm_run('j')").fetchall()[-1]
                self.assertEqual(end, (1000, 999, 1))
                self.assertEqual(harness.value(db, "SELECT count(answer) FROM t WHERE id <> 700"), 999)
                bad = harness.value(db, "SELECT answer FROM t WHERE id = 700")
                self.assertEqual(bad is not None and '"error":"prompt must be text' in bad, on_error == "json")
                # Mended, and once more.
                db.execute("UPDATE lm_job_rows SET prompt = 'mended' WHERE id = 700")
                end = db.execute("SELECT total, done, failed FROM lm_run('j', '{\"retry\":true}')").fetchall()[-1]
                self.assertEqual(end, (1000, 1000, 0))
                db.close()


if __name__ == "__main__":
    unittest.main()
