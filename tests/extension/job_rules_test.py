"""What a job may do and what it may not: its own connection keeps to the rules of the user's, and it ends."""
import os
import pathlib
import resource
import shutil
import sqlite3
import tempfile
import threading
import time
import unittest

import harness

OPTIONS = '{"max_tokens":2}'


class JobRulesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def open(self, name="notes.db", journal="wal", script=""):
        db = harness.connect(name if name == ":memory:" else str(self.folder / name))
        self.addCleanup(db.close)
        if name != ":memory:":
            db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
        db.executescript("""
            CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, answer TEXT, secret TEXT DEFAULT 'hush');
            INSERT INTO t(body) VALUES ('a dog'), ('a cat'), ('an owl');""" + script)
        return db

    def add(self, db, name="j", query="SELECT id, body FROM t", target="UPDATE t SET answer = :value WHERE id = :id",
            table="lm_jobs"):
        db.execute(f"INSERT INTO {table}(name, query, target, options) VALUES (?, ?, ?, ?)", (name, query, target, OPTIONS))

    def run_job(self, db, name="j", options=None):
        """total, done, failed at the end."""
        return db.execute("SELECT total, done, failed FROM lm_run(?, ?)", (name, options)).fetchall()[-1]

    def refused(self, db, message, name="j", options=None):
        with self.assertRaisesRegex(sqlite3.OperationalError, message):
            self.run_job(db, name, options)


class InheritanceTest(JobRulesTest):
    def test_foreign_keys(self):
        for on in (1, 0):
            with self.subTest(foreign_keys=on):
                db = self.open(f"keys{on}.db", script="CREATE TABLE child(parent REFERENCES t(id)); INSERT INTO child VALUES (1);")
                db.execute(f"PRAGMA foreign_keys = {on}")
                self.add(db, target="DELETE FROM t WHERE id = :id")
                self.assertEqual(self.run_job(db), (3, 2, 1) if on else (3, 3, 0))
                self.assertEqual(harness.value(db, "SELECT count(*) FROM pragma_foreign_key_check"), 0 if on else 1)
                if on:
                    self.assertEqual(harness.value(db, "SELECT error FROM lm_job_rows WHERE state = 'failed'"),
                                     "the job's target: FOREIGN KEY constraint failed")

    def test_recursive_triggers(self):
        for on in (1, 0):
            with self.subTest(recursive_triggers=on):
                db = self.open(f"triggers{on}.db", script="""
                    CREATE TABLE n(x); CREATE TRIGGER r AFTER INSERT ON n WHEN new.x < 5 BEGIN INSERT INTO n VALUES (new.x + 1); END;""")
                db.execute(f"PRAGMA recursive_triggers = {on}")
                self.add(db, query="SELECT 1, 'a'", target="INSERT INTO n VALUES (:id)")
                self.assertEqual(self.run_job(db), (1, 1, 0))
                self.assertEqual(harness.value(db, "SELECT max(x) FROM n"), 5 if on else 2)

    def test_check_constraints(self):
        for ignored in (1, 0):
            with self.subTest(ignored=ignored):
                db = self.open(f"checks{ignored}.db", script="CREATE TABLE c(x CHECK (x > 1));")
                db.execute(f"PRAGMA ignore_check_constraints = {ignored}")
                self.add(db, target="INSERT INTO c VALUES (:id)")
                self.assertEqual(self.run_job(db), (3, 3, 0) if ignored else (3, 2, 1))

    def test_case_sensitive_like(self):
        for on in (1, 0):
            with self.subTest(case_sensitive_like=on):
                db = self.open(f"like{on}.db", script="INSERT INTO t(body) VALUES ('A dog'); CREATE INDEX dogs ON t(body) WHERE body LIKE 'a dog';")
                db.execute(f"PRAGMA case_sensitive_like = {on}")
                query = "SELECT id, body FROM t WHERE body LIKE 'a d%'"
                self.assertEqual(len(db.execute(query).fetchall()), 1 if on else 2)
                self.add(db, query=query, target=None)
                self.assertEqual(self.run_job(db), (1, 1, 0) if on else (2, 2, 0))

    def test_query_only(self):
        db = self.open()
        self.add(db, target="DELETE FROM t WHERE id = :id")
        db.execute("PRAGMA query_only = ON")
        self.refused(db, "PRAGMA query_only is on")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t"), 3)

    def test_limits(self):
        db = self.open()
        self.add(db, target="UPDATE t SET answer = :value || :value || :value || :value WHERE id = :id OR id = -1")
        db.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 3)
        self.refused(db, "Expression tree is too large")

    def test_under_the_limits_that_are_advised_against_hostile_sql(self):
        db = self.open()
        for name, query in (("a", "SELECT id, body FROM t WHERE id < 3"), ("b", "SELECT id, body FROM t WHERE id > 1")):
            self.add(db, name, query)
        db.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 10)
        for name in ("a", "b"):
            self.assertEqual(self.run_job(db, name), (2, 2, 0))
        self.assertEqual(db.execute("SELECT id, same, state_a, state_b FROM lm_job_diff('a', 'b') ORDER BY id").fetchall(),
                         [(1, None, "done", None), (2, 1, "done", "done"), (3, None, None, "done")])

    def test_the_file_is_trusted_less(self):
        for query in ("SELECT load_extension('x'), 'a'",):
            db = self.open()
            self.add(db, query=query)
            self.refused(db, "not authorized")


    def test_an_index_of_full_text_search_is_kept_by_triggers(self):
        for journal in ("wal", "delete"):
            db = self.open(f"fts-{journal}.db", journal, """
                CREATE VIRTUAL TABLE words USING fts5(answer, content = 't', content_rowid = 'id');
                INSERT INTO words(words) VALUES ('rebuild');
                CREATE TRIGGER kept AFTER UPDATE ON t BEGIN
                  INSERT INTO words(words, rowid, answer) VALUES ('delete', old.id, old.answer);
                  INSERT INTO words(rowid, answer) VALUES (new.id, new.answer);
                END;""")
            self.add(db, target="UPDATE t SET answer = 'rain ' || :id || :value WHERE id = :id")
            self.assertEqual(self.run_job(db), (3, 3, 0))
            self.assertEqual([row for row, in db.execute("SELECT rowid FROM words WHERE words MATCH 'rain*' ORDER BY rowid")], [1, 2, 3])
            # Where yours does not trust them, nor does the job.
            db.execute("PRAGMA trusted_schema = 0")
            self.add(db, name="k", target="UPDATE t SET answer = :value WHERE id = :id")
            try:
                db.execute("UPDATE t SET answer = answer")
            except sqlite3.OperationalError:
                self.refused(db, "unsafe use of virtual table", "k")


