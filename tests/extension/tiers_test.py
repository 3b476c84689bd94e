"""Prefixes on disk: written by lm_prefill for another process, or because memory has no room for all."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import MODEL, MODELS, connect, value

OPTIONS = '{"max_tokens":6,"cache":false}'


def system(number):
    return f"Desk {number}. " + " ".join(f"Rule {number * 7 + i}: say no more than {i} words." for i in range(8))


class TiersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.database = os.path.join(self.folder.name, "rows.db")
        self.store = os.path.join(self.folder.name, "store")

    def open(self, model=MODEL, store=True, kv_bytes=None):
        connection = connect(self.database)
        connection.execute("INSERT INTO temp.lm_settings VALUES ('model', ?), ('threads', 1)", (str(model),))
        if store:
            connection.execute("INSERT INTO temp.lm_settings VALUES ('prefix_store', ?)", (self.store,))
        if kv_bytes:
            connection.execute("INSERT INTO temp.lm_settings VALUES ('kv_bytes', ?)", (kv_bytes,))
        return connection

    def answers(self, connection, prompts, turns):
        answers = []
        for turn in range(turns):
            answers += [value(connection, "SELECT generate(?, ?, ?)", f"row {turn}", system(prompt), OPTIONS) for prompt in range(prompts)]
            value(connection, "SELECT lm_prefill(NULL)")  # waits until what was to be written is
        return answers

    def test_another_process_begins_where_lm_prefill_ended(self):
        for model in (MODEL, MODELS / "gemma3-f32.gguf", MODELS / "qwen35-q8_0.gguf"):
            with self.subTest(model=model):
                ran = subprocess.run(
                    [sys.executable, "-c", "import sys, tiers_test; tiers_test.prefill(*sys.argv[1:])", self.database, self.store, str(model)],
                    cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                did = json.loads(ran.stdout)
                self.assertEqual(did["place"], "store")
                self.assertEqual(did["computed"], did["tokens"])
                connection = self.open(model)
                self.assertEqual(value(connection, "SELECT tokens_stored FROM lm_explain(?)",
                                       f"SELECT generate('row 1', '{system(1)}', '{OPTIONS}')"), did["tokens"])
                answer = value(connection, "SELECT generate('row 1', ?, ?)", system(1), OPTIONS)
                self.assertEqual(value(connection, "SELECT tokens_reused FROM lm_stats WHERE phase = 'prefill'"), did["tokens"])
                connection.close()
                connection = self.open(model, store=False)
                self.assertEqual(value(connection, "SELECT generate('row 1', ?, ?)", system(1), OPTIONS), answer)
                connection.close()

    def test_what_is_prefilled_without_a_store_stays_in_memory(self):
        connection = self.open(store=False)
        did = json.loads(value(connection, "SELECT lm_prefill('row 1', ?)", system(1)))
        self.assertEqual(did["place"], "memory")
        self.answers(connection, 2, 1)
        again = json.loads(value(connection, "SELECT lm_prefill('row 1', ?)", system(1)))
        self.assertEqual((again["computed"], again["tokens"]), (0, did["tokens"]))
        connection.close()

    def test_answers_are_the_same_wherever_their_prefix_was(self):
        for model in (MODEL, MODELS / "gemma3-f32.gguf", MODELS / "qwen35-q8_0.gguf"):
            with self.subTest(model=model):
                self.store = os.path.join(self.folder.name, pathlib.Path(model).name)
                connection = self.open(model, store=False)
                did = json.loads(value(connection, "SELECT lm_prefill(NULL, ?)", system(1)))
                expected = self.answers(connection, 6, 3)
                connection.close()
                # Room for about two of them, and a row.
                connection = self.open(model, kv_bytes=5 * did["bytes"])
                self.assertEqual(self.answers(connection, 6, 3), expected)
                # The third turn reads what the second has written.
                sql = "SELECT tokens_reused FROM lm_stats WHERE phase = 'prefill'"
                self.assertGreaterEqual(value(connection, sql), 5 * 64)
                self.assertEqual(len(os.listdir(self.store)), 6)
                self.assertGreaterEqual(value(connection, "SELECT count(*) FROM lm_cache WHERE place = 'store'"), 6)
                connection.close()
                # And the next process all of it.
                connection = self.open(model)
                self.assertEqual(self.answers(connection, 6, 3), expected)
                self.assertGreaterEqual(value(connection, sql), 18 * 64)
                connection.close()

    def test_what_cannot_be_prefilled_says_so(self):
        connection = self.open()
        with self.assertRaisesRegex(Exception, "lm_prefill: prompt must be text, got a BLOB"):
            connection.execute("SELECT lm_prefill(x'00')")
        with self.assertRaisesRegex(Exception, "lm_prefill: .*max_token"):
            connection.execute("SELECT lm_prefill('a', 'b', '{\"max_token\":1}')")
        with self.assertRaisesRegex(Exception, "tokens"):
            connection.execute("SELECT lm_prefill(?)", ("word " * 100000,))
        self.assertEqual(json.loads(value(connection, "SELECT lm_prefill(NULL)"))["place"], "memory")
        connection.close()


def prefill(database, store, model):
    """In a process of its own."""
    connection = connect(database)
    connection.execute("INSERT INTO temp.lm_settings VALUES ('model', ?), ('threads', 1), ('prefix_store', ?)", (model, store))
    print(value(connection, "SELECT lm_prefill(NULL, ?)", system(1)))


if __name__ == "__main__":
    unittest.main()
