"""lm_stream gives a row as soon as its token is there, and stops the engine when nobody reads on."""
import pathlib
import statistics
import tempfile
import time
import unittest

import harness
from slow_model import write_slow_model

PROMISE = 0.050  # seconds
STEPS = 4  # of the engine, where those take longer: on a busy machine, under a sanitizer
SQL = "SELECT piece, ms FROM lm_stream(?, NULL, '{\"max_tokens\":%d,\"temperature\":3}')"


class StreamTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = str(pathlib.Path(cls.folder.name) / "slow.gguf")
        write_slow_model(cls.model)
        cls.connection = harness.connect()
        cls.connection.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (cls.model,))
        harness.value(cls.connection, "SELECT lm_token_count('load it')")

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        cls.folder.cleanup()

    def running(self):
        return harness.value(self.connection, "SELECT running + queued FROM lm_stats WHERE phase = 'decode' AND path = ?",
                             self.model)

    def seconds_until_idle(self):
        begin = time.monotonic()
        while self.running() > 0:
            self.assertLess(time.monotonic() - begin, 20)
            time.sleep(0.001)
        return time.monotonic() - begin

    def assert_prompt(self, seconds):
        made = [ms / 1000 for _, ms in self.connection.execute(SQL % 30, ("go on",))]
        step = statistics.median(after - before for before, after in zip(made, made[1:]))
        self.assertLess(statistics.median(seconds), max(PROMISE, STEPS * step), (seconds, step))

    def test_no_answer_has_a_nul(self):
        connection = harness.connect()
        self.addCleanup(connection.close)
        nul = next(i for i in range(1000) if harness.value(connection, "SELECT hex(lm_detokenize(?))", f"[{i}]") == "00")
        options = '{"max_tokens":2,"logit_bias":{"%d":1000}%s}'
        said = harness.value(connection, "SELECT generate('go', NULL, ?)", options % (nul, ""))
        self.assertEqual(said, "\ufffd\ufffd")
        pieces = connection.execute("SELECT piece FROM lm_stream('go', NULL, ?)", (options % (nul, ""),)).fetchall()
        self.assertEqual("".join(piece for piece, in pieces), said)
        any_text = '{"max_tokens":9,"logit_bias":{"%d":1000},"regex":"[^a]{1,9}","on_length":"complete"}' % nul
        self.assertNotIn("\0", harness.value(connection, "SELECT generate('go', NULL, ?)", any_text))

    def test_a_row_is_there_before_the_next_is_computed(self):
        begin = time.monotonic()
        arrived = [(time.monotonic() - begin, ms / 1000) for _, ms in self.connection.execute(SQL % 100, ("go",))]
        self.assertEqual(len(arrived), 100)
        # Each arrives when it was made, by the engine's clock: not all of them at the end.
        late = sorted(at - made for at, made in arrived)
        self.assertLess(late[50], 0.25 * arrived[-1][0], arrived)
        self.assertLess(arrived[0][0], 0.5 * arrived[-1][0], arrived)

    def test_reading_no_further_ends_it(self):
        seconds = []
        for _ in range(5):
            cursor = self.connection.execute(SQL % 10000, ("go",))
            cursor.fetchone()
            self.assertEqual(self.running(), 1)
            cursor.close()
            seconds.append(self.seconds_until_idle())
        self.assert_prompt(seconds)

    def test_a_limit_ends_it(self):
        seconds = []
        for _ in range(5):
            rows = self.connection.execute(SQL % 10000 + " LIMIT 3", ("go",)).fetchall()
            self.assertEqual(len(rows), 3)
            seconds.append(self.seconds_until_idle())
        self.assert_prompt(seconds)

    def test_closing_the_connection_ends_it(self):
        other = harness.connect()
        other.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (self.model,))
        first = other.execute(SQL % 10000, ("go",))
        first.fetchone()
        del first
        other.close()
        self.assertLess(self.seconds_until_idle(), 10 * PROMISE)

    def test_who_asks_for_probabilities_gets_the_same_tokens(self):
        arguments = "FROM lm_stream('go', NULL, '{\"max_tokens\":12,\"temperature\":0.7,\"seed\":5}') WHERE token IS NOT NULL"
        tokens = self.connection.execute("SELECT piece, token " + arguments).fetchall()
        told = self.connection.execute("SELECT piece, token, logprob " + arguments).fetchall()
        self.assertEqual([row[:2] for row in told], tokens)
        for _, _, logprob in told:
            self.assertTrue(logprob <= 0, told)
        # Wherever in the statement it is named.
        most, = self.connection.execute("SELECT max(logprob) " + arguments).fetchone()
        self.assertEqual(most, max(logprob for _, _, logprob in told))
        likely = [row for row in told if row[2] > -3]
        self.assertEqual(self.connection.execute("SELECT piece, token, logprob " + arguments + " AND logprob > -3").fetchall(), likely)
        self.assertEqual(self.connection.execute("SELECT piece, token " + arguments + " ORDER BY logprob, rowid").fetchall(),
                         [row[:2] for row in sorted(told, key=lambda row: row[2])])

    def test_two_streams_at_once_make_the_bytes_of_one(self):
        sql = "SELECT piece FROM lm_stream(?, NULL, '{\"max_tokens\":30}')"
        alone = {prompt: [piece for piece, in self.connection.execute(sql, (prompt,))] for prompt in ("one", "two")}
        cursors = {prompt: self.connection.execute(sql, (prompt,)) for prompt in alone}
        together = {prompt: [] for prompt in alone}
        for _ in range(32):  # a broken character at the end is one more
            for prompt, cursor in cursors.items():
                row = cursor.fetchone()
                if row is not None:
                    together[prompt].append(row[0])
        self.assertEqual(together, alone)


if __name__ == "__main__":
    unittest.main()
