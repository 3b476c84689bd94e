"""lm_run(job, '{"refresh":true}'): a job follows its query, and generates nothing again that has not changed.

REFRESH_ROWS makes it as long as a real job:
    REFRESH_ROWS=2000 LM0=... LM_MODEL=... python3 tests/extension/refresh_test.py RefreshTest
"""
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import harness

ROWS = int(os.environ.get("REFRESH_ROWS", "40"))
JOINED, CHANGED, VANISHED = ROWS // 40, ROWS // 100 + 1, ROWS // 400 + 1  # of 2,000: 50, 21, 6
REFRESH = "SELECT total, done, failed, joined, changed, vanished FROM lm_run('label', '{\"refresh\":true}')"
TARGET = "UPDATE notes SET short = :value, stored = stored + 1 WHERE id = :id"
# A run that dies in its n-th commit: after it, in the target, before it.
DIES = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.enable_load_extension(True)
db.load_extension(sys.argv[2])
for row in db.execute("SELECT done FROM lm_run('label', '{\\"refresh\\":true,\\"chunk\\":2,\\"progress_ms\\":0}')"):
    if row[0] >= int(sys.argv[3]):
        os.kill(os.getpid(), 9)
"""


class RefreshTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make(self, name=":memory:", journal="wal", **job):
        db = harness.connect(name if name == ":memory:" else str(self.folder / name))
        self.addCleanup(db.close)
        db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, short TEXT, stored INTEGER DEFAULT 0)")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(ROWS)])
        job = {"name": "label", "query": "SELECT id, body FROM notes", "system": "Be brief.", "options": '{"max_tokens":2}',
               "target": TARGET, **job}
        db.execute(f"INSERT INTO lm_jobs({', '.join(job)}) VALUES ({', '.join('?' * len(job))})", tuple(job.values()))
        return db

    def refresh(self, db):
        """total, done, failed, joined, changed, vanished; how many rows were generated."""
        attempts = "SELECT coalesce(sum(attempts), 0) FROM lm_job_rows"
        before = harness.value(db, attempts)
        end = db.execute(REFRESH).fetchall()[-1]
        return end, harness.value(db, attempts) - before

    def change(self, db):
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"new {i}",) for i in range(JOINED)])
        db.execute("UPDATE notes SET body = 'changed ' || id WHERE id <= ?", (CHANGED,))
        db.execute("DELETE FROM notes WHERE id BETWEEN ? AND ?", (CHANGED + 1, CHANGED + VANISHED))

    def test_only_what_changed_is_generated(self):
        for name, journal in ((":memory:", "memory"), ("wal.db", "wal"), ("delete.db", "delete")):
            with self.subTest(name=name):
                db = self.make(name, journal)
                self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, ROWS, 0, 0), ROWS))
                self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, 0, 0, 0), 0))
                kept = dict(db.execute("SELECT id, prompt_version || model FROM lm_job_rows"))
                self.assertEqual(len(set(kept.values())), ROWS)
                self.change(db)
                total = ROWS + JOINED - VANISHED
                self.assertEqual(self.refresh(db), ((total, total, 0, JOINED, CHANGED, VANISHED), JOINED + CHANGED))
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE vanished IS NOT NULL AND value IS NOT NULL"), VANISHED)
                now = dict(db.execute("SELECT id, prompt_version || model FROM lm_job_rows"))
                self.assertEqual({i for i in kept if now[i] != kept[i]}, set(range(1, CHANGED + 1)))
                self.assertEqual(db.execute("SELECT DISTINCT stored, count(*) FROM notes GROUP BY 1").fetchall(),
                                 [(1, total - CHANGED), (2, CHANGED)])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM notes JOIN lm_job_rows USING (id) WHERE short IS NOT value OR body IS NOT prompt"), 0)
                self.assertEqual(db.execute("SELECT total, ended IS NOT NULL, status FROM lm_jobs").fetchall(), [(total, 1, "done")])
                # Nothing left to do, with a refresh or without.
                self.assertEqual(self.refresh(db), ((total, total, 0, 0, 0, 0), 0))
                self.assertEqual(db.execute("SELECT total, done FROM lm_run('label')").fetchall()[-1], (total, total))
                db.close()

    def test_what_is_asked_has_changed(self):
        db = self.make()
        self.refresh(db)
        everything = ((ROWS, ROWS, 0, 0, ROWS, 0), ROWS)
        nothing = ((ROWS, ROWS, 0, 0, 0, 0), 0)
        for change, expected in (
                ("system = 'Be long.'", everything), ("options = '{\"max_tokens\":3}'", everything),
                ("options = '{\"max_tokens\": 3, \"priority\":\"interactive\", \"on_error\":\"json\"}'", nothing),
                ("options = '{\"max_tokens\":3,\"temperature\":1,\"seed\":7}'", everything), ("system = system", nothing),
                ("query = 'SELECT id, body, NULL FROM notes', total = NULL", nothing),
                ("query = 'SELECT id, body, ''Be brief.'' FROM notes', total = NULL", everything)):
            with self.subTest(change=change):
                db.execute("UPDATE lm_jobs SET " + change)
                self.assertEqual(self.refresh(db), expected)
        db.execute("INSERT INTO temp.lm_settings VALUES ('system', 'of the settings')")
        self.assertEqual(self.refresh(db), nothing)  # all rows have one of their own

    def test_another_model(self):
        db = self.make()
        self.refresh(db)
        db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('other', ?)", (str(harness.MODELS.parents[2] / "sql" / "models" / "debian-notes.gguf"),))
        everything = ((ROWS, ROWS, 0, 0, ROWS, 0), ROWS)
        # The connection's default, perhaps by accident.
        db.execute("INSERT INTO temp.lm_settings VALUES ('model', 'other')")
        with self.assertRaisesRegex(sqlite3.OperationalError, "was begun with the model .*UPDATE lm_jobs SET model = NULL"):
            self.refresh(db)
        db.execute("UPDATE lm_jobs SET model = NULL")
        self.assertEqual(self.refresh(db), everything)
        db.execute("DELETE FROM temp.lm_settings WHERE key = 'model'")
        # The job's own word is enough.
        db.execute("UPDATE lm_jobs SET options = '{\"max_tokens\":2,\"model\":\"other\"}'")
        self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, 0, 0, 0), 0))
        db.execute("UPDATE lm_jobs SET options = '{\"max_tokens\":2,\"model\":\"default\"}'")
        self.assertEqual(self.refresh(db), everything)
        self.assertEqual(harness.value(db, "SELECT count(DISTINCT model) FROM lm_job_rows"), 1)

    def test_another_file_of_the_same_model(self):
        db = self.make("model.db")
        model = self.folder / "model.gguf"
        shutil.copy(harness.MODELS / "llama-q8_0.gguf", model)
        other = self.folder / "other.gguf"
        shutil.copy(harness.MODELS / "llama-q4_k_m.gguf", other)
        use = "INSERT OR REPLACE INTO temp.lm_settings VALUES ('model', ?)"
        db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('one', ?), ('two', ?)", (str(model), str(other)))
        db.execute(use, ("one",))
        plain = "SELECT total, done FROM lm_run('label', ?)"
        done = db.execute(plain, ('{"max_total_tokens":200}',)).fetchall()[-1][1]
        self.assertTrue(0 < done < ROWS, done)
        db.execute(use, ("two",))
        with self.assertRaisesRegex(sqlite3.OperationalError, "was begun with another file of the model .*UPDATE lm_jobs SET model = NULL"):
            db.execute(plain, (None,)).fetchall()
        db.execute(use, ("one",))
        done = db.execute(plain, ('{"max_total_tokens":200}',)).fetchall()[-1][1]
        self.assertTrue(0 < done < ROWS, done)
        # With a refresh, the other one answers all.
        db.execute(use, ("two",))
        self.assertEqual(self.refresh(db)[0], (ROWS, ROWS, 0, 0, done, 0))
        self.assertEqual(harness.value(db, "SELECT count(DISTINCT model) FROM lm_job_rows"), 1)
        # And where it is wanted so, the rest.
        db.execute("UPDATE lm_job_rows SET state = 'waiting' WHERE id > 20")
        db.execute("UPDATE lm_jobs SET model = NULL")
        db.execute(use, ("one",))
        self.assertEqual(db.execute(plain, (None,)).fetchall()[-1], (ROWS, ROWS))
        self.assertEqual(harness.value(db, "SELECT count(DISTINCT model) FROM lm_job_rows"), 2)

    def test_the_same_file_with_other_options(self):
        shutil.copy(harness.MODELS / "llama-q8_0.gguf", self.folder / "model.gguf")
        adapter, template = self.folder / "tone.gguf", self.folder / "own.jinja"
        first, second = (harness.MODELS / f"llama-q8_0-lora-{i}.gguf" for i in (1, 2))
        shutil.copy(first, adapter)
        template.write_text("{{ messages[-1].content }}")
        tone = {"lora": [{"name": "tone", "path": adapter.name, "scale": 4}]}
        renamed = {"lora": [{"name": "other", "path": adapter.name, "scale": 4}]}
        fainter = {"lora": [{"name": "tone", "path": adapter.name, "scale": 2}]}
        own, given = {"chat_template": template.name}, {"chat_template": "Q: {{ messages[-1].content }} A:"}
        plain = "SELECT total, done FROM lm_run('label', ?)"
        trials = (("another scale", tone, fainter, None, True), ("without it", tone, {}, None, True), ("with it", {}, tone, None, True),
                  ("another file of it", tone, tone, lambda: shutil.copy(second, adapter), True),
                  ("another name of it", tone, renamed, None, False), ("another template", own, given, None, True),
                  ("another file of the template", own, own, lambda: template.write_text("Q: {{ messages[-1].content }}"), True),
                  ("more threads", tone, {**tone, "threads": 2}, None, False), ("another cache", {}, {"kv_type": "f32"}, None, False))
        for name, before, now, change, differs in trials:
            with self.subTest(name=name):
                db = self.make(name + ".db")
                use = "INSERT OR REPLACE INTO temp.lm_models(name, path, options) VALUES ('default', ?, ?)"
                db.execute(use, (str(self.folder / "model.gguf"), json.dumps(before)))
                done = db.execute(plain, ('{"max_total_tokens":200}',)).fetchall()[-1][1]
                self.assertTrue(0 < done < ROWS, done)
                if change:
                    change()
                db.execute("DELETE FROM temp.lm_models")
                db.execute(use, (str(self.folder / "model.gguf"), json.dumps(now)))
                if differs:
                    with self.assertRaisesRegex(sqlite3.OperationalError, "or other options of it.*UPDATE lm_jobs SET model = NULL"):
                        db.execute(plain, (None,)).fetchall()
                self.assertEqual(self.refresh(db)[0], (ROWS, ROWS, 0, 0, done if differs else 0, 0))
                self.assertEqual(harness.value(db, "SELECT count(DISTINCT model) FROM lm_job_rows"), 1)
                if not now.keys() & {"lora", "chat_template"}:  # the file's, as ever
                    self.assertRegex(harness.value(db, "SELECT model FROM lm_job_rows"), "^[0-9a-f]+$")
                if name == "another cache":
                    continue
                self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE short IS NOT generate(body, 'Be brief.', '{\"max_tokens\":2}')"), 0)
                db.close()

    def test_a_row_that_comes_back_has_its_answer(self):
        for name in (":memory:", "back.db"):
            with self.subTest(name=name):
                db = self.make(name)
                self.refresh(db)
                gone = db.execute("SELECT id, body, short FROM notes WHERE id = 3").fetchone()
                db.execute("DELETE FROM notes WHERE id = 3")
                self.assertEqual(self.refresh(db), ((ROWS - 1, ROWS - 1, 0, 0, 0, 1), 0))
                self.assertEqual(self.refresh(db), ((ROWS - 1, ROWS - 1, 0, 0, 0, 0), 0))
                db.execute("INSERT INTO notes(id, body) VALUES (3, ?)", gone[1:2])
                self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, 0, 0, 0), 0))
                self.assertEqual(db.execute("SELECT id, body, short FROM notes WHERE id = 3").fetchone(), gone)
                # One that the target does not take any more is a failure, as ever.
                db.execute("DELETE FROM notes WHERE id = 3")
                self.refresh(db)
                db.execute("CREATE TRIGGER no BEFORE UPDATE ON notes WHEN new.id = 3 BEGIN SELECT RAISE(ABORT, 'not this one'); END")
                db.execute("INSERT INTO notes(id, body) VALUES (3, ?)", gone[1:2])
                self.assertEqual(self.refresh(db)[0][:3], (ROWS, ROWS - 1, 1))
                self.assertEqual(harness.value(db, "SELECT error FROM lm_job_rows WHERE id = 3"), "the job's target: not this one")

    def test_a_row_that_vanishes_while_another_run_has_it(self):
        db = self.make("vanishes.db", target="INSERT INTO given VALUES (:id, :value)")
        db.execute("CREATE TABLE given(id, value)")
        other = harness.connect(str(self.folder / "vanishes.db"))
        self.addCleanup(other.close)
        run = db.execute("SELECT total, done FROM lm_run('label', '{\"chunk\":4,\"progress_ms\":0}')")
        run.fetchone()
        gone = [id for id, in other.execute("SELECT id FROM lm_job_rows WHERE state = 'running'")]
        self.assertGreater(len(gone), 0)
        given = other.execute("SELECT id FROM given").fetchall()
        rows = other.execute("SELECT id, body FROM notes WHERE id IN (SELECT value FROM json_each(?))", (str(gone),)).fetchall()
        other.execute("DELETE FROM notes WHERE id IN (SELECT value FROM json_each(?))", (str(gone),))
        self.assertEqual(other.execute("SELECT vanished FROM lm_run('label', '{\"refresh\":true,\"max_total_tokens\":1}')").fetchall()[-1], (len(gone),))
        left = ROWS - len(gone)
        self.assertEqual(run.fetchall()[-1], (left, left))
        # It has its answer, and the target has not.
        self.assertEqual(db.execute("SELECT state, count(value), count(vanished) FROM lm_job_rows WHERE id IN (SELECT value FROM json_each(?)) GROUP BY 1", (str(gone),)).fetchall(),
                         [("done", len(gone), len(gone))])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM given WHERE id NOT IN (SELECT id FROM notes)"), 0)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM given"), left)
        # Until it comes back.
        db.executemany("INSERT INTO notes(id, body) VALUES (?, ?)", rows)
        self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, 0, 0, 0), 0))
        self.assertEqual(db.execute("SELECT count(*), count(DISTINCT id) FROM given JOIN lm_job_rows USING (id, value)").fetchall(), [(ROWS, ROWS)])

    def test_a_row_that_comes_back_to_a_target_that_rolls_back(self):
        for name in (":memory:", "rolls.db"):
            with self.subTest(name=name):
                db = self.make(name)
                self.refresh(db)
                db.execute("DELETE FROM notes WHERE id IN (3, 4)")
                self.refresh(db)
                db.execute("CREATE TRIGGER no BEFORE UPDATE ON notes WHEN new.id = 3 BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END")
                db.execute("INSERT INTO notes(id, body) VALUES (3, 'note 2'), (4, 'note 3'), (100, 'new')")
                self.assertEqual(self.refresh(db), ((ROWS + 1, ROWS, 1, 1, 0, 0), 1))
                self.assertEqual(db.execute("SELECT id, error FROM lm_job_rows WHERE state = 'failed'").fetchall(), [(3, "the job's target: not this one")])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE short IS NULL"), 1)

    def test_rows_that_wait_or_have_failed(self):
        db = self.make()
        db.execute("UPDATE notes SET body = x'00' WHERE id = 2")
        self.assertEqual(self.refresh(db), ((ROWS, ROWS - 1, 1, ROWS, 0, 0), ROWS))
        self.assertEqual(self.refresh(db), ((ROWS, ROWS - 1, 1, 0, 0, 0), 0))  # it would fail again
        db.execute("UPDATE notes SET body = 'mended' WHERE id = 2")
        db.execute("UPDATE notes SET body = 'later' WHERE id = 4")
        db.execute("UPDATE lm_job_rows SET state = 'waiting' WHERE id IN (4, 5)")
        db.execute("DELETE FROM notes WHERE id = 5")  # which nobody need answer then
        self.assertEqual(self.refresh(db), ((ROWS - 1, ROWS - 1, 0, 0, 1, 1), 2))
        self.assertEqual(harness.value(db, "SELECT state FROM lm_job_rows WHERE id = 5"), "waiting")
        for query, message in (("SELECT 1, 'a' UNION ALL SELECT 1, 'b'", "row 2 has the id 1, as an earlier one"),
                               ("SELECT NULL, 'a'", "row 1 has the id NULL"), ("SELECT 1", "must have the columns")):
            db.execute("UPDATE lm_jobs SET query = ?, total = NULL", (query,))
            with self.assertRaisesRegex(sqlite3.OperationalError, "the job's query:? " + message):
                self.refresh(db)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE vanished IS NULL"), ROWS - 1)
        with self.assertRaisesRegex(sqlite3.OperationalError, 'refresh must be true or false, got "yes"'):
            db.execute("SELECT * FROM lm_run('label', '{\"refresh\":\"yes\"}')").fetchall()

    def test_a_row_that_fails_keeps_the_answer_that_it_had(self):
        db = self.make()
        self.refresh(db)
        kept = db.execute("SELECT value, short FROM lm_job_rows JOIN notes USING (id) WHERE id = 2").fetchone()
        db.execute("UPDATE notes SET body = x'00' WHERE id = 2")
        self.assertEqual(self.refresh(db), ((ROWS, ROWS - 1, 1, 0, 1, 0), 1))
        row = "SELECT state, finish, value, short FROM lm_job_rows JOIN notes USING (id) WHERE id = 2"
        self.assertEqual(db.execute(row).fetchone(), ("failed", "error", *kept))
        self.assertEqual(self.refresh(db), ((ROWS, ROWS - 1, 1, 0, 0, 0), 0))  # it would fail again
        # It is no answer that the target is to take.
        db.execute("SELECT * FROM lm_run('label', '{\"retry\":true}')").fetchall()
        self.assertEqual(db.execute(row).fetchone(), ("failed", "error", *kept))
        db.execute("UPDATE notes SET body = 'mended' WHERE id = 2")
        self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, 0, 1, 0), 1))
        db.execute("UPDATE notes SET body = NULL WHERE id = 2")
        self.assertEqual(self.refresh(db), ((ROWS, ROWS, 0, 0, 1, 0), 1))
        self.assertEqual(db.execute(row).fetchone(), ("done", None, None, None))  # as NULL is answered

    def test_what_has_vanished_is_not_tried_again(self):
        db = self.make()
        db.execute("UPDATE notes SET body = x'00' WHERE id <= 2")
        self.assertEqual(self.refresh(db)[0][:3], (ROWS, ROWS - 2, 2))
        db.execute("DELETE FROM notes WHERE id = 1")
        self.refresh(db)
        failed = db.execute("SELECT state, error, attempts, vanished IS NULL FROM lm_job_rows WHERE id <= 2 ORDER BY id").fetchall()
        self.assertEqual([row[::3] for row in failed], [("failed", 0), ("failed", 1)])
        db.execute("SELECT * FROM lm_run('label', '{\"retry\":true}')").fetchall()
        again = db.execute("SELECT state, error, attempts, vanished IS NULL FROM lm_job_rows WHERE id <= 2 ORDER BY id").fetchall()
        self.assertEqual((again[0], again[1][2]), (failed[0], failed[1][2] + 1))
        # One that comes back is tried with the others.
        db.execute("INSERT INTO notes(id, body) VALUES (1, 'a fox')")
        db.execute("UPDATE lm_job_rows SET prompt = 'an owl' WHERE id = 2")
        self.assertEqual(db.execute(REFRESH.replace("}", ',"retry":true}')).fetchall()[-1][:2], (ROWS, ROWS - 1))

    def test_killed_and_refreshed_again(self):
        whole = self.make("whole.db")
        self.refresh(whole)
        self.change(whole)
        self.refresh(whole)
        result = "SELECT id, short, value, state, prompt, vanished IS NULL FROM lm_job_rows LEFT JOIN notes USING (id) ORDER BY id"
        expected = whole.execute(result).fetchall()
        for journal in ("wal", "delete"):
            with self.subTest(journal=journal):
                db = self.make(f"{journal}.db", journal)
                self.refresh(db)
                self.change(db)
                before = harness.value(db, "SELECT sum(attempts) FROM lm_job_rows")
                total = ROWS + JOINED - VANISHED
                for done in (0, total - CHANGED):  # before anything of it is answered, and in the middle
                    killed = subprocess.run([sys.executable, "-c", DIES, str(self.folder / f"{journal}.db"), harness.LM0, str(done)])
                    self.assertEqual(killed.returncode, -9)
                    self.assertEqual(harness.value(db, "PRAGMA integrity_check"), "ok")
                self.assertEqual(db.execute(REFRESH).fetchall()[-1], (total, total, 0, 0, 0, 0))
                self.assertEqual(db.execute(result).fetchall(), expected)
                # Of each of the two that died, at most a chunk again.
                generated = harness.value(db, "SELECT sum(attempts) FROM lm_job_rows") - before
                self.assertLessEqual(generated, JOINED + CHANGED + 2 * 2)
                db.close()


class MigrationTest(unittest.TestCase):
    def test_a_job_that_an_older_version_was_killed_in(self):
        """Of 12 rows 8 are done and 4 claimed; it has neither versions nor the index."""
        for refresh in (False, True):
            with self.subTest(refresh=refresh), tempfile.TemporaryDirectory() as folder:
                path = shutil.copy(harness.MODELS.parent / "jobs" / "begun_by_0.1.0.db", folder)
                db = harness.connect(path)
                answers = db.execute("SELECT id, value FROM lm_job_rows WHERE state = 'done'").fetchall()
                self.assertEqual(len(answers), 8)
                if refresh:
                    db.execute("UPDATE notes SET body = 'changed' WHERE id = 2")
                    db.execute("DELETE FROM notes WHERE id = 3")
                    self.assertEqual(db.execute(REFRESH).fetchall()[-1], (11, 11, 0, 0, 1, 1))
                else:
                    self.assertEqual(db.execute("SELECT total, done FROM lm_run('label')").fetchall()[-1], (12, 12))
                again = dict(db.execute("SELECT id, value FROM lm_job_rows"))
                self.assertEqual([id for id, value in answers if again[id] != value], [2] if refresh else [])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE attempts = 2"), 5 if refresh else 4)
                # From now on a changed instruction is noticed.
                db.execute("UPDATE lm_jobs SET system = 'Be long.'")
                rows = 11 if refresh else 12
                if not refresh:
                    db.execute("UPDATE lm_jobs SET system = 'Be brief.'")
                    db.execute(REFRESH).fetchall()
                    db.execute("UPDATE lm_jobs SET system = 'Be long.'")
                self.assertEqual(db.execute(REFRESH).fetchall()[-1][3:], (0, rows, 0))
                self.assertEqual(harness.value(db, "PRAGMA integrity_check"), "ok")
                db.close()


if __name__ == "__main__":
    unittest.main()
