"""lm_running shows what other connections of the same database have under way, also those of other processes, and
DELETE ends it."""
import json
import os
import pathlib
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import harness
from slow_model import write_slow_model

LONG = "word " * 600  # about a second of the slow model


class Statement(threading.Thread):
    """Runs a statement on its connection; `error` is what it failed with."""

    def __init__(self, connection, sql, *parameters):
        super().__init__()
        self.connection, self.sql, self.parameters = connection, sql, parameters
        self.rows, self.error, self.ended = None, None, None
        self.start()

    def run(self):
        try:
            self.rows = self.connection.execute(self.sql, self.parameters).fetchall()
        except sqlite3.Error as raised:
            self.error = raised
        self.ended = time.monotonic()


class TicketsOfOthersTest(unittest.TestCase):
    def test_the_error_of_another_statements_ticket_has_no_row(self):
        """Its number among the rows of the statement that awaits it would be somebody else's."""
        connection = harness.connect()
        ask = "SELECT lm_submit(column1, NULL, '{\"max_tokens\":1}') FROM (VALUES ('a'), (x'00'), ('b'))"
        tickets = connection.execute(ask)
        tickets.fetchone()
        wrong = tickets.fetchone()[0]  # its statement runs on
        own = "WITH s AS MATERIALIZED (SELECT lm_submit('own', NULL, '{\"max_tokens\":1}') AS t) SELECT lm_await(?) FROM s"
        for sql in ("SELECT lm_await(?)", own):
            with self.assertRaisesRegex(sqlite3.OperationalError, "^lm_await: prompt must be text"):
                connection.execute(sql, (wrong,)).fetchall()
        connection.close()


class CursorsOfOthersTest(unittest.TestCase):
    def test_a_statement_is_itself_whichever_other_one_ends_between_its_cursors_beginning_and_its_scan(self):
        connection = harness.connect()
        connection.execute("CREATE TABLE t(x)")
        connection.execute("INSERT INTO t VALUES ('a'), ('b'), ('c')")
        query = "SELECT id FROM lm_query('SELECT x, x FROM t', '{\"max_tokens\":2}')"
        others = [connection.execute(query)]
        others[0].fetchone()
        connection.create_function("ends_the_other", 1, lambda x: others and others.pop().close() or x)
        rows = connection.execute(f"SELECT t.x, q.id FROM t LEFT JOIN ({query}) q ON q.id = t.x WHERE ends_the_other(t.x) IS NOT NULL")
        self.assertEqual(rows.fetchone(), ("a", "a"))
        self.assertEqual(others, [])
        running = connection.execute("SELECT sql FROM lm_running WHERE sql LIKE '%lm_query%'").fetchall()
        self.assertEqual([sql.startswith("SELECT t.x") for sql, in running], [True])
        self.assertEqual(rows.fetchall(), [("b", "b"), ("c", "c")])
        connection.close()


class RunningCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = str(pathlib.Path(cls.folder.name) / "slow.gguf")
        write_slow_model(cls.model)
        os.environ["LM_RUNTIME_DIR"] = cls.runtime = os.path.join(cls.folder.name, "runtime")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.path = os.path.join(self.folder.name, self.id().split(".")[-1] + ".db")
        self.worker, self.watcher = self.connect(), None
        self.worker.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, answer TEXT)")
        self.worker.execute(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
            "INSERT INTO notes(body) SELECT 'note ' || i FROM n")
        self.watcher = self.connect()

    def tearDown(self):
        self.worker.close()
        self.watcher.close()

    def connect(self, model=True):
        connection = harness.connect(self.path)
        if model:
            connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('default', ?)", (self.model,))
            connection.execute("INSERT INTO temp.lm_settings VALUES ('max_tokens', 3)")
        return connection

    def running(self, condition="1"):
        """The rows that show, once some do for which `condition` holds."""
        for _ in range(2000):
            cursor = self.watcher.execute(f"SELECT * FROM lm_running WHERE {condition}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row)) for row in cursor]
            if rows:
                return rows
            time.sleep(0.01)
        self.fail(f"nothing runs with {condition}")

    def assert_cancelled(self, statement, name):
        statement.join()
        self.assertRegex(str(statement.error), rf"^{name}: cancelled by connection \d+, which deleted it from lm_running")


class RunningTest(RunningCase):
    def test_an_update_is_seen_and_ended_from_another_connection(self):
        sql = "UPDATE notes SET answer = generate(body)"
        self.worker.execute("BEGIN")
        self.worker.execute("INSERT INTO notes(body) VALUES ('kept')")
        update = Statement(self.worker, sql)
        row = self.running("done > 20 AND waiting_for = 'model'")[0]
        self.assertEqual((row["kind"], row["sql"], row["total"], row["eta_seconds"]), ("statement", sql, None, None))
        self.assertEqual(row["failed"], 0)
        self.assertGreater(row["foreseen"], 0)
        self.assertLessEqual(row["foreseen"], row["done"] + 1)
        self.assertGreater(row["tokens_per_second"], 0)
        self.assertGreater(row["seconds"], 0)
        self.assertIsNone(row["hint"])
        later = self.running(f"done > {row['done']}")[0]
        self.assertEqual(later["id"], row["id"])
        asked = time.monotonic()
        self.watcher.execute("DELETE FROM lm_running WHERE id = ?", (row["id"],))
        self.assert_cancelled(update, "generate")
        self.assertLess(update.ended - asked, 1)  # on any machine; the rest would take many
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        # The transaction goes on.
        self.assertTrue(self.worker.in_transaction)
        self.worker.execute("COMMIT")
        self.assertEqual(harness.value(self.worker, "SELECT count(*) FROM notes WHERE body = 'kept'"), 1)
        self.assertEqual(harness.value(self.worker, "SELECT count(answer) FROM notes"), 0)

    def test_every_form_is_seen_by_its_own_text(self):
        rows = "(SELECT json_group_array(body) FROM notes)"
        forms = {
            f"SELECT count(value) FROM lm_each({rows})": "lm_each",
            "SELECT count(value) FROM lm_query('SELECT id, body FROM notes')": "lm_query",
            "SELECT count(piece) FROM lm_stream('a', NULL, '{\"max_tokens\":4000}')": "lm_stream",
            "SELECT lm_prefetch(body) FROM notes": "lm_prefetch",
            "SELECT count(y) FROM (SELECT lm_map(body) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING) AS y FROM notes)":
                "lm_map",
            "WITH s AS MATERIALIZED (SELECT lm_submit(body) AS t FROM notes) SELECT count(lm_await(t)) FROM s": "lm_await",
            "SELECT lm_summarize_agg(body, '{\"part_tokens\":40}') FROM notes": "lm_summarize_agg",
            "SELECT count(lm_classify(body, '[\"a\",\"b\"]')) FROM notes": "lm_classify",
            "SELECT count(lm_embed(body)) FROM notes": "lm_embed",
            "SELECT count(lm_logprobs(body)) FROM notes": "lm_logprobs",
        }
        for sql, name in forms.items():
            with self.subTest(name):
                statement = Statement(self.worker, sql)
                row = self.running("done > 2 AND kind = 'statement'")[0]
                self.watcher.execute("DELETE FROM lm_running")
                self.assert_cancelled(statement, name)
                self.assertEqual(row["sql"], sql)
                self.assertEqual(row["total"], 2000 if name == "lm_each" else None)
                self.assertEqual(row["eta_seconds"] is not None, name == "lm_each")
                self.assertIsInstance(statement.error, sqlite3.OperationalError)

    def test_a_job_shows_its_rows_and_keeps_what_is_done(self):
        self.worker.execute(
            "INSERT INTO lm_jobs(name, query, target) VALUES ('fill', 'SELECT id, body FROM notes',"
            " 'UPDATE notes SET answer = :value WHERE id = :id')")
        job = Statement(self.worker, "SELECT * FROM lm_run(?)", "fill")
        row = self.running("kind = 'job' AND done > 0")[0]
        self.assertEqual((row["name"], row["total"]), ("fill", 2000))
        self.assertEqual(row["sql"], "SELECT * FROM lm_run(?)")
        self.watcher.execute("DELETE FROM lm_running WHERE name = 'fill'")
        self.assert_cancelled(job, "lm_run")
        states = dict(self.watcher.execute("SELECT state, count(*) FROM lm_job_rows GROUP BY state"))
        self.assertEqual(set(states) - {"done"}, {"waiting"})

    def test_others_write_while_answers_are_collected_in_wal_mode_or_of_a_copy(self):
        self.worker.execute("CREATE TEMP TABLE texts AS SELECT id, body FROM notes")
        writer = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        for mode, others_write in (("delete", {"texts"}), ("wal", {"texts", "notes"})):
            self.assertEqual(harness.value(self.worker, f"PRAGMA journal_mode = {mode}"), mode)
            for table in ("notes", "texts"):
                for sql in ("SELECT lm_prefetch(body) FROM {}", "CREATE TEMP TABLE answers AS SELECT id, generate(body) FROM {}"):
                    with self.subTest(mode=mode, sql=sql.format(table)):
                        collecting = Statement(self.worker, sql.format(table))
                        self.running("waiting_for = 'model'")
                        if table in others_write:
                            writer.execute("INSERT INTO notes(body) VALUES ('new')")
                        else:
                            with self.assertRaisesRegex(sqlite3.OperationalError, "locked"):
                                writer.execute("INSERT INTO notes(body) VALUES ('new')")
                        self.watcher.execute("DELETE FROM lm_running")
                        collecting.join()
                        self.assertRegex(str(collecting.error), "cancelled by connection")
        writer.close()

    def test_a_load_is_a_row_of_its_own(self):
        big = os.path.join(self.folder.name, "big.gguf")
        write_slow_model(big, layers=60)
        # Which reads all of it at once.
        options = json.dumps({"pack_cache": self.folder.name})
        self.worker.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('big', ?, ?)", (big, options))
        statement = Statement(self.worker, "SELECT lm_token_count('x', '{\"model\":\"big\"}')")
        load = self.running("kind = 'load'")[0]
        self.assertEqual((load["name"], load["sql"], load["done"]), (big, None, None))
        waiting = self.watcher.execute("SELECT sql FROM lm_running WHERE waiting_for = 'load'").fetchall()
        self.watcher.execute("DELETE FROM lm_running WHERE kind = 'load'")
        if not waiting:  # it was over by then
            statement.join()
            return
        self.assertEqual(waiting, [(statement.sql,)])
        statement.join()
        self.assertRegex(str(statement.error), "cancelled by connection")

    def test_serial_rows_show_why(self):
        self.worker.create_function("mine", 1, lambda text: text)
        statement = Statement(self.worker, "SELECT count(generate(mine(body))) FROM notes")
        row = self.running("hint IS NOT NULL")[0]
        self.assertRegex(row["hint"], r"generate\(\) for 16 rows one at a time \(no look-ahead: .*mine")
        self.assertEqual(row["foreseen"], 0)
        self.watcher.execute("DELETE FROM lm_running")
        self.assert_cancelled(statement, "generate")

    def test_deep_in_sqlite_it_is_interrupted(self):
        # After its one answer, SQLite counts for itself, for a long time.
        statement = Statement(
            self.worker, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT (SELECT generate('one')), (SELECT count(*) FROM n)")
        self.running("done > 0 AND waiting_for IS NULL")
        asked = time.monotonic()
        self.watcher.execute("DELETE FROM lm_running")
        statement.join()
        self.assertLess(statement.ended - asked, 1)
        self.assertEqual(str(statement.error), "interrupted")

    def test_between_two_rows_nothing_else_is_interrupted(self):
        one, other = self.worker, self.watcher
        rows = one.execute("SELECT piece FROM lm_stream('a', NULL, '{\"max_tokens\":50}')")
        rows.fetchone()
        one.execute("BEGIN")
        one.execute("CREATE TEMP TABLE kept(x)")
        other.execute("DELETE FROM lm_running")
        one.execute("INSERT INTO kept VALUES (1)")
        with self.assertRaisesRegex(sqlite3.OperationalError, "cancelled by connection"):
            rows.fetchall()
        self.assertTrue(one.in_transaction)
        one.execute("COMMIT")
        self.assertEqual(one.execute("SELECT count(*) FROM kept").fetchone(), (1,))

    def test_another_statement_of_its_connection_goes_on(self):
        """Which is executed, for long, while the one that is ended is between two rows."""
        self.worker.execute("CREATE TABLE kept(x)")
        rows = self.worker.execute("SELECT generate(body) FROM notes")
        rows.fetchone()
        for begin, end in (("BEGIN", "COMMIT"), ("SELECT 1", "SELECT 1")):
            self.worker.execute(begin)
            self.worker.execute("INSERT INTO kept VALUES ('before')")
            other = Statement(self.worker, "INSERT INTO kept WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) "
                              "SELECT count(*) FROM n")
            time.sleep(0.1)
            self.watcher.execute("DELETE FROM lm_running")
            self.assertTrue(other.is_alive())
            other.join()
            self.assertIsNone(other.error)
            self.worker.execute(end)
        self.assertEqual(harness.value(self.watcher, "SELECT count(*) FROM kept"), 4)
        with self.assertRaisesRegex(sqlite3.OperationalError, "cancelled by connection"):
            rows.fetchall()

    def test_the_pages_example(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "sql/reference/lm_running.sql").read_text()
        example = page.split("-- In Python:\n")[1].split("-- Of other processes")[0]
        lines = [line.removeprefix("--   ").split("  #")[0] for line in example.splitlines()]
        names = {"sqlite3": sqlite3, "threading": threading}
        errors = []
        threading.excepthook, hook = lambda args: errors.append(args.exc_value), threading.excepthook
        self.addCleanup(setattr, threading, "excepthook", hook)
        self.worker.execute("ALTER TABLE notes ADD COLUMN y")
        os.environ["LM_MODEL"], model = self.model, os.environ["LM_MODEL"]
        self.addCleanup(os.environ.__setitem__, "LM_MODEL", model)
        text = "\n".join(lines).replace('"notes.db"', repr(self.path)).replace('"./lm0"', repr(harness.LM0))
        before, read, end = text.partition("watcher.execute")
        exec(before, names)
        self.running("kind = 'statement' AND waiting_for = 'model'")
        exec(read + end, names)
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join()
        self.assertRegex(str(errors), "cancelled by connection")

    def test_a_reader_that_pauses_between_rows_is_ended_too(self):
        """What is left of the statement is SQLite's alone."""
        rows = self.worker.execute(
            "WITH g AS MATERIALIZED (SELECT generate('one') AS x), n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT length(x), i FROM n CROSS JOIN g")
        rows.fetchone()
        ender = Statement(self.watcher, "DELETE FROM lm_running")
        with self.assertRaisesRegex(sqlite3.OperationalError, "interrupted"):
            for count, _ in enumerate(rows):
                self.assertLess(count, 10**7)
                if count % 500 == 0:
                    time.sleep(0.001)
        ender.join()

    def test_databases_do_not_see_each_other(self):
        other = harness.connect(":memory:")
        statement = Statement(self.worker, "SELECT count(generate(body)) FROM notes")
        row = self.running("done > 0")[0]
        self.assertEqual(other.execute("SELECT * FROM lm_running").fetchall(), [])
        other.execute("INSERT INTO temp.lm_settings VALUES ('salt', 'ours')")
        self.assertEqual(other.execute("SELECT * FROM lm_running").fetchall(), [])
        other.execute("DELETE FROM lm_running")
        self.running(f"done > {row['done']}")
        self.watcher.execute("DELETE FROM lm_running")
        self.assert_cancelled(statement, "generate")
        other.close()

    def test_ones_own_statement_ends_when_it_goes_on(self):
        cursor = self.worker.execute("SELECT generate(body) FROM notes")
        cursor.fetchone()
        mine = self.worker.execute("SELECT id, sql, waiting_for FROM lm_running").fetchall()
        self.assertEqual([row[1:] for row in mine], [("SELECT generate(body) FROM notes", None)])
        self.worker.execute("DELETE FROM lm_running")
        with self.assertRaisesRegex(sqlite3.OperationalError, "generate: cancelled by connection"):
            cursor.fetchall()
        self.assertEqual(self.worker.execute("SELECT * FROM lm_running").fetchall(), [])

    def test_only_delete_writes(self):
        for sql in ("INSERT INTO lm_running(sql) VALUES ('x')", "UPDATE lm_running SET done = 1"):
            statement = Statement(self.worker, "SELECT count(generate(body)) FROM notes") if "UPDATE" in sql else None
            if statement:
                self.running("done > 0")
            with self.assertRaisesRegex(sqlite3.OperationalError, "DELETE ends it"):
                self.watcher.execute(sql)
            self.watcher.execute("DELETE FROM lm_running")
            if statement:
                statement.join()

    def test_ten_cancels_are_prompt(self):
        latencies = []
        for _ in range(10):
            statement = Statement(self.worker, "SELECT generate(?, NULL, '{\"cache\":false}')", LONG)
            row = self.running()[0]
            asked = time.monotonic()
            self.watcher.execute("DELETE FROM lm_running WHERE id = ?", (row["id"],))
            self.assert_cancelled(statement, "generate")
            latencies.append(statement.ended - asked)
        # Half of them may be the machine's; a prefill takes far longer.
        self.assertLess(sorted(latencies)[2], 0.05, latencies)
        self.assertLess(max(latencies), 0.5, latencies)


UPDATE = "UPDATE notes SET answer = generate(body)"
# Runs the statement on the database, and tells its error.
CHILD = """
import os, sqlite3, sys
import harness
path, model, sql = sys.argv[1:4]

def connect():
    connection = harness.connect(path)
    connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('default', ?)", (model,))
    connection.execute("INSERT INTO temp.lm_settings VALUES ('max_tokens', 12)")
    return connection

connection = connect()
if len(sys.argv) > 4:  # an inherited connection may not be used
    if os.fork():
        os.wait()
        os._exit(0)
    connection = connect()
try:
    connection.execute(sql).fetchall()
except sqlite3.Error as raised:
    print(raised, flush=True)
"""


# Has answered once, and has no descriptor left while somebody asks; tells the processor time of half a second of that.
FULL = """
import os, resource, sqlite3, sys, time
import harness
connection = harness.connect(sys.argv[1])
connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('default', ?)", (sys.argv[2],))
connection.execute("SELECT generate('a', NULL, '{\\"max_tokens\\":1}')").fetchall()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    print("full", flush=True)
sys.stdin.readline()
used = time.process_time()
time.sleep(0.5)
print(time.process_time() - used, flush=True)
for descriptor in held:
    os.close(descriptor)
sys.stdin.readline()
"""


def socket_name(process):
    """Of a process of this container."""
    return f"{process}-{os.stat('/proc/self/ns/pid').st_ino}"


class ProcessesTest(RunningCase):
    def start(self, path=None, sql=UPDATE, extra=(), code=CHILD, **environment):
        """`environment` is added to this process's; what is None is taken away."""
        wanted = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
        process = subprocess.Popen([sys.executable, "-c", code, path or self.path, self.model, sql, *extra], env=wanted,
                                   cwd=os.path.dirname(os.path.abspath(__file__)), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def listen(self, name):
        """At the socket of a process that is made up."""
        os.makedirs(self.runtime, 0o700, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(self.runtime, name))
        listener.listen()
        self.addCleanup(os.unlink, os.path.join(self.runtime, name))
        self.addCleanup(listener.close)
        return listener

    def test_an_update_is_seen_and_ended_from_another_process(self):
        update = self.start()
        row = self.running("done > 20")[0]
        self.assertEqual((row["process"], row["sql"], row["kind"], row["total"]), (update.pid, UPDATE, "statement", None))
        self.assertGreater(row["foreseen"], 0)
        self.assertGreater(row["tokens_per_second"], 0)
        later = self.running(f"done > {row['done']}")[0]
        self.assertEqual((later["id"], later["began"]), (row["id"], row["began"]))
        self.assertEqual(os.stat(self.runtime).st_mode & 0o777, 0o700)
        self.watcher.execute("DELETE FROM lm_running WHERE id = ?", (row["id"],))
        error = update.communicate(timeout=60)[0]
        self.assertRegex(error, rf"^generate: cancelled by connection \d+ of process {os.getpid()}, which deleted it")
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        self.assertNotIn(socket_name(update.pid), os.listdir(self.runtime))  # exit() has cleaned up

    def test_rows_of_both_processes_and_an_end_for_one(self):
        theirs = self.start(sql="SELECT count(generate(body)) FROM notes")
        self.running("done > 0")
        ours = Statement(self.worker, "SELECT count(generate(body)) FROM notes WHERE 1")
        self.running(f"process = {os.getpid()} AND done > 0")
        rows = {row["process"]: row for row in self.running()}
        self.assertEqual(set(rows), {os.getpid(), theirs.pid})
        self.watcher.execute("DELETE FROM lm_running WHERE process <> ?", (os.getpid(),))
        self.assertIn("cancelled by", theirs.communicate(timeout=60)[0])
        self.running(f"done > {rows[os.getpid()]['done']}")
        self.watcher.execute("DELETE FROM lm_running")
        self.assert_cancelled(ours, "generate")

    def test_what_was_killed_is_gone(self):
        update = self.start()
        self.running("done > 0")
        update.send_signal(signal.SIGKILL)
        update.wait()
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        self.assertNotIn(socket_name(update.pid), os.listdir(self.runtime))

    def test_one_that_hangs_is_left_out(self):
        update = self.start()
        self.running("done > 0")
        update.send_signal(signal.SIGSTOP)
        os.waitpid(update.pid, os.WUNTRACED)  # a signal's sender does not wait until each thread has stopped
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        update.send_signal(signal.SIGCONT)
        self.running("done > 0")

    def test_many_that_hang_cost_one_wait_and_that_can_be_interrupted(self):
        for process in range(50):
            self.listen(f"{4_000_000 + process}-1")
        began = time.monotonic()
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        self.assertLess(time.monotonic() - began, 10)  # one after the other they take 20 s
        for sql in ("SELECT * FROM lm_running", "DELETE FROM lm_running"):
            fastest = min(self.interrupted_after(sql) for _ in range(10))
            self.assertLess(fastest, 0.2)  # alone it waits for 0.4

    def interrupted_after(self, sql):
        """Seconds until a statement that is interrupted every 10 ms has failed so; infinite where it has not."""
        over = threading.Event()

        def interrupt():
            while not over.wait(0.01):
                self.watcher.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        began = time.monotonic()
        try:
            self.watcher.execute(sql).fetchall()
            return float("inf")
        except sqlite3.OperationalError as raised:
            self.assertIn("interrupted", str(raised))
            return time.monotonic() - began
        finally:
            over.set()
            thread.join()

    def leave_sockets(self, count):
        """As processes that were killed do, of numbers that there are none of."""
        os.makedirs(self.runtime, 0o700, exist_ok=True)
        for process in range(count):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.join(self.runtime, socket_name(4_100_000 + process)))

    def sockets_of_others(self):
        return [name for name in os.listdir(self.runtime) if name != socket_name(os.getpid())]

    def test_what_thousands_have_left_hides_nobody_and_takes_no_descriptors(self):
        update = self.start()
        self.running("done > 0")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.leave_sockets(1500)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
        self.assertEqual(self.watcher.execute("SELECT process FROM lm_running").fetchall(), [(update.pid,)])
        self.assertEqual(self.sockets_of_others(), [socket_name(update.pid)])
        self.watcher.execute("DELETE FROM lm_running")
        self.assertIn("cancelled by", update.communicate(timeout=60)[0])

    def test_who_begins_takes_away_what_others_have_left(self):
        self.leave_sockets(300)
        alive = self.listen(socket_name(os.getppid()))
        self.assertEqual(self.start(sql="SELECT generate('a')").communicate(timeout=60)[0], "")
        self.assertEqual(self.sockets_of_others(), [socket_name(os.getppid())])
        alive.setblocking(False)
        self.assertRaises(BlockingIOError, alive.accept)  # who lives is not disturbed

    def test_a_process_of_this_number_in_another_container(self):
        other = self.listen(f"{os.getpid()}-1")
        questions = []

        def answer(count):
            for _ in range(count):
                asker = other.accept()[0]
                with asker, asker.makefile() as question:
                    questions.append(json.loads(question.read()))
                    asker.sendall(b'[{"id":5,"kind":"statement","sql":"theirs"},{"id":5000000000,"kind":"statement"}]')

        thread = threading.Thread(target=answer, args=(3,))
        thread.start()
        (number, process, sql), = self.watcher.execute("SELECT id, process, sql FROM lm_running")
        self.assertEqual((process, sql), (os.getpid(), "theirs"))
        self.assertNotEqual(number // 10**9, process)  # as of one of that number here
        self.watcher.execute("DELETE FROM lm_running WHERE id = ?", (number,))
        thread.join()
        self.assertEqual([question.get("cancel") for question in questions], [None, None, 5])

    def test_without_a_descriptor_it_waits_for_one(self):
        full = self.start(code=FULL)
        self.assertEqual(full.stdout.readline(), "full\n")
        with socket.socket(socket.AF_UNIX) as asker:
            asker.connect(os.path.join(self.runtime, socket_name(full.pid)))
            full.stdin.write("\n")
            full.stdin.flush()
            self.assertLess(float(full.stdout.readline()), 0.1)  # a loop that does not wait has 0.5
            asker.sendall(b'{"salt":"x"}')
            asker.shutdown(socket.SHUT_WR)
            self.assertEqual(asker.recv(4096), b"[]")

    def test_jobs_outside_a_session_are_seen_from_it_and_the_other_way(self):
        session = os.path.join(self.folder.name, "session")
        os.mkdir(session)
        for name, value in (("LM_RUNTIME_DIR", os.environ.pop("LM_RUNTIME_DIR")),
                            ("XDG_RUNTIME_DIR", os.environ.pop("XDG_RUNTIME_DIR", None))):
            self.addCleanup(os.environ.__setitem__ if value is not None else os.environ.pop, name, value)
        os.environ["XDG_RUNTIME_DIR"] = session
        sql = "SELECT count(generate(body)) FROM notes"
        children = [self.start(sql=sql, XDG_RUNTIME_DIR=runtime) for runtime in (None, "/nonexistent", session)]
        while {row["process"] for row in self.running("done > 0")} != {child.pid for child in children}:
            time.sleep(0.01)
        self.watcher.execute("DELETE FROM lm_running")
        for child in children:
            self.assertIn("cancelled by", child.communicate(timeout=60)[0])

    def test_other_databases_are_not_shown(self):
        other = os.path.join(self.folder.name, "other.db")
        connection = harness.connect(other)
        connection.execute("CREATE TABLE notes(body TEXT, answer TEXT)")
        connection.execute("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
                           "INSERT INTO notes(body) SELECT 'note ' || i FROM n")
        update = self.start(path=other)
        while not connection.execute("SELECT * FROM lm_running WHERE done > 0").fetchall():
            self.assertIsNone(update.poll())
            time.sleep(0.01)
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        connection.execute("DELETE FROM lm_running")
        connection.close()

    def test_a_forked_child_shows_its_own(self):
        parent = self.start(extra=["fork"])
        row = self.running("done > 0")[0]
        self.assertNotEqual(row["process"], parent.pid)
        self.watcher.execute("DELETE FROM lm_running")
        self.assertIn("cancelled by", parent.communicate(timeout=60)[0])

    def test_nothing_is_shown_where_nobody_wants_it(self):
        update = self.start(sql="SELECT count(generate(body)) FROM notes LIMIT 1", LM_RUNTIME_DIR="")
        reached = os.path.join(self.folder.name, "open")
        os.mkdir(reached)
        os.chmod(reached, 0o755)  # others could ask there, too
        second = self.start(sql="SELECT count(generate(body)) FROM notes LIMIT 1", LM_RUNTIME_DIR=reached)
        self.running_in_child(update)
        self.running_in_child(second)
        self.assertEqual(self.watcher.execute("SELECT * FROM lm_running").fetchall(), [])
        self.assertEqual(os.listdir(reached), [])

    def test_a_directory_that_cannot_be_used_is_told_of(self):
        reached = os.path.join(self.folder.name, "reached")
        os.mkdir(reached)
        os.chmod(reached, 0o755)
        whys = {"": None, self.runtime: None, reached: "'.*/reached' is open to others: its mode has to be 0700",
                os.path.join(self.folder.name, "d" * 100): "is too long a path for a socket"}
        for directory, why in whys.items():
            with self.subTest(directory), unittest.mock.patch.dict(os.environ, LM_RUNTIME_DIR=directory):
                told = self.watcher.execute("SELECT json_extract(lm_debug(), '$.apart')").fetchone()[0]
                self.assertRegex(str(told), why or "^None$")

    def test_a_directory_is_made_with_those_above_it(self):
        directory = os.path.join(self.folder.name, "above", "own")
        with unittest.mock.patch.dict(os.environ, LM_RUNTIME_DIR=directory):
            update = self.start()
            self.running("done > 0")
            self.assertEqual(os.stat(os.path.dirname(directory)).st_mode & 0o777, 0o700)
            self.watcher.execute("DELETE FROM lm_running")
            self.assertIn("cancelled by", update.communicate(timeout=60)[0])

    def running_in_child(self, process):
        """Waits until it computes: its threads have used half a second."""
        while sum(map(int, pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) < 100:
            self.assertIsNone(process.poll())
            time.sleep(0.01)

    def test_nonsense_at_the_socket_harms_nobody(self):
        update = self.start()
        row = self.running("done > 0")[0]
        for question in (b"", b"{", b"[]", b'{"salt":7}', b'{"cancel":-1,"salt":"x"}', b'{"cancel":%d}' % (row["id"] % 10**9),
                         b"x" * 100_000, b"[" * 60_000):
            with socket.socket(socket.AF_UNIX) as asker:
                asker.connect(os.path.join(self.runtime, socket_name(update.pid)))
                try:
                    asker.sendall(question)
                    asker.shutdown(socket.SHUT_WR)
                    while asker.recv(4096):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
        self.running(f"done > {row['done']}")


if __name__ == "__main__":
    unittest.main()
