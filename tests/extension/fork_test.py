"""In the child of a process that has run a model, the first call is an error, never a hang."""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

import harness

FORKS = int(os.environ.get("LM_FORKS", "40"))


class ForkTest(unittest.TestCase):
    def in_child(self, body):
        """The message that body() returns in a forked child, which has ten seconds."""
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                message = body()
            except sqlite3.Error as raised:
                message = str(raised)
            os.write(writable, message.encode())
            os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as pipe:
            message = pipe.read()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        return message

    def test_the_inherited_connection_says_so(self):
        connection = harness.connect()
        harness.value(connection, "SELECT generate('a', NULL, '{\"max_tokens\":1}')")
        message = self.in_child(lambda: harness.value(connection, "SELECT generate('a')"))
        self.assertIn("open the database after fork", message)
        message = self.in_child(lambda: harness.value(connection, "SELECT * FROM lm_each('[\"a\"]')"))
        self.assertIn("open the database after fork", message)

    def test_a_scan_that_was_begun_before_says_so(self):
        connection = harness.connect()
        cursor = connection.execute("SELECT value FROM lm_each('[\"a\",\"b\",\"c\"]', NULL, '{\"max_tokens\":50}')")
        cursor.fetchone()
        self.assertIn("open the database after fork", self.in_child(lambda: str(cursor.fetchall())))

    def test_what_is_remembered_is_not_looked_at(self):
        with tempfile.TemporaryDirectory() as folder:
            for memo in ([], [("memo", f"{folder}/memo.db")]):
                connection = harness.connect()
                connection.executemany("INSERT INTO temp.lm_settings VALUES (?, ?)", memo)
                harness.value(connection, "SELECT generate('a', NULL, '{\"max_tokens\":1}') || length(lm_embed('a'))")
                for sql in ("SELECT count(*) FROM lm_memo", "DELETE FROM lm_memo", "SELECT lm_embed('a')"):
                    message = self.in_child(lambda: str(harness.value(connection, sql)))
                    self.assertIn("open the database after fork", message)
                    message = self.in_child(lambda: str(harness.value(harness.connect(), sql)))
                    self.assertIn("open the database after fork", message)
                self.assertEqual(harness.value(connection, "SELECT count(*) FROM lm_memo"), 2)
                connection.close()

    def test_closing_the_inherited_connection_does_not_hang(self):
        connection = harness.connect()
        harness.value(connection, "SELECT generate('a', NULL, '{\"max_tokens\":1}')")
        self.assertEqual(self.in_child(lambda: str(connection.close())), "None")
        harness.value(connection, "SELECT generate('a', NULL, '{\"max_tokens\":1}')")

    def test_forks_while_the_engine_is_at_work(self):
        # No other thread is in SQLite, whose locks no child can open.
        connection = harness.connect()
        for n in range(FORKS):
            prompts = ", ".join(f"('{n} {i}')" for i in range(6))
            connection.execute("SELECT lm_prefetch(column1, NULL, '{\"max_tokens\":20}') FROM (VALUES " + prompts + ")").fetchall()
            time.sleep(random.uniform(0, 0.01))
            message = self.in_child(lambda: harness.value(connection, "SELECT generate('b')"))
            self.assertIn("open the database after fork", message)
            self.assertEqual(self.in_child(lambda: str(connection.close())), "None")
        self.assertEqual(harness.value(connection, "SELECT typeof(generate('c', NULL, '{\"max_tokens\":1}'))"), "text")

    def in_a_process_without_models(self, script, *args):
        """What a script prints in a fresh process; this one has run models by now."""
        head = "import os, sys; sys.path.insert(0, sys.argv[1]); import harness\n"
        done = subprocess.run([sys.executable, "-c", head + script, os.path.dirname(os.path.abspath(__file__)), *args],
                              capture_output=True, text=True, timeout=20)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        return done.stdout

    def test_a_child_of_a_process_without_models_is_like_any_other(self):
        self.assertEqual(self.in_a_process_without_models(
            "c = harness.connect()\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    d = harness.connect()\n"
            "    print(harness.value(d, \"SELECT typeof(generate('a', NULL, '{\\\"max_tokens\\\":1}'))\"), flush=True)\n"
            "    d.close(); os._exit(0)\n"
            "sys.exit(os.waitpid(pid, 0)[1])\n"), "text\n")

    def test_a_child_has_the_memo_of_a_process_without_models(self):
        """And keeps its log when the parent, the last one as far as SQLite can tell, lets the file go."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/memo.db"
            for closed_first in ("parent", "inherited"):
                self.assertEqual(self.in_a_process_without_models(
                    "path, closed_first = sys.argv[2:]\n"
                    "def connect():\n"
                    "    connection = harness.connect()\n"
                    "    connection.execute(\"INSERT INTO temp.lm_settings VALUES ('memo', ?)\", (path,))\n"
                    "    return connection\n"
                    "c = connect()\n"
                    "c.execute('SELECT * FROM lm_memo').fetchall()\n"
                    "child_reads, parent_writes = os.pipe()\n"
                    "parent_reads, child_writes = os.pipe()\n"
                    "pid = os.fork()\n"
                    "if pid == 0:\n"
                    "    if closed_first == 'inherited': c.close()\n"
                    "    d = connect()\n"
                    "    ask = lambda prompt: harness.value(d, \"SELECT generate(?, NULL, '{\\\"max_tokens\\\":1}')\", prompt)\n"
                    "    ask(closed_first)\n"
                    "    os.write(child_writes, b'.'); os.read(child_reads, 1)\n"
                    "    for i in range(5): ask(f'{closed_first} {i}')\n"
                    "    os._exit(0)\n"
                    "os.read(parent_reads, 1); c.close(); os.write(parent_writes, b'.')\n"
                    "sys.exit(os.waitpid(pid, 0)[1])\n", path, closed_first), "")
            file = sqlite3.connect(path)
            self.assertEqual(harness.value(file, "PRAGMA integrity_check"), "ok")
            self.assertEqual(harness.value(file, "SELECT count(*) FROM generations"), 12)
            file.close()


if __name__ == "__main__":
    unittest.main()
