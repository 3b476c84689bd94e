"""lm0.so loads wherever SQLite does, any number of times, and lets go of what it held."""
import gc
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness

ANSWER = "SELECT generate('Hello', 'Be brief.', '{\"max_tokens\":4}')"
BODY_OF_A_PROCESS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import harness
def generate():
    connection = harness.connect()
    while True:
        harness.value(connection, "SELECT generate('Hello', NULL, '{\\"max_tokens\\":50}')")
for _ in range(3):
    threading.Thread(target=generate, daemon=True).start()
connection = harness.connect()
harness.value(connection, "SELECT generate('Hello')")
"""


class LoadTest(unittest.TestCase):
    def setUp(self):
        gc.collect()  # connections that Python itself still holds in reference cycles

    @harness.needs_shell
    def test_in_the_shell(self):
        done = subprocess.run(["sqlite3", ":memory:", f".load {harness.LM0}", "SELECT lm_version();", ANSWER + " IS NOT NULL;"],
                              capture_output=True, text=True)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        self.assertRegex(done.stdout, r"^\d+\.\d+\.\d+\n1\n$")

    @unittest.skipUnless("LM_SQLITE_LIBRARY_DIR" in os.environ, "over the system's SQLite")
    def test_over_the_sqlite_that_was_asked_for(self):
        with open("/proc/self/maps") as maps:
            loaded = {line.split(maxsplit=5)[5].strip() for line in maps if "libsqlite3" in line}
        self.assertEqual({os.path.realpath(os.path.dirname(path)) for path in loaded},
                         {os.path.realpath(os.environ["LM_SQLITE_LIBRARY_DIR"])})

    def test_by_the_sql_function(self):
        connection = sqlite3.connect(":memory:")
        connection.enable_load_extension(True)
        connection.execute("SELECT load_extension(?)", (harness.LM0,))
        self.assertTrue(harness.value(connection, "SELECT lm_version()"))
        connection.close()

    def test_a_second_load_keeps_models_and_settings(self):
        connection = harness.connect()
        connection.execute("INSERT INTO temp.lm_settings VALUES ('max_tokens', 3)")
        connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('m', ?)", (harness.MODEL,))
        connection.load_extension(harness.LM0)
        self.assertEqual(harness.value(connection, "SELECT value FROM temp.lm_settings WHERE key = 'max_tokens'"), 3)
        self.assertEqual(harness.value(connection, "SELECT count(*) FROM temp.lm_models"), 2)
        connection.close()

    def test_the_last_connection_stops_the_engine(self):
        first, second, watcher = harness.connect(), harness.connect(), harness.connect()
        running = "SELECT count(DISTINCT path) FROM lm_stats"
        harness.value(first, ANSWER)
        harness.value(second, ANSWER)
        self.assertEqual(harness.value(watcher, running), 1)
        first.close()
        self.assertEqual(harness.value(watcher, running), 1)
        second.close()
        self.assertEqual(harness.value(watcher, running), 0)
        watcher.close()

    def test_a_hundred_connections_from_threads(self):
        expected = harness.value(harness.connect(), ANSWER)
        answers = []

        def cycle():
            for _ in range(10):
                connection = harness.connect()
                answers.append(harness.value(connection, ANSWER))
                connection.close()

        threads = [threading.Thread(target=cycle) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [expected] * 100)

    def test_a_statement_outlives_its_connections_close(self):
        connection = harness.connect()
        cursor = connection.execute("SELECT key FROM lm_each('[\"a\",\"b\",\"c\"]', NULL, '{\"max_tokens\":9}')")
        cursor.fetchone()
        connection.close()  # sqlite3_close_v2: the statement keeps a zombie
        self.assertEqual(harness.value(harness.connect(), "SELECT count(*) FROM lm_stats"), 2)
        del cursor
        self.assertEqual(harness.value(harness.connect(), "SELECT count(*) FROM lm_stats"), 0)

    def test_a_database_that_is_locked_or_new(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = sqlite3.connect(f"{folder}/a.db", isolation_level=None)
            writer.execute("CREATE TABLE t(x)")
            writer.execute("BEGIN IMMEDIATE")
            connection = harness.connect(f"{folder}/a.db", timeout=0)
            connection.execute("INSERT INTO temp.lm_settings VALUES ('max_tokens', 3)")
            self.assertEqual(harness.value(connection, "SELECT value FROM temp.lm_settings WHERE key = 'max_tokens'"), 3)
            writer.execute("ROLLBACK")
            writer.execute("BEGIN EXCLUSIVE")
            locked = harness.connect(f"{folder}/a.db", timeout=0)
            writer.execute("ROLLBACK")
            locked.execute("INSERT INTO temp.lm_settings VALUES ('max_tokens', 4)")
            self.assertEqual(harness.value(locked, "SELECT value FROM temp.lm_settings WHERE key = 'max_tokens'"), 4)
            self.assertEqual(harness.value(locked, "SELECT count(*) FROM main.sqlite_schema"), 1)

    def test_a_database_that_was_new_when_it_was_loaded(self):
        """The tables are in temp once a plain statement has used one of them, and take no lock on the file then."""
        ways = {"a change": "INSERT INTO temp.lm_models(name, path) VALUES ('m', 'm.gguf')",
                "a change of none": "DELETE FROM lm_running", "a scan": "SELECT * FROM temp.lm_settings"}
        tables = "SELECT count(*) FROM sqlite_temp_master WHERE name LIKE 'lm\\_%' ESCAPE '\\'"
        for way, sql in ways.items():
            with self.subTest(way), tempfile.TemporaryDirectory() as folder:
                connection = harness.connect(f"{folder}/new.db", timeout=0)
                self.assertEqual(harness.value(connection, tables), 0)
                if way != "a change":
                    connection.execute(sql.replace("m.gguf", harness.MODEL)).fetchall()
                    if way == "a scan":
                        self.assertEqual(harness.value(connection, tables), 0)  # its encoding is open
                connection.execute("CREATE TABLE t(x)")
                connection.execute(sql.replace("m.gguf", harness.MODEL)).fetchall()
                self.assertEqual(harness.value(connection, tables), 10)
                writer = sqlite3.connect(f"{folder}/new.db", isolation_level=None, timeout=0)
                writer.execute("BEGIN IMMEDIATE")
                for change in ("INSERT INTO temp.lm_settings VALUES ('max_tokens', 3)", "DELETE FROM lm_running", "DELETE FROM lm_memo",
                               "INSERT INTO temp.lm_examples VALUES ('e', 'a', 'b')", "DELETE FROM temp.lm_models"):
                    connection.execute(change)
                writer.execute("COMMIT")
                connection.execute("BEGIN")
                connection.execute("INSERT INTO temp.lm_settings VALUES ('top_k', 3)")
                writer.execute("INSERT INTO t VALUES (1)")
                connection.execute("ROLLBACK")
                self.assertEqual(connection.execute("SELECT key FROM temp.lm_settings WHERE source = 'lm_settings'").fetchall(), [("max_tokens",)])
                writer.close()
                connection.close()

    def test_a_new_database_within_a_transaction(self):
        """What is made with its first change is taken back with it."""
        for end in ("ROLLBACK", "ROLLBACK TO a"):
            connection = harness.connect()
            for sql in ("CREATE TABLE t(x)", "BEGIN", "SAVEPOINT a", "INSERT INTO temp.lm_settings VALUES ('seed', 7)",
                        "INSERT INTO temp.lm_settings VALUES ('top_k', 9)", "INSERT INTO main.lm_settings VALUES ('min_p', 0.5)", end):
                connection.execute(sql)
            changed = "SELECT key FROM temp.lm_settings WHERE source = 'lm_settings'"
            self.assertEqual(connection.execute(changed).fetchall(), [])
            connection.execute("INSERT INTO temp.lm_settings VALUES ('seed', 8)")
            self.assertEqual(connection.execute(changed).fetchall(), [("seed",)])
            with self.assertRaisesRegex(sqlite3.OperationalError, "nonsense"):
                connection.execute("INSERT INTO temp.lm_settings VALUES ('top_k', 9), ('nonsense', 1)")
            self.assertEqual(connection.execute(changed).fetchall(), [("seed",)])
            connection.close()
        # What is made with the first change to another table, too.
        for first in ("INSERT INTO temp.lm_examples VALUES ('e', 'p', 'a')", "INSERT INTO lm_jobs(name, query) VALUES ('j', 'SELECT 1, 2')"):
            connection = harness.connect()
            for sql in ("CREATE TABLE t(x)", "BEGIN", "SAVEPOINT a", first, "INSERT INTO temp.lm_settings VALUES ('seed', 7)", "ROLLBACK TO a", "COMMIT"):
                connection.execute(sql)
            self.assertEqual(connection.execute(changed).fetchall(), [])
            self.assertEqual(harness.value(connection, "SELECT count(*) FROM temp.lm_examples"), 0)
            connection.close()

    def test_many_rows_of_one_statement_in_a_database_that_was_new(self):
        """Each row takes as long as the one before, however long the statement is."""
        def seconds(before, rows):
            values = ", ".join(f"('e', 'prompt {i} of a few words', 'answer {i}')" for i in range(rows))
            connection = harness.connect()
            connection.executescript(before)
            began = time.perf_counter()
            connection.execute(f"INSERT INTO temp.lm_examples VALUES {values}")
            took = time.perf_counter() - began
            connection.close()
            return took
        for way, before in {"empty": "", "with a table": "CREATE TABLE t(x)", "in a transaction": "CREATE TABLE t(x); BEGIN"}.items():
            with self.subTest(way):
                self.assertLess(seconds(before, 2000), 8 * min(seconds(before, 500) for _ in range(3)) + 0.2)

    def test_a_new_databases_triggers_read_the_tables(self):
        for when in ("AFTER INSERT ON t", "INSTEAD OF INSERT ON v"):
            connection = harness.connect()
            connection.executescript("CREATE TABLE t(x); CREATE TABLE log(x); CREATE TEMP VIEW v AS SELECT x FROM t")
            connection.execute(f"CREATE TEMP TRIGGER tr {when} WHEN (SELECT value FROM lm_settings WHERE key = 'seed') = 0 "
                               "BEGIN INSERT INTO log SELECT new.x FROM lm_settings WHERE key = 'seed'; END")
            for x in ("one", "two"):
                connection.execute(f"INSERT INTO {when[-1]} VALUES (?)", (x,))
            self.assertEqual(connection.execute("SELECT x FROM log").fetchall(), [("one",), ("two",)])
            connection.close()

    def test_a_new_databases_encoding_is_its_owners(self):
        connection = harness.connect()
        connection.execute("SELECT generate('a', NULL, '{\"max_tokens\":1}')").fetchall()
        connection.execute("SELECT * FROM temp.lm_settings").fetchall()
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE t(x)")
        connection.execute("INSERT INTO temp.lm_settings VALUES ('max_tokens', 3)")
        self.assertEqual(harness.value(connection, "PRAGMA encoding"), "UTF-16le")
        self.assertEqual(harness.value(connection, "SELECT value FROM temp.lm_settings WHERE key = 'max_tokens'"), 3)

    def test_what_reads_on_is_not_aborted(self):
        """As SQLite would, where temp changes meanwhile."""
        reads = "SELECT x, (SELECT count(*) FROM t WHERE x > u.x), (SELECT count(*) FROM lm_running), (SELECT count(*) FROM temp.lm_settings) > 9 FROM t AS u"
        for sql in ("SELECT * FROM lm_running", "DELETE FROM lm_running", "INSERT INTO temp.lm_settings VALUES ('seed', 7)", reads,
                    "UPDATE temp.lm_settings SET value = 7 WHERE key = 'seed' AND 3 > (SELECT count(*) FROM t WHERE x = value)",
                    "INSERT INTO temp.lm_settings SELECT column1, (SELECT count(*) + column2 FROM t) FROM (VALUES ('seed', 7), ('top_k', 8))"):
            connection = harness.connect()
            connection.execute("CREATE TABLE t(x)")
            connection.execute("INSERT INTO t VALUES ('a'), ('b'), ('c')")
            rows = connection.execute("SELECT x, iif(x = 'a', 0, (SELECT count(*) FROM t)) FROM t")
            rows.fetchone()
            connection.execute(sql).fetchall()
            self.assertEqual(rows.fetchall(), [("b", 3), ("c", 3)])
            connection.execute(sql.replace("7", "9")).fetchall()
            connection.close()

    def test_a_process_that_ends_while_it_generates_ends_well(self):
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", BODY_OF_A_PROCESS, os.path.dirname(os.path.abspath(__file__))],
                                  capture_output=True, text=True, timeout=30)
            self.assertEqual((done.stderr, done.returncode), ("", 0))

    @harness.needs_shell
    def test_the_model_beside_the_library_is_the_default(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(harness.LM0, folder / "lm0.so")
            environment = {k: v for k, v in os.environ.items() if k != "LM_MODEL"}

            def shell(sql):
                return subprocess.run(["sqlite3", ":memory:", f".load {folder}/lm0.so", sql], env=environment,
                                      capture_output=True, text=True)

            without = shell(ANSWER).stderr
            for way in ("INSERT INTO temp.lm_models", "LM_MODEL", f"debian-notes.gguf into {folder}"):
                self.assertIn(way, without)
            self.assertEqual(shell("SELECT count(*) FROM temp.lm_models").stdout, "0\n")
            (folder / "models").mkdir()
            for place in (folder / "models", folder):
                shutil.copy(harness.MODEL, place / "debian-notes.gguf")
                done = shell(f"SELECT path, ({ANSWER}) IS NOT NULL FROM temp.lm_models")
                self.assertEqual(done.stdout, f"{place}/debian-notes.gguf|1\n", done.stderr)

    @harness.needs_shell
    def test_a_model_of_the_hub_is_not_fetched_by_the_environment(self):
        done = subprocess.run(["sqlite3", ":memory:", f".load {harness.LM0}", ANSWER], env=os.environ | {"LM_MODEL": "hf:o/m:Q4_K_M"},
                              capture_output=True, text=True)
        self.assertIn("INSERT INTO temp.lm_models(name, path) VALUES ('default', 'hf:o/m:Q4_K_M')", done.stderr)

    @harness.needs_shell
    def test_an_instruction_set_that_is_not_there_is_refused(self):
        def shell(name, sql):
            return subprocess.run(["sqlite3", ":memory:", f".load {harness.LM0}", sql], env=os.environ | {"LM_CPU": name}, capture_output=True, text=True)

        self.assertEqual(shell("portable", f"SELECT ({ANSWER}) IS NOT NULL, features, reason IS NULL FROM lm_devices WHERE device = 'cpu'").stdout,
                         "1|portable|1\n")
        wanted = "LM_CPU must be one of portable.*, which this processor has, got 'nonsense'"
        self.assertRegex(shell("nonsense", ANSWER).stderr, wanted)
        self.assertRegex(shell("nonsense", "SELECT usable, reason FROM lm_devices WHERE device = 'cpu'").stdout, rf"^0\|{wanted}\n$")

    def test_a_model_file_that_is_replaced_is_loaded_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.gguf"
            shutil.copy(harness.MODELS / "llama-q8_0.gguf", path)
            connection = harness.connect()
            connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('m', ?)", (path,))
            sql = "SELECT generate('x', NULL, '{\"model\":\"m\",\"max_tokens\":2}')"
            architecture = "SELECT architecture FROM temp.lm_models WHERE name = 'm'"
            harness.value(connection, sql)
            self.assertEqual(harness.value(connection, architecture), "llama")
            os.unlink(path)
            harness.value(connection, sql)  # still in memory
            shutil.copy(harness.MODELS / "qwen2-q4_0.gguf", path)
            harness.value(connection, sql)
            self.assertEqual(harness.value(connection, architecture), "qwen2")
            connection.close()

    def test_a_file_that_is_written_over_while_it_is_read_ends_the_statement(self):
        """Gemma's embeddings of each layer stay in it."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.gguf"
            shutil.copy(harness.MODELS / "gemma4-e-f32.gguf", path)
            connection = harness.connect()
            connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('m', ?)", (path,))
            sql = "SELECT generate('row ' || value, NULL, '{\"model\":\"m\",\"max_tokens\":8}') FROM json_each(?)"
            rows = connection.execute(sql, (str(list(range(400))),))
            rows.fetchone()
            with open(path, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\0")
            with self.assertRaisesRegex(Exception, f"tensor 'per_layer_token_embd.weight': '{path}' was changed while it was in use"):
                rows.fetchall()
            self.assertEqual(len(connection.execute(sql, ("[1, 2]",)).fetchall()), 2)
            connection.close()

    def test_what_a_model_answered_is_not_remembered_of_one_that_is_written_over_it(self):
        """As large as that was, and as old, as its file says."""
        first = (harness.MODELS / "llama-spm-untied-f32.gguf").read_bytes()
        second = bytearray(first)
        for i in range(1, len(first) // 2, 4):  # of each float the sign
            second[-i] ^= 0x80
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "m.gguf")
            connection = harness.connect()

            def ask(model, options=""):
                with open(path, "r+b" if path.exists() else "wb") as file:
                    file.write(model)
                os.utime(path, ns=(10**18, 10**18))
                connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('m', ?)", (str(path),))
                vector = harness.value(connection, f"SELECT lm_embed('a dog', '{{\"model\":\"m\"{options}}}')")
                connection.execute("DELETE FROM temp.lm_models")  # and so from memory
                return vector

            vectors = [ask(first), ask(second), ask(second, ',"cache":false')]
            self.assertNotEqual(vectors[0], vectors[1])
            self.assertEqual(vectors[1], vectors[2])
            connection.close()


class WorkingDirectoryTest(unittest.TestCase):
    """A process that goes elsewhere, as a daemon does, takes no other models and folders."""
    SCRIPT = """if True:
        import json, os, sys
        sys.path.insert(0, sys.argv[1])
        import harness
        def ask(connection, **options):
            harness.value(connection, "SELECT generate('x', NULL, ?)", json.dumps({"max_tokens": 1, "cache": False} | options))
        c, named = connections = [harness.connect(f"{os.getcwd()}/{name}.db") for name in ("c", "named")]
        for connection in connections:
            connection.execute("INSERT INTO temp.lm_settings VALUES ('prefix_store', 'prefixes')")
        named.execute("INSERT INTO temp.lm_settings VALUES ('model', 'm.gguf'), ('pack_cache', 'own packs')")
        named.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('n', 'm.gguf', ?)",
                      (json.dumps({"pack_cache": "packs of n", "threads": 1}),))
        ask(c)
        os.chdir(sys.argv[2])
        connections.append(harness.connect())
        for connection in connections:
            ask(connection)
            connection.execute("SELECT lm_prefill(NULL, replace(printf('%.*c', 12, 'x'), 'x', 'some words of a long system prompt '))")
            for (path,) in connection.execute("SELECT DISTINCT path FROM lm_stats").fetchall(): print(os.path.realpath(path))
        ask(named, model="n")
        print(harness.value(named, "SELECT group_concat(value) FROM temp.lm_settings WHERE source = 'lm_settings'"))
    """

    def test_paths_lead_where_they_led(self):
        with tempfile.TemporaryDirectory() as folder:
            here, elsewhere = (pathlib.Path(folder).resolve() / name for name in ("here", "elsewhere"))
            for place, model in (here, "llama-q8_0"), (elsewhere, "llama-spm-untied-f32"):
                place.mkdir()
                shutil.copy(harness.MODELS / f"{model}.gguf", place / "m.gguf")
            done = subprocess.run([sys.executable, "-c", self.SCRIPT, str(pathlib.Path(__file__).resolve().parent), str(elsewhere)],
                                  cwd=here, env=os.environ | {"LM_MODEL": "m.gguf", "LM_PACK_CACHE": "packs", "LM0": os.path.abspath(harness.LM0)},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            *paths, settings = done.stdout.splitlines()
            self.assertEqual(set(paths), {f"{here}/m.gguf"})
            self.assertEqual(settings, f"{here}/m.gguf,{here}/own packs,{here}/prefixes")
            self.assertEqual([path.name for path in elsewhere.iterdir()], ["m.gguf"])
            self.assertLessEqual({"packs", "own packs", "packs of n", "prefixes"}, {path.name for path in here.iterdir()})


class HomeTest(unittest.TestCase):
    """"~/" is the folder that HOME names, wherever a path is named."""
    SCRIPT = """if True:
        import json, os, sys
        sys.path.insert(0, sys.argv[1])
        import harness
        c = harness.connect()
        options = {"draft": "~/m.gguf", "lora": [{"name": "a", "path": "~/a.gguf"}], "chat_template": "~/t.jinja", "pack_cache": "~/packs of n"}
        c.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('n', '~/m.gguf', ?)", (json.dumps(options),))
        c.execute("INSERT INTO temp.lm_settings VALUES ('pack_cache', '~/packs'), ('prefix_store', '~/prefixes')")
        for model in "n", "~/m.gguf":
            harness.value(c, "SELECT generate('x', NULL, ?)", json.dumps({"max_tokens": 1, "model": model}))
        print(harness.value(c, "SELECT lm_render('x', NULL, '{\\"model\\":\\"n\\"}')"))
        print(harness.value(c, "SELECT problem IS NULL FROM lm_inspect('~/m.gguf')"))
        print(harness.value(c, "SELECT lm_convert('~/m.gguf', '~/q.gguf', 'Q4_0') IS NOT NULL"))
        print(c.execute("SELECT path FROM temp.lm_models WHERE name = 'n'").fetchone()[0])
        print(harness.value(c, "SELECT group_concat(value) FROM temp.lm_settings WHERE source = 'lm_settings'"))
        try: harness.value(c, "SELECT lm_token_count('x', '{\\"model\\":\\"~other/m.gguf\\"}')")
        except Exception as error: print(error)
    """

    def test_a_tilde_is_the_home(self):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder).resolve() / "home"
            home.mkdir()
            shutil.copy(harness.MODELS / "llama-q8_0.gguf", home / "m.gguf")
            shutil.copy(harness.MODELS / "llama-q8_0-lora-1.gguf", home / "a.gguf")
            (home / "t.jinja").write_text("<{{ messages[0].content }}>")
            done = subprocess.run([sys.executable, "-c", self.SCRIPT, str(pathlib.Path(__file__).resolve().parent)], cwd=folder,
                                  env=os.environ | {"HOME": str(home), "LM0": os.path.abspath(harness.LM0)}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            render, inspected, converted, path, settings, error = done.stdout.splitlines()
            self.assertEqual((render, inspected, converted, path), ("<x>", "1", "1", f"{home}/m.gguf"))
            self.assertEqual(settings, f"{home}/packs,{home}/prefixes")
            self.assertIn(f"'{folder}/~other/m.gguf'", error)  # as it is written
            self.assertLessEqual({"packs of n", "q.gguf"}, {path.name for path in home.iterdir()})


class SaltTest(unittest.TestCase):
    SYSTEM = "You are given a note. Say in one word what it is about. Do not explain. Do not repeat the note. " * 3
    CACHED = "SELECT tokens_cached FROM lm_each('[\"x\"]', ?, '{\"max_tokens\":1}')"

    def cached(self, connection):
        return harness.value(connection, self.CACHED, self.SYSTEM)

    def test_one_file_shares_its_cache_and_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            a = harness.connect(f"{folder}/a.db")
            a.execute("CREATE TABLE t(x)")
            os.symlink(f"{folder}/a.db", f"{folder}/link.db")
            self.assertEqual(self.cached(a), 0)
            self.assertGreater(self.cached(a), 32)
            self.assertGreater(self.cached(harness.connect(f"{folder}/a.db")), 32)
            self.assertGreater(self.cached(harness.connect(f"{folder}/link.db")), 32)
            self.assertEqual(self.cached(harness.connect(f"{folder}/b.db")), 0)

    def test_memory_databases_have_their_own(self):
        keeper, other = harness.connect(), harness.connect()
        self.cached(keeper)
        self.assertGreater(self.cached(keeper), 32)
        self.assertEqual(self.cached(other), 0)

    def test_databases_in_memory_that_have_a_name_do_too(self):
        with tempfile.TemporaryDirectory() as folder:
            keeper = harness.connect("file:/load_test?vfs=memdb", uri=True)
            other = harness.connect("file:/load_test?vfs=memdb", uri=True)
            for connection in (keeper, other):
                connection.execute("INSERT INTO temp.lm_settings VALUES ('prefix_store', ?)", (folder,))
            self.cached(keeper)
            self.assertGreater(self.cached(keeper), 32)
            self.assertEqual(self.cached(other), 0)
            self.assertEqual(os.listdir(folder), [])

    def test_a_salt_is_shared_by_name(self):
        keeper, other = harness.connect(), harness.connect()
        for connection in (keeper, other):
            connection.execute("INSERT INTO temp.lm_settings VALUES ('salt', 'ours')")
        self.cached(keeper)
        self.assertGreater(self.cached(other), 32)
        other.execute("INSERT INTO temp.lm_settings VALUES ('salt', 'mine')")
        self.assertEqual(self.cached(other), 0)

class DatabasesAreNoModelsTest(unittest.TestCase):
    """A process that closes a file loses its locks on it."""

    def write_elsewhere(self, path):
        script = ("import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
                  "c.execute('INSERT INTO t VALUES (2)')")
        return subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True).stderr

    def test_a_database_that_is_named_as_a_model_stays_locked(self):
        for mode in ("delete", "wal"):
            with self.subTest(mode), tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/t.db"
                connection = harness.connect(path)
                connection.execute(f"PRAGMA journal_mode = {mode}")
                connection.execute("CREATE TABLE t(x)")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO t VALUES (1)")
                for name in (path, f"{path}-shm", f"{path}-wal"):
                    if not os.path.exists(name):
                        continue
                    for sql in ("SELECT generate('x', NULL, json_object('model', ?))", "SELECT * FROM lm_inspect(?)"):
                        with self.assertRaisesRegex(sqlite3.OperationalError, "is a database|not a GGUF"):
                            harness.value(connection, sql, name)
                        self.assertIn("database is locked", self.write_elsewhere(path))
                connection.execute("COMMIT")
                self.assertEqual(self.write_elsewhere(path), "")
                self.assertEqual(harness.value(connection, "SELECT count(*) FROM t"), 2)


if __name__ == "__main__":
    unittest.main()
