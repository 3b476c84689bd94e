"""The program sqlite-lm, as one who types it sees it."""
import contextlib
import json
import os
import pathlib
import pty
import re
import resource
import select
import shlex
import signal
import sqlite3
import struct
import subprocess
import tempfile
import time
import unittest

import hf_writer
from chat_server import ChatServer
from slow_model import STRING, pair, write_slow_model

PROGRAM = os.environ["LM_PROGRAM"]
SHIPPED = str(pathlib.Path(__file__).resolve().parents[2] / "sql/models/debian-notes.gguf")
# The shipped model, which begins each answer with a reasoning.
REASONS = ["--model", SHIPPED, "--model-options", json.dumps({"chat_template": '{{ messages[0].content }} <think>{{ "\\n" }}'})]
COMMANDS = ["ask", "label", "summarize", "chat", "models", "bench", "doctor"]


def without_trade(stderr):
    """Without what the shipped model says of its trade."""
    return re.sub(r"sqlite-lm: the model 'debian-notes' was made for .*\n", "", stderr)


def run(*words, stdin="", **environment):
    return subprocess.run([PROGRAM, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=120,
                          env={name: value for name, value in {**os.environ, **environment}.items() if value is not None})


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.database = self.folder / "notes.db"

    def notes(self, rows):
        with sqlite3.connect(self.database) as connection:
            connection.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")
            connection.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(rows)])
        connection.close()

    def query(self, sql):
        connection = sqlite3.connect(self.database)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def ok(self, *words, **more):
        result = run(*words, **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def fails(self, code, message, *words, **more):
        result = run(*words, **more)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, message)
        return result

    def needs_network(self):
        if "none in this build" in self.ok("doctor"):
            self.skipTest("no network in this build")

    def test_help_and_what_is_made_of_it(self):
        self.assertRegex(self.ok("--version"), r"^sqlite-lm \d+\.\d+\.\d+\n$")
        text = self.ok("--help")
        self.assertEqual(text, self.ok())
        for command in COMMANDS:
            self.assertIn(f"sqlite-lm {command}", text)
            self.assertTrue(self.ok(command, "--help").startswith(f"sqlite-lm {command}"))
        for words in (["--version", "x"], ["man", "x"], ["doctor", "x"]):
            self.fails(2, f"{words[0]} takes no arguments|'x': it takes no files", *words)
        page = self.ok("man")
        self.assertTrue(page.startswith(".TH SQLITE-LM 1"))
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("instruction", self.ok("completion", shell))
        completed = subprocess.run(["bash", "-c", f"{self.ok('completion', 'bash')}\nCOMP_WORDS=(sqlite-lm label --ch); COMP_CWORD=2; "
                                    "_sqlite_lm; echo ${COMPREPLY[@]}; COMP_WORDS=(sqlite-lm su); COMP_CWORD=1; _sqlite_lm; echo ${COMPREPLY[@]}; "
                                    "COMP_WORDS=(sqlite-lm completion f); COMP_CWORD=2; _sqlite_lm; echo ${COMPREPLY[@]}; "
                                    "for word in m comp; do COMP_WORDS=(sqlite-lm $word); COMP_CWORD=1; _sqlite_lm; echo ${COMPREPLY[@]}; done"],
                                   capture_output=True, text=True, check=True).stdout
        self.assertEqual(completed, "--choices\nsummarize\nfish\nmodels man\ncompletion\n")
        self.assertIn("-a man", self.ok("completion", "fish"))

    def test_what_is_wrong_is_named(self):
        self.fails(2, "no command 'lable'; did you mean label", "lable")
        self.fails(2, "no option --modle; did you mean --model", "ask", "x", "--modle", "y")
        self.fails(2, "--model needs a value", "ask", "x", "--model")
        self.fails(2, "--json takes no value", "ask", "x", "--json=1")
        self.fails(2, "--options must be a JSON object, got '7'", "ask", "x", "--options", "7")
        self.fails(2, "^sqlite-lm: unknown option 'max_token'; the nearest known one is 'max_tokens'$", "ask", "x", "--options", '{"max_token":3}')
        self.fails(2, "^sqlite-lm: regex: ", "chat", "--options", '{"regex":"("}')
        for words in (["ask", "x"], ["ask", "x", "--json"], ["chat"], ["summarize"], ["bench"]):
            for instead in ("null", "json"):
                with self.subTest(words=words, instead=instead):
                    self.fails(2, f"on_error cannot be '{instead}' in --options: what fails is told", *words, "--options", json.dumps({"on_error": instead}), stdin="x")
        self.fails(1, "context", "ask", "--options", '{"on_error":"error"}', stdin="word " * 5000)
        self.fails(2, "unknown option 'part_token'", "summarize", "--options", '{"part_token":3}', stdin="x")
        self.fails(2, "--tokens must be a whole number from 2 to 1000000, got 'many'", "bench", "--tokens", "many")
        self.fails(2, "--words must be a whole number from 1 to 1000000, got '3000000000'", "bench", "--words", "3000000000")
        for name, value in {"choices": ["a", "b"], "regex": "a", "schema": {}, "grammar": 'root ::= "a"', "n": 2, "vote": 3, "best_of": 2, "max_tokens": 9}.items():
            self.fails(2, f"--options: with {name} tokens/s would say nothing", "bench", "--options", json.dumps({name: value}))
        self.fails(2, "no-such.gguf", "ask", "x", "--model", "no-such.gguf")
        self.fails(1, "no-such.db", "label", "no-such.db")
        self.assertFalse(os.path.exists("no-such.db"))
        self.fails(2, "one database", "label")
        self.notes(1)
        self.fails(2, "--table is missing", "label", self.database)
        words = ["--column", "body", "--into", "y", "--instruction", "x"]
        self.fails(2, "no such table: nosuch", "label", self.database, "--table", "nosuch", *words)
        # No name is taken for a text: as one it would be asked about, and written to all rows.
        words = ["label", self.database, "--table", "notes", "--into", "y", "--instruction", "x"]
        self.fails(2, "no such column: bdoy", *words, "--column", "bdoy")
        self.fails(2, "no such column: di", *words, "--column", "body", "--key", "di")
        self.assertEqual(self.query("SELECT name FROM pragma_table_info('notes')"), [("id",), ("body",)])
        self.fails(2, "no such column: odd", *words, "--column", "body", "--where", 'body = "odd"')
        self.assertEqual(self.query("SELECT name FROM pragma_table_info('notes')"), [("id",), ("body",)])
        self.assertEqual(self.query("SELECT name FROM sqlite_schema"), [("notes",)])  # and no job was begun
        bad = self.folder / "bad.txt"
        bad.write_bytes(b"ab\xff")
        self.fails(2, "bad.txt: no UTF-8 at byte 2", "summarize", bad)
        self.fails(1, "nothing.txt: cannot be opened", "summarize", "nothing.txt")
        self.fails(1, "cannot be read: Is a directory", "summarize", self.folder)
        self.fails(2, "there is no question", "ask")
        self.fails(2, "there is no question", "ask", "", stdin="a list that a loop reads")
        self.fails(1, "Not a directory|no such file", "models", bad / "x")
        self.fails(1, "bad.txt: file is not a database", "label", bad)

    def test_what_comes_of_right_arguments_is_no_wrong_one(self):
        self.needs_network()
        dead = ["--model", "http://127.0.0.1:1/v1", "--model-options", '{"retries":0}']
        broken = self.folder / "broken.gguf"
        shipped = pathlib.Path(os.environ["LM_MODEL"]).read_bytes()
        broken.write_bytes(shipped[:len(shipped) // 2])
        for model in (dead, []):
            for words in (["ask", "x"], ["summarize"], ["bench"]):
                with self.subTest(words=words, model=model):
                    self.fails(1, "Couldn't connect" if model else "broken.gguf", *words, *model, stdin="x", LM_MODEL=str(broken))
        self.notes(1)
        self.fails(1, ".", "label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "x", *dead)

    def test_ask(self):
        options = ["--options", '{"max_tokens":8}']
        answer = self.ok("ask", "Hello there", *options)
        self.assertTrue(answer.endswith("\n"))
        self.assertEqual(self.ok("ask", "Hello", "there", *options), answer)
        self.assertEqual(self.ok("ask", *options, stdin="Hello there"), answer)
        self.assertEqual(self.ok("ask", "-", *options, stdin="Hello there"), answer)
        said = json.loads(self.ok("ask", "--json", "Hello there", *options))
        self.assertEqual((said["value"].rstrip("\n"), said["tokens_out"]), (answer.rstrip("\n"), 8))
        self.assertNotEqual(self.ok("ask", "Hello there", "--system", "Be brief.", *options), answer)

    def test_the_readmes_command_answers_what_it_shows(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        typed, answer = re.search(r"```sh\nsqlite-lm (ask .*)\n# (.*)\n```", (root / "README.md").read_text(encoding="utf-8")).groups()
        self.assertEqual(self.ok(*shlex.split(typed), LM_MODEL=str(root / "sql/models/debian-notes.gguf")), answer + "\n")

    def test_the_shipped_model_says_what_it_is_for_where_it_is_asked_for_something_else(self):
        trade = run("ask", "a tool that draws maps of the stars", "--system", "Write a one-line summary.", LM_MODEL=None)
        self.assertEqual((trade.returncode, trade.stderr), (0, ""))
        self.assertGreater(len(trade.stdout), 3)
        for words, stdin in ((["ask", "What is SQLite?"], ""), (["ask", "--json", "What is SQLite?"], ""), (["chat"], "Hello\nHow are you?\n")):
            other = run(*words, stdin=stdin, LM_MODEL=None)
            self.assertEqual(other.returncode, 0)
            self.assertRegex(other.stderr, r"\Asqlite-lm: the model 'debian-notes' was made for one thing: .*package descriptions.* --model FILE\)\n\Z")
        self.notes(3)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "mood", "--choices", "good,bad"]
        self.assertIn("was made for one thing", run(*words, "--instruction", "How does the writer feel?", LM_MODEL=None).stderr)

    def test_label(self):
        self.notes(40)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "mood", "--instruction", "Good or bad?",
                 "--choices", "good,bad"]
        self.assertRegex(self.ok(*words, "--where", "id <= 30"), r"30 rows of notes.mood: 30 answered, 0 failed, [\d.]+ rows/s")
        self.assertEqual(self.query("SELECT count(*), min(id), max(id) FROM notes WHERE mood IN ('good', 'bad')"), [(30, 1, 30)])
        # Only what is NULL, and only once.
        self.assertEqual(json.loads(self.ok(*words, "--json"))["done"], 10)
        # White space around a choice is none of it; the condition may name the column that is made.
        apart = ["label", self.database, "--table", "notes", "--column", "body", "--into", "feeling", "--instruction", "Good or bad?"]
        self.ok(*apart, "--choices", " good, bad ", "--where", "feeling IS NULL AND id <= 10")
        self.assertEqual(self.query("SELECT count(*) FROM notes WHERE feeling IN ('good', 'bad')"), [(10,)])
        self.assertEqual(self.query("SELECT count(*) FROM notes WHERE mood IS NULL"), [(0,)])
        self.assertRegex(self.ok(*words), "0 rows of notes.mood: 0 answered")

    def test_label_of_rows_that_have_their_answers(self):
        self.notes(3)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "mood"]
        self.assertNotIn("NULL", self.ok(*words, "--instruction", "Good or bad?", "--choices", "good,bad"))
        other = [*words, "--instruction", "How long?", "--choices", "short,long", "--restart"]
        said = self.ok(*other)
        self.assertRegex(said, r'^0 rows of notes.mood: .*\nno row has NULL in "mood" and a text in "body"; to have them asked again, first: UPDATE "notes" SET "mood" = NULL\n$')
        self.assertRegex(self.ok(*other, "--where", "id < 3"), r'no row of --where has NULL in "mood" and a text in "body"; .* = NULL WHERE \.\.\.\n$')
        self.assertEqual(json.loads(self.ok(*other, "--json"))["rows"], 0)
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(said.rpartition("first: ")[2])
        self.assertRegex(self.ok(*other), "^3 rows of notes.mood: 3 answered")
        self.assertEqual(self.query("SELECT count(*) FROM notes WHERE mood IN ('short', 'long')"), [(3,)])
        self.assertIn("UPDATE table SET into = NULL", self.ok("label", "--help"))
        # Without a text there is nothing to ask, and no answer.
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("INSERT INTO notes(body) VALUES (NULL), ('new')")
        self.assertRegex(self.ok(*other), "^1 rows of notes.mood: 1 answered")

    def test_label_twice_at_a_time(self):
        self.notes(30)
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
        for column in ("a", "b", "c", "d"):
            words = ["label", str(self.database), "--table", "notes", "--column", "body", "--into", column, "--instruction", "z", "--choices", "x,y"]
            both = [subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            for one in both:
                self.assertEqual((one.communicate()[1], one.returncode), ("", 0))
            self.assertEqual(self.query(f"SELECT count(*) FROM notes WHERE {column} IN ('x', 'y')"), [(30,)])

    def test_a_job_that_cannot_begin_leaves_nothing(self):
        self.notes(2)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "mood", "--instruction", "Good or bad?"]
        nothing = [("notes", "CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")]
        for message, *wrong in (("unknown option 'max_token'", "--options", '{"max_token":3}'), ("choice 3 of 3 is empty", "--choices", "good,bad,"),
                                ("regex", "--options", '{"regex":"("}'), ("on_error cannot be 'null'", "--options", '{"on_error":"null"}'),
                                ("--choices and the choices of --options", "--choices", "b,c", "--options", '{"choices":["zz"]}')):
            self.fails(2, message, *words, *wrong)
            self.assertEqual(self.query("SELECT name, sql FROM sqlite_schema"), nothing)
        # A job that is there and was not begun, as where the model could not be loaded, gives way.
        self.fails(1, "No such file", *words, "--choices", "good,bad", LM_MODEL="no-such.gguf")
        self.assertEqual(self.query("SELECT count(*), count(total) FROM lm_jobs"), [(1, 0)])
        self.ok(*words, "--choices", "good,bad,neither")
        self.assertEqual(self.query("SELECT count(mood) FROM notes"), [(2,)])

    def test_label_says_what_has_stopped_it(self):
        self.notes(30)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "How?", "--model", SHIPPED]
        budget = ["--options", '{"max_tokens":5,"max_total_tokens":200}']
        result = self.fails(1, r"(?m)^sqlite-lm: stopped: max_total_tokens = 200 .*; \d+ of 30 rows are left for a later run: the same command goes on", *words, *budget)
        self.assertRegex(result.stderr, r"was made for one thing: .* \(here: --model FILE\)\n")
        self.assertEqual(result.stderr.count("stopped: "), 1)
        self.assertRegex(result.stdout, r"^30 rows of notes.y: \d+ answered, 0 failed")
        told = json.loads(self.fails(1, "stopped: ", *words, *budget, "--json").stdout)
        self.assertRegex(told["stopped"], "^stopped: max_total_tokens = 200 ")
        with contextlib.closing(sqlite3.connect(self.database)) as connection:  # tables of an earlier version
            connection.executescript("DROP INDEX lm_job_rows_vanished; ALTER TABLE lm_job_rows DROP COLUMN vanished")
        while told["stopped"] is not None:  # the same command goes on
            result = run(*words, *budget, "--json")
            self.assertLess(told["done"], json.loads(result.stdout)["done"])
            told = json.loads(result.stdout)
            self.assertEqual(result.returncode, int(told["stopped"] is not None))
        self.assertEqual(told["done"], 30)

    def test_label_says_that_it_waits_for_a_server(self):
        self.needs_network()
        self.notes(3)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "How?"]
        with ChatServer() as server:
            server.loading = 1 << 30
            result = self.fails(1, "stopped: max_seconds = 1 are over; it is left for a later run", *words, "--model", server.url, "--options", '{"max_seconds":1}')
            self.assertNotIn("no row has NULL", result.stdout)
            try:
                parent, child = pty.openpty()
            except OSError:  # there are no terminals in a bare root
                return
            process = subprocess.Popen([PROGRAM, *map(str, words), "--restart", "--model", server.url], stdin=child, stdout=subprocess.PIPE, stderr=child, text=True)
            os.close(child)
            shown = ""
            while not re.search(r"the model's server has not answered yet, \d+ s", shown):
                shown += os.read(parent, 4096).decode()
            self.assertNotIn("0 of 0", shown)
            server.loading = 0
            self.assertRegex(process.communicate(timeout=60)[0], "^3 rows of notes.y: 3 answered")
            os.close(parent)

    def test_label_answers_the_rows_that_there_are_when_it_goes_on(self):
        """Without a key VACUUM gives rows other numbers; texts and labels change between two calls."""
        texts = ["to be deleted", *(f"note {i}" for i in range(30)), 7, 2.5, b"no text"]
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("CREATE TABLE notes(body)")
            connection.executemany("INSERT INTO notes VALUES (?)", [(text,) for text in texts])
            connection.execute("DELETE FROM notes WHERE rowid = 1")
        words = ["--table", "notes", "--column", "body", "--into", "y", "--instruction", "How?", "--model", SHIPPED, "--options",
                 '{"max_tokens":5,"max_total_tokens":200}']
        self.fails(1, "prompt must be text, got a BLOB(?s:.*)stopped: ", "label", self.database, *words)
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            waiting = [row[0] for row in connection.execute("SELECT body FROM notes WHERE y IS NULL AND body LIKE 'note %'")]
            self.assertGreater(len(waiting), 4)
            connection.execute("UPDATE notes SET y = 'by hand' WHERE body = ?", (waiting[0],))
            connection.execute("UPDATE notes SET body = 'another' WHERE body = ?", (waiting[1],))
            connection.execute("DELETE FROM notes WHERE body = ?", (waiting[2],))
            connection.execute("INSERT INTO notes(body) VALUES ('a new one')")
            connection.execute("VACUUM")
        result = run("label", self.database, *words)
        self.assertIn("rows have changed since the job began: those that wait now are asked\n", result.stderr)
        while result.returncode == 1 and "stopped: " in result.stderr:
            result = run("label", self.database, *words)
            self.assertNotIn("changed", result.stderr)
        self.assertRegex(result.stderr, "prompt must be text, got a BLOB(?s:.*)some rows failed")
        with contextlib.closing(sqlite3.connect(self.folder / "anew.db")) as connection, connection:
            connection.execute("CREATE TABLE notes(body)")
            connection.executemany("INSERT INTO notes VALUES (?)", self.query("SELECT body FROM notes"))
        run("label", self.folder / "anew.db", *words[:-1], '{"max_tokens":5}')
        with contextlib.closing(sqlite3.connect(self.folder / "anew.db")) as connection:
            wanted = dict(connection.execute("SELECT body, y FROM notes").fetchall())
        wanted[waiting[0]] = "by hand"
        self.assertEqual(dict(self.query("SELECT body, y FROM notes")), wanted)
        self.assertEqual([body for body, y in wanted.items() if y is None], [b"no text"])

    def test_label_leaves_alone_what_changes_while_it_runs(self):
        self.notes(10)
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript(
                "ALTER TABLE notes ADD COLUMN y; CREATE TRIGGER meanwhile AFTER UPDATE OF y ON notes WHEN new.id = 1 BEGIN "
                "UPDATE notes SET body = 'another' WHERE id = 5; UPDATE notes SET y = 'by hand' WHERE id = 6; INSERT INTO notes(body) VALUES ('new'); END")
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z", "--choices", "a,b"]
        result = run(*words)
        self.assertEqual((result.returncode, result.stderr), (0, "sqlite-lm: 2 rows have come or changed since the job began: the same command asks about them\n"))
        self.assertEqual(self.query("SELECT id FROM notes WHERE y IS NULL"), [(5,), (11,)])
        self.assertRegex(self.ok(*words), "^2 rows of notes.y: 2 answered")
        self.assertEqual(self.query("SELECT id, y = 'by hand' FROM notes WHERE y NOT IN ('a', 'b')"), [(6, 1)])

    def test_label_says_all_hints_and_each_once(self):
        self.notes(300)
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("ALTER TABLE notes ADD COLUMN y; CREATE TRIGGER keep BEFORE UPDATE ON notes BEGIN SELECT RAISE(IGNORE); END;")
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "How?", "--model", SHIPPED]
        stderr = run(*words, "--options", '{"max_tokens":5}').stderr
        self.assertRegex(stderr, r"(?m)^sqlite-lm: the model 'debian-notes' was made for one thing")
        self.assertEqual(stderr.count("was made for one thing"), 1)
        self.assertRegex(stderr, r"the target changed no row for \d+ answers: does it look for the query's ids \(:id\)\?\n")
        self.assertEqual(stderr.count("the target changed no row"), 1)

    def test_label_takes_up_what_failed_with_the_answers_that_it_has(self):
        self.notes(4)
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("ALTER TABLE notes ADD COLUMN y; CREATE TRIGGER never BEFORE UPDATE ON notes WHEN new.id > 2 BEGIN SELECT RAISE(ABORT, 'no'); END;")
            words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z", "--choices", "a,b"]
            self.fails(1, "the same command asks again about them and what has come since, --retry asks again about them alone", *words)
            asked = "SELECT began, (SELECT min(answered) FROM lm_job_rows) FROM lm_jobs"
            before = self.query(asked)
            connection.executescript("DROP TRIGGER never; INSERT INTO notes(body) VALUES ('new')")
        result = run(*words, "--retry")
        self.assertRegex(result.stdout, "^4 rows of notes.y: 4 answered, 0 failed")
        self.assertEqual(result.stderr, "sqlite-lm: 1 row has come or changed since the job began: the same command without --retry asks about it\n")
        self.assertEqual(self.query(asked), before)
        self.assertRegex(self.ok(*words), "^1 rows of notes.y: 1 answered")

    def test_a_retry_asks_about_no_others(self):
        self.notes(2)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z", "--choices", "a,b"]
        self.ok(*words)
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("INSERT INTO notes(body) VALUES ('new'), ('newer')")
        # None has failed.
        result = run(*words, "--retry")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "^2 rows of notes.y: 2 answered, 0 failed")
        self.assertEqual(result.stderr, "sqlite-lm: 2 rows have come or changed since the job began: the same command without --retry asks about them\n")
        self.assertEqual(self.query("SELECT count(y) FROM notes"), [(2,)])
        self.assertRegex(self.ok(*words), "^2 rows of notes.y: 2 answered")
        # A run that was stopped is gone on with.
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("UPDATE notes SET y = NULL WHERE id = 3; UPDATE lm_job_rows SET state = 'waiting', value = NULL WHERE id = 3; "
                                     "UPDATE lm_jobs SET ended = NULL, status = 'stopped'")
        self.assertRegex(self.ok(*words, "--retry"), "^2 rows of notes.y: 2 answered, 0 failed")
        self.assertEqual(self.query("SELECT count(y) FROM notes"), [(4,)])

    def test_a_retry_that_is_killed_keeps_the_answers_that_it_has(self):
        self.notes(40)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z", "--choices", "a,b"]
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("ALTER TABLE notes ADD COLUMN y; CREATE TRIGGER never BEFORE UPDATE ON notes BEGIN SELECT RAISE(ABORT, 'no'); END;")
            self.fails(1, "--retry asks again", *words)
            before = self.query("SELECT began FROM lm_jobs")
            connection.executescript("""DROP TRIGGER never; CREATE TRIGGER stays BEFORE UPDATE ON notes WHEN new.id = 20 BEGIN
                                          SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n); END;""")
            process = subprocess.Popen([PROGRAM, *map(str, words), "--retry"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while self.query("SELECT count(*) FROM lm_job_rows WHERE state = 'failed'") != [(0,)]:
                time.sleep(0.01)
            process.kill()
            process.wait(timeout=60)
            self.assertEqual(self.query("SELECT ended, status FROM lm_jobs"), [(None, None)])
            connection.execute("DROP TRIGGER stays")
        self.assertRegex(self.ok(*words, "--retry"), "^40 rows of notes.y: 40 answered, 0 failed")
        self.assertEqual(self.query("SELECT began FROM lm_jobs"), before)
        # Others may set rows to wait as well, and leave the job ended.
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("UPDATE notes SET y = NULL WHERE id = 7")
            connection.execute("UPDATE lm_job_rows SET state = 'waiting' WHERE id = 7")
        self.assertRegex(self.ok(*words), "^40 rows of notes.y: 40 answered, 0 failed")
        self.assertEqual(self.query("SELECT count(y) FROM notes"), [(40,)])

    def test_label_has_a_condition_that_is_one_by_itself(self):
        self.notes(6)
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("ALTER TABLE notes ADD COLUMN y; UPDATE notes SET y = 'mine' WHERE id > 3;")
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "x", "--choices", "a,b"]
        for wrong in ("id < 3) OR (1", "", "id < 3; DELETE FROM notes", "1 LIMIT 1", "1 UNION SELECT 1, 2", "id < 3 /*", "1 ORDER BY 1", "id = :x"):
            self.fails(2, "^sqlite-lm: --where: ", *words, "--where", wrong)
        self.assertEqual(self.query("SELECT name FROM sqlite_schema"), [("notes",)])
        self.ok(*words, "--where", "id < 3 -- and no more")
        self.assertEqual(self.query("SELECT id, y = 'mine' FROM notes WHERE y IS NOT NULL"), [(1, 0), (2, 0), (4, 1), (5, 1), (6, 1)])

    def test_label_leaves_no_column_that_it_cannot_fill(self):
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, oid TEXT); INSERT INTO notes(body) VALUES ('a'), ('a')")
        words = ["label", self.database, "--table", "notes", "--column", "body", "--instruction", "x", "--choices", "a,b"]
        columns = "SELECT group_concat(name) FROM pragma_table_info('notes')"
        for wrong in ("rowid", "_ROWID_"):
            self.fails(2, f"--into {wrong}: that is what SQLite calls the number of a row", *words, "--into", wrong)
        self.fails(2, "--into is empty", *words, "--into", "")
        self.fails(1, "row 2 has the id a, as an earlier one", *words, "--into", "y", "--key", "body")
        self.assertEqual(self.query(columns), [("id,body,oid",)])
        self.fails(1, "No such file", *words, "--into", "y", LM_MODEL="no-such.gguf")
        self.assertEqual(self.query(columns), [("id,body,oid",)])
        # A column that was there stays, and one of that name may be filled.
        self.fails(1, "No such file", *words, "--into", "oid", LM_MODEL="no-such.gguf")
        self.ok(*words, "--into", "oid")
        self.ok(*words, "--into", "y")
        self.assertEqual(self.query("SELECT count(oid), count(y) FROM notes"), [(2, 2)])

    def test_names_that_need_quotes_and_keys(self):
        with sqlite3.connect(self.database) as connection:
            connection.execute('CREATE TABLE "my ""notes"(k TEXT PRIMARY KEY, "the body" TEXT, "to" TEXT) WITHOUT ROWID')
            connection.execute('INSERT INTO "my ""notes" VALUES (\'a\', \'x\', NULL), (\'b\', \'y\', NULL)')
        connection.close()
        words = ["label", self.database, "--table", 'my "notes', "--column", "the body", "--into", "to",
                 "--instruction", "Say something.", "--options", '{"max_tokens":3}']
        self.fails(2, 'the table my "notes has no rowid .*--key NAME', *words)
        self.ok(*words, "--key", "k")
        self.assertEqual(self.query('SELECT count("to") FROM "my ""notes"'), [(2,)])

    def test_columns_that_are_called_as_the_number_of_a_row(self):
        words = ["label", self.database, "--column", "body", "--into", "y", "--instruction", "x", "--choices", "x,y"]
        for columns in (["rowid"], ["ROWID", "_rowid_"], ["rowid", "oid"]):
            table = "_and_".join(["t", *columns])
            with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
                connection.execute(f"CREATE TABLE {table}({', '.join(columns)}, body)")
                connection.executemany(f"INSERT INTO {table}(body) VALUES (?)", [("a",), ("b",)])
            self.assertRegex(self.ok(*words, "--table", table), f"^2 rows of {table}.y: 2 answered")
            self.assertEqual(self.query(f"SELECT count(*) FROM {table} WHERE y IN ('x', 'y')"), [(2,)])
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            connection.executescript("CREATE TABLE t(oid, rowid, _rowid_, body); INSERT INTO t(oid, body) VALUES (7, 'a')")
        self.fails(2, "the columns of the table t have all the names of its rowid; --key NAME", *words, "--table", "t")
        self.assertRegex(self.ok(*words, "--table", "t", "--key", "oid"), "^1 rows of t.y: 1 answered")

    def test_keys_that_their_collation_takes_to_be_equal(self):
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            connection.executescript("CREATE TABLE notes(k TEXT COLLATE NOCASE, body TEXT, y TEXT); CREATE INDEX by_k ON notes(k); CREATE INDEX by_y ON notes(y)")
            connection.executemany("INSERT INTO notes(k, body) VALUES (?, ?)", [("a", "the same"), ("A", "the same"), ("b", "another"), ("B ", "one more"), ("B", "the last")])
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "x", "--choices", "x,y", "--key", "k"]
        self.assertRegex(self.ok(*words, "--where", "k = 'a' COLLATE BINARY"), "^1 rows of notes.y: 1 answered")
        self.assertEqual(self.query("SELECT k FROM notes WHERE y IS NOT NULL"), [("a",)])
        # Its index is what finds a row.
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {self.query('SELECT target FROM lm_jobs')[0][0]}", {"id": "a", "value": "x", "prompt": "the same"})
            self.assertRegex(plan.fetchall()[0][3], r"^SEARCH notes USING INDEX by_k \(k=\?\)$")
        self.assertRegex(self.ok(*words), "^4 rows of notes.y: 4 answered")

    def test_ctrl_c_stops_and_the_same_command_goes_on(self):
        model = self.folder / "slow.gguf"
        write_slow_model(str(model))
        self.notes(1500)
        words = ["label", str(self.database), "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z",
                 "--model", str(model), "--options", '{"max_tokens":3}']
        try:
            parent, child = pty.openpty()
        except OSError:  # there are no terminals in a bare root: then there is no bar to be seen
            parent, child = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDWR)
        process = subprocess.Popen([PROGRAM, *words], stdin=child, stdout=subprocess.PIPE, stderr=child, text=True)
        shown, is_terminal = "", os.isatty(child)
        os.close(child)
        while is_terminal and not re.search(r"\[=+> *\] \d+ of 1500, [\d.]+ rows/s, [\d:]+( s)? left", shown):
            shown += os.read(parent, 4096).decode()
        while not is_terminal and ("y",) not in self.query("SELECT name FROM pragma_table_info('notes')"):
            time.sleep(0.01)
        while self.query("SELECT count(y) FROM notes") == [(0,)]:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        os.close(parent)
        self.assertEqual(process.returncode, 130)
        before = self.query("SELECT count(y) FROM notes")[0][0]
        self.assertGreater(before, 0)
        self.assertLess(before, 1500)
        self.fails(1, "begun with other arguments", *words, "--where", "id > 5")
        first = self.query("SELECT id, y FROM notes WHERE y IS NOT NULL")
        self.assertRegex(self.ok(*words), "1500 rows of notes.y: 1500 answered, 0 failed")
        self.assertEqual(self.query("SELECT count(y) FROM notes"), [(1500,)])
        self.assertTrue(set(first) <= set(self.query("SELECT id, y FROM notes")))
        attempts = self.query("SELECT sum(attempts = 1) FROM lm_job_rows")[0][0]
        self.assertGreaterEqual(attempts, before)  # what was stored is not asked again

    def test_ctrl_c_while_it_reads(self):
        for words in (["summarize"], ["chat", self.database]):
            process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            asleep = 0
            while asleep < 5:  # it listens to Ctrl-C, and waits for a text
                time.sleep(0.04)
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                listens = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) & 1 << (signal.SIGINT - 1)
                asleep = asleep + 1 if listens and "State:\tS" in status else 0
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=60), 130, words)
            self.assertEqual(process.stdout.read(), "")
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()

    def test_lost_output_is_no_success(self):
        for words in (["--help"], ["models", self.folder], ["ask", "Hello", "--options", '{"max_tokens":2}']):
            with open("/dev/full", "w") as full:
                result = subprocess.run([PROGRAM, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
            self.assertEqual((result.returncode, result.stderr), (1, "sqlite-lm: the output could not be written\n"), words)

    def test_rows_that_fail_are_told(self):
        self.notes(2)
        with sqlite3.connect(self.database) as connection:
            connection.execute("UPDATE notes SET body = replace(hex(zeroblob(20000)), '0', 'word ') WHERE id = 2")
        connection.close()
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z"]
        result = self.fails(1, "row 2: .*context", *words)
        self.assertIn("1 answered, 1 failed", result.stdout)
        self.assertIn("--retry", result.stderr)

    def test_summarize(self):
        one, two = self.folder / "one.txt", self.folder / "two.txt"
        one.write_text("A tool that draws maps.")
        two.write_text("A library for letters.")
        options = ["--options", '{"max_tokens":6}']
        alone = self.ok("summarize", one, *options)
        self.assertEqual(self.ok("summarize", *options, stdin=one.read_text()), alone)
        self.assertIn(f"{one}:\n{alone}", self.ok("summarize", one, two, *options))
        lines = [json.loads(line) for line in self.ok("summarize", one, two, "--json", *options).splitlines()]
        self.assertEqual([line["file"] for line in lines], [str(one), str(two)])

    def test_summarize_does_what_it_can(self):
        words = []
        for name, content in (("one", b"A tool that draws maps."), ("bad", b"ab\xff"), ("empty", b" \n"), ("two", b"\xef\xbb\xbfA library for letters.")):
            (self.folder / name).write_bytes(content)
            words.append(self.folder / name)
        options = ["--options", '{"max_tokens":6}']
        result = self.fails(1, r"\A.*bad: no UTF-8 at byte 2\n.*nothing: cannot be opened.*\n.*empty: it is empty.*\n.*not all texts were summarized\n\Z",
                            "summarize", *words[:2], self.folder / "nothing", *words[2:], "--json", *options)
        self.assertEqual([json.loads(line)["file"] for line in result.stdout.splitlines()], [str(words[0]), str(words[3])])
        # A byte order mark is none of the text.
        plain = self.ok("summarize", *options, stdin="A library for letters.")
        self.assertEqual(json.loads(result.stdout.splitlines()[1])["summary"] + "\n", plain)
        self.assertEqual(self.ok("ask", "-", *options, stdin="\ufeffHello"), self.ok("ask", "Hello", *options))
        self.fails(1, "-: it is empty", "summarize", stdin="")

    def test_what_fails_is_no_success(self):
        result = self.fails(1, "context", "ask", "--json", "word " * 5000)
        self.assertIn("context", json.loads(result.stdout)["error"])
        result = self.fails(1, "the model cannot be used: .*no-such.gguf", "doctor", LM_MODEL="no-such.gguf")
        self.assertRegex(result.stdout, r"(?m)^model +.*no-such.gguf$")
        self.fails(1, "the model cannot be used: .*no-such.gguf", "doctor", "--json", LM_MODEL="no-such.gguf")
        (self.folder / "bad.gguf").write_text("GGUF?")
        self.fails(1, "not all of these files are models", "models", os.environ["LM_MODEL"], self.folder / "bad.gguf")
        self.fails(1, "not all of these files are models", "models", "--json", self.folder / "bad.gguf")

    def test_bench_of_a_model_that_reasons(self):
        result = run("bench", *REASONS, "--tokens", "4", "--words", "20")
        self.assertEqual((result.returncode, without_trade(result.stderr)), (0, ""))
        self.fails(1, "1 of 1 row failed: .*the prompt has", "bench", "--words", "100000")

    def typed(self, *words, steps):
        """What the program shows at a terminal and how it ends, where what is typed is (text to wait for, keys)."""
        try:
            process, terminal = pty.fork()
        except OSError:
            self.skipTest("there are no terminals here")
        if process == 0:
            os.execv(PROGRAM, [PROGRAM, *map(str, words)])
        shown = b""
        try:
            with contextlib.suppress(OSError):  # its end
                for awaited, keys in [*steps, (None, b"")]:
                    while awaited is None or not re.search(awaited, shown):
                        self.assertTrue(select.select([terminal], [], [], 60)[0], shown)
                        read = os.read(terminal, 4096)
                        if not read:
                            break
                        shown += read
                    if keys:
                        time.sleep(0.3)  # the program reads
                        os.write(terminal, keys)
        except BaseException:
            os.kill(process, signal.SIGKILL)
            raise
        finally:
            status = os.waitpid(process, 0)[1]
            os.close(terminal)
        return shown.decode(errors="replace"), os.waitstatus_to_exitcode(status)

    def test_ctrl_c_ends_an_answer_and_not_the_chat(self):
        model = self.folder / "slow.gguf"
        write_slow_model(str(model))
        words = ["chat", self.database, "--model", model, "--options", '{"max_tokens":4000}']
        shown, code = self.typed(*words, steps=[(b"> ", b"Hello\r"), (rb"Hello\r\n(.|\n){20}", b"\x03"), (b"this turn is not kept\r\n> ", b"\x04")])
        self.assertEqual(code, 0, shown)
        shown, code = self.typed(*words, steps=[(b"> ", b"Hello\r"), (rb"Hello\r\n(.|\n){20}", b"\x03"), (b"this turn is not kept\r\n> ", b"\x03")])
        self.assertEqual(code, 130, shown)
        self.assertEqual(self.query("SELECT count(*) FROM lm_chat"), [(0,)])

    def test_one_end_of_a_text_that_is_typed(self):
        options = ["--options", '{"max_tokens":2}']
        for words in (["summarize"], ["ask", "-"]):
            shown, code = self.typed(*words, *options, steps=[(b"", b"Some text here\r"), (b"here\r\n", b"\x04")])
            self.assertEqual(code, 0, shown)
        shown, code = self.typed("summarize", *options, steps=[(b"", b"Some text here\r"), (b"here\r\n", b"\x03")])
        self.assertEqual(code, 130, shown)

    def test_chat_is_kept(self):
        options = ["--options", '{"max_tokens":6}']
        first = self.ok("chat", self.database, "--system", "Be kind.", *options, stdin="Hello\nAnd you?\n")
        self.assertEqual(len(first.splitlines()), 2, first)
        self.assertEqual([row[0] for row in self.query("SELECT role FROM lm_chat ORDER BY number")],
                         ["system", "user", "assistant", "user", "assistant"])
        self.ok("chat", self.database, *options, stdin="Again\n")
        self.ok("chat", self.database, "--name", "other", *options, stdin="Hello\n")
        self.assertEqual(self.query("SELECT conversation, count(*) FROM lm_chat GROUP BY 1"), [("default", 7), ("other", 2)])

    def test_lines_from_a_pipe_are_turns_but_empty_ones(self):
        answers = self.ok("chat", self.database, "--options", '{"max_tokens":2}', stdin="One\n\r\n\nTwo\r\n")
        self.assertEqual(len(answers.splitlines()), 2)
        self.assertEqual(self.query("SELECT content FROM lm_chat WHERE role = 'user'"), [("One",), ("Two",)])

    def test_ctrl_c_is_heard_behind_a_lock(self):
        self.notes(2)
        words = ["label", self.database, "--table", "notes", "--column", "body", "--into", "y", "--instruction", "z", "--choices", "a,b"]
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            process = subprocess.Popen([PROGRAM, *map(str, words)], stderr=subprocess.PIPE, text=True)
            status = pathlib.Path(f"/proc/{process.pid}/status")
            while not int(re.search(r"SigCgt:\s*(\w+)", status.read_text(encoding="ascii"))[1], 16) & 1 << signal.SIGINT - 1:
                time.sleep(0.01)
            time.sleep(0.3)  # it waits, ten seconds at most
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.communicate(timeout=8)[1], "sqlite-lm: interrupted\n")
        self.assertEqual(process.returncode, 130)

    def test_chat_keeps_what_it_could_not_store(self):
        options = ["--options", '{"max_tokens":2}']
        self.ok("chat", self.database, *options, stdin="Hello\n")
        contents = "SELECT content FROM lm_chat WHERE role = 'user'"
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.execute("CREATE TRIGGER never BEFORE INSERT ON lm_chat WHEN new.content = 'One' BEGIN SELECT RAISE(ABORT, 'not now'); END")
            connection.commit()
            # The chat goes on, the turn is part of it, and the end says what is lost.
            words = ["chat", self.database, *options]
            result = self.fails(1, r"\A(sqlite-lm: .*notes.db: not now; the turn will be stored with the next one\n){2}"
                                r"sqlite-lm: .*notes.db: not now; 2 turns are not stored\n\Z", *words, stdin="One\nTwo\n")
            self.assertEqual(len(result.stdout.splitlines()), 2)
            self.assertEqual(self.query(contents), [("Hello",)])
            process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            process.stdin.write("One\n")
            process.stdin.flush()
            self.assertRegex(process.stderr.readline(), "not now; the turn will be stored")
            connection.execute("DROP TRIGGER never")
            connection.commit()
            self.assertEqual((process.communicate("Two\n")[1], process.returncode), ("", 0))
        self.assertEqual(self.query(contents), [("Hello",), ("One",), ("Two",)])

    def test_chat_goes_on_after_a_lock(self):
        process = subprocess.Popen([PROGRAM, "chat", str(self.database), "--options", '{"max_tokens":2}'], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdin.write("Hello\n")
        process.stdin.flush()
        process.stdout.readline()
        while self.query("SELECT count(*) FROM lm_chat") != [(2,)]:
            time.sleep(0.02)
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            process.stdin.write("One\n")
            process.stdin.flush()
            self.assertRegex(process.stderr.readline(), "^sqlite-lm: .*notes.db: database is locked\n")  # after ten seconds
        self.assertEqual((process.communicate("Two\n")[1], process.returncode), ("sqlite-lm: not all turns were answered\n", 1))
        self.assertEqual(self.query("SELECT content FROM lm_chat WHERE role = 'user'"), [("Hello",), ("Two",)])

    def test_chat_takes_text_only(self):
        options = ["--options", '{"max_tokens":2}']
        for words, text, code in (([], b"ab\xffcd\nHello\n", 1), (["--system", b"\xff"], b"Hello\n", 2)):
            result = subprocess.run([PROGRAM, "chat", self.database, *options, *words], input=text, capture_output=True, timeout=120)
            self.assertEqual(result.returncode, code)
            self.assertRegex(result.stderr, rb"(what was said|--system): no UTF-8 at byte [02]\n")
        self.assertEqual(self.query("SELECT content FROM lm_chat WHERE role <> 'assistant'"), [("Hello",)])

    def test_chat_refuses_what_it_cannot_write(self):
        self.ok("chat", self.database, "--options", '{"max_tokens":2}', stdin="Hello\n")
        with open(self.database, "r+b") as file:
            file.seek(18)
            file.write(b"\x03")  # the file format's version for writers: one that nobody knows
        result = self.fails(1, r"\Asqlite-lm: .*notes.db: it is read-only, and nothing would be kept there\n\Z", "chat", self.database, stdin="Hello\n")
        self.assertEqual(result.stdout, "")

    def test_chat_goes_on_beyond_the_context(self):
        options = ["--options", '{"max_tokens":4}']
        told = "sqlite-lm: the conversation is longer than the model's context: its oldest turns are left out from here on\n"
        turns = 40
        first = run("chat", self.database, "--system", "Be kind.", *options, stdin="Hello, hello, hello, hello, hello\n" * turns)
        self.assertEqual((first.returncode, first.stderr), (0, told))
        # Nothing that was said is gone, and other processes go on as well.
        self.assertEqual(self.query("SELECT role, count(*) FROM lm_chat GROUP BY 1"), [("assistant", turns), ("system", 1), ("user", turns)])
        again = run("chat", self.database, *options, stdin="And you?\n")
        self.assertEqual((again.returncode, again.stderr), (0, told))
        # A turn that is too long by itself fails alone, and leaves out no others.
        failing = self.fails(1, r"\Asqlite-lm: lm_stream: the prompt has [0-9]+ tokens, .*\nsqlite-lm: not all turns were answered\n\Z",
                             "chat", self.folder / "new.db", *options, stdin=f"Hello\n{'word ' * 5000}\nAnd you?\n")
        self.assertEqual(len(failing.stdout.splitlines()), 2, failing.stdout)

    def test_chat_leaves_room_for_an_answer(self):
        context = lambda end: ["--model", SHIPPED, "--model-options", json.dumps(
            {"chat_template": "{% for m in messages %}{{ m.content }}. {% endfor %}" + end, "context_length": 300})]
        told = "sqlite-lm: the conversation is longer than the model's context: its oldest turns are left out from here on\n"
        # Its answers are as long as they may be, however little of the context the turns before them have left.
        words = ["chat", self.database, *context(""), "--options", '{"max_tokens":60}']
        result = run(*words, stdin=("word " * 100 + "\n") * 5)
        self.assertEqual((result.returncode, without_trade(result.stderr)), (0, told))
        self.assertEqual(self.query("SELECT length(content) FROM lm_chat WHERE role = 'assistant'"), [(len("word ") * 60,)] * 5)
        # One that reasons has room for both.
        words = ["chat", self.folder / "other.db", *context('<think>{{ "\\n" }}'), "--options", '{"max_tokens":60,"thinking_tokens":10}']
        result = run(*words, stdin="word " * 100 + "\n" + ("word " * 127 + "\n") * 4)
        self.assertEqual((result.returncode, without_trade(result.stderr)), (0, told))
        # It may want more than half of the context, and its reasoning as much: then the oldest turns go where it has found no end.
        words = ["chat", self.folder / "third.db", *context('<think>{{ "\\n" }}'), "--options", '{"max_tokens":60,"thinking_tokens":150}']
        result = run(*words, stdin=("word " * 60 + "\n") * 4)
        self.assertEqual((result.returncode, without_trade(result.stderr)), (0, told))

    def test_chat_shows_a_server_what_fits(self):
        self.needs_network()
        with ChatServer(context=40, answer=lambda body: "fine, thanks") as server:
            words = ["chat", self.database, "--system", "Be kind.", "--model", server.url]
            self.assertEqual(run(*words, stdin="How do you do today?\n" * 12).returncode, 0)
        shown = [message["content"] for message in server.requests[-1]["messages"]]
        self.assertEqual((shown[:3], len(shown)), (["Be kind.", "How do you do today?", "fine, thanks"], 10))
        # Of many turns that are too long not one at a time is left out.
        self.keep_turns(self.database, 300)
        with ChatServer(context=400, answer=lambda body: "fine, thanks") as server:
            self.assertEqual(run("chat", self.database, "--model", server.url, stdin="And you?\n").returncode, 0)
        self.assertLess(len(server.requests), 30)
        shown = [message["content"].split() for message in server.requests[-1]["messages"]]
        self.assertGreater(sum(map(len, shown)), 300)

    def keep_turns(self, database, turns):
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS lm_chat(number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, role TEXT NOT NULL, "
                               "content TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)")
            for i in range(turns):
                connection.execute("INSERT INTO lm_chat(conversation, role, content) VALUES ('default', 'user', ?), ('default', 'assistant', ?)",
                                   (f"question number {i} about the weather", f"answer number {i}: it rains"))

    def test_a_long_conversation_begins_soon(self):
        def seconds(turns):
            database = self.folder / f"{turns}.db"
            self.keep_turns(database, turns)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            result = run("chat", database, "--model", SHIPPED, "--options", '{"max_tokens":8}', stdin="Hello\n")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertEqual(result.returncode, 0)
            self.assertIn("its oldest turns are left out", result.stderr)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        self.assertLess(seconds(1000), 20 * seconds(100))

    def test_models(self):
        models = pathlib.Path(__file__).resolve().parent.parent / "testdata/models"
        text = self.ok("models", models)
        self.assertIn("llama-q8_0.gguf", text)
        self.assertIn("runs here", text)
        lines = [json.loads(line) for line in self.ok("models", models, "--json").splitlines()]
        self.assertGreater(len(lines), 5)
        problems = {pathlib.Path(line["file"]).name: line["problem"] for line in lines}
        self.assertIsNone(problems["llama-q8_0.gguf"])
        (self.folder / "bad.gguf").write_text("GGUF?")
        self.assertIn("bad.gguf", self.ok("models", self.folder))
        self.assertRegex(json.loads(self.ok("models", self.folder, "--json"))["problem"], "bad.gguf")
        self.fails(1, "nothing: no such file", "models", "nothing")
        # A name of temp.lm_models, and what the hub has given.
        self.assertIn("runs here", self.ok("models", "default"))
        missing = r"lm_inspect: 'hf:org/tiny:Q8_0' is not downloaded yet: INSERT INTO temp.lm_models\(name, path\) .* does that\n"
        self.fails(1, missing, "models", "hf:org/tiny:Q8_0", LM_CACHE=str(self.folder))
        tiny = self.folder / "hf/org/tiny"
        tiny.mkdir(parents=True)
        (tiny / "tiny-Q8_0.gguf").write_bytes((models / "llama-q8_0.gguf").read_bytes())
        self.assertRegex(self.ok("models", "hf:org/tiny:Q8_0", LM_CACHE=str(self.folder)), "hf:org/tiny:Q8_0 +llama .*runs here")
        (tiny / "tiny-Q8_0.gguf").unlink()
        # What a file says commands no terminal, and fills none.
        said = "evil\x1b[2J\u009b2J\n" + "\u00fc" * 5000
        keys = [pair("general.architecture", STRING, said)]
        (self.folder / "bad.gguf").write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(keys)) + b"".join(keys))
        text = self.ok("models", self.folder)
        self.assertIn(r"evil\x1b[2J\xc2\x9b2J\n" + "\u00fc" * 20, text)
        self.assertEqual([c for c in text if not c.isprintable()], ["\n", "\n"])
        self.assertLess(len(text), 1500)

    def test_a_folder_as_hugging_face_has_them_is_one_model(self):
        models = pathlib.Path(__file__).resolve().parent.parent / "testdata/models"
        folder = hf_writer.write_directory(hf_writer.Gguf(models / "qwen2-bf16.gguf"), self.folder / "qwen")
        part = folder / "projector"
        part.mkdir()
        (part / "config.json").write_text("{}")
        for place in (folder, self.folder):
            line, = self.ok("models", place, "--json").splitlines()
            self.assertEqual((json.loads(line)["file"], json.loads(line)["problem"]), (str(folder), None))
        self.assertIn("no models here", self.ok("models", part))

    def test_bench_and_doctor(self):
        self.assertRegex(self.ok("bench", "--tokens", "4", "--words", "20"), r"loaded in [\d.]+ s\n(?s:.*)answers, 16 rows +[\d.]+")
        self.assertIn("tokens/s", self.ok("bench", "--tokens", "4", "--words", "20", "--options", '{"temperature":1,"seed":7}'))
        text = self.ok("doctor")
        for what in ("sqlite-lm", "network", "cpu", "model", "tokens/s a row"):
            self.assertIn(what, text)
        self.assertNotIn("one that ships", text)
        self.assertIn("the one that ships, /", self.ok("doctor", LM_MODEL=""))
        self.assertIn("off (LM_NETWORK)", self.ok("doctor", LM_NETWORK="off"))


if __name__ == "__main__":
    unittest.main()
