"""lm_settings, lm_models and lm_examples follow transactions as a table of SQLite's own does: whatever a host begins, writes,
rolls back and releases, both have the same rows after each step.

LM_SAVEPOINTS=2000 walks so many times (LM_SAVEPOINTS_SEED begins elsewhere).
"""
import os
import random
import sqlite3
import tempfile
import time
import unittest

import harness

WALKS = int(os.environ.get("LM_SAVEPOINTS", "60"))
SEED = int(os.environ.get("LM_SAVEPOINTS_SEED", "1"))
STEPS = 40
BEGINNINGS = (["SAVEPOINT a"], ["BEGIN", "SAVEPOINT a"], ["SAVEPOINT z", "SAVEPOINT a"], ["BEGIN", "SAVEPOINT z", "SAVEPOINT a"])


class Settings:
    """A table of ours beside a plain one, which is written alike."""
    table, key, column = "lm_settings", "key", "value"
    keys = ("max_tokens", "top_k", "seed")
    values = range(1001, 2000)  # no default is among them
    failing = "('max_tokens', 7), ('nonsense', 1)"

    def show(self, connection, table):
        where = " WHERE value IS NOT default_value" if table == self.table else ""
        return dict(connection.execute(f"SELECT {self.key}, {self.column} FROM temp.{table}{where}"))


class Models(Settings):
    table, key, column = "lm_models", "name", "path"
    keys = ("one", "two", "three")
    values = [str(harness.MODELS / name) for name in ("llama-q8_0.gguf", "qwen2-q4_0.gguf", "qwen3-q8_0.gguf")]
    failing = f"('one', '{values[0]}'), ('two', '/nowhere.gguf')"

    def show(self, connection, table):
        rows = connection.execute(f"SELECT {self.key}, {self.column} FROM temp.{table}")
        return {name: path for name, path in rows if name in self.keys}


