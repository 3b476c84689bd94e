"""The memo in a file outlives statements, transactions and processes, and trusts no file."""
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness

KILLS = int(os.environ.get("LM_KILLS", "5"))

OPTIONS = '{"max_tokens":4}'
REQUESTS = "SELECT coalesce(sum(requests), 0) FROM lm_stats WHERE phase = 'decode'"


class MemoFileTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = str(pathlib.Path(self.folder.name) / "memo.db")

    def tearDown(self):
        self.folder.cleanup()

    def connect(self, name=":memory:", path=None):
        connection = harness.connect(name)
        connection.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (path or self.path,))
        return connection

    def ask(self, connection, prompt):
        return harness.value(connection, "SELECT generate(?, NULL, ?)", prompt, OPTIONS)

    def test_a_context_that_changes_the_numbers_has_answers_of_its_own(self):
        """LongRoPE takes other factors where the context is short."""
        connection = self.connect()
        model = str(harness.MODELS / "phi3-f32.gguf")
        connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('whole', ?)", (model,))
        connection.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('short', ?, '{\"context_length\":64}')", (model,))
        ask = lambda name, cache: harness.value(connection, "SELECT generate('rain all day', NULL, json_object('model', ?, 'max_tokens', 12, "
                                                "'cache', json(?)))", name, cache)
        right = {name: ask(name, "false") for name in ("whole", "short")}
        self.assertNotEqual(right["whole"], right["short"])
        for name in ("whole", "short", "whole"):
            self.assertEqual(ask(name, "true"), right[name])

    def in_new_process(self, script):
        """Runs a script with a connection `c` that has the memo; what it prints."""
        head = ("import sys; sys.path.insert(0, sys.argv[1]); import harness\n"
                "c = harness.connect()\n"
                "c.execute(\"INSERT INTO temp.lm_settings VALUES ('memo', ?)\", (sys.argv[2],))\n")
        folder = str(pathlib.Path(__file__).resolve().parent)
        return subprocess.run([sys.executable, "-c", head + script, folder, self.path], check=True,
                              capture_output=True, text=True, timeout=60).stdout

    def test_what_was_used_last_leaves_last(self):
        connection = self.connect()
        for number in range(20):
            self.ask(connection, f"prompt {number}.")
        connection.close()
        file = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(file.close)
        numbers = lambda where: [n for n in range(20) for (prompt,) in file.execute(
            f"SELECT prompt FROM generations WHERE {where}") if f"prompt {n}." in prompt]
        file.execute("UPDATE generations SET created = created - 1000000, used = used - 1000000")
        ask = "ask = lambda prompt: harness.value(c, \"SELECT generate(?, NULL, '{\\\"max_tokens\\\":4}')\", prompt)\n"
        # What a process takes from the file is marked, when it lets the file go at the latest.
        self.in_new_process(ask + "for number in (3, 7): ask(f'prompt {number}.')\nc.close()\n")
        self.assertEqual(numbers("used > created"), [3, 7])
        # Of a full file those go first that were not used for longest, whenever they came.
        file.execute("UPDATE generations SET used = used + 2000000 WHERE used > created")
        self.in_new_process(
            ask + "c.execute(\"INSERT INTO temp.lm_settings VALUES ('memo_bytes', 60000)\")\n"
            "for number in range(1000):\n"
            "    ask(f'another {number}')\n"
            "    if harness.value(c, \"SELECT count(*) FROM lm_memo WHERE prompt LIKE 'prompt %.'\") < 20: break\n")
        self.assertLess(len(numbers("1")), 20)
        self.assertLessEqual({3, 7}, set(numbers("1")))

    def test_another_process_generates_nothing(self):
        answer = self.ask(self.connect(), "hello")
        out = self.in_new_process(
            f"print(harness.value(c, \"SELECT generate('hello', NULL, '{{\\\"max_tokens\\\":4}}')\"), "
            f"harness.value(c, \"{REQUESTS}\"), sep='|')")
        self.assertEqual(out, f"{answer}|0\n")

    def test_a_score_is_the_same_number_in_another_process(self):
        score = harness.value(self.connect(), "SELECT lm_score('rain', 'It is wet.')")
        out = self.in_new_process(
            f"print(harness.value(c, \"SELECT lm_score('rain', 'It is wet.')\"), "
            f"harness.value(c, \"{REQUESTS}\"), sep='|')")
        self.assertEqual(out, f"{score!r}|0\n")

    def test_connections_of_different_databases_share_it(self):
        one = self.connect(str(pathlib.Path(self.folder.name) / "one.db"))
        two = self.connect(str(pathlib.Path(self.folder.name) / "two.db"))
        answer = self.ask(one, "between us")
        before = harness.value(one, REQUESTS)
        self.assertEqual(self.ask(two, "between us"), answer)
        self.assertEqual(harness.value(one, REQUESTS), before)

    def test_vectors_are_shared_likewise_and_in_no_file(self):
        one = self.connect(str(pathlib.Path(self.folder.name) / "one.db"))
        two = self.connect(str(pathlib.Path(self.folder.name) / "two.db"))
        other = harness.connect(str(pathlib.Path(self.folder.name) / "other.db"))
        embed = lambda connection: harness.value(connection, "SELECT lm_embed('between us')")
        hits = lambda connection: harness.value(connection, "SELECT max(memo_hits) FROM lm_stats")
        vector = embed(one)
        self.assertEqual([embed(two), embed(other)], [vector, vector])
        self.assertEqual([hits(one), hits(two), hits(other)], [0, 1, 0])
        self.assertEqual(harness.value(sqlite3.connect(self.path), "SELECT count(*) FROM generations"), 0)
        two.execute("DELETE FROM lm_memo")
        self.assertEqual(embed(one), vector)
        self.assertEqual([hits(one), harness.value(other, "SELECT count(*) FROM lm_memo")], [0, 1])

    def test_connections_that_embed_one_text_at_a_time_wait_for_one(self):
        connections = [harness.connect() for _ in range(4)]
        for connection in connections:
            connection.execute("INSERT INTO temp.lm_settings VALUES ('salt', 'those who embed at a time')")
        texts = [f"{n} " + "a long walk by the river " * 20 for n in range(20)]
        vectors = [None] * len(connections)

        def embed(at):
            vectors[at] = [harness.value(connections[at], "SELECT lm_embed(?)", text) for text in texts]

        threads = [threading.Thread(target=embed, args=(at,)) for at in range(len(connections))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(vectors, [vectors[0]] * len(connections))
        self.assertEqual([harness.value(connections[0], f"SELECT max({column}) FROM lm_stats") for column in ("requests", "memo_hits")], [20, 60])
        self.assertEqual(vectors[0], [harness.value(connections[0], "SELECT lm_embed(?, '{\"cache\":false}')", text) for text in texts])

    def test_it_is_no_part_of_the_users_transaction(self):
        connection = self.connect()
        connection.execute("CREATE TABLE t(x)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t SELECT generate('kept', NULL, ?)", (OPTIONS,))
        connection.execute("ROLLBACK")
        self.assertEqual(harness.value(connection, "SELECT count(*) FROM lm_memo"), 1)
        self.assertEqual(harness.value(sqlite3.connect(self.path), "SELECT count(*) FROM generations"), 1)

    def test_kill_minus_nine_loses_no_answer_that_anybody_had(self):
        script = ("for i in range(100000):\n"
                  "    harness.value(c, \"SELECT generate(?, NULL, '{\\\"max_tokens\\\":1}')\", f'row {i}')\n"
                  "    print(i, flush=True)\n")
        head = ("import sys; sys.path.insert(0, sys.argv[1]); import harness\n"
                "c = harness.connect()\n"
                "c.execute(\"INSERT INTO temp.lm_settings VALUES ('memo', ?)\", (sys.argv[2],))\n")
        folder = str(pathlib.Path(__file__).resolve().parent)
        for i in range(KILLS):
            path = f"{self.path}{i}"
            with subprocess.Popen([sys.executable, "-c", head + script, folder, path],
                                  stdout=subprocess.PIPE, text=True) as child:
                child.stdout.readline()
                time.sleep(0.02 * (i % 10) + random.uniform(0, 0.02))
                os.kill(child.pid, signal.SIGKILL)
                had = 1 + len(child.stdout.read().splitlines())
            file = sqlite3.connect(path)
            self.assertEqual(harness.value(file, "PRAGMA integrity_check"), "ok")
            self.assertGreaterEqual(harness.value(file, "SELECT count(*) FROM generations"), had)

    def test_lm_memo_lists_and_empties_it(self):
        connection = self.connect()
        self.ask(connection, "a")
        self.ask(connection, "b")
        self.ask(connection, "b")
        rows = connection.execute("SELECT model, options, tokens > 1, hits, bytes > 1 FROM lm_memo").fetchall()
        self.assertEqual(rows, [("default", OPTIONS, 1, 0, 1), ("default", OPTIONS, 1, 1, 1)])
        connection.execute("DELETE FROM lm_memo WHERE hits = 1")
        self.assertEqual(harness.value(connection, "SELECT count(*) FROM lm_memo"), 1)
        connection.execute("DELETE FROM lm_memo")
        before = harness.value(connection, REQUESTS)
        self.ask(connection, "a")
        self.ask(connection, "b")
        self.assertEqual(harness.value(connection, REQUESTS), before + 2)

    def test_what_could_not_be_written_yet_can_be_forgotten_too(self):
        connection = self.connect()
        self.ask(connection, "first")
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        self.ask(connection, "a secret")
        connection.execute("DELETE FROM lm_memo WHERE prompt LIKE '%a secret%'")
        other.execute("COMMIT")
        other.close()
        time.sleep(1.1)  # after which it tries again
        self.ask(connection, "last")
        file = sqlite3.connect(self.path)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not harness.value(file, "SELECT count(*) FROM generations WHERE prompt LIKE '%last%'"):
            time.sleep(0.1)
            self.ask(connection, f"again {time.monotonic()}")
        self.assertEqual(harness.value(file, "SELECT count(*) FROM generations WHERE prompt LIKE '%last%'"), 1)
        self.assertEqual(harness.value(file, "SELECT count(*) FROM generations WHERE prompt LIKE '%a secret%'"), 0)
        file.close()
        self.assertEqual(harness.value(connection, "SELECT count(*) FROM lm_memo WHERE prompt LIKE '%a secret%'"), 0)

    def test_what_has_left_the_file_can_be_forgotten_too(self):
        connection = self.connect()
        self.ask(connection, "stays")
        self.ask(connection, "leaves")
        other = sqlite3.connect(self.path)
        other.execute("DELETE FROM generations WHERE prompt LIKE '%leaves%'")
        other.commit()
        prompts = "SELECT group_concat(prompt) FROM (SELECT prompt FROM lm_memo ORDER BY prompt)"
        self.assertRegex(harness.value(connection, prompts), "^leaves.*stays")
        connection.execute("DELETE FROM lm_memo WHERE prompt LIKE '%leaves%'")
        self.assertNotIn("leaves", harness.value(connection, prompts))
        before = harness.value(connection, REQUESTS)
        self.ask(connection, "stays")
        self.ask(connection, "leaves")
        self.assertEqual(harness.value(connection, REQUESTS), before + 1)

    def test_a_setting_that_is_rolled_back_is_forgotten(self):
        connection = harness.connect()
        connection.execute("CREATE TABLE t(x)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (self.path,))
        connection.execute("ROLLBACK")
        self.ask(connection, "nobody's file")
        self.assertEqual(harness.value(sqlite3.connect(self.path), "SELECT count(*) FROM generations"), 0)

    def refusal(self, path):
        with self.assertRaises(sqlite3.OperationalError) as raised:
            self.connect(path=path)
        return str(raised.exception)

    def test_no_database_of_the_connection_is_a_memo(self):
        folder = pathlib.Path(self.folder.name)
        connection = harness.connect(str(folder / "main.db"))
        connection.execute("CREATE TABLE t(x)")
        connection.execute("ATTACH ? AS far", (str(folder / "far.db"),))
        connection.execute("ATTACH ':memory:' AS nowhere")
        (folder / "link.db").symlink_to(folder / "far.db")
        for name, which in (("main.db", "this database"), ("far.db", "the attached database far"), ("link.db", "the attached database far")):
            with self.assertRaisesRegex(sqlite3.OperationalError, f"{name}' is {which}; the memo is a file of its own"):
                connection.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (str(folder / name),))
        self.assertEqual((folder / "far.db").stat().st_size, 0)
        connection.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (str(folder / "another.db"),))

    def test_files_that_are_no_memo_are_refused_and_left_alone(self):
        other = sqlite3.connect(self.path)
        other.execute("CREATE TABLE generations(id, model)")
        other.commit()
        other.close()
        before = pathlib.Path(self.path).read_bytes()
        self.assertIn("no memo of this version", self.refusal(self.path))
        self.assertEqual(pathlib.Path(self.path).read_bytes(), before)
        text = self.path + ".txt"
        pathlib.Path(text).write_text("not a database, but long enough to look at. " * 50)
        self.assertIn("not a database", self.refusal(text))
        self.assertIn("unable to open", self.refusal("/nowhere/at/all.db"))
        self.assertIn("unable to open", self.refusal(self.folder.name))
        database = str(pathlib.Path(self.folder.name) / "mine.db")
        connection = harness.connect(database)
        with self.assertRaisesRegex(sqlite3.OperationalError, "this database"):
            connection.execute("CREATE TABLE t(x)")
            connection.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (database,))

    def test_what_is_no_path_is_refused(self):
        folder = os.getcwd()
        before = sorted(os.listdir(folder))
        for path in (":memory:", "file:memo.db", "file:memo.db?mode=memory", "a\0b"):
            with self.subTest(path=path):
                self.assertRegex(self.refusal(path), "must be the path of a file|NUL")
        with self.assertRaisesRegex(sqlite3.OperationalError, "not empty"):
            harness.connect().execute("INSERT INTO temp.lm_settings VALUES ('memo', '')")
        self.assertEqual(sorted(os.listdir(folder)), before)

    def test_who_may_not_attach_a_file_may_not_make_it_the_memo(self):
        path = self.path + "it's"
        asked = []
        for verdict in (sqlite3.SQLITE_DENY, sqlite3.SQLITE_IGNORE, sqlite3.SQLITE_OK):
            connection = harness.connect()

            def authorize(action, name, *_):
                if action != sqlite3.SQLITE_ATTACH:
                    return sqlite3.SQLITE_OK
                asked.append(name)
                return verdict
            connection.set_authorizer(authorize)
            sql = "INSERT INTO temp.lm_settings VALUES ('memo', ?)"
            if verdict == sqlite3.SQLITE_OK:
                connection.execute(sql, (path,))
            else:
                with self.assertRaisesRegex(sqlite3.DatabaseError, "not authorized"):
                    connection.execute(sql, (path,))
                self.assertFalse(os.path.exists(path))
        self.assertTrue(os.path.exists(path))
        self.assertEqual(asked, [os.path.realpath(path)] * 3)
        if hasattr(connection, "setlimit"):  # Python 3.11
            connection.set_authorizer(None)
            connection.setlimit(7, 0)  # SQLITE_LIMIT_ATTACHED
            with self.assertRaisesRegex(sqlite3.OperationalError, "SQLITE_LIMIT_ATTACHED is 0"):
                connection.execute("UPDATE temp.lm_settings SET value = ? WHERE key = 'memo'", (self.path,))
            self.assertFalse(os.path.exists(self.path))

    def test_a_schema_that_somebody_added_to_is_refused(self):
        self.ask(self.connect(), "a")
        for sql in ("CREATE TRIGGER evil AFTER INSERT ON generations BEGIN DELETE FROM generations; END",
                    "CREATE TABLE more(x)", "DROP INDEX generations_by_hash", "PRAGMA user_version = 7"):
            with self.subTest(sql=sql):
                copy = f"{self.path}.{abs(hash(sql))}"
                with sqlite3.connect(self.path) as source, sqlite3.connect(copy) as target:
                    source.backup(target)
                    target.execute(sql)
                target.close()
                self.assertRegex(self.refusal(copy), "another schema than ours|no memo of this version")

    def test_rows_that_do_not_fit_their_seal_are_not_believed(self):
        answer = self.ask(self.connect(), "a")
        for change in ("answer = 'a lie'", "answer = x'ff'", "answer = CAST(x'ff' AS TEXT)", "tokens = x'0102'",
                       "finish = 'whenever'", "finish = 'error'", "prompt = 'text'", "seal = seal + 1", "seal = 'x'",
                       "options = '{}'", "model = 'other'", "tokens = zeroblob(400)", "choices = zeroblob(8)",
                       "choices = zeroblob(7)", "choices = 'x'"):
            with self.subTest(change=change):
                path = f"{self.path}.{abs(hash(change))}"
                with sqlite3.connect(self.path) as source, sqlite3.connect(path) as target:
                    source.backup(target)
                    target.execute(f"UPDATE generations SET {change}")
                target.close()
                connection = self.connect(path=path)
                before = harness.value(connection, REQUESTS)
                self.assertEqual(self.ask(connection, "a"), answer)
                self.assertEqual(harness.value(connection, REQUESTS), before + 1)
                connection.execute("DELETE FROM lm_memo")
                self.assertEqual(harness.value(sqlite3.connect(path), "SELECT count(*) FROM generations"), 0)

    def test_a_damaged_file_is_named_and_done_without(self):
        connection = self.connect()
        for i in range(50):
            self.ask(connection, f"row {i}")
        connection.close()
        copy = self.path + ".damaged"
        data = bytearray(pathlib.Path(self.path).read_bytes())
        data[4096:] = b"\x55" * (len(data) - 4096)
        pathlib.Path(copy).write_bytes(data)
        damaged = self.connect(path=copy)
        self.assertEqual(self.ask(damaged, "row 7"), self.ask(harness.connect(), "row 7"))
        self.assertRegex(harness.value(damaged, "SELECT hint FROM lm_stats"), "the memo '.*damaged': .*malformed.* without it")
        with self.assertRaisesRegex(sqlite3.OperationalError, "the memo '.*damaged': .*malformed"):
            damaged.execute("SELECT * FROM lm_memo").fetchall()

    def test_a_file_that_another_process_has_locked_delays_nobody(self):
        connection = self.connect()
        self.ask(connection, "first")
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        for i in range(5):
            self.ask(connection, f"while locked {i}")
        self.assertLess(time.monotonic() - begun, 2)
        other.execute("COMMIT")
        time.sleep(1.1)
        self.ask(connection, "after")
        self.assertEqual(harness.value(other, "SELECT count(*) FROM generations"), 7)

    def test_who_lists_or_shrinks_a_large_file_lets_the_others_in(self):
        one, other = self.connect(), self.connect()
        file = sqlite3.connect(self.path)
        file.execute("PRAGMA synchronous = OFF")
        file.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
                     "INSERT INTO generations(hash, model, options, prompt, answer, tokens, finish, seal, choices, tokens_in, tokens_out, used) "
                     "SELECT i, 'm', '{}', printf('%.*c', 200, 'x'), 'an answer', x'0100', 'stop', 5, x'', 10, 10, i FROM n")
        file.commit()
        file.close()
        self.ask(other, "the model is loaded")
        ended = []
        thread = threading.Thread(target=lambda: ended.append((harness.value(one, "SELECT count(prompt) FROM lm_memo"), time.monotonic())))
        thread.start()
        time.sleep(0.05)
        self.ask(other, "meanwhile")
        answered = time.monotonic()
        thread.join()
        self.assertLess(answered, ended[0][1])
        # What it holds too many is taken out by and by.
        one.execute("INSERT INTO temp.lm_settings VALUES ('memo_bytes', 1000000)")
        rows = "SELECT count(*) FROM generations"
        file = sqlite3.connect(self.path)
        before, taken = harness.value(file, rows), []
        for i in range(1000):
            self.ask(one, f"smaller {i}")
            taken.append(before - harness.value(file, rows))
            if taken[-1] > 90000:
                break
        self.assertGreater(taken[-1], 90000)
        self.assertLess(taken[0], 50000)
        file.close()

    def test_several_processes_write_one_file(self):
        script = ("for i in range(40):\n"
                  "    harness.value(c, \"SELECT generate(?, NULL, '{\\\"max_tokens\\\":1}')\", f'row {i}')\n"
                  "c.close()\n")
        head = ("import sys; sys.path.insert(0, sys.argv[1]); import harness\n"
                "c = harness.connect()\n"
                "c.execute(\"INSERT INTO temp.lm_settings VALUES ('memo', ?)\", (sys.argv[2],))\n")
        folder = str(pathlib.Path(__file__).resolve().parent)
        children = [subprocess.Popen([sys.executable, "-c", head + script, folder, self.path]) for _ in range(3)]
        self.assertEqual([child.wait(60) for child in children], [0, 0, 0])
        file = sqlite3.connect(self.path)
        self.assertEqual(harness.value(file, "SELECT count(DISTINCT prompt) FROM generations"), 40)
        self.assertEqual(harness.value(file, "PRAGMA integrity_check"), "ok")


if __name__ == "__main__":
    unittest.main()
