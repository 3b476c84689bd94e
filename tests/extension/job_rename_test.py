"""A job that is given another name: its rows go along, whoever is at work on them."""
import pathlib
import sqlite3
import tempfile
import unittest

import harness
from batch_api_server import answer_line

RENAME = "UPDATE lm_jobs SET name = 'jj' WHERE name = 'j'"


class JobRenameTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def open(self, name="notes.db", rows=3):
        db = harness.connect(name if name == ":memory:" else str(self.folder / name))
        self.addCleanup(db.close)
        if name != ":memory:":
            db.execute("PRAGMA journal_mode = wal").fetchall()
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, answer TEXT, stored INTEGER DEFAULT 0)")
        db.execute("INSERT INTO t(body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 'note ' || i FROM n", (rows,))
        self.add(db)
        return db

    def add(self, db, name="j"):
        db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES (?, 'SELECT id, body FROM t', "
                   "'UPDATE t SET answer = :value, stored = stored + 1 WHERE id = :id', '{\"max_tokens\":2}')", (name,))

    def other(self, *statements):
        """Another program's, without this extension."""
        plain = sqlite3.connect(self.folder / "notes.db", isolation_level=None)
        try:
            for sql in statements:
                plain.execute(sql)
        finally:
            plain.close()

    def run_job(self, db, name="jj", options=None):
        return db.execute("SELECT total, done, failed FROM lm_run(?, ?)", (name, options)).fetchall()[-1]

    def rows(self, db):
        return db.execute("SELECT job, count(*) FROM lm_job_rows GROUP BY job ORDER BY job").fetchall()

    def test_rows_follow(self):
        for name in (":memory:", "notes.db"):
            with self.subTest(name=name):
                db = self.open(name)
                self.assertEqual(self.run_job(db, "j"), (3, 3, 0))
                db.execute("UPDATE lm_job_rows SET state = 'waiting' WHERE id > 1")
                db.execute(RENAME)
                self.assertEqual(self.run_job(db), (3, 3, 0))
                self.assertEqual(db.execute("SELECT id, attempts FROM lm_job_rows ORDER BY id").fetchall(), [(1, 1), (2, 2), (3, 2)])
                db.execute("DELETE FROM lm_jobs WHERE name = 'jj'")
                self.assertEqual(self.rows(db), [])

    def test_other_names_keep_theirs(self):
        db = self.open()
        for name in ("k", "l"):
            self.add(db, name)
        for name in ("j", "k", "l"):
            self.assertEqual(self.run_job(db, name), (3, 3, 0))
        with self.assertRaisesRegex(sqlite3.IntegrityError, "UNIQUE constraint failed: lm_jobs.name"):
            db.execute("UPDATE lm_jobs SET name = 'k' WHERE name = 'j'")
        self.assertEqual(self.rows(db), [("j", 3), ("k", 3), ("l", 3)])
        # One that takes another's place takes no rows of it.
        db.execute("UPDATE OR REPLACE lm_jobs SET name = 'k' WHERE name = 'j'")
        self.assertEqual(self.rows(db), [("k", 3), ("l", 3)])
        self.assertEqual(db.execute("SELECT DISTINCT job FROM lm_job_rows WHERE number <= 3").fetchall(), [("k",)])
        db.execute("UPDATE lm_jobs SET name = name || '2'")
        self.assertEqual(self.rows(db), [("k2", 3), ("l2", 3)])

    def test_a_run_goes_on_under_the_new_name(self):
        db = self.open(rows=60)
        rows = db.execute("SELECT total, done, failed FROM lm_run('j', '{\"chunk\":4,\"progress_ms\":0}')")
        rows.fetchone()
        self.other(RENAME)
        end = rows.fetchall()[-1]
        self.assertEqual(end, (60, 60, 0))
        self.assertEqual(self.rows(db), [("jj", 60)])
        # Each row once, and what had been answered by then was not lost.
        self.assertEqual(db.execute("SELECT DISTINCT state, attempts, stored FROM lm_job_rows JOIN t USING (id)").fetchall(), [("done", 1, 1)])
        self.assertEqual(db.execute("SELECT name, status FROM lm_jobs").fetchall(), [("jj", "done")])

    def test_a_budget_that_ends_after_the_name(self):
        db = self.open(rows=200)
        rows = db.execute("SELECT total, done, stopped FROM lm_run('j', '{\"chunk\":4,\"progress_ms\":0,\"max_total_tokens\":400}')")
        rows.fetchone()
        self.other(RENAME)
        total, done, stopped = rows.fetchall()[-1]
        self.assertEqual(total, 200)
        self.assertTrue(0 < done < 200, done)
        self.assertEqual(db.execute("SELECT name, status FROM lm_jobs").fetchall(), [("jj", stopped)])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'running'"), 0)

    def test_a_run_whose_name_is_given_to_another(self):
        db = self.open(rows=60)
        rows = db.execute("SELECT total, done, failed FROM lm_run('j', '{\"chunk\":4,\"progress_ms\":0}')")
        rows.fetchone()
        self.other(RENAME, "INSERT INTO lm_jobs(name, query) VALUES ('j', 'SELECT 1, ''other''')")
        with self.assertRaisesRegex(sqlite3.OperationalError, "job 'j' was replaced by another while it ran"):
            rows.fetchall()
        self.assertEqual(self.run_job(db), (60, 60, 0))
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE stored = 1"), 60)
        self.assertEqual(self.run_job(db, "j"), (1, 1, 0))

    def test_tables_that_an_earlier_version_made(self):
        db = self.open()
        self.assertEqual(self.run_job(db, "j"), (3, 3, 0))
        # Renamed while nothing looked after the rows: it is said, and can be set right in either direction.
        for mend in ("UPDATE lm_job_rows SET job = 'jj' WHERE job = 'j'", "UPDATE lm_jobs SET name = 'j' WHERE name = 'jj'"):
            with self.subTest(mend=mend):
                db.execute("DROP TRIGGER lm_jobs_rename")
                db.execute(RENAME)
                self.assertEqual(self.rows(db), [("j", 3)])
                for options in (None, '{"refresh":true}'):
                    with self.assertRaisesRegex(sqlite3.OperationalError, "job 'jj' has 3 rows and lm_job_rows none of them, but rows of 'j', which is no job"):
                        self.run_job(db, options=options)
                db.execute(mend)
                self.assertEqual(self.run_job(db, harness.value(db, "SELECT name FROM lm_jobs")), (3, 3, 0))
                db.execute("UPDATE lm_jobs SET name = 'j'")  # with the trigger that the run has added
                self.assertEqual(self.rows(db), [("j", 3)])

    def test_an_import_and_an_export(self):
        db = self.open()
        lines = [line for line, in db.execute("SELECT text FROM lm_batch_export('j', '{\"model\":\"m\"}')")]
        path = self.folder / "answers.jsonl"
        path.write_text("".join(answer_line(line, lambda body: "yes") + "\n" for line in lines))
        db.execute(RENAME)
        refusals = [refusal for refusal, in db.execute("SELECT refusal FROM lm_batch_import('jj', ?)", (str(path),))]
        self.assertEqual(refusals, [f"line {i} is of the job 'j'" for i in (1, 2, 3)] + [None])
        db.execute("UPDATE lm_jobs SET name = 'j'")
        self.assertEqual(db.execute("SELECT done FROM lm_batch_import('j', ?)", (str(path),)).fetchall(), [(3,)])
        # One that is under way has no rows claimed, by which it would know the new name.
        db.execute("INSERT INTO t(body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT 'more ' || i FROM n")
        db.execute("UPDATE lm_jobs SET total = NULL")
        rows = db.execute("SELECT text FROM lm_batch_export('j', '{\"model\":\"m\"}')")
        rows.fetchone()
        self.other(RENAME)
        with self.assertRaisesRegex(sqlite3.OperationalError, "job 'j' was deleted or renamed while it ran"):
            rows.fetchall()

    def test_what_a_server_has_of_it(self):
        db = self.open()
        self.assertEqual(len(db.execute("SELECT text FROM lm_batch_export('j', '{\"model\":\"m\"}')").fetchall()), 3)
        db.execute("SELECT batch FROM lm_batch_poll('j')").fetchall()  # makes the table
        db.execute("INSERT INTO lm_job_batches(job, first, last, failed, model, url, key, state) VALUES ('j', 1, 3, 0, 'm', 'http://x', 'k', 'submitted')")
        with self.assertRaisesRegex(sqlite3.IntegrityError, "a server has requests of the job under this name"):
            db.execute(RENAME)
        db.execute("UPDATE lm_job_batches SET state = 'ended'")
        db.execute("DROP TRIGGER lm_job_batches_rename")  # as tables of an earlier version
        db.execute("SELECT batch FROM lm_batch_poll('j')").fetchall()
        db.execute(RENAME)
        self.assertEqual(db.execute("SELECT job, state FROM lm_job_batches").fetchall(), [("jj", "ended")])
        db.execute("DELETE FROM lm_jobs")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_batches"), 0)


if __name__ == "__main__":
    unittest.main()
