"""Looking ahead: plain statements decode their rows together, and nobody can tell but by the time.

Each statement runs twice, on a database of its own: with look-ahead and without. Results, changes and what can be done
afterwards are the same; how many calls found their answer under way (lm_stats.foreseen) is not. That is counted and not
timed: how many rows a decode step then has depends on whose thread the machine lets run.
"""
import json
import pathlib
import sqlite3
import tempfile
import time
import unittest

import harness

OPTIONS = '{"max_tokens":4,"cache":false}'
G = f"generate(body, 'You are a poet.', '{OPTIONS}')"
ROWS = 60
LABELS = '["dry","wet"]'
SCHEMA = '{"type":"object","required":["dry"],"properties":{"dry":{"type":"boolean"}}}'
PLAIN = '{"cache":false}'
# All others that ask the model one thing for each row.
SISTERS = [f"lm_classify(body, '{LABELS}', NULL, '{PLAIN}')", f"generate_json(body, '{SCHEMA}', 'Say JSON.', '{PLAIN}')",
           f"lm_extract(body, '{SCHEMA}', '{PLAIN}')", f"lm_if(body, 'Does it rain?', '{PLAIN}')",
           f"lm_score(body, 'It rains.', '{PLAIN}')", f"lm_embed(body, '{PLAIN}')",
           "lm_embed(body, '{\"pooling\":\"last\",\"cache\":false}')", f"lm_summarize(body, '{OPTIONS}')"]


class LookAheadTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def connect(self, lookahead, name=None):
        path = str(pathlib.Path(self.folder.name) / (name or f"{lookahead}.db"))
        connection = harness.connect(path)
        connection.execute("INSERT INTO temp.lm_settings VALUES ('lookahead', ?)", (lookahead,))
        connection.execute("PRAGMA synchronous = OFF")  # hundreds of commits would wait for the disk
        connection.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, kind TEXT, body TEXT, y TEXT)")
        connection.executemany("INSERT INTO notes(kind, body) VALUES (?, ?)", [
            ("abc"[i % 3], None if i % 10 == 4 else f"note {i % 50} about the weather") for i in range(ROWS)])
        connection.execute("CREATE INDEX notes_y ON notes(y)")
        return connection

    def test_each_statement_has_its_own_budget(self):
        """Also where it stands in memory where the one before it stood."""
        db = harness.connect(cached_statements=0)
        spends = "SELECT generate('Hello there', NULL, '{\"max_tokens\":4,\"cache\":false,\"max_total_tokens\":%d}')"
        tokens = json.loads(harness.value(db, "SELECT lm_try('Hello there', NULL, '{\"max_tokens\":4,\"cache\":false}')"))
        for _ in range(6):
            harness.value(db, spends % (tokens["tokens_in"] + 4))
        db.execute("CREATE TEMP TABLE log(a)")
        db.execute("CREATE TEMP TABLE t(b)")
        db.execute("CREATE TEMP TRIGGER fires AFTER INSERT ON t BEGIN INSERT INTO log %s; END" % (spends % (2 * (tokens["tokens_in"] + 4))))
        for _ in range(6):
            db.execute("INSERT INTO t VALUES (1), (2)")
        with self.assertRaisesRegex(sqlite3.OperationalError, "max_total_tokens"):
            db.execute("INSERT INTO t VALUES (1), (2), (3)")
        db.execute("INSERT INTO t VALUES (1), (2)")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM log"), 14)
        for _ in range(3):
            harness.value(db, "SELECT generate('wait', NULL, '{\"max_tokens\":1,\"cache\":false,\"max_seconds\":0.5}')")
            time.sleep(0.6)
        db.close()

    def test_a_budget_is_not_spent_on_calls_that_an_answer_makes_needless(self):
        """The first row that is let through is enough, and the calls for the others are never made."""
        score = "lm_score(w.body || notes.id, 'even?', '{\"cache\":false,\"max_total_tokens\":%d}') >= 0"
        for where in (f"EXISTS (SELECT 1 FROM notes AS w WHERE w.id > notes.id AND {score})",
                      f"(SELECT w.id FROM notes AS w WHERE w.id > notes.id AND {score} LIMIT 1) > 0"):
            rows, least = {}, 0
            for lookahead in ("off", "on"):
                connection = self.connect(lookahead, f"{where[0]}{lookahead}.db")
                if lookahead == "off":
                    tokens = "SELECT sum(tokens_prefilled) + sum(tokens_reused) + sum(tokens_decoded) FROM lm_stats"
                    before = harness.value(connection, tokens) or 0
                    rows["free"] = connection.execute(f"SELECT id FROM notes WHERE {where % 10 ** 9}").fetchall()
                    least = harness.value(connection, tokens) - before
                rows[lookahead] = connection.execute(f"SELECT id FROM notes WHERE {where % least}").fetchall()
                connection.close()
            self.assertEqual(rows["on"], rows["off"])
            self.assertEqual(rows["on"], rows["free"])

    def test_a_budget_is_spent_in_the_order_of_the_calls(self):
        for tokens in (700, 2000):
            options = f'{{"max_tokens":8,"max_total_tokens":{tokens},"on_error":"null"}}'
            sql = (f"SELECT id, CASE WHEN lm_score(body, 'even?', '{options}') > 0.5 THEN generate(body, 'A', '{options}') "
                   f"ELSE generate(body, 'C', '{options}') END FROM notes")
            rows = {}
            for lookahead in ("off", "on"):
                connection = self.connect(lookahead, f"{lookahead}{tokens}.db")
                rows[lookahead] = connection.execute(sql).fetchall()
                connection.close()
            self.assertEqual(rows["on"], rows["off"])
            self.assertGreater(sum(value is not None for _, value in rows["on"]), 2)

    def test_a_statement_that_goes_on_behind_many_remembered_answers(self):
        connection = self.connect("on")
        connection.execute("CREATE TABLE many AS SELECT value AS id, 'note ' || value AS body FROM (WITH RECURSIVE c(value) AS "
                           "(SELECT 1 UNION ALL SELECT value + 1 FROM c LIMIT 12000) SELECT * FROM c)")
        count = "SELECT count(lm_if(body, 'Is it even?')) FROM many WHERE id <= ?"
        self.assertEqual(harness.value(connection, count, 10500), 10500)
        foreseen = "SELECT foreseen FROM lm_stats WHERE phase = 'decode'"
        before = harness.value(connection, foreseen)
        self.assertEqual(harness.value(connection, count, 12000), 12000)
        self.assertGreater(harness.value(connection, foreseen) - before, 1200)
        connection.close()

    @unittest.skipIf(sqlite3.sqlite_version_info < (3, 35), "its SQLite flattens what it is not to")
    def test_an_answer_that_rows_are_ordered_by_is_asked_once_in_its_place(self):
        connection = self.connect("on")
        connection.execute("CREATE TABLE many AS SELECT value AS id, 'note ' || value AS body FROM (WITH RECURSIVE c(value) AS "
                           "(SELECT 1 UNION ALL SELECT value + 1 FROM c LIMIT 4000) SELECT * FROM c)")
        rows = connection.execute(f"SELECT id, lm_classify(body, '{LABELS}') AS k FROM many ORDER BY k, id").fetchall()
        self.assertEqual(rows, sorted(rows, key=lambda row: (row[1], row[0])))
        foreseen, hint = connection.execute("SELECT max(foreseen), max(hint) FROM lm_stats").fetchone()
        self.assertGreater(foreseen, 3900)
        self.assertIsNone(hint)
        connection.close()

    @unittest.skipUnless(hasattr(sqlite3.Connection, "setlimit"), "Python 3.11")
    def test_a_host_that_limits_programs_keeps_its_transaction(self):
        connection = self.connect("on")
        connection.setlimit(5, 1000)  # SQLITE_LIMIT_VDBE_OP
        connection.execute("BEGIN")
        connection.execute("INSERT INTO notes(body) VALUES ('new')")
        harness.value(connection, f"SELECT count({G}) FROM notes")
        self.assertTrue(connection.in_transaction)
        connection.execute("COMMIT")
        self.assertEqual(harness.value(connection, "SELECT count(*) FROM notes"), ROWS + 1)
        connection.close()

    def counted(self, connection, run):
        """What run() returns, how many requests the model had meanwhile, and how many calls were foreseen."""
        sql = "SELECT requests, foreseen FROM lm_stats WHERE phase = 'decode'"
        before = connection.execute(sql).fetchone()
        result = run()
        after = connection.execute(sql).fetchone()
        return result, after[0] - before[0], after[1] - before[1]

    def both(self, run, foreseen=True, alone=2):
        """run(connection) with and without look-ahead: the same result and the same table afterwards.

        All calls but `alone` are foreseen, or none; foreseen=None says nothing of that.
        """
        seen = []
        for lookahead in ("off", "on"):
            connection = self.connect(lookahead, f"{lookahead}{id(run)}.db")
            harness.value(connection, f"SELECT generate('warm up', NULL, '{OPTIONS}')")
            result, asked, known = self.counted(connection, lambda c=connection: run(c))
            table = connection.execute("SELECT * FROM notes ORDER BY id").fetchall()
            seen.append((result, table, asked, known))
            # Nothing holds a lock, a cursor or the schema.
            self.assertFalse(connection.in_transaction)
            connection.execute("DROP TABLE notes")
            connection.execute("VACUUM")
            connection.close()
        self.assertEqual(seen[0][:2], seen[1][:2])
        self.assertEqual(seen[0][3], 0)
        asked, known = seen[0][2], seen[1][3]
        if foreseen:
            self.assertGreater(asked, alone)
            self.assertGreaterEqual(known, asked - alone)
        elif foreseen is False:
            self.assertEqual(known, 0)
        return seen[1][0]

    def query(self, sql, *parameters, foreseen=True, alone=None):
        """The first row of what writes, and the first two of a SELECT, are alone."""
        if alone is None:
            alone = 2 if sql.startswith("SELECT") or " SELECT id, " in sql and sql.startswith("WITH n") else 1
        return self.both(lambda connection: connection.execute(sql, parameters).fetchall(), foreseen, alone)

    def prepared(self, prepare, sql, foreseen=True, alone=1, asked=None):
        """A statement on a database for which `prepare` has been run, once with look-ahead and once without: it asks the
        same calls (`asked` many, where it is given), and leaves the same tables behind."""
        seen = []

        def run(connection):
            connection.executescript(prepare)
            rows, requests, _ = self.counted(connection, lambda: connection.execute(sql).fetchall())
            seen.append(requests)
            connection.commit()
            tables = ("other",) if "other" in prepare + sql else ()
            return rows, [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
        self.runs = getattr(self, "runs", []) + [run]  # as long as they are there, their databases have names of their own
        result = self.both(run, foreseen, alone)
        self.assertEqual(seen, [asked or seen[0]] * 2)
        return result

    def test_what_writes_foresees_its_rows_in_its_own_order_whatever_is_indexed(self):
        index = "CREATE INDEX b ON notes(body);"
        kinds = "CREATE INDEX k ON notes(kind, body);"
        other = ("CREATE TABLE other(word TEXT {}, body TEXT, z TEXT, y TEXT) {};"
                 "INSERT INTO other(word, body, z) SELECT 'word ' || (id * 37 % 61), body, id * 17 % 61 FROM notes;")
        for prepare, sql in (
                (index, f"UPDATE notes SET y = {G}"),
                (index, f"UPDATE notes SET y = {G} WHERE y IS NULL"),
                (index, f"UPDATE main.notes AS n SET y = {G.replace('body', 'n.body')}, kind = 'z' WHERE n.id % 3 > 0"),
                (other.format("PRIMARY KEY", ""), f"UPDATE other SET y = {G.replace('body', 'word')}"),
                (other.format("PRIMARY KEY", ""),
                 f"UPDATE other SET y = (SELECT {G.replace('body', 'group_concat(n.body)')} FROM notes AS n WHERE n.id % 61 = other.z)"),
                # The rowids are collected first: the index that it reads is changed.
                ("DROP INDEX notes_y; CREATE INDEX todo ON notes(kind) WHERE y IS NULL;", f"UPDATE notes SET y = {G} WHERE y IS NULL"),
                (kinds, f"UPDATE notes SET y = {G}, kind = 'z' WHERE kind > 'a'"),
                (kinds, f"UPDATE notes INDEXED BY k SET y = {G}, kind = 'z' WHERE kind > 'a'"),
                (kinds, f"UPDATE notes SET y = {G} WHERE kind > 'a'"),
                (kinds, f"UPDATE notes SET y = {G} WHERE kind > 'a' RETURNING id, y"),
                (kinds, f"WITH k(kind) AS (VALUES ('b'), ('c')) UPDATE notes SET y = {G} WHERE kind IN (SELECT kind FROM k)"),
                (kinds + "CREATE TABLE other(y); CREATE TRIGGER t AFTER UPDATE ON notes BEGIN INSERT INTO other VALUES (changes() || new.y); END;",
                 f"UPDATE notes SET y = {G} WHERE kind > 'a'"),
                # Tables without rowids, in their own order or in that of an index.
                (other.format("PRIMARY KEY", "WITHOUT ROWID") + "CREATE UNIQUE INDEX z ON other(z); CREATE INDEX b ON other(body, z);",
                 f"UPDATE other SET y = {G}"),
                (other.format("UNIQUE, PRIMARY KEY (z)", "WITHOUT ROWID").replace("TEXT UNIQUE, PRIMARY KEY (z), body TEXT, z TEXT, y TEXT",
                                                                                  "TEXT UNIQUE, body TEXT, z TEXT, y TEXT, PRIMARY KEY (z)")
                 + "CREATE INDEX b ON other(body);", f"UPDATE other SET y = {G}, body = 'new' WHERE body > 'note 2'"),
                # All that is assigned is read.
                (other.format("", "") + "CREATE INDEX o ON other(body, word);",
                 f"UPDATE notes SET y = {G.replace('body', 'o.body')}, kind = o.z FROM other AS o WHERE notes.id = CAST(substr(o.word, 6) AS INTEGER)"),
                (index, f"DELETE FROM notes WHERE {G} > 'm'"),
                (index + kinds, f"DELETE FROM main.notes AS n WHERE kind > 'a' AND {G} > 'm'"),
                (index, "INSERT INTO notes(id, kind, body) SELECT id, kind, body FROM notes WHERE true "
                        f"ON CONFLICT(id) DO UPDATE SET y = {G.replace('body', 'excluded.body')}")):
            with self.subTest(prepare=prepare, sql=sql):
                self.prepared(prepare, sql)
        limits = "UPDATE_DELETE_LIMIT"
        if any(limits in option for option, in sqlite3.connect(":memory:").execute("PRAGMA compile_options")):
            self.prepared(kinds, f"UPDATE notes SET y = {G} WHERE kind > 'a' ORDER BY kind DESC, body LIMIT 20")
            self.prepared(index, f"DELETE FROM notes WHERE {G} > 'm' ORDER BY id DESC LIMIT 20", foreseen=None)

    def test_an_update_that_looks_at_changes_finds_those_of_the_statement_before(self):
        """To look at its plan would set them to 0."""
        before = "UPDATE notes SET y = 'old' WHERE id < 8; "
        self.prepared(before, f"UPDATE notes SET y = {G}, kind = changes()")
        (_, (counted,)) = self.prepared(
            "CREATE TABLE other(n); CREATE TRIGGER t AFTER UPDATE ON notes WHEN new.y <> 'old' BEGIN INSERT INTO other VALUES (changes()); END;"
            + before, f"UPDATE notes SET y = {G}")
        self.assertEqual(set(counted), {(7,)})

    def test_sorted_subqueries_are_sorted_before_their_rows_are_asked_about(self):
        newest = "(SELECT * FROM notes WHERE body IS NOT NULL ORDER BY kind, id DESC LIMIT 20)"
        for sql, alone in ((f"SELECT id, {G} FROM {newest}", 2),
                           (f"CREATE TABLE other AS SELECT id, {G} AS g FROM {newest}", 1),
                           (f"INSERT INTO notes(kind, body) SELECT 'new', {G} FROM {newest}", 1),
                           (f"WITH newest AS {newest} SELECT id, {G} FROM newest", 2)):
            with self.subTest(sql=sql):
                self.prepared("", sql, alone=alone, asked=20)
        for sql in (f"SELECT id, {G} FROM (SELECT * FROM notes ORDER BY kind, id DESC)",
                    f"SELECT id, {G} FROM notes ORDER BY kind, id DESC LIMIT 20",
                    # All rows are asked about, whatever the LIMIT keeps of them.
                    f"SELECT id FROM notes ORDER BY {SISTERS[4]} DESC LIMIT 5",
                    # Its result has no call, and all becomes one SELECT, with the calls before the sort.
                    f"SELECT id, g FROM (SELECT id, {G} AS g FROM {newest})",
                    f"SELECT k, g FROM (SELECT id, {SISTERS[0]} AS k, {G} AS g FROM notes) ORDER BY k, id DESC"):
            with self.subTest(sql=sql):
                self.prepared("", sql, alone=2)

    def test_functions_of_a_full_text_table_are_its_own(self):
        words = "CREATE VIRTUAL TABLE words USING {}(body); INSERT INTO words(rowid, body) SELECT id, body FROM notes;"
        text = words.format("fts5")
        for sql in (f"SELECT rowid, {G} FROM words WHERE words MATCH 'weather' ORDER BY bm25(words) LIMIT 20",
                    f"SELECT rowid, bm25(words, 2.0), {G} FROM words WHERE words MATCH 'weather' ORDER BY rank",
                    f"SELECT {G.replace('body', 'highlight(words, 0, ' + repr('<') + ', ' + repr('>') + ')')} FROM words WHERE words MATCH 'weather'",
                    f"SELECT n.id, {G.replace('body', 'snippet(words, 0, ' + repr('') + ', ' + repr('') + ', ' + repr('') + ', 4)')} "
                    "FROM words JOIN notes AS n ON n.id = words.rowid WHERE words MATCH 'weather'"):
            with self.subTest(sql=sql):
                self.prepared(text, sql, alone=2)
        calls = []

        def host(sql, table):
            def run(connection):
                calls.clear()
                connection.executescript(words.format(table))
                connection.create_function("bm25", -1, lambda *texts: calls.append(texts) or 1.5)
                rows = connection.execute(sql).fetchall()
                self.assertEqual(len(calls), ROWS)
                return rows
            self.runs = getattr(self, "runs", []) + [run]
            return run
        self.both(host(f"SELECT bm25(body), {G} FROM notes", "fts5"), foreseen=False)
        self.both(host(f"SELECT bm25(body), {G} FROM words", "fts4"), foreseen=False)
        self.both(host(f"SELECT bm25(coalesce(words, body)), {G} FROM words", "fts5"), foreseen=False)

    def test_select(self):
        rows = self.query(f"SELECT id, {G} FROM notes")
        self.assertEqual(len(rows), ROWS)
        self.assertEqual(sum(answer is None for _, answer in rows), ROWS // 10)

    def test_select_of_many_shapes(self):
        for sql in (f"SELECT id, {G} FROM notes ORDER BY id DESC",
                    f"SELECT id, {G} FROM notes WHERE kind <> 'b' ORDER BY kind, id",
                    f"SELECT count(*), sum(length({G})) FROM notes",
                    f"SELECT kind, group_concat({G}, '|') FROM notes GROUP BY kind",
                    f"SELECT id FROM notes WHERE {G} > 'm'",
                    f"SELECT max(g) FROM (SELECT {G} AS g FROM notes LIMIT 40)",
                    f"WITH n AS (SELECT * FROM notes WHERE id > 5) SELECT id, {G} FROM n -- and that is all",
                    f"SELECT n.id, {G} FROM notes n JOIN (SELECT DISTINCT kind FROM notes) k USING (kind)",
                    f"SELECT id, {G} FROM notes WHERE id < 20 UNION ALL SELECT -id, {G} FROM notes WHERE id < 20",
                    f"SELECT value, generate('note ' || value, NULL, '{OPTIONS}') FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14]')",
                    f"SELECT id, json_extract(lm_try(lower(body), NULL, '{OPTIONS}'), '$.value') FROM notes"):
            with self.subTest(sql=sql):
                self.query(sql)
        # SQLite calls it again for some rows that begin a group.
        self.query(f"SELECT {G} AS g, count(*) FROM notes GROUP BY g ORDER BY g", alone=4)

    def test_all_that_ask_one_thing_for_a_row(self):
        for call in SISTERS:
            with self.subTest(call=call):
                rows = self.query(f"SELECT id, {call} FROM notes WHERE id < 30")
                self.assertEqual(sum(answer is None for _, answer in rows), 3)
                self.query(f"UPDATE notes SET y = {call} WHERE id < 20")
        self.query(f"SELECT id FROM notes WHERE {SISTERS[3]}")
        self.query(f"SELECT {SISTERS[0]}, {SISTERS[4]}, {G} FROM notes LIMIT 20")
        self.query(f"SELECT lm_if(body, 'Does it rain?', '{PLAIN}'), lm_if(body, 'Is it dry?', '{PLAIN}') FROM notes LIMIT 20")
        self.query(f"SELECT id FROM notes WHERE id < 20 ORDER BY {SISTERS[4]} DESC LIMIT 5")

    def test_texts_that_are_read_in_parts(self):
        # Every third one is short enough for one prompt; the others take up to eight parts, and two rounds or three.
        longer = "UPDATE notes SET body = trim(replace(printf('%.*c', 1 + 9 * (id % 3), '-'), '-', body || '. '))"
        summary = "lm_summarize(body, '{\"max_tokens\":4,\"part_tokens\":60,\"cache\":false}')"
        for sql in (f"SELECT id, {summary} FROM notes", f"UPDATE notes SET y = {summary}",
                    f"CREATE TABLE other AS SELECT id, {summary} AS s FROM notes",
                    f"SELECT id, {summary} FROM notes ORDER BY kind, id DESC"):
            with self.subTest(sql=sql):
                known = []

                def run(connection, sql=sql):
                    connection.execute(longer)
                    rows, requests, foreseen = self.counted(connection, lambda: connection.execute(sql).fetchall())
                    known.append((requests, foreseen))
                    connection.execute("DROP TABLE IF EXISTS other")
                    return rows
                self.both(run, foreseen=None)
                rows = ROWS * 9 // 10
                self.assertEqual(known[0][0], known[1][0])
                self.assertGreater(known[0][0], 3 * rows)
                self.assertGreaterEqual(known[1][1], rows - (2 if sql.startswith("SELECT") else 1))
        runs = []  # as long as they are there, their databases have names of their own
        # What depends on such an answer is foreseen once it is known.
        for sql in (f"SELECT id, generate({summary} || id, NULL, '{OPTIONS}') FROM notes",
                    f"SELECT id, {summary} FROM notes WHERE lm_score(substr(body, 1, 30), 'It rains.', '{PLAIN}') > 0",
                    f"SELECT id, {summary} AS s FROM notes WHERE s IS NOT NULL LIMIT 9"):
            with self.subTest(sql=sql):
                runs.append(lambda connection: (connection.execute(longer), connection.execute(sql).fetchall())[1])
                self.both(runs[-1], foreseen=None)
        # A budget is spent in the order of the rows.
        for options in ('"max_total_tokens":5000', '"max_total_tokens":5000,"part_tokens":60'):
            sql = f"SELECT id, lm_summarize(body, '{{\"max_tokens\":4,\"on_error\":\"null\",{options}}}') FROM notes"
            runs.append(lambda connection: (connection.execute(longer), connection.execute(sql).fetchall())[1])
            rows = self.both(runs[-1], foreseen=False)
            self.assertTrue(0 < sum(answer is not None for _, answer in rows) < ROWS * 9 // 10)

    def test_cascades_ask_both_models_ahead(self):
        options = '{"cache":false,"escalate":{"model":"other","below":1}}'
        for call in (f"lm_if(body, 'Does it rain?', '{options}')", f"lm_classify(body, '{LABELS}', NULL, '{options}')",
                     f"lm_extract(body, '{SCHEMA}', '{options}')"):
            tables = []
            for lookahead in ("off", "on"):
                with self.subTest(call=call, lookahead=lookahead):
                    connection = self.connect(lookahead, f"{lookahead}{len(call)}.db")
                    connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('other', ?)",
                                       (str(harness.MODELS / "qwen3-q8_0.gguf"),))
                    connection.execute(f"UPDATE notes SET y = {call}")
                    tables.append(connection.execute("SELECT id, y FROM notes ORDER BY id").fetchall())
                    asked, escalated, foreseen = connection.execute(
                        "SELECT max(cascaded), max(escalated), max(foreseen) FROM lm_stats").fetchone()
                    self.assertEqual((asked, escalated), (ROWS * 9 // 10,) * 2)
                    self.assertEqual(foreseen, 0) if lookahead == "off" else self.assertGreaterEqual(foreseen, asked - 1)
                    connection.close()
            self.assertEqual(*tables)

    def test_what_depends_on_an_answer_is_foreseen_when_that_is_known(self):
        yes = f"lm_score(body, 'It rains.', '{PLAIN}') > 0"  # whatever the model thinks
        label = f"lm_classify(body, '{LABELS}', NULL, '{PLAIN}')"
        for sql in (f"SELECT id, {G} FROM notes WHERE {yes}",
                    f"SELECT id, {G} FROM notes WHERE {label} IN ('dry', 'wet') AND {yes}",
                    f"UPDATE notes SET y = {G} WHERE {yes}",
                    f"UPDATE notes SET y = {G} WHERE {label} IN ('dry', 'wet')",
                    f"DELETE FROM notes WHERE {yes} AND {G} > 'm'",
                    f"INSERT INTO notes(kind, body) SELECT 'new', {G} FROM notes WHERE {yes}",
                    f"CREATE TABLE other AS SELECT id, {G} AS g FROM notes WHERE {yes}",
                    f"SELECT id, CASE WHEN {yes} THEN {G} ELSE {G.replace('poet', 'clerk')} END FROM notes",
                    f"SELECT id, CASE WHEN NOT {yes} THEN {G} ELSE {G.replace('poet', 'clerk')} END FROM notes",
                    f"SELECT id, generate({G} || id, NULL, '{OPTIONS}') FROM notes",
                    f"SELECT id, {G}, {label}, {yes} FROM notes",
                    f"SELECT id, {G} FROM notes ORDER BY lm_score(body, 'It rains.') DESC, id LIMIT 30",
                    f"SELECT id, group_concat({G}) FROM notes GROUP BY id / 2 HAVING lm_score(min(body), 'It rains.') > 0",
                    f"SELECT id, {G} AS g FROM notes WHERE g IS NOT NULL",
                    f"SELECT notes.id, value, generate(value || ' ' || body, NULL, '{OPTIONS}') FROM notes, "
                    f"json_each(json_array(lm_classify(body, '{LABELS}'), 'snow'))",
                    f"SELECT k, generate(k || id, NULL, '{OPTIONS}') FROM (SELECT {label} AS k, id FROM notes) ORDER BY k, id"):
            with self.subTest(sql=sql):
                counts = []

                def run(connection):
                    connection.execute("DROP TABLE IF EXISTS other")
                    rows, asked, known = self.counted(connection, lambda: connection.execute(sql).fetchall())
                    counts.append((asked, known))
                    return rows
                for _ in range(3):  # the rows are the same each time; what is foreseen is a race with the statement
                    self.both(run, foreseen=None)
                    asked, known = counts[-1]
                    if known > 0.6 * asked:
                        break
                self.assertGreater(asked, 30)
                self.assertGreater(known, 0.6 * asked)

    def test_no_system_prompt_is_not_the_settings_one(self):
        """NULL means the settings' system prompt, '' none: two calls, whichever of them was foreseen."""
        settings, none = (G.replace("'You are a poet.'", system) for system in ("NULL", "''"))
        score = f"lm_score(body, 'odd?', '{PLAIN}')"

        def run(connection):
            connection.execute("INSERT INTO temp.lm_settings VALUES ('system', 'Answer as a pirate does.')")
            middle = harness.value(connection, f"SELECT {score} AS s FROM notes WHERE body IS NOT NULL ORDER BY s LIMIT 1 OFFSET 27")
            return [connection.execute(sql, (middle,)).fetchall() for sql in (
                f"SELECT id, CASE WHEN {score} > ? THEN {settings} ELSE {none} END FROM notes",
                f"SELECT id, CASE WHEN {score} <= ? THEN {settings} ELSE {none} END FROM notes")]
        one, other = self.both(run, foreseen=None)
        self.assertGreater(sum(a != b for a, b in zip(one, other)), ROWS // 2)

    def test_a_place_that_was_guessed_wrong_is_not_guessed_again(self):
        sql = f"SELECT id, CASE WHEN lm_score(body, 'It rains.') >= 0 THEN 'rain' ELSE {G} END FROM notes"
        connection = self.connect("on")
        harness.value(connection, f"SELECT generate('warm up', NULL, '{OPTIONS}')")
        _, asked, _ = self.counted(connection, lambda: connection.execute(sql).fetchall())
        self.assertLessEqual(asked, 54 + 8)

    def test_few_guesses_are_made_where_there_is_a_limit(self):
        connection = self.connect("on")
        connection.execute("WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
                           "INSERT INTO notes(body) SELECT 'row ' || i FROM n")
        harness.value(connection, f"SELECT generate('warm up', NULL, '{OPTIONS}')")
        for limit, sql in ((5, """SELECT id, generate(body, NULL, '{"temperature":0.8,"max_tokens":20}') AS g FROM notes WHERE g > '' LIMIT 5"""),
                           (1, f"SELECT {G} FROM notes WHERE lm_score(body, 'It rains.') > 0 LIMIT 1"),
                           (3, f"SELECT {G} FROM notes WHERE lm_score(body, 'It rains.') > 0 LIMIT 3"),
                           (4, "INSERT INTO notes(y) SELECT y FROM notes WHERE lm_score(body, 'It snows.') >= 0 LIMIT 4")):
            with self.subTest(sql=sql):
                rows, asked, _ = self.counted(connection, lambda: connection.execute(sql).fetchall())
                self.assertLessEqual(asked, 4 * limit + 4)

    def test_a_select_that_is_left_early_has_made_few_guesses(self):
        connection = self.connect("on")
        harness.value(connection, f"SELECT generate('warm up', NULL, '{OPTIONS}')")
        cursor = connection.execute(f"SELECT id, {G} FROM notes WHERE body IS NOT NULL")  # and steps to its first row
        _, asked, _ = self.counted(connection, lambda: (cursor.fetchone(), cursor.close()))
        self.assertLessEqual(asked, 1 + 2)

    def test_limit_parameters_and_steps(self):
        self.query(f"SELECT id, {G} FROM notes LIMIT 20 OFFSET 3")
        self.query("SELECT id, generate(? || body, :system, :options) FROM notes WHERE id BETWEEN ? AND ? + 0.5 LIMIT ?",
                   "it's ", "You are a poet.", OPTIONS, 5, 40, 30)

        def some(connection):
            cursor = connection.execute(f"SELECT id, {G} FROM notes")
            rows = [cursor.fetchone() for _ in range(12)]
            cursor.close()
            return rows
        self.both(some)

    def test_no_more_is_generated_than_a_limit_allows(self):
        connection = self.connect("on")
        harness.value(connection, f"SELECT generate('warm up', NULL, '{OPTIONS}')")
        sql = "SELECT requests FROM lm_stats WHERE phase = 'decode'"
        before = harness.value(connection, sql)
        connection.execute(f"SELECT id, {G} FROM notes WHERE body IS NOT NULL LIMIT 9").fetchall()
        self.assertEqual(harness.value(connection, sql), before + 9)

    def test_a_recursion_that_ends_by_an_answer(self):
        """The shadow has no answer there, and does not end by itself."""
        for asked in ("x", "coalesce(x, 'none')"):
            def recursion(ends, select, asked=asked):
                return (f"WITH RECURSIVE c(i, x) AS (SELECT 0, 'seed' UNION ALL SELECT i + 1, generate({asked} || i, "
                        f"'You are a poet.', '{OPTIONS}') FROM c WHERE {ends}) {select}")
            connection = self.connect("off", f"answers {asked}.db")
            answers = [x for x, in connection.execute(recursion("i < 6", "SELECT x FROM c"))]
            connection.close()
            last = answers.index(answers[-1])
            self.assertGreater(last, 2)
            for select in ("SELECT i, x FROM c ORDER BY i DESC", "SELECT count(*), max(i) FROM c", "SELECT i, x FROM c"):
                rows = self.query(recursion("x IS NOT ?", select), answers[-1], foreseen=None)
                self.assertEqual(rows[0][0], {"SELECT i, x FROM c": 0, "SELECT count(*), max(i) FROM c": last + 1}.get(select, last))

    def test_a_recursion_that_ends_by_its_readers(self):
        """A calendar without an end, and a table that ends by answers that it has asked for long before."""
        def length(of):
            return f"length(generate(body || {of}, 'You are a poet.', '{OPTIONS}'))"
        days = "WITH RECURSIVE days(d) AS (SELECT 1 UNION ALL SELECT d + 1 FROM days) SELECT d, id FROM days CROSS JOIN notes ON id = d"
        for limit in (1, 3, 7):
            self.query(f"{days} WHERE {length('d')} >= 0 LIMIT {limit}", foreseen=None)
        self.query("WITH RECURSIVE r(i, x) AS (SELECT 1, 5 UNION ALL SELECT i + 1, CASE WHEN i < 5 THEN "
                   f"length(generate('x' || i, NULL, '{OPTIONS}')) ELSE x END FROM r WHERE x IS NULL OR (x >= 0 AND i < 9)) SELECT count(*) FROM r",
                   foreseen=None)

    def test_update_insert_delete_create(self):
        self.query(f"UPDATE notes SET y = {G}")
        self.query(f"UPDATE notes SET kind = 'z', y = {G} WHERE y IS NULL AND id % 2 = 0")
        self.query(f"UPDATE notes SET y = {G} WHERE y IS NULL RETURNING id, y")
        self.query(f"WITH k(kind) AS (VALUES ('a'), ('b')) UPDATE OR IGNORE notes AS n SET y = {G} FROM k WHERE n.kind = k.kind")
        self.query(f"INSERT INTO notes(kind, body) SELECT {G}, 'new' FROM notes WHERE id < 40")
        self.query(f"INSERT INTO notes(id, body) SELECT id, {G} FROM notes WHERE id < 40 ON CONFLICT(id) DO UPDATE SET y = excluded.body")
        self.query(f"DELETE FROM notes WHERE {G} > 'm'")
        self.query(f"CREATE TABLE other AS SELECT id, {G} AS g FROM notes")
        self.query(f"CREATE TEMP TABLE other AS SELECT id, {G} AS g FROM notes")

    def test_in_a_transaction(self):
        def run(connection):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO notes(kind, body) VALUES ('n', 'not committed yet')")
            connection.execute("SAVEPOINT s")
            connection.execute(f"UPDATE notes SET y = {G} WHERE y IS NULL")
            connection.execute("RELEASE s")
            connection.execute("ALTER TABLE notes ADD COLUMN z")
            connection.execute("COMMIT")
            return connection.execute("PRAGMA integrity_check").fetchall()
        self.both(run, alone=1)

    def test_an_update_that_is_rolled_back(self):
        def run(connection):
            connection.execute("BEGIN")
            connection.execute(f"UPDATE notes SET y = {G}")
            connection.execute("ROLLBACK")
        self.both(run, alone=1)

    def test_temp_and_attached_tables(self):
        def run(connection):
            connection.execute("CREATE TEMP TABLE t AS SELECT * FROM notes")
            connection.execute("ATTACH ':memory:' AS aux")
            connection.execute("CREATE TABLE aux.t AS SELECT id, body FROM notes WHERE id > 30")
            connection.execute(f"UPDATE temp.t SET y = {G}")
            rows = connection.execute(f"SELECT a.id, {G.replace('body', 'a.body')}, t.y FROM aux.t a JOIN temp.t t USING (id)").fetchall()
            connection.execute("DETACH aux")
            return rows
        self.both(run, alone=3)  # an UPDATE and a SELECT

    def test_the_table_changes_between_rows(self):
        def run(connection):
            rows = []
            for id_, answer in connection.execute(f"SELECT id, {G} FROM notes"):
                rows.append((id_, answer))
                connection.execute("UPDATE notes SET body = body || ' (' || ? || ')' WHERE id > ?", (id_, id_))
                if id_ % 7 == 0:
                    connection.execute("DELETE FROM notes WHERE id = ?", (id_ + 3,))
                if id_ == 20:
                    connection.execute("INSERT INTO notes(id, body) VALUES (1000, 'late')")
            return rows
        seen = []
        for lookahead in ("off", "on"):
            connection = self.connect(lookahead)
            seen.append((run(connection), connection.execute("SELECT * FROM notes").fetchall()))
        self.assertEqual(seen[0], seen[1])

    def test_two_statements_at_a_time(self):
        def run(connection):
            one = connection.execute(f"SELECT id, {G} FROM notes")
            two = connection.execute(f"SELECT id, {G} FROM notes ORDER BY id DESC")
            rows = []
            for a, b in zip(one, two):
                rows.append((a, b))
            return rows
        seen = [run(self.connect(lookahead)) for lookahead in ("off", "on")]
        self.assertEqual(seen[0], seen[1])

    def test_functions_that_are_not_sqlites_are_never_called_by_it(self):
        calls = []

        def run(connection):
            calls.clear()
            connection.create_function("mine", 1, lambda x: calls.append(x) or x)
            rows = connection.execute(f"SELECT id, mine(id), {G} FROM notes").fetchall()
            self.assertEqual(len(calls), ROWS)
            return rows
        self.both(run, foreseen=False)

        def declared(connection):
            calls.clear()
            connection.create_function("lower", 1, lambda x: calls.append(x) or x, deterministic=True)
            rows = connection.execute(f"SELECT id, lower(id), {G} FROM notes").fetchall()
            self.assertEqual(len(calls), ROWS)
            return rows
        self.both(declared, foreseen=False)

    def test_nor_are_collations_random_or_virtual_tables(self):
        def collated(connection):
            connection.create_collation("mine", lambda a, b: (a > b) - (a < b))
            return connection.execute(f"SELECT id, {G} FROM notes WHERE kind > 'a' COLLATE mine").fetchall()
        self.both(collated, foreseen=False)
        self.query(f"SELECT id, {G} FROM notes WHERE random() IS NOT NULL", foreseen=False)
        self.query(f"SELECT id, {G} FROM notes WHERE changes() >= 0", foreseen=False)
        self.query(f"SELECT key, generate(value, NULL, '{OPTIONS}') FROM lm_each('[1,2,3,4,5,6,7,8,9,1,2,3]', NULL, '{{\"max_tokens\":1}}')",
                   foreseen=False)

    def test_errors_come_where_they_would(self):
        def run(connection):
            connection.execute("UPDATE notes SET body = x'00' WHERE id = 30")
            seen = []
            with self.assertRaises(sqlite3.OperationalError) as raised:
                for row in connection.execute(f"SELECT id, {G} FROM notes"):
                    seen.append(row)
            with self.assertRaises(sqlite3.OperationalError):
                connection.execute(f"UPDATE notes SET y = {G}")
            return seen, str(raised.exception)
        seen, message = self.both(run, alone=3)  # a SELECT and an UPDATE
        self.assertGreaterEqual(len(seen), 28)  # Python's cursor is a row ahead of who reads it
        self.assertIn("prompt must be text", message)
        self.both(lambda connection: connection.execute(
            f"SELECT id, generate(CASE id WHEN 30 THEN x'00' ELSE body END, NULL, '{OPTIONS[:-1]},\"on_error\":\"null\"}}') FROM notes").fetchall())

    def test_a_time_limit_is_of_each_row_and_does_not_keep_them_apart(self):
        options = OPTIONS[:-1] + ',"timeout_ms":60000}'
        self.query(f"SELECT id, generate(body, NULL, '{options}') FROM notes")

    def test_a_statement_whose_first_rows_are_remembered(self):
        connection = self.connect("on")
        connection.execute("WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
                           "INSERT INTO notes(body) SELECT 'row ' || i FROM n")
        options = '{"max_tokens":8}'
        connection.execute("SELECT lm_prefetch(body, NULL, ?) FROM notes WHERE id < 250", (options,)).fetchall()
        sql = "UPDATE notes SET y = generate(body, NULL, ?)"
        _, asked, known = self.counted(connection, lambda: connection.execute(sql, (options,)))
        self.assertGreater(asked, 50)
        self.assertEqual(known, asked - 1)

    def test_prepared_statements_that_run_again(self):
        def run(connection):
            rows = []
            for kind in "abcab":
                rows += connection.execute(f"SELECT id, {G} FROM notes WHERE kind = ?", (kind,)).fetchall()
            return rows
        self.both(run, alone=5 * 2)

    def test_an_authorizer_that_forbids_its_means_is_obeyed(self):
        def run(connection):
            connection.set_authorizer(lambda action, *rest: sqlite3.SQLITE_DENY if rest[0] == "function_list" else sqlite3.SQLITE_OK)
            rows = connection.execute(f"SELECT id, lower({G}) FROM notes").fetchall()
            connection.set_authorizer(None)
            return rows
        self.both(run, foreseen=False)

    def test_an_interrupt_by_a_progress_handler_is_never_lost(self):
        connection = self.connect("on")
        sql = f"SELECT count(*) FROM notes WHERE lm_score(body, 'It rains.', '{PLAIN}') > 0 AND {G} IS NOT NULL"
        interrupted = 0
        for which in range(1, 200, 7):
            calls = []
            connection.set_progress_handler(lambda: calls.append(1) or len(calls) == which, 40)
            try:
                connection.execute(sql).fetchall()
                self.assertLess(len(calls), which)
            except sqlite3.OperationalError as raised:
                self.assertIn("interrupted", str(raised))
                interrupted += 1
            connection.set_progress_handler(None, 0)
        self.assertGreater(interrupted, 0)

    def test_a_progress_handler_is_called_at_most_twice_as_often(self):
        calls = []
        counts = []
        for lookahead in ("off", "on"):
            connection = self.connect(lookahead)
            connection.execute("WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO notes(body) SELECT 'row ' || i FROM n")
            harness.value(connection, f"SELECT generate('warm up', NULL, '{OPTIONS}')")
            calls.clear()
            connection.set_progress_handler(lambda: calls.append(1) and 0, 10)
            connection.execute(f"UPDATE notes SET y = {G}")
            counts.append(len(calls))
            connection.set_progress_handler(None, 0)
        self.assertGreater(counts[0], 100)
        self.assertLessEqual(counts[1], 2 * counts[0] + 10)

    def test_more_shapes(self):
        """Views, row values, FROM, DO UPDATE, full text."""
        def temp_view(connection):
            connection.execute(f"CREATE TEMP VIEW v AS SELECT id, {G} AS g FROM notes")
            rows = connection.execute("SELECT * FROM v").fetchall()
            connection.execute("DROP VIEW v")
            return rows
        self.both(temp_view)

        def full_text(connection):
            connection.execute("CREATE VIRTUAL TABLE words USING fts5(body)")
            connection.execute("INSERT INTO words(rowid, body) SELECT id, body FROM notes")
            return connection.execute(f"SELECT rowid, {G} FROM words WHERE words MATCH 'weather'").fetchall()
        self.both(full_text)
        self.query(f"UPDATE notes SET (y, kind) = ({G}, 'z')")
        self.query(f"UPDATE notes SET (y, kind) = (SELECT {G}, 'z')")
        self.query(f"UPDATE notes SET y = s.g FROM (SELECT id AS i, {G} AS g FROM notes) AS s WHERE s.i = notes.id", alone=2)
        # The row is gone when RETURNING reads it: a shadow does not find it.
        self.query(f"UPDATE notes SET kind = 'z' WHERE id < 30 RETURNING id, {G}")
        self.query(f"DELETE FROM notes WHERE id < 30 RETURNING {G}", foreseen=False)
        self.query("INSERT INTO notes(id, body) SELECT id, 'new ' || id FROM notes WHERE id > 2 "
                   f"ON CONFLICT(id) DO UPDATE SET y = {G.replace('body', 'excluded.body')}")

    def test_single_rows_after_a_prefetch_ask_nothing(self):
        connection = self.connect("on")
        options = '{"max_tokens":4}'
        sql = "UPDATE notes SET y = generate(body, 'You are a poet.', ?) WHERE id = ?"
        rows = [(options, i) for i in range(1, ROWS + 1)]
        connection.executemany(sql, rows[:20])
        hint = "SELECT hint FROM lm_stats"
        self.assertRegex(harness.value(connection, hint), r"18 statements in a row called generate\(\).*lm_prefetch")
        connection.execute("SELECT lm_prefetch(body, 'You are a poet.', ?) FROM notes", (options,)).fetchall()
        self.assertIsNone(harness.value(connection, hint))
        _, asked, _ = self.counted(connection, lambda: connection.executemany(sql, rows))
        self.assertEqual(asked, 0)
        self.assertIsNone(harness.value(connection, hint))
        again = [('{"max_tokens":3}', i) for i in range(1, ROWS + 1)]
        connection.executemany(sql, again[:16])
        self.assertIsNone(harness.value(connection, hint))
        connection.executemany(sql, again[16:20])
        self.assertIn("18 statements in a row", harness.value(connection, hint))

    def test_a_statement_that_could_not_be_foreseen_is_hinted_at(self):
        connection = self.connect("off")
        connection.execute(f"SELECT id, {G} FROM notes").fetchall()
        hint = harness.value(connection, "SELECT hint FROM lm_stats")
        self.assertRegex(hint, r"generate\(\) for 54 rows one at a time .*lookahead 'off'.*lm_map\(")
        connection.execute(f"UPDATE notes SET y = {SISTERS[0]}")
        hint = harness.value(connection, "SELECT hint FROM lm_stats")
        self.assertRegex(hint, r"lm_classify\(\) for 54 rows one at a time")
        connection = self.connect("on")
        connection.execute(f"SELECT id, {G} FROM notes").fetchall()
        self.assertIsNone(harness.value(connection, "SELECT hint FROM lm_stats"))
        connection.execute(f"SELECT id, {G} FROM notes WHERE random() IS NOT NULL").fetchall()
        self.assertIn("random()", harness.value(connection, "SELECT hint FROM lm_stats"))
        # A window would ask about all rows, not only about those of the LIMIT.
        connection.execute(f"SELECT id, {G} FROM (SELECT * FROM notes ORDER BY random() LIMIT 40)").fetchall()
        hint = harness.value(connection, "SELECT hint FROM lm_stats")
        self.assertRegex(hint, r"rows one at a time .*random\(\).*; lm_query over a SELECT that has the LIMIT, or a question about a temporary table")
        self.assertNotIn("lm_map", hint)
        # What reads in parts is not lm_map()'s to do.
        connection.execute("SELECT id, lm_summarize(body, '{\"max_tokens\":1,\"cache\":false}') FROM notes WHERE random() IS NOT NULL").fetchall()
        hint = harness.value(connection, "SELECT hint FROM lm_stats")
        self.assertRegex(hint, r"lm_summarize\(\) for 54 rows one at a time \(no look-ahead: .*random\(\).*; without a budget, a job")
        self.assertNotIn("lm_map", hint)

    def test_what_was_foreseen_is_no_reason_for_a_hint_however_soon_it_was_answered(self):
        dependent = f"SELECT 0 AS i, 'a' AS t UNION ALL SELECT i + 1, generate(t || i, NULL, '{OPTIONS}') FROM c WHERE i < 17"
        for wait in (0, 0.005):
            connection = self.connect("on", f"{wait}.db")
            for _ in connection.execute(f"WITH RECURSIVE c(i, t) AS ({dependent}) SELECT t FROM c UNION ALL SELECT {G} FROM notes"):
                time.sleep(wait)  # the answers to come are there by then
            self.assertEqual(connection.execute("SELECT max(requests), max(foreseen), max(hint) FROM lm_stats").fetchone(), (71, 54, None))
            connection.close()

    def test_a_hint_goes_once_rows_decode_together(self):
        connection = self.connect("on")
        connection.create_function("mine", 1, lambda body: body)
        connection.execute("INSERT INTO lm_jobs(name, query) VALUES ('j', 'SELECT id, body FROM notes WHERE id < 4')")
        hint = "SELECT hint FROM lm_stats"
        some = "(SELECT * FROM notes WHERE id < 4)"
        # Long ones: the first must not be there before the second one is asked for.
        submit = f"SELECT id, lm_submit(body, NULL, '{{\"max_tokens\":64,\"cache\":false}}') AS ticket FROM {some}"
        for form in (f"SELECT lm_map(mine(body), NULL, '{OPTIONS}') OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING) FROM {some}",
                     f"SELECT id, {G} FROM {some}",
                     f"UPDATE notes SET y = {G} WHERE id < 4",
                     f"SELECT * FROM lm_query('SELECT id, body FROM notes WHERE id < 4', '{OPTIONS}')",
                     f"SELECT * FROM lm_query('SELECT id, body FROM notes WHERE id < 4', '{{\"order\":\"finished\",\"cache\":false}}')",
                     f"SELECT * FROM lm_each('[\"a\",\"b\",\"c\"]', NULL, '{OPTIONS}')",
                     f"SELECT lm_prefetch(body, 'New.', '{{\"max_tokens\":4}}') FROM {some}",
                     f"WITH asked AS MATERIALIZED ({submit}) SELECT id, lm_await(ticket) FROM asked",
                     "SELECT * FROM lm_run('j')"):
            connection.execute(f"SELECT generate(mine(body), NULL, '{OPTIONS}') FROM notes").fetchall()
            self.assertRegex(harness.value(connection, hint), r"54 rows one at a time .*mine\(\)", form)
            # One row, or one after the other, is none together.
            connection.execute(f"SELECT {G} FROM notes WHERE id = 1").fetchall()
            connection.execute(f"SELECT generate(mine(body), NULL, '{OPTIONS}') FROM {some}").fetchall()
            connection.execute(f"SELECT value FROM lm_each('[\"a\"]', NULL, '{OPTIONS}')").fetchall()
            self.assertIn("54 rows one at a time", harness.value(connection, hint) or "", form)
            connection.execute(form).fetchall()
            self.assertIsNone(harness.value(connection, hint), form)


if __name__ == "__main__":
    unittest.main()
