"""Every token of every document is read, whatever its length, and parts are under way while rows are still scanned."""
import unittest

import harness

INSTRUCTION = "List the numbers."
COMBINE = "Join."
# An answer of one token leaves nearly all tokens that the model reads to the documents.
OPTIONS = f'{{"max_tokens":1,"part_tokens":200,"combine":"{COMBINE}"}}'


class DocumentsTest(unittest.TestCase):
    def setUp(self):
        self.db = harness.connect()
        self.addCleanup(self.db.close)
        harness.value(self.db, "SELECT lm_token_count('load the model')")

    def read(self):
        """How many prompts there were, and the tokens the model has read of them."""
        return self.db.execute("SELECT requests, tokens_prefilled + tokens_reused FROM lm_stats WHERE phase = 'prefill'").fetchone()

    def assert_all_is_read(self, text, sql, *parameters):
        tokens = harness.value(self.db, "SELECT lm_token_count(?)", text)
        frame = harness.value(self.db, "SELECT max(lm_token_count(lm_render('', ?)), lm_token_count(lm_render('', ?)))",
                              INSTRUCTION, COMBINE)
        requests, before = self.read()
        harness.value(self.db, sql, *parameters)
        requests, read = self.read()[0] - requests, self.read()[1] - before
        self.assertGreater(requests, tokens // 200)
        # What is read beside the documents: each prompt's frame, an answer for each part, and a few tokens where
        # texts are cut and joined. A part that was left out would be missing with its hundred tokens or more.
        self.assertGreaterEqual(read, tokens - requests, f"{requests} prompts")
        self.assertLessEqual(read, tokens + requests * (frame + 6), f"{requests} prompts")

    def test_a_long_text(self):
        for words in (300, 1000, 5000):
            text = " ".join(f"{words}.{i} is a number." for i in range(words))  # no part is remembered
            options = OPTIONS[:-1] + f',"instruction":"{INSTRUCTION}"}}'
            self.assert_all_is_read(text, "SELECT lm_summarize(?, ?)", text, options)

    def test_one_word_longer_than_any_context(self):
        options = OPTIONS[:-1] + f',"instruction":"{INSTRUCTION}"}}'
        word = "".join(str(i * i) for i in range(1500))  # no two parts alike
        self.assert_all_is_read(word, "SELECT lm_summarize(?, ?)", word, options)

    def test_many_rows(self):
        self.db.execute("CREATE TABLE t(x TEXT)")
        rows = [f"Row {i}: " + "and so on " * (i % 13) for i in range(800)] + ["a long one. " * 600, ""]
        self.db.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
        self.assert_all_is_read("\n\n".join(rows), "SELECT lm_agg(x, ?, ?) FROM t", INSTRUCTION, OPTIONS)

    def test_parts_are_under_way_while_rows_are_scanned(self):
        seen = []

        def row(i):
            seen.append(self.read()[0] + harness.value(self.db, "SELECT running + queued FROM lm_stats LIMIT 1"))
            return f"This is row {i}. " * 10

        self.db.create_function("a_row", 1, row)
        self.db.execute("SELECT lm_agg(a_row(value), ?, ?) FROM json_each(?)", (INSTRUCTION, OPTIONS, f"{list(range(200))}")).fetchall()
        self.assertGreater(seen[-1], seen[0] + 10)

    def test_the_answer_does_not_depend_on_how_rows_arrive(self):
        rows = [f"Sentence {i}." for i in range(300)]
        options = '{"max_tokens":4,"part_tokens":100}'
        self.db.execute("CREATE TABLE t(x TEXT)")
        self.db.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
        answers = {harness.value(self.db, "SELECT lm_agg(x, 'Sum up.', ?) FROM t", options) for _ in range(3)}
        self.assertEqual(len(answers), 1)


if __name__ == "__main__":
    unittest.main()