class AuthorizerTest(JobRulesTest):
    def test_attached(self):
        deny, ignore = sqlite3.SQLITE_DENY, sqlite3.SQLITE_IGNORE
        for verdict, message in ((deny, "query uses t.secret, which this connection's authorizer forbids"),
                                 (ignore, "query uses t.secret, which this connection's authorizer hides"), (None, None)):
            with self.subTest(verdict=verdict):
                self.open(f"{verdict}.db").close()
                db = self.open(":memory:")
                db.execute("ATTACH ? AS a", (str(self.folder / f"{verdict}.db"),))
                self.add(db, query="SELECT id, secret FROM t", table="a.lm_jobs")
                self.guard(db, **({} if verdict is None else {"READ_t_secret": verdict}))
                if verdict is None:
                    self.assertEqual(self.run_job(db), (3, 3, 0))
                else:
                    self.refused(db, message)

    def guard(self, db, **verdicts):
        """Answers for SQLITE_<action>_<table>_<column>; all else is allowed."""
        actions = {sqlite3.SQLITE_READ: "READ", sqlite3.SQLITE_UPDATE: "UPDATE", sqlite3.SQLITE_INSERT: "INSERT",
                   sqlite3.SQLITE_DELETE: "DELETE", sqlite3.SQLITE_PRAGMA: "PRAGMA"}

        def authorize(action, first, second, database, view):
            key = "_".join(part for part in (actions.get(action), first, second) if part)
            return verdicts.get(key, sqlite3.SQLITE_OK)

        db.set_authorizer(authorize)

    def check(self, verdicts, message, **job):
        with self.subTest(verdicts=verdicts, job=job):
            db = self.open(f"guard{len(os.listdir(self.folder))}.db", script="""
                CREATE VIEW v AS SELECT id, secret FROM t;
                CREATE TABLE log(x); CREATE TRIGGER a AFTER UPDATE ON t BEGIN INSERT INTO log VALUES (new.secret); END;""")
            self.add(db, **job)
            self.guard(db, **verdicts)
            if message is None:
                self.assertEqual(self.run_job(db), (3, 3, 0))
            else:
                self.refused(db, message)
            db.set_authorizer(None)
            # Nothing was read into a prompt, nothing written.
            self.assertEqual(harness.value(db, "SELECT count(answer) FROM t"), 3 if message is None else 0)
            if message is not None:
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows"), 0)

    def test_temp_has_tables_and_triggers_of_its_own(self):
        def shadowed(name, script):
            db = self.open(name)
            db.executescript(script)
            return db

        table, trigger = "CREATE TEMP TABLE t(id, other);", "CREATE TEMP TRIGGER x AFTER UPDATE ON main.t BEGIN INSERT INTO nowhere VALUES (1); END;"
        for i, script in enumerate((table, trigger)):
            with self.subTest(script=script):
                db = shadowed(f"temp{i}.db", script)
                self.add(db)
                self.assertEqual(self.run_job(db), (3, 3, 0))
                self.assertEqual(harness.value(db, "SELECT count(answer) FROM main.t"), 3)
        # It is asked all the same.
        db = shadowed("asked.db", table)
        self.add(db, query="SELECT id, secret FROM t")
        self.guard(db, READ_t_secret=sqlite3.SQLITE_DENY)
        self.refused(db, "query uses t.secret, which this connection's authorizer forbids")
        for i, (query, key) in enumerate((("SELECT t.id, v.secret FROM v, t", "READ_v_secret"), ("SELECT t.id, sql FROM sqlite_master, t", "READ_sqlite_master_sql"),
                                          ("SELECT t.id, p.name FROM t, pragma_table_info('t') p", "READ_pragma_table_info_name"))):
            with self.subTest(query=query):
                db = self.open(f"view{i}.db", script="CREATE VIEW v AS SELECT id, secret FROM t;")
                db.executescript("CREATE TEMP TABLE t(z);")
                self.add(db, query=query + " WHERE t.id = 1")
                self.guard(db, **{key: sqlite3.SQLITE_DENY})
                self.refused(db, "query uses .*, which this connection's authorizer forbids")
        db = shadowed("written.db", table)
        self.add(db)
        self.guard(db, UPDATE_t_answer=sqlite3.SQLITE_DENY)
        self.refused(db, "target uses t.answer, which this connection's authorizer forbids")

    def test_denied(self):
        deny = sqlite3.SQLITE_DENY
        self.check({"READ_t_other": deny}, None)
        self.check({"READ_t_secret": deny}, "query does what this connection's authorizer forbids: access to t.secret",
                   query="SELECT id, secret FROM t")
        self.check({"READ_t_secret": deny}, "access to v.secret|access to t.secret", query="SELECT id, secret FROM v")
        self.check({"UPDATE_t_answer": deny}, "target does what this connection's authorizer forbids")
        self.check({"INSERT_log": deny}, "target does what this connection's authorizer forbids")
        self.check({"DELETE_t": deny}, "target does what .* forbids", target="DELETE FROM t WHERE id = :id")
        self.check({"UPDATE_lm_job_rows_value": deny}, "forbids")
        self.check({"READ_lm_jobs_query": deny}, "forbids")
        self.check({"PRAGMA_query_only": deny}, "forbids to ask for PRAGMA query_only")

    def test_hidden(self):
        ignore = sqlite3.SQLITE_IGNORE
        self.check({"READ_t_other": ignore}, None)
        self.check({"READ_t_secret": ignore}, "query uses t.secret, which this connection's authorizer hides",
                   query="SELECT id, secret FROM t")
        self.check({"READ_t_secret": ignore}, "query uses t.secret", query="SELECT id, secret FROM v")
        self.check({"READ_t_id": ignore}, "query uses t.id", query="SELECT rowid, body FROM t")
        self.check({"UPDATE_t_answer": ignore}, "target uses t.answer")
        self.check({"INSERT_log": ignore}, "target uses log")


