"""An answer is the same bytes alone and among 31 others, with a cold and a warm cache, with 1, 2 and 3 threads, and at a
temperature too. Runs on the model that ships with us, over the demo's own documents."""
import csv
import json
import unittest

import harness

ROOT = harness.MODELS.parents[2]
SYSTEM = "Write a one-line summary of this package."


def prompts():
    with open(ROOT / "sql" / "demo" / "documents.csv", newline="", encoding="utf-8") as file:
        documents = [f"Package: {name}\n{text}" for name, text in csv.reader(file)]
    return documents + [text[: len(text) // 2] for text in documents]


class SameBytesTest(unittest.TestCase):
    def connect(self, threads):
        connection = harness.connect()  # ":memory:": a cache of its own, cold
        connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('shipped', ?)",
                           (str(ROOT / "sql" / "models" / "debian-notes.gguf"),))
        connection.execute("UPDATE temp.lm_settings SET value = 'shipped' WHERE key = 'model'")
        connection.execute("UPDATE temp.lm_settings SET value = ? WHERE key = 'threads'", (threads,))
        self.addCleanup(connection.close)
        return connection

    def alone(self, connection, texts, options):
        return [harness.value(connection, "SELECT generate(?, ?, ?)", text, SYSTEM, options) for text in texts]

    def together(self, connection, texts, options):
        rows = connection.execute("SELECT value FROM lm_each(?, ?, ?) ORDER BY key", (json.dumps(texts), SYSTEM, options))
        return [text for (text,) in rows]

    def test_company_cache_and_threads_change_no_byte(self):
        texts = prompts()
        self.assertEqual(len(texts), 32)
        for options in ('{"max_tokens":24,"cache":false}', '{"max_tokens":24,"cache":false,"temperature":0.9,"top_p":0.95,"seed":7}'):
            expected = []
            for text in texts:  # each in a connection of its own
                expected += self.alone(self.connect(1), [text], options)
            self.assertGreater(len(set(expected)), 16)
            for threads in (1, 2, 3):
                connection = self.connect(threads)
                self.assertEqual(self.together(connection, texts, options), expected, f"cold, {threads} threads")
                self.assertEqual(self.together(connection, texts[::-1], options), expected[::-1], f"warm, {threads} threads")
                self.assertEqual(self.alone(connection, texts, options), expected, f"warm and alone, {threads} threads")


if __name__ == "__main__":
    unittest.main()