class SavepointsTest(unittest.TestCase):
    def connect(self):
        connection = harness.connect()
        connection.execute("CREATE TABLE content(x)")  # and so temp has tables of ours
        return connection

    def pair(self, kind):
        connection = self.connect()
        connection.execute(f"CREATE TEMP TABLE plain({kind.key} UNIQUE, {kind.column})")
        return connection

    def both(self, connection, kind, sql, *parameters, schema="temp"):
        """`sql` on each of the two; {} is the table, ours that of `schema`."""
        for table in (f"{schema}.{kind.table}", "temp.plain"):
            connection.execute(sql.format(table), parameters)

    def check(self, connection, kind, *log):
        self.assertEqual(kind.show(connection, kind.table), kind.show(connection, "plain"), log)

    def test_each_way_to_write_first_inside_a_savepoint(self):
        for kind in (Settings(), Models()):
            key, other, value, changed = kind.keys[0], kind.keys[1], kind.values[0], kind.values[1]
            names = f"{kind.key}, {kind.column}"
            writes = ((f"UPDATE {{}} SET {kind.column} = ? WHERE {kind.key} = '{key}'", changed),
                      (f"UPDATE {{}} SET {kind.column} = new FROM (SELECT ? AS new) WHERE {kind.key} = '{key}'", changed),
                      (f"DELETE FROM {{}} WHERE {kind.key} = ?", key),
                      (f"INSERT INTO {{}}({names}) VALUES ('{other}', ?)", changed),
                      (f"INSERT OR REPLACE INTO {{}}({names}) VALUES ('{key}', ?)", changed),
                      (f"INSERT INTO {{}}({names}) SELECT '{other}', ?", changed),
                      (f"INSERT OR REPLACE INTO {{}}({names}) VALUES ('{key}', ?1), ('{other}', ?1)", changed))
            for beginning in BEGINNINGS:
                for write in writes:
                    for end in ("COMMIT", "ROLLBACK", "RELEASE a"):
                        with self.subTest(table=kind.table, beginning=beginning, write=write, end=end):
                            connection = self.pair(kind)
                            self.both(connection, kind, f"INSERT INTO {{}}({names}) VALUES ('{key}', ?)", value)
                            for sql in beginning:
                                connection.execute(sql)
                            for _ in range(2):  # a write after a rollback, and that is undone, too
                                self.both(connection, kind, *write)
                                self.check(connection, kind)
                                connection.execute("ROLLBACK TO a")
                                self.check(connection, kind)
                                self.assertEqual(kind.show(connection, kind.table), {key: value})
                            self.both(connection, kind, *write)
                            connection.execute(end)
                            self.check(connection, kind)
                            connection.close()

    def test_a_column_that_cannot_be_written(self):
        connection = self.connect()
        for change in ("default_value = 9 WHERE key = 'max_tokens'", "value = 9, default_value = new FROM (SELECT 9 AS new) WHERE key = 'max_tokens'"):
            with self.assertRaisesRegex(sqlite3.Error, "the column default_value cannot be written; key to value can"):
                connection.execute(f"UPDATE temp.lm_settings SET {change}")
        self.assertEqual(harness.value(connection, "SELECT value = default_value FROM temp.lm_settings WHERE key = 'max_tokens'"), 1)
        with self.assertRaisesRegex(sqlite3.Error, r"threads must be an integer from 0 to \d+, got 2\.0"):
            connection.execute("UPDATE temp.lm_settings SET value = 2.0 WHERE key = 'threads'")

    def test_temp_and_main_in_one_transaction(self):
        """Both are the connection's one table."""
        for first, second in (("temp", "main"), ("main", "temp")):
            connection = self.connect()
            connection.execute("BEGIN")
            connection.execute(f"INSERT INTO {first}.lm_settings VALUES ('seed', 7)")
            connection.execute("SAVEPOINT a")
            connection.execute(f"INSERT INTO {second}.lm_settings VALUES ('top_k', 9)")
            connection.execute(f"INSERT INTO {first}.lm_settings VALUES ('min_p', 0.5)")
            connection.execute("ROLLBACK TO a")
            self.assertEqual(Settings().show(connection, "lm_settings"), {"seed": 7})
            connection.execute("ROLLBACK")
            self.assertEqual(Settings().show(connection, "lm_settings"), {})
            connection.close()

    def test_loaded_within_a_transaction(self):
        """SQLite does not tell the tables of its beginning then, nor of savepoints that are open."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "loaded.db")
            writer = sqlite3.connect(path)
            writer.execute("CREATE TABLE content(x)")
            writer.close()
            for sqls in (("BEGIN", "load", "write", "ROLLBACK"), ("BEGIN", "load", "SAVEPOINT a", "write", "ROLLBACK TO a"),
                         ("BEGIN", "SAVEPOINT a", "load", "write", "ROLLBACK TO a"), ("SAVEPOINT a", "load", "write", "ROLLBACK TO a"),
                         ("BEGIN", "SAVEPOINT a", "SAVEPOINT b", "load", "write", "RELEASE b", "write", "ROLLBACK TO a", "write", "ROLLBACK")):
                with self.subTest(sqls):
                    connection = sqlite3.connect(path, isolation_level=None)
                    connection.enable_load_extension(True)
                    for sql in sqls:
                        if sql == "load":
                            connection.load_extension(harness.LM0)
                        elif sql == "write":
                            connection.execute("INSERT OR REPLACE INTO temp.lm_settings VALUES ('max_tokens', 3)")
                            connection.execute("INSERT OR REPLACE INTO temp.lm_models(name, path) VALUES ('m', ?)", (harness.MODEL,))
                        else:
                            connection.execute(sql)
                    self.assertEqual(Settings().show(connection, "lm_settings"), {})
                    self.assertEqual(harness.value(connection, "SELECT count(*) FROM temp.lm_models WHERE name = 'm'"), 0)
                    connection.close()

    def test_examples(self):
        connection = self.connect()
        connection.execute("INSERT INTO temp.lm_examples(name, prompt, answer) VALUES ('set', 'rain', 'wet')")
        for sql in ("BEGIN", "SAVEPOINT a", "UPDATE temp.lm_examples SET answer = 'dry' WHERE prompt = 'rain'", "ROLLBACK TO a"):
            connection.execute(sql)
        self.assertEqual(harness.value(connection, "SELECT answer FROM temp.lm_examples"), "wet")

    def test_random_walks_of_examples(self):
        steps = ("INSERT INTO {} VALUES ('a', ?1, 'one')", "INSERT INTO {} VALUES ('a', ?1, 'one'), ('b', ?1, 'two')", "UPDATE {} SET prompt = ?1",
                 "UPDATE {} SET answer = ?1 WHERE rowid % 3 = 0", "DELETE FROM {} WHERE rowid % 3 = ?1 % 3", "INSERT INTO {} VALUES ('a', ?1, 'x'), ('a', ?1, NULL)",
                 "BEGIN", "COMMIT", "ROLLBACK", *(f"{verb} {name}" for verb in ("SAVEPOINT", "RELEASE", "ROLLBACK TO") for name in "abc"))
        for seed in range(SEED, SEED + WALKS):
            choose, log = random.Random(seed), []
            connection = self.connect()
            connection.execute("CREATE TEMP TABLE plain(name, prompt TEXT, answer TEXT NOT NULL)")
            for _ in range(STEPS):
                sql, parameter = choose.choice(steps), choose.randrange(1000)
                log.append((sql, parameter))
                for table in ("lm_examples", "plain") if "{}" in sql else ("",):
                    try:
                        connection.execute(sql.format(f"temp.{table}"), (parameter,) if "?1" in sql else ())
                    except sqlite3.Error as error:
                        log.append(str(error))
                ours, plain = (connection.execute(f"SELECT rowid, * FROM temp.{table} ORDER BY rowid").fetchall() for table in ("lm_examples", "plain"))
                self.assertEqual(ours, plain, (seed, log))
            connection.close()

    def test_examples_that_are_written_one_by_one(self):
        connection = self.connect()
        seconds = []
        for _ in range(8):
            begin = time.thread_time()
            for i in range(1000):
                connection.execute("INSERT INTO temp.lm_examples VALUES ('set', ?, 'an answer')", (f"a prompt {i}",))
            seconds.append(time.thread_time() - begin)
        self.assertLess(min(seconds[4:]), 2.5 * min(seconds[:4]), seconds)

    def test_random_walks(self):
        for seed in range(SEED, SEED + WALKS):
            choose = random.Random(seed)
            kind = Models() if seed % 4 == 0 else Settings()
            connection, log = self.pair(kind), []
            for _ in range(STEPS):
                sql, parameters = self.step(choose, kind)
                log.append((sql, parameters))
                if "{}" not in sql:
                    try:
                        connection.execute(sql)
                    except sqlite3.OperationalError as error:  # no such savepoint, or no transaction
                        log.append(str(error))
                elif sql.startswith("INSERT") and kind.failing in sql:
                    with self.assertRaises(sqlite3.Error):
                        connection.execute(sql.format(f"{choose.choice(('temp', 'main'))}.{kind.table}"))
                else:
                    self.both(connection, kind, sql, *parameters, schema=choose.choice(("temp", "temp", "main")))
                self.check(connection, kind, seed, log)
            connection.close()

    def step(self, choose, kind):
        names = f"{kind.key}, {kind.column}"
        key, value = choose.choice(kind.keys), choose.choice(kind.values)
        savepoint = choose.choice("abc")
        return choose.choice((
            (f"INSERT OR REPLACE INTO {{}}({names}) VALUES (?, ?)", (key, value)),
            (f"INSERT OR REPLACE INTO {{}}({names}) VALUES (?1, ?2), ('{kind.keys[0]}', ?2)", (key, value)),
            (f"INSERT OR REPLACE INTO {{}}({names}) SELECT ?, ?", (key, value)),
            # Every setting is a row of lm_settings; those that were set are rows of both.
            (f"UPDATE {{}} SET {kind.column} = ? WHERE {kind.key} = ? AND {kind.key} IN (SELECT {kind.key} FROM temp.plain)", (value, key)),
            (f"DELETE FROM {{}} WHERE {kind.key} = ?", (key,)),
            (f"INSERT OR REPLACE INTO {{}}({names}) VALUES {kind.failing}", ()),
            ("BEGIN", ()), ("COMMIT", ()), ("ROLLBACK", ()),
            (f"SAVEPOINT {savepoint}", ()), (f"SAVEPOINT {savepoint}", ()),
            (f"RELEASE {savepoint}", ()), (f"ROLLBACK TO {savepoint}", ()), (f"ROLLBACK TO {savepoint}", ())))


if __name__ == "__main__":
    unittest.main()