class StorageTest(JobRulesTest):
    def test_an_answer_that_does_not_fit_is_a_failure(self):
        for name in (":memory:", "small.db"):
            with self.subTest(name=name):
                db = self.open(name)
                db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM t', "
                           "'UPDATE t SET answer = :value WHERE id = :id', '{\"max_tokens\":120}')")
                db.execute("SELECT generate('a dog')")
                before = db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 250)
                try:
                    end = self.run_job(db)
                finally:
                    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)
                self.assertEqual(end[0], 3)
                self.assertGreater(end[2], 0)
                for state, value, error, answer in db.execute("SELECT state, value, error, answer FROM lm_job_rows JOIN t USING (id)"):
                    self.assertEqual(value, answer)
                    self.assertEqual(state, "failed" if value is None else "done")
                    if state == "failed":
                        self.assertRegex(error, "the answer of .* bytes cannot be stored")
                # With room, once more.
                self.assertEqual(self.run_job(db, options='{"retry":true}'), (3, 3, 0))
                self.assertEqual(harness.value(db, "SELECT count(*) FROM t JOIN lm_job_rows USING (id) WHERE answer = value"), 3)

    def test_a_target_that_rolls_back_refuses_its_row_alone(self):
        db = self.open(script="""
            CREATE TABLE short(id, value CHECK(id <> 2));
            CREATE TABLE loud(id, value);
            CREATE TRIGGER no_twos BEFORE INSERT ON loud WHEN new.id >= 2 BEGIN SELECT RAISE(ROLLBACK, 'no twos'); END;""")
        for table, target in (("short", "INSERT OR ROLLBACK INTO short VALUES (:id, :value)"), ("loud", "INSERT INTO loud VALUES (:id, :value)")):
            with self.subTest(target=target):
                self.add(db, name=table, target=target)
                kept = [1, 3] if table == "short" else [1]
                self.assertEqual(self.run_job(db, table), (3, len(kept), 3 - len(kept)))
                self.assertEqual([row for row, in db.execute(f"SELECT id FROM {table} ORDER BY id")], kept)
                error = harness.value(db, "SELECT error FROM lm_job_rows WHERE job = ? AND state = 'failed'", table)
                self.assertRegex(error, "the job's target: (CHECK constraint failed|no twos)")

    def test_many_that_roll_back_cost_no_square_of_them(self):
        rows = 300
        for name in (":memory:", "rolls.db"):
            with self.subTest(name=name):
                db = self.open(name, script=f"""
                    DELETE FROM t;
                    INSERT INTO t(body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows}) SELECT 'a note' FROM n;
                    CREATE TABLE log(id);
                    CREATE TABLE out(id, value);
                    CREATE TRIGGER no BEFORE INSERT ON out WHEN new.id % 3 BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END;""")
                steps = 0

                def step(*_):
                    nonlocal steps
                    steps += 1
                    return 0
                self.add(db, target="INSERT INTO out VALUES (:id, :value)")
                if name == ":memory:":
                    db.set_progress_handler(step, 100)
                self.assertEqual(self.run_job(db, options='{"chunk":1000}'), (rows, rows // 3, rows - rows // 3))
                db.set_progress_handler(None, 0)
                self.assertLess(steps, 40 * rows)
                self.assertEqual(db.execute("SELECT id FROM out ORDER BY id").fetchall(), [(i,) for i in range(3, rows + 1, 3)])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE (state = 'done') IS NOT (id % 3 = 0) OR attempts <> 1 OR value IS NULL"), 0)

    def test_a_deferred_key_that_finds_no_row_refuses_its_answer_alone(self):
        for name in ("deferred.db", ":memory:"):
            with self.subTest(name=name):
                db = self.open(name, script="CREATE TABLE short(id PRIMARY KEY, of REFERENCES short(id) DEFERRABLE INITIALLY DEFERRED, value);")
                db.execute("PRAGMA foreign_keys = 1")
                # The first row's is brought by the last one.
                self.add(db, target="INSERT INTO short VALUES (:id, iif(:id = 1, 3, :id), :value)")
                self.assertEqual(self.run_job(db), (3, 3, 0))
                # The second one's by nobody.
                db.execute("DELETE FROM short")
                self.add(db, name="k", target="INSERT INTO short VALUES (:id, iif(:id = 2, 7, :id), :value)")
                self.assertEqual(self.run_job(db, "k"), (3, 2, 1))
                self.assertEqual([row for row, in db.execute("SELECT id FROM short ORDER BY id")], [1, 3])
                self.assertEqual(db.execute("SELECT id, error, value IS NOT NULL, attempts FROM lm_job_rows WHERE state = 'failed'").fetchall(),
                                 [(2, "the job's target: FOREIGN KEY constraint failed", 1, 1)])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM pragma_foreign_key_check"), 0)
                # With its row, it is taken, and not asked for again.
                db.execute("INSERT INTO short VALUES (7, NULL, 'there')")
                self.assertEqual(db.execute("SELECT done, failed, cached FROM lm_run('k', '{\"retry\":true}')").fetchall()[-1], (3, 0, 1))

    def test_what_fails_and_keeps_a_part_leaves_no_key_behind(self):
        db = self.open("fails.db", script="CREATE TABLE short(id PRIMARY KEY, of REFERENCES short(id) DEFERRABLE INITIALLY DEFERRED);")
        db.execute("PRAGMA foreign_keys = 1")
        db.execute("INSERT INTO short VALUES ('there', NULL)")
        # Of the second one's two rows the first is kept, and refers to nobody; the second is there.
        self.add(db, target="INSERT OR FAIL INTO short SELECT 'a' || :id, iif(:id = 2, 'nobody', 'there') UNION ALL "
                            "SELECT iif(:id = 2, 'there', 'b' || :id), NULL WHERE :value IS NOT NULL")
        self.assertEqual(self.run_job(db), (3, 2, 1))
        self.assertEqual([row for row, in db.execute("SELECT id FROM short ORDER BY id")], ["a1", "a3", "b1", "b3", "there"])

    def test_what_fails_keeps_no_part(self):
        pair = "SELECT value, :id FROM json_each('[\"a\",\"b\"]')"
        for made, target, error in (
                ("CREATE TABLE tags(tag CHECK(tag <> 'b'), id);", f"INSERT OR FAIL INTO tags {pair}", "CHECK constraint failed"),
                ("CREATE TABLE tags(tag UNIQUE ON CONFLICT FAIL, id); INSERT INTO tags VALUES ('b', 0);", f"INSERT INTO tags {pair}", "UNIQUE constraint failed"),
                ("CREATE TABLE tags(tag, id); CREATE TRIGGER no BEFORE INSERT ON tags WHEN new.tag = 'b' BEGIN SELECT RAISE(FAIL, 'no b'); END;",
                 f"INSERT INTO tags {pair}", "no b"),
                # Of what a trigger has done SQLite counts nothing then.
                ("CREATE TABLE tags(tag CHECK(tag <> 'b'), id); CREATE TABLE given(id); CREATE TRIGGER two BEFORE INSERT ON given BEGIN "
                 f"INSERT OR FAIL INTO tags {pair.replace(':id', 'new.id')}; END;", "INSERT INTO given VALUES (:id)", "CHECK constraint failed")):
            for name in (":memory:", "parts.db"):
                with self.subTest(made=made, name=name), tempfile.TemporaryDirectory() as folder:
                    self.folder = pathlib.Path(folder)
                    db = self.open(name, script=made)
                    before = db.execute("SELECT * FROM tags").fetchall()
                    self.add(db, target=target)
                    for options in (None, '{"retry":true}'):
                        self.assertEqual(self.run_job(db, options=options), (3, 0, 3))
                        self.assertEqual(db.execute("SELECT * FROM tags").fetchall(), before)
                    self.assertRegex(harness.value(db, "SELECT error FROM lm_job_rows"), "the job's target: " + error)
                    db.close()

    def test_a_query_that_reads_the_rows_of_jobs(self):
        for name in (":memory:", "rows.db"):
            with self.subTest(name=name):
                db = self.open(name)
                self.add(db)
                self.assertEqual(self.run_job(db), (3, 3, 0))
                self.add(db, "k", query="SELECT number, prompt FROM lm_job_rows", target=None)
                endless = threading.Timer(10, db.interrupt)
                endless.start()
                self.addCleanup(endless.cancel)
                self.assertEqual(self.run_job(db, "k"), (3, 3, 0))
                # Begun anew, it is given those that it had.
                db.execute("UPDATE lm_jobs SET total = NULL WHERE name = 'k'")
                self.assertEqual(self.run_job(db, "k"), (6, 6, 0))
                endless.cancel()

    def test_a_full_disk(self):
        for journal in ("wal", "delete"):
            with self.subTest(journal=journal):
                db = self.open(f"full-{journal}.db", journal)
                path = self.folder / f"full-{journal}.db"
                db.execute("INSERT INTO t(body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200) "
                           "SELECT 'note ' || i || ' ' || hex(zeroblob(4)) FROM n")
                db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM t', "
                           "'UPDATE t SET answer = :value || hex(zeroblob(2000)) WHERE id = :id', ?)", (OPTIONS,))
                rows = db.execute("SELECT done FROM lm_run('j', '{\"chunk\":16,\"progress_ms\":0}')")
                rows.fetchone()  # planned, and begun
                before = resource.getrlimit(resource.RLIMIT_FSIZE)
                full = max(file.stat().st_size for file in self.folder.glob(path.name + "*"))
                resource.setrlimit(resource.RLIMIT_FSIZE, (full + 65536, before[1]))
                try:
                    with self.assertRaisesRegex(sqlite3.OperationalError, "lm_run: (disk I/O error|database or disk is full)"):
                        rows.fetchall()
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, before)
                done = harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'done'")
                self.assertEqual(done, harness.value(db, "SELECT count(answer) FROM t"))
                self.assertLess(done, 203)
                # With room again, the job goes on where it was.
                self.assertEqual(self.run_job(db), (203, 203, 0))
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE attempts > 2"), 0)
                self.assertEqual(harness.value(db, "PRAGMA integrity_check"), "ok")

    def test_another_file_in_its_place(self):
        for journal in ("wal", "delete"):
            with self.subTest(journal=journal):
                path, kept = self.folder / f"{journal}.db", self.folder / f"{journal}-kept.db"
                db = self.open(path.name, journal)
                self.add(db)
                other = self.open("other.db", "delete", "UPDATE t SET body = 'of another'")
                self.add(other)
                other.close()
                path.rename(kept)
                (self.folder / "other.db").rename(path)
                self.refused(db, "is another file than the one that this connection has open")
                path.unlink()
                self.refused(db, "unable to open|is another file than the one")
                kept.rename(path)
                self.assertEqual(self.run_job(db), (3, 3, 0))

    def test_a_job_is_found_whatever_can_be_written_of_the_others(self):
        for name in ("main.db", "a.db", "b.db"):
            self.open(name, journal="delete").close()
        a = harness.connect(str(self.folder / "a.db"))
        self.add(a)
        a.close()
        db = harness.connect(f"file:{self.folder}/main.db?mode=ro", uri=True)
        self.addCleanup(db.close)
        db.execute("ATTACH ? AS a", (str(self.folder / "a.db"),))
        db.execute("ATTACH ? AS b", (f"file:{self.folder}/b.db?mode=ro",))
        self.assertEqual(self.run_job(db), (3, 3, 0))
        self.refused(db, "there is no job named 'k'", "k")
        db.execute("DETACH a")
        db.execute("ATTACH ? AS a", (f"file:{self.folder}/a.db?mode=ro",))
        self.refused(db, "the database a is read-only")
        self.refused(db, "there is no job named 'j'", options='{"database":"b"}')
        self.refused(db, "the database a is read-only", options='{"database":"a"}')
        db = harness.connect(f"file:{self.folder}/a.db?immutable=1", uri=True)
        self.addCleanup(db.close)
        self.refused(db, "the database is read-only")

    def test_one_parameter_behind_several_marks(self):
        db = self.open()
        self.add(db, target="UPDATE t SET answer = coalesce(@value, $value, :value), secret = @error WHERE id = @id AND id = :id AND id = $id")
        self.assertEqual(self.run_job(db), (3, 3, 0))
        self.assertEqual(harness.value(db, "SELECT count(answer) FROM t WHERE secret IS NULL"), 3)

    def test_attached_databases(self):
        main = self.open("main.db")
        self.open("a.db").close()
        self.open("b b.db").close()
        main.execute("ATTACH ? AS a", (str(self.folder / "a.db"),))
        main.execute("ATTACH ? AS \"b \"\"b\"", (str(self.folder / "b b.db"),))
        main.execute("ATTACH ':memory:' AS m")
        main.execute("CREATE TABLE m.only(id, body, answer)")
        main.execute("INSERT INTO m.only VALUES (7, 'x', NULL)")
        tables = "SELECT count(*) FROM {}.sqlite_master WHERE name LIKE 'lm_job%'"
        self.add(main, "in a", table="a.lm_jobs")
        self.assertEqual(harness.value(main, tables.format("a")), 9)
        self.assertEqual(harness.value(main, tables.format("main")), 0)
        self.add(main, "in b", table='"b ""b".lm_jobs')
        self.add(main, "in m", table="m.lm_jobs", query="SELECT id, body FROM only", target="UPDATE only SET answer = :value")
        self.assertEqual(main.execute("SELECT name FROM lm_jobs").fetchall(), [("in a",)])
        self.assertEqual(self.run_job(main, "in a"), (3, 3, 0))
        self.assertEqual(self.run_job(main, "in b"), (3, 3, 0))
        self.assertEqual(self.run_job(main, "in m"), (1, 1, 0))
        self.assertEqual(harness.value(main, "SELECT count(answer) FROM m.only"), 1)
        for schema, answers in (("main", 0), ("a", 3), ('"b ""b"', 3)):
            self.assertEqual(harness.value(main, f"SELECT count(answer) FROM {schema}.t"), answers)
        # main comes first; another must be named.
        self.add(main, "in a", table="main.lm_jobs")
        self.assertEqual(self.run_job(main, "in a"), (3, 3, 0))
        self.assertEqual(harness.value(main, "SELECT count(answer) FROM main.t"), 3)
        self.assertEqual(self.run_job(main, "in a", '{"database":"a"}'), (3, 3, 0))
        self.refused(main, "no job named 'in b'; lm_jobs has 'in a'", "in b", '{"database":"a"}')
        self.refused(main, "there is no database named 'c'", "in a", '{"database":"c"}')
        fresh = self.open("fresh.db")
        with self.assertRaisesRegex(sqlite3.OperationalError, "jobs are kept in a database that lasts"):
            self.add(fresh, table="temp.lm_jobs")

    def test_names_that_are_written_as_strings(self):
        db = self.open("main.db")
        db.execute("ATTACH ':memory:' AS \"it's\"")
        self.add(db, "in main", table="'main'.lm_jobs")
        self.add(db, "attached", table="'it''s'.'lm_jobs'")
        self.assertEqual(db.execute("SELECT name FROM main.lm_jobs").fetchall(), [("in main",)])
        self.assertEqual(db.execute("SELECT name FROM \"it's\".lm_jobs").fetchall(), [("attached",)])

    def test_a_database_that_is_detached_leaves_nothing(self):
        db = self.open("main.db")
        db.execute("ATTACH ? AS a", (str(self.folder / "a.db"),))
        self.add(db, table="a.lm_jobs", query="SELECT 1, 'rain'", target=None)
        db.execute("DETACH a")
        db.execute("ALTER TABLE t RENAME TO notes")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes"), 3)

    def test_a_database_in_memory_reaches_no_further(self):
        db = self.open(":memory:", script="CREATE TEMP TABLE own(x); CREATE TABLE log(x);")
        db.execute("ATTACH ':memory:' AS a")
        db.execute("CREATE TABLE a.elsewhere(x)")
        db.create_function("host", 1, lambda x: x)
        for target, message in (
                ("INSERT INTO temp.lm_settings VALUES ('salt', :value)", "writes to a virtual table"),
                ("INSERT INTO own VALUES (:value)", "writes to another database"),
                ("INSERT INTO elsewhere VALUES (:value)", "writes to another database"),
                ("DELETE FROM own", "writes to another database"),
                ("INSERT INTO log SELECT x FROM own", "reads another database"),
                ("INSERT INTO log SELECT value FROM lm_query('SELECT generate(''x'')')", "reads a virtual table that is neither json_each, .* table of that database"),
                ("UPDATE t SET answer = host(:value) WHERE id = :id", r"calls host\(\)"),
                ("UPDATE t SET answer = generate(:value) WHERE id = :id", r"calls generate\(\)")):
            with self.subTest(target=target):
                db.execute("DELETE FROM lm_jobs")
                self.add(db, target=target)
                self.refused(db, f"the job's target {message}, which a job of a database in memory may not")
        db.execute("DELETE FROM lm_jobs")
        self.add(db, query="SELECT id, host(body) FROM t")
        self.refused(db, r"the job's query calls host\(\)")
        db.execute("INSERT INTO own VALUES ('hush')")
        db.execute("CREATE VIRTUAL TABLE temp.hidden USING fts5(body)")
        db.execute("CREATE VIEW seen AS SELECT key, value FROM lm_settings")
        for query, message in (
                ("SELECT t.id, value FROM t, lm_query('SELECT 1, generate(''x'')')", "reads a virtual table"),
                ("SELECT key, value FROM temp.lm_settings", "reads a virtual table"),
                ("SELECT rowid, name || path FROM lm_models", "reads a virtual table"),
                ("SELECT id, (SELECT value FROM seen LIMIT 1) FROM t", "reads a virtual table|does not compile: unsafe use"),
                ("SELECT 1, label FROM lm_classify_scores('x', '[\"a\",\"b\"]')", "reads a virtual table"),
                ("SELECT rowid, body FROM temp.hidden", "reads a virtual table"),
                ("SELECT name, type FROM pragma_table_list", "reads a virtual table"),
                ("SELECT 1, x FROM temp.own", "reads another database"),
                ("SELECT id, body FROM t WHERE body IN (SELECT x FROM elsewhere)", "reads another database"),
                ("SELECT 1, group_concat(sql) FROM temp.sqlite_master", "reads another database")):
            with self.subTest(query=query):
                db.execute("DELETE FROM lm_jobs")
                self.add(db, query=query)
                self.refused(db, f"the job's query {message}")
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows"), 0)
        # A full-text table reads the view that has its text.
        called = []
        db.create_function("noted", 1, lambda x: called.append(x) or x)
        db.execute("CREATE VIEW texts AS SELECT id, noted(body) AS body FROM t")
        for content in ("texts", "'texts'", '"Texts"', "[texts]"):
            with self.subTest(content=content):
                db.execute(f"CREATE VIRTUAL TABLE over USING fts5(body, Content = {content}, content_rowid='id')")
                db.execute("DELETE FROM lm_jobs")
                self.add(db, query="SELECT rowid, body FROM over")
                self.refused(db, "the job's query reads a virtual table")
                self.assertEqual(called, [])
                db.execute("DROP TABLE over")
        db.execute("CREATE VIRTUAL TABLE over USING fts5(body, content='t', content_rowid='id')")
        # What is of the database, and changes nothing, it may read.
        db.execute("CREATE VIRTUAL TABLE found USING fts5(body)")
        db.execute("INSERT INTO found(rowid, body) SELECT id, body FROM t")
        for query, rows in (("SELECT rowid, body FROM found('dog')", 1), ("SELECT rowid, body FROM over", 3), ("SELECT key, value FROM json_each('[1,2]')", 2),
                            ("SELECT id || '/' || n, chunk FROM t, lm_chunks(body, 50)", 3)):
            with self.subTest(query=query):
                db.execute("DELETE FROM lm_jobs")
                self.add(db, query=query, target=None)
                self.assertEqual(self.run_job(db), (rows, rows, 0))
        db.execute("DELETE FROM lm_jobs")
        self.add(db, target="INSERT INTO log SELECT upper(json_extract(json_array(:value), '$[0]'))")
        self.assertEqual(self.run_job(db), (3, 3, 0))
        self.assertEqual(harness.value(db, "SELECT count(*) FROM log"), 3)

    def test_words_that_act_when_prepared(self):
        for name in (":memory:", "words.db"):
            with self.subTest(name=name):
                db = self.open(name)
                before = os.environ.get("SQLITE_TMPDIR")
                for i, text in enumerate(("PRAGMA foreign_keys = ON", "EXPLAIN PRAGMA foreign_keys = ON",
                                          "/* SELECT */ PRAGMA foreign_keys = ON", "SELECT 1, 2; PRAGMA foreign_keys = ON",
                                          "; PRAGMA foreign_keys = ON")):
                    self.add(db, f"query {i}", query=text)
                    self.refused(db, "the job's query must be", f"query {i}")
                    self.add(db, f"target {i}", target=text)
                    self.refused(db, "the job's target must be", f"target {i}")
                self.assertEqual(harness.value(db, "PRAGMA foreign_keys"), 0)
                self.assertEqual(os.environ.get("SQLITE_TMPDIR"), before)


