"""lm_stats counts for each database what it asked, while the engine that serves them all is the process's.

  LM0=build/release/extension/lm0.so LM_MODEL=tests/testdata/models/llama-q8_0.gguf python3 tests/extension/stats_test.py
"""
import pathlib
import tempfile
import unittest

import harness

SYSTEM = "You are given a note of an engineer. Say in one word what it is about: weather, food, work, travel, sport or music."


class StatsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def connect(self, name):
        connection = harness.connect(str(pathlib.Path(self.folder.name) / name) if name != ":memory:" else name)
        self.addCleanup(connection.close)
        return connection

    def counts(self, connection):
        """requests, failed, prefilled, reused, decoded, memo_hits, and the engine's model time."""
        return connection.execute("SELECT max(requests), max(failed), max(tokens_prefilled), max(tokens_reused), max(tokens_decoded), "
                                  "max(memo_hits), sum(seconds) FROM lm_stats").fetchone()

    def generate(self, connection, prompt):
        return connection.execute("SELECT tokens_in, tokens_cached, tokens_out FROM lm_each(json_array(?), ?, '{\"max_tokens\":4}')",
                                  (prompt, SYSTEM)).fetchone()

    def test_a_column_that_is_measured_is_there_when_asked_for_alone(self):
        connection = self.connect("alone.db")
        self.generate(connection, "a b c")
        for column in ("arithmetic_percent", "bandwidth_percent"):
            self.assertEqual(harness.value(connection, f"SELECT {column} > 0 FROM lm_stats WHERE phase = 'prefill'"), 1, column)

    def test_a_database_sees_what_it_asked(self):
        first, same, other, memory = (self.connect(name) for name in ("first.db", "first.db", "other.db", ":memory:"))
        answers = [self.generate(first, prompt) for prompt in ("rain", "snow")]
        self.assertGreater(answers[1][1], 0)
        expected = (2, 0, sum(given - cached for given, cached, _ in answers), sum(cached for _, cached, _ in answers),
                    sum(decoded for _, _, decoded in answers), 0)
        self.assertEqual(self.counts(first)[:6], expected)
        self.assertEqual(self.counts(same)[:6], expected)
        for connection in (other, memory):
            self.assertEqual(self.counts(connection)[:6], (0, 0, 0, 0, 0, 0))
            self.assertEqual(self.counts(connection)[6], self.counts(first)[6])
            given, cached, decoded = self.generate(connection, "rain")
            self.assertEqual(self.counts(connection)[:6], (1, 0, given, 0, decoded, 0))
            self.assertEqual(cached, 0)
            self.generate(connection, "rain")
            self.assertEqual(self.counts(connection)[:6], (1, 0, given, 0, decoded, 1))
        self.assertEqual(self.counts(first)[:6], expected)

    def test_failures_are_counted_where_they_happened(self):
        first, other = self.connect("first.db"), self.connect("other.db")
        self.generate(other, "rain")
        cut = "SELECT generate('rain', NULL, '{\"max_tokens\":1,\"regex\":\"[0-9]{20}\",\"on_error\":\"null\"}')"
        self.assertIsNone(first.execute(cut).fetchone()[0])
        self.assertEqual(self.counts(first)[:2], (1, 1))
        self.assertEqual(self.counts(other)[:2], (1, 0))

    def test_who_shares_a_salt_shares_its_counts(self):
        first, other = self.connect("first.db"), self.connect("other.db")
        for connection in (first, other):
            connection.execute("INSERT INTO temp.lm_settings VALUES ('salt', 'ours')")
        self.generate(first, "rain")
        self.assertEqual(self.counts(other)[0], 1)
        other.execute("DELETE FROM temp.lm_settings WHERE key = 'salt'")
        self.assertEqual(self.counts(other)[0], 0)


if __name__ == "__main__":
    unittest.main()