class EndTest(JobRulesTest):
    def test_targets_and_triggers_that_set_rows_back(self):
        self.check_ends("INSERT INTO t(body) SELECT 'x'", target="UPDATE lm_job_rows SET state = 'waiting' WHERE id = :id",
                        end=(3, 0, 0))

    def test_the_failure_that_ends_a_run_is_one_of_its_own(self):
        for options in ('{"refresh":true,"max_errors":0}', '{"refresh":true}'):
            with self.subTest(options=options), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                db = self.open(script="INSERT INTO t(body) VALUES (x'0102');")
                self.add(db)
                self.assertEqual(self.run_job(db), (4, 3, 1))
                if "max_errors" not in options:
                    db.execute("UPDATE lm_jobs SET options = json_set(options, '$.on_error', 'error')")
                db.execute("UPDATE t SET body = 'a' || char(0) || 'b' WHERE id = 2")
                self.refused(db, "1 rows failed, max_errors is 0; id 2: ", options=options)
                self.assertRegex(harness.value(db, "SELECT status FROM lm_jobs"), "max_errors is 0; id 2: ")
                db.close()

    def test_a_trigger_that_keeps_a_row_from_being_done(self):
        db = self.open(script="INSERT INTO t(body) VALUES ('a newt');")
        self.add(db)
        db.execute("CREATE TRIGGER kept BEFORE UPDATE OF state ON lm_job_rows WHEN new.state = 'done' AND new.id = 2 BEGIN SELECT RAISE(IGNORE); END")
        limit = threading.Timer(20, db.interrupt)
        limit.start()
        self.assertEqual(self.run_job(db), (4, 3, 0))
        limit.cancel()
        self.assertEqual(db.execute("SELECT id, state, worker FROM lm_job_rows WHERE state <> 'done'").fetchall(), [(2, "waiting", None)])
        db.execute("DROP TRIGGER kept")
        self.assertEqual(self.run_job(db), (4, 4, 0))

    def test_triggers_that_add_rows(self):
        self.check_ends("""CREATE TRIGGER more AFTER UPDATE OF state ON lm_job_rows WHEN new.state = 'done' BEGIN
                             INSERT INTO lm_job_rows(job, id, prompt) VALUES (new.job, new.id + 100, 'again'); END""",
                        end=(6, 3, 0), again=(9, 6, 0))

    def check_ends(self, script, end, again=None, **job):
        for name in (":memory:", "ends.db"):
            with self.subTest(name=name):
                db = self.open(name)
                self.add(db, **job)
                db.execute(script)
                first = self.run_job(db)
                if script.startswith("INSERT"):
                    self.assertEqual(first[1:], end[1:])
                else:
                    self.assertEqual(first, end)
                if again is not None:
                    self.assertEqual(self.run_job(db), again)

    def test_what_was_added_meanwhile_is_left_and_told(self):
        for name in (":memory:", "added.db"):
            with self.subTest(name=name):
                db = self.open(name)
                self.add(db)
                self.assertEqual(self.run_job(db, options='{"max_total_tokens":1}'), (3, 0, 0))
                self.assertRegex(harness.value(db, "SELECT status FROM lm_jobs"), "^stopped: max_total_tokens")
                db.execute("CREATE TRIGGER more AFTER UPDATE ON t WHEN new.id = 2 BEGIN INSERT INTO lm_job_rows(job, id, prompt) VALUES ('j', 9, 'a hen'); END")
                self.assertEqual(self.run_job(db), (4, 3, 0))
                self.assertEqual(db.execute("SELECT ended, status FROM lm_jobs").fetchall(),
                                 [(None, "stopped: rows were added, or set to wait again, while it ran; 1 of 4 rows are left for a later run")])
                self.assertEqual(self.run_job(db), (4, 4, 0))
                self.assertEqual(db.execute("SELECT ended IS NOT NULL, status FROM lm_jobs").fetchall(), [(1, "done")])

    def test_a_job_whose_retry_is_interrupted_has_not_ended(self):
        db = self.open()
        db.executescript("""CREATE TABLE d(id INTEGER PRIMARY KEY, y); CREATE TRIGGER never BEFORE UPDATE ON d BEGIN SELECT RAISE(ABORT, 'no'); END;
                            WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 400) INSERT INTO d(id) SELECT i FROM s;
                            INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, id % 7 FROM d',
                              'UPDATE d SET y = :value WHERE id = :id', '{"max_tokens":1}');""")
        ended = "SELECT ended IS NOT NULL, status FROM lm_jobs"
        self.assertEqual(self.run_job(db), (400, 0, 400))
        db.execute("DROP TRIGGER never")
        for _ in range(2):
            self.assertEqual(db.execute(ended).fetchall(), [(1, "done")])
            run = db.execute("SELECT done FROM lm_run('j', '{\"retry\":true,\"chunk\":16,\"progress_ms\":0}')")
            self.assertLess(run.fetchone()[0], 400)
            run.close()
            self.assertEqual(db.execute(ended).fetchall(), [(0, None)])
            self.assertEqual(self.run_job(db), (400, 400, 0))
            db.execute("UPDATE lm_job_rows SET state = 'failed'")

    def test_rows_that_another_run_has_are_no_later_runs(self):
        db = self.open()
        self.add(db)
        db.execute("""CREATE TRIGGER more AFTER UPDATE ON t WHEN new.id = 2 BEGIN
                        INSERT INTO lm_job_rows(job, id, prompt, state, worker, lease) VALUES ('j', 9, 'a hen', 'running', 'x', 1 << 50); END""")
        self.run_job(db)
        self.assertEqual(harness.value(db, "SELECT status FROM lm_jobs"), "stopped: another run works on the 1 of 4 rows that are left")

    def test_a_state_that_nobody_knows(self):
        db = self.open()
        self.add(db)
        self.assertEqual(self.run_job(db), (3, 3, 0))
        with self.assertRaisesRegex(sqlite3.IntegrityError, "CHECK constraint failed"):
            db.execute("UPDATE lm_job_rows SET state = 'paused' WHERE id = 1")
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("UPDATE lm_job_rows SET state = 'paused' WHERE id = 1")
        db.execute("UPDATE lm_job_rows SET state = 'waiting' WHERE id = 2")
        self.refused(db, "1 rows of lm_job_rows have a state such as 'paused'; waiting, running, done and failed are known")
        self.assertEqual(db.execute("SELECT state FROM lm_job_rows ORDER BY id").fetchall(), [("paused",), ("done",), ("done",)])

    def test_functions_of_text_are_known(self):
        db = self.open()
        db.execute("CREATE TABLE chunks(id TEXT PRIMARY KEY, tokens INTEGER, y TEXT)")
        self.add(db, query="SELECT t.id || '/' || n, chunk FROM t, lm_chunks(body, 4) WHERE lm_token_count(body) > 0",
                 target="INSERT INTO chunks VALUES (:id, lm_token_count(:value), :value)")
        total, done, failed = self.run_job(db)
        self.assertEqual((total, failed), (done, 0))
        self.assertGreaterEqual(total, 3)
        self.assertEqual(db.execute("SELECT count(*), sum(tokens = lm_token_count(y)) FROM chunks").fetchone(), (total, total))
        # An index over one of them is kept up on the job's own connection.
        db.execute("CREATE INDEX by_tokens ON chunks(lm_token_count(y))")
        db.execute("UPDATE lm_job_rows SET state = 'waiting'")
        db.execute("DELETE FROM chunks")
        self.assertEqual(self.run_job(db), (total, total, 0))
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])

    def test_what_a_job_cannot_reach_is_named(self):
        db = self.open()
        db.execute("CREATE TEMP TABLE drafts AS SELECT 1 AS id, 'a' AS body")
        db.execute("ATTACH ':memory:' AS other")
        db.execute("CREATE TABLE other.far(id, body)")
        db.create_function("mine", 1, lambda text: text)
        db.create_collation("mycol", lambda a, b: (a > b) - (a < b))
        db.execute("CREATE TABLE words(id INTEGER PRIMARY KEY, word COLLATE mycol UNIQUE)")
        alone = "a job runs on a connection of its own"
        for query, message in (
                ("SELECT id, body FROM temp.drafts", "the job's query .*drafts is a temporary table of yours: " + alone),
                ("SELECT id, body FROM drafts", "drafts is a temporary table of yours"),
                ("SELECT id, body FROM other.far", "far is a table of the attached database other: " + alone),
                ("SELECT id, body FROM far", "far is a table of the attached database other"),
                ("SELECT id, mine(body) FROM t", r"mine\(\) was registered on your connection: " + alone),
                ("SELECT id, generate(body) FROM t", r"generate\(\) is not for a job's own statements: the job itself asks"),
                ("SELECT id, body FROM t WHERE lm_if(body, 'Is it?')", r"lm_if\(\) is not for a job's own statements"),
                ("SELECT id, body FROM t ORDER BY body COLLATE mycol",
                 "the job's query .*mycol was registered on your connection: " + alone + ", which knows BINARY, NOCASE and RTRIM"),
                ("SELECT id, word FROM words ORDER BY word", "mycol was registered on your connection"),
                ("SELECT id, body FROM t ORDER BY body COLLATE nowhere", "no such collation sequence: nowhere$"),
                ("SELECT id, nowhere(body) FROM t", "no such function: nowhere$"),
                ("SELECT id, body FROM nowhere", "no such table: nowhere$")):
            with self.subTest(query=query):
                db.execute("DELETE FROM lm_jobs") if harness.value(db, "SELECT count(*) FROM lm_jobs") else None
                self.add(db, query=query)
                self.refused(db, message)
        db.execute("DELETE FROM lm_jobs")
        self.add(db, target="UPDATE t SET answer = generate(:value) WHERE id = :id")
        self.refused(db, r"the job's target .*generate\(\) is not for a job's own statements: .* runs while the database is locked")
        db.execute("DELETE FROM lm_jobs")
        self.add(db, target="INSERT INTO words VALUES (:id, :value)")
        self.refused(db, "the job's target .*mycol was registered on your connection")

    def test_options_are_looked_at_before_anything_is_asked(self):
        db = self.open()
        insert = "INSERT INTO lm_jobs(name, query, options, system) VALUES (?, 'SELECT 1, 2', ?, ?)"
        wrong = (('{"max_token":1}', None, "unknown option 'max_token'; the nearest known one is 'max_tokens'"),
                 ('{"temperature":-1}', None, "temperature must be >= 0, got -1"), ("[]", None, "must be a JSON object"),
                 ("{", None, "not valid JSON"), ('{"threads":1}', None, "'threads' is a setting of the connection"),
                 ('{"choices":["a",""]}', None, "choice 2 of 2 is empty"),
                 (None, '{"max_tokens":1}', "these are options in the place of `system`"))
        for options, system, message in wrong:  # by the INSERT that makes the table
            with self.assertRaisesRegex(sqlite3.Error, message):
                db.execute(insert, ("j", options, system))
        db.execute(insert, ("j", '{"max_tokens":1}', "Be brief."))
        for options, system, message in wrong:  # what is written later is looked at when the job is run
            with self.assertRaisesRegex(sqlite3.OperationalError, f"^lm_jobs: .*{message}"):
                db.execute("SELECT lm_check_job(?, ?)", (system, options))
            db.execute("UPDATE lm_jobs SET options = ?, system = ?", (options, system))
            self.refused(db, f"the job's {'options' if system is None else 'system prompt'}: .*{message}")
            self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows"), 0)
        with self.assertRaisesRegex(sqlite3.OperationalError, "the job's system prompt: these are options"):
            db.execute("SELECT * FROM lm_batch_export('j', '{\"model\":\"m\"}')").fetchall()
        db.execute("UPDATE lm_jobs SET options = '{\"max_tokens\":1}', system = NULL")
        self.assertEqual(harness.value(db, "SELECT lm_check_job(system, options) FROM lm_jobs"), 1)
        self.assertEqual(self.run_job(db), (1, 1, 0))

    def test_texts_of_a_job_that_are_none(self):
        for name in (":memory:", "no text.db"):
            db = self.open(name)
            self.add(db)
            for column in ("system", "options"):
                for value, message in (("x'6162'", "must be text, got a BLOB of 2 bytes"), ("CAST(x'610062' AS TEXT)", "has a NUL character"),
                                       ("CAST(x'61ff' AS TEXT)", "is not valid UTF-8 at byte 1 of 2")):
                    with self.subTest(name=name, column=column, value=value):
                        db.execute(f"UPDATE lm_jobs SET system = NULL, options = NULL, {column} = {value}")
                        self.refused(db, rf"^lm_run: lm_jobs\.{column} {message}")
                        with self.assertRaisesRegex(sqlite3.OperationalError, rf"^lm_batch_export: lm_jobs\.{column} {message}"):
                            db.execute("SELECT * FROM lm_batch_export('j', '{\"model\":\"m\"}')").fetchall()
                        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows"), 0)

    def test_a_model_that_is_not_there_is_not_the_options(self):
        db = self.open()
        self.add(db)
        db.execute("INSERT INTO temp.lm_settings VALUES ('model', '/no/such.gguf')")
        self.refused(db, "^lm_run: '/no/such.gguf'")
        db.execute("UPDATE lm_jobs SET options = '{\"model\":\"/none/such.gguf\"}'")
        self.refused(db, "^lm_run: the job's options: .*/none/such.gguf")
        db.execute("UPDATE lm_jobs SET options = '{\"max_tokens\":-1}'")
        self.refused(db, "^lm_run: the job's options: max_tokens")

    def test_tables_that_another_connection_takes_away(self):
        empty = sqlite3.connect(self.folder / "empty.db", isolation_level=None)
        empty.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT)")
        self.addCleanup(empty.close)
        drop = "DROP TABLE lm_jobs; DROP TABLE lm_job_rows"
        for n, change in enumerate((drop, "ALTER TABLE lm_jobs RENAME TO jobs", None)):
            with self.subTest(change or "a backup is restored"):
                db = self.open(f"{n}.db", journal="delete")
                self.add(db, "gone")
                if change is None:
                    empty.backup(db)
                else:
                    other = sqlite3.connect(self.folder / f"{n}.db", isolation_level=None)
                    other.executescript(change)
                    other.close()
                db.execute("ALTER TABLE t RENAME COLUMN body TO text")
                db.execute("ALTER TABLE t RENAME TO notes")
                for name in ("j", "k"):
                    self.add(db, name, query="SELECT 1, 'rain'", target=None)
                self.assertEqual(db.execute("SELECT name FROM lm_jobs").fetchall(), [("j",), ("k",)])
                self.assertEqual(self.run_job(db), (1, 1, 0))
                db.execute("ALTER TABLE notes RENAME TO t")

    def test_a_job_that_is_copied_with_its_total_has_its_rows(self):
        db = self.open("main.db")
        self.open("a.db").close()
        db.execute("ATTACH ? AS a", (str(self.folder / "a.db"),))
        for table in ("main.lm_jobs", "a.lm_jobs"):
            self.add(db, table=table)
        self.assertEqual(self.run_job(db), (3, 3, 0))
        plain = sqlite3.connect(self.folder / "main.db", isolation_level=None)
        self.addCleanup(plain.close)
        plain.execute("ATTACH ? AS a", (str(self.folder / "a.db"),))
        columns = "query, target, system, options, model, total, created, began, ended, status"
        for connection in (db, plain):
            for schema in ("main", "a"):
                with self.assertRaisesRegex(sqlite3.IntegrityError, "lm_jobs: total is what .* copy its lm_job_rows first"):
                    connection.execute(f"INSERT INTO {schema}.lm_jobs SELECT 'copy', {columns} FROM main.lm_jobs")
        db.execute("DROP TRIGGER main.lm_jobs_begun")  # as tables of an earlier version
        self.assertEqual(self.run_job(db), (3, 3, 0))
        with self.assertRaisesRegex(sqlite3.IntegrityError, "lm_jobs: total is what"):
            plain.execute(f"INSERT INTO lm_jobs SELECT 'copy', {columns} FROM lm_jobs")
        given = "id, prompt, state, value, prompt_version, model"
        db.execute(f"INSERT INTO a.lm_job_rows(job, {given}) SELECT 'copy', {given} FROM main.lm_job_rows")
        db.execute(f"INSERT INTO a.lm_jobs SELECT 'copy', {columns} FROM main.lm_jobs")
        self.assertEqual(self.run_job(db, "copy"), (3, 3, 0))

    def test_a_statement_that_fails_leaves_the_transaction_whole(self):
        db = harness.connect(str(self.folder / "whole.db"))
        db.execute("CREATE TABLE mine(a)")
        db.execute("BEGIN")
        db.execute("INSERT INTO mine VALUES (1)")
        jobs = "INSERT INTO lm_jobs(name, query, options) VALUES ('old', 'SELECT 1, 2', NULL), ('new', 'SELECT 1, 2', ?)"
        with self.assertRaisesRegex(sqlite3.OperationalError, "unknown option 'max_token'"):
            db.execute(jobs, ('{"max_token":4}',))
        db.execute(jobs, ('{"max_tokens":4}',))
        db.execute("INSERT INTO mine VALUES (2)")
        db.execute("COMMIT")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM mine"), 2)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_jobs"), 2)
        db.execute("ALTER TABLE mine RENAME TO yours")

    def test_a_job_keeps_its_times(self):
        db = self.open()
        self.add(db)
        times = "SELECT created, began, ended FROM lm_jobs"
        created, began, ended = db.execute(times).fetchone()
        self.assertRegex(created, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$")
        self.assertEqual((began, ended), (None, None))
        self.assertEqual(self.run_job(db), (3, 3, 0))
        created, began, ended = db.execute(times).fetchone()
        answered = [row[0] for row in db.execute("SELECT answered FROM lm_job_rows ORDER BY answered")]
        self.assertEqual(sorted([created, began, *answered, ended]), [created, began, *answered, ended])
        self.assertEqual(len(answered), 3)
        self.assertEqual(self.run_job(db), (3, 3, 0))  # nothing to do
        self.assertEqual(db.execute(times).fetchone(), (created, began, ended))

    def test_a_begun_job_goes_on_without_its_source(self):
        for end in ("DROP TABLE notes", "ALTER TABLE notes RENAME TO others", "ALTER TABLE notes RENAME COLUMN body TO bodies"):
            with self.subTest(end=end), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                db = self.open(script="CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT); INSERT INTO notes(body) VALUES ('a cow'), ('a hen');")
                self.add(db, query="SELECT id, body FROM notes")
                self.assertEqual(self.run_job(db, options='{"max_total_tokens":1}'), (2, 0, 0))
                db.execute(end)
                self.refused(db, "the job's query does not compile: no such (table: notes|column: body)", options='{"refresh":true}')
                self.assertEqual(self.run_job(db), (2, 2, 0))
                db.execute("UPDATE lm_jobs SET total = NULL")
                self.refused(db, "the job's query does not compile: no such (table: notes|column: body)")
                db.close()

    def test_a_query_that_is_changed_too_late(self):
        db = self.open()
        self.add(db)
        db.execute("UPDATE lm_jobs SET query = 'SELECT id, upper(body) FROM t'")  # not begun yet
        self.assertEqual(self.run_job(db), (3, 3, 0))
        change = "UPDATE lm_jobs SET query = 'SELECT id, body FROM t WHERE id < 3'"
        plain = sqlite3.connect(self.folder / "notes.db", isolation_level=None)
        self.addCleanup(plain.close)
        for connection in (db, plain):
            with self.assertRaisesRegex(sqlite3.IntegrityError, "the job has begun, .* its query is not asked again; set total = NULL"):
                connection.execute(change)
        db.execute("UPDATE lm_jobs SET query = query")
        db.execute(change + ", total = NULL")
        self.assertEqual(self.run_job(db), (2, 2, 0))

    def test_tables_that_an_earlier_version_made(self):
        db = self.open()
        self.add(db)
        db.execute("DROP TRIGGER lm_jobs_query")
        for table, column in (("lm_jobs", "created"), ("lm_jobs", "began"), ("lm_jobs", "ended"), ("lm_job_rows", "answered")):
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        self.assertEqual(self.run_job(db), (3, 3, 0))
        self.assertEqual(db.execute("SELECT count(began), count(ended) FROM lm_jobs").fetchone(), (1, 1))
        self.assertEqual(harness.value(db, "SELECT count(answered) FROM lm_job_rows"), 3)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM sqlite_master WHERE name = 'lm_jobs_query'"), 1)

    def test_a_claim_whose_clock_is_ahead(self):
        db = self.open()
        self.add(db)
        self.assertEqual(self.run_job(db), (3, 3, 0))
        db.execute("""UPDATE lm_job_rows SET state = 'running', worker = '7.7.elsewhere#1',
                      lease = (julianday('now') + 365 - 2440587.5) * 86400000 WHERE id = 2""")
        db.execute("UPDATE lm_job_rows SET state = 'running', worker = NULL, lease = NULL WHERE id = 3")
        self.assertEqual(self.run_job(db, options='{"lease_ms":3000}'), (3, 3, 0))

    def test_a_claim_whose_worker_is_no_text(self):
        for worker in ("CAST('w' AS BLOB)", "CAST('123.4.5#6.7' AS BLOB)", "CAST(x'ff61' AS TEXT)", "'a' || char(0) || 'b'", "x''", "''", "7"):
            with self.subTest(worker=worker), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                db = self.open()
                self.add(db)
                self.assertEqual(self.run_job(db), (3, 3, 0))
                db.execute(f"UPDATE lm_job_rows SET state = 'running', worker = {worker}, lease = 1 WHERE id = 2")
                watch = threading.Timer(30, db.interrupt)
                watch.start()
                self.assertEqual(self.run_job(db, options='{"lease_ms":3000}'), (3, 3, 0))
                watch.cancel()
                db.close()

    def test_rows_that_were_taken_away_and_came_back(self):
        db = self.open(script="INSERT INTO t(body) SELECT 'a note ' || value FROM json_each('[1,2,3,4,5,6,7,8,9]');")
        self.add(db)
        rows = db.execute("SELECT total, done, failed FROM lm_run('j', '{\"chunk\":2,\"progress_ms\":0}')")
        rows.fetchone()
        other = sqlite3.connect(self.folder / "notes.db", isolation_level=None)
        # As if this process had slept past its lease, and who took its rows had died.
        taken = other.execute("UPDATE lm_job_rows SET worker = '7.7.elsewhere#1', lease = 1 WHERE state = 'running'").rowcount
        other.close()
        self.assertGreater(taken, 0)
        self.assertEqual(rows.fetchall()[-1], (12, 12, 0))

    def test_two_copies_of_the_library(self):
        db = self.open(script="INSERT INTO t(body) SELECT 'a note ' || value FROM json_each('[1,2,3,4,5,6,7,8,9]');")
        self.add(db)
        self.add(db, name="before", query="SELECT 1, 'a'", target=None)
        self.run_job(db, "before")  # so that the copies count differently
        copy = self.folder / "copy" / "lm0.so"
        copy.parent.mkdir()
        shutil.copyfile(harness.LM0, copy)
        other = sqlite3.connect(self.folder / "notes.db", isolation_level=None)
        self.addCleanup(other.close)
        other.enable_load_extension(True)
        other.load_extension(str(copy))
        options = '{"chunk":4,"progress_ms":0}'
        mine = db.execute("SELECT total, done, failed FROM lm_run('j', ?)", (options,))
        mine.fetchone()
        claimed = "SELECT number, worker FROM lm_job_rows WHERE job = 'j' AND state = 'running' ORDER BY number"
        third = sqlite3.connect(self.folder / "notes.db", isolation_level=None)  # the others read what was there before
        self.addCleanup(third.close)
        before = third.execute(claimed).fetchall()
        self.assertGreater(len(before), 0)
        others = other.execute("SELECT total, done, failed FROM lm_run('j', ?)", (options,))
        others.fetchone()
        others.fetchone()  # the first one was there before it had claimed any
        self.assertLessEqual(set(before), set(third.execute(claimed).fetchall()))
        others.close()
        self.assertEqual(mine.fetchall()[-1], (12, 12, 0))

    def test_a_job_that_is_deleted_or_replaced(self):
        db = self.open(script="INSERT INTO t(body) SELECT 'a note ' || value FROM json_each('[1,2,3,4,5,6,7,8,9]');")
        for end, message in (("DELETE FROM lm_jobs", "job 'j' was deleted or renamed while it ran"),
                             ("UPDATE lm_jobs SET total = NULL", "job 'j' was replaced by another while it ran")):
            with self.subTest(end=end):
                db.execute("DELETE FROM lm_jobs")
                self.add(db)
                rows = db.execute("SELECT * FROM lm_run('j', '{\"chunk\":1,\"progress_ms\":0}')")
                rows.fetchone()
                other = sqlite3.connect(self.folder / "notes.db", isolation_level=None)
                other.execute(end)
                other.close()
                with self.assertRaisesRegex(sqlite3.OperationalError, message):
                    rows.fetchall()

    def test_what_another_run_has_begun_in_its_place(self):
        replace = "INSERT OR REPLACE INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM t', ?, '{\"max_tokens\":2}')"
        same = "UPDATE t SET answer = :value WHERE id = :id"
        changed = "job 'j' was changed while it ran: its target, system or options are others now"
        replaced = "job 'j' was replaced by another while it ran"
        for change, values, options, message in (
                (replace, ("UPDATE t SET secret = :value WHERE id = :id",), None, replaced), (replace, (same,), None, replaced),
                ("UPDATE lm_jobs SET total = NULL", (), None, replaced),
                ("UPDATE lm_jobs SET target = 'UPDATE t SET secret = :value WHERE id = :id'", (), None, changed),
                ("UPDATE lm_jobs SET system = 'Shout.'", (), '{"refresh":true}', changed),
                ("UPDATE lm_jobs SET options = '{\"max_tokens\":3}'", (), '{"refresh":true}', changed)):
            with self.subTest(change=change, values=values), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                db = self.open(script="INSERT INTO t(body) SELECT 'a note ' || value FROM json_each('[1,2,3,4,5,6,7,8,9]');")
                self.add(db)
                rows = db.execute("SELECT * FROM lm_run('j', '{\"chunk\":2,\"progress_ms\":0}')")
                rows.fetchone()
                other = harness.connect(str(self.folder / "notes.db"))
                other.execute(change, values)
                # The other one's run, until it has its rows, and all but those that the first has claimed.
                run = other.execute("SELECT total, done FROM lm_run('j', ?)", (options or '{"progress_ms":0}',))
                run.fetchone()
                before = other.execute("SELECT answered FROM lm_job_rows ORDER BY number").fetchall()
                with self.assertRaisesRegex(sqlite3.OperationalError, message):
                    rows.fetchall()
                self.assertEqual(other.execute("SELECT answered FROM lm_job_rows ORDER BY number").fetchall(), before)
                self.assertEqual(run.fetchall()[-1], (12, 12))
                other.close()
                db.close()

    def test_an_unchanged_job_is_refreshed_beside_a_run(self):
        db = self.open(script="INSERT INTO t(body) SELECT 'a note ' || value FROM json_each('[1,2,3,4,5,6,7,8,9]');")
        self.add(db)
        rows = db.execute("SELECT total, done, failed FROM lm_run('j', '{\"chunk\":2,\"progress_ms\":0}')")
        rows.fetchone()
        other = harness.connect(str(self.folder / "notes.db"))
        self.addCleanup(other.close)
        run = other.execute("SELECT total, done, failed FROM lm_run('j', '{\"refresh\":true,\"chunk\":2,\"progress_ms\":0}')")
        run.fetchone()
        self.assertEqual(rows.fetchall()[-1], (12, 12, 0))
        self.assertEqual(run.fetchall()[-1], (12, 12, 0))

    def test_another_job_in_its_place(self):
        db = self.open()
        db.execute("ALTER TABLE t ADD COLUMN other TEXT")
        self.add(db)
        self.assertEqual(self.run_job(db), (3, 3, 0))
        db.execute("DROP TRIGGER lm_jobs_replace")  # as tables of an earlier version
        self.assertEqual(self.run_job(db), (3, 3, 0))
        db.execute("""INSERT OR REPLACE INTO lm_jobs(name, query, target, options)
                      SELECT name, query, 'UPDATE t SET other = :value WHERE id = :id', options FROM lm_jobs""")
        self.assertEqual(self.run_job(db, options='{"refresh":true}'), (3, 3, 0))
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE other = answer"), 3)

    def test_no_job_in_an_empty_file(self):
        db = harness.connect(str(self.folder / "empty.db"))
        self.addCleanup(db.close)
        self.refused(db, "there is no job named 'j': INSERT INTO lm_jobs")

    def test_a_database_with_a_table_of_that_name(self):
        db = self.open(script="CREATE TABLE lm_jobs(a);")
        self.refused(db, "this database's lm_jobs is no table of jobs .*no such column: name")

    def test_jobs_that_came_while_a_connection_was_open(self):
        for journal in ("wal", "delete"):
            for first in ("SELECT max(done) FROM lm_run('j')", "UPDATE lm_job_rows SET state = 'waiting'",
                          "DELETE FROM lm_job_rows", "SELECT count(*) FROM lm_job_rows"):
                with self.subTest(journal=journal, first=first):
                    name = f"late{len(os.listdir(self.folder))}.db"
                    db = self.open(name, journal)
                    late = harness.connect(str(self.folder / name))
                    self.addCleanup(late.close)
                    self.assertEqual(late.execute("UPDATE lm_job_rows SET state = 'waiting'").rowcount, 0)
                    with self.assertRaisesRegex(sqlite3.OperationalError, "a job's rows are what lm_run\\(\\) makes of its query"):
                        late.execute("INSERT INTO lm_job_rows(job, id) VALUES ('j', 1)")
                    self.add(db)
                    if "lm_run" not in first:
                        self.assertEqual(self.run_job(db), (3, 3, 0))
                    cursor = late.execute(first)
                    if first.startswith("SELECT"):
                        self.assertEqual(cursor.fetchall(), [(3,)])
                    else:
                        self.assertEqual(cursor.rowcount, 3)

    def test_advice_to_run_it_once_more_is_given_where_that_helps(self):
        db = sqlite3.connect(str(self.folder / "begun.db"))  # which begins transactions by itself
        self.addCleanup(db.close)
        db.enable_load_extension(True)
        db.load_extension(harness.LM0)
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, answer TEXT)")
        db.execute("INSERT INTO t(body) VALUES ('a dog')")
        self.add(db)
        with self.assertRaisesRegex(sqlite3.OperationalError, r"from within a transaction: it commits; COMMIT first \(in Python .*\)$") as caught:
            self.run_job(db)
        self.assertNotIn("once more", str(caught.exception))
        db.commit()
        self.assertEqual(self.run_job(db), (1, 1, 0))

    def test_loaded_while_another_has_the_file(self):
        first = self.open(journal="delete")
        self.add(first)
        first.execute("BEGIN EXCLUSIVE")
        db = harness.connect(str(self.folder / "notes.db"), timeout=0.2)
        self.addCleanup(db.close)
        first.execute("ROLLBACK")
        try:
            end = self.run_job(db)
        except sqlite3.OperationalError as error:  # this time main's own lm_run was used
            self.assertRegex(str(error), "because the database was empty or locked; it is there now: run the statement once more")
            end = self.run_job(db)
        self.assertEqual(end, (3, 3, 0))


class LockTest(JobRulesTest):
    def other(self, *statements, name="notes.db", release=20):
        """Another connection of this thread, whose lock is let go after so many seconds."""
        other = sqlite3.connect(self.folder / name, isolation_level=None, check_same_thread=False)
        self.addCleanup(other.close)
        for sql in statements:
            other.execute(sql).fetchone()
        timer = threading.Timer(release, other.rollback)
        timer.start()
        self.addCleanup(timer.join)
        self.addCleanup(timer.cancel)
        return other

    def test_a_run_begins_with_the_patience_of_its_connection(self):
        for journal in ("wal", "delete"):
            for timeout, least, most in ((300, 0.3, 4), (0, 5, 15)):
                with self.subTest(journal=journal, timeout=timeout):
                    name = f"{journal}{timeout}.db"
                    db = self.open(name, journal)
                    self.add(db)
                    db.execute(f"PRAGMA busy_timeout = {timeout}").fetchall()
                    other = self.other("BEGIN", "UPDATE t SET secret = 'x'", name=name)
                    began = time.monotonic()
                    self.refused(db, "database is locked: another connection, of this process or of another, is writing it "
                                     rf"and did not end within {'300ms' if timeout else '5s'} \(PRAGMA busy_timeout, or 5s where that is not set\)")
                    self.assertTrue(least <= time.monotonic() - began < most, time.monotonic() - began)
                    other.rollback()
                    self.assertEqual(self.run_job(db), (3, 3, 0))

    def test_others_that_read(self):
        db = self.open(journal="delete")
        self.add(db)
        db.execute("PRAGMA busy_timeout = 200").fetchall()
        other = self.other("BEGIN", "SELECT * FROM t")
        self.refused(db, "database is locked: another connection, .*, is reading it and did not end within 200ms")
        other.rollback()
        # One that lets nobody read.
        other.execute("BEGIN EXCLUSIVE")
        self.refused(db, "database is locked: another connection, .*, is writing it and did not end within 200ms")
        other.rollback()
        self.assertEqual(self.run_job(db), (3, 3, 0))

    def test_with_answers_at_stake_it_waits(self):
        db = self.open()
        self.add(db)
        db.execute("PRAGMA busy_timeout = 100").fetchall()
        rows = db.execute("SELECT total, done FROM lm_run('j', '{\"chunk\":1,\"progress_ms\":0}')")
        rows.fetchone()
        self.other("BEGIN IMMEDIATE", release=1)
        began = time.monotonic()
        self.assertEqual(rows.fetchall()[-1], (3, 3))
        self.assertGreater(time.monotonic() - began, 0.8)


class TimeTest(JobRulesTest):
    def test_a_run_that_is_out_of_time_leaves_the_rest_for_the_next(self):
        db = self.open()
        db.execute("DELETE FROM t")
        db.execute("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO t(body) SELECT 'row ' || i FROM n")
        db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM t', "
                   "'UPDATE t SET answer = :value WHERE id = :id', '{\"max_tokens\":100,\"temperature\":3,\"seed\":1}')")
        total, done, failed = self.run_job(db, options='{"max_seconds":1}')
        self.assertEqual((total, failed), (20000, 0))
        self.assertLess(done, total)
        states = dict(db.execute("SELECT state, count(*) FROM lm_job_rows GROUP BY state"))
        self.assertEqual(states, {"done": done, "waiting": total - done} if done else {"waiting": total})
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE answer IS NOT NULL"), done)
        again = self.run_job(db, options='{"max_seconds":1}')
        self.assertGreaterEqual(again[1], done)
        self.refused(db, "max_seconds must be a whole number", options='{"max_seconds":0.5}')


if __name__ == "__main__":
    unittest.main()
