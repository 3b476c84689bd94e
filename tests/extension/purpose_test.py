"""A model made for one thing says so where it is asked for something else, and only there: lm_stats.hint.

The one that ships has in its file how the words of its tasks begin (sql/models/recipe/wordings.py).
"""
import itertools
import random
import sys
import unittest

import harness

SQL = harness.MODELS.parents[2] / "sql"
sys.path.insert(0, str(SQL / "models" / "recipe"))
import tasks  # noqa: E402
import wordings  # noqa: E402

TEXT = "tidepool reads the tables of a harbour and draws them as a chart."
ONE_TOKEN = '{"max_tokens":1,"on_error":"null"}'
ELSEWHERE = ["What is SQLite?", "Hello", "Who are you?", "Write a haiku about autumn.", "What is the capital of France?",
             "Translate to French: good morning", "Name three colours.", "Tell me a joke.", "Explain recursion.", "2 + 2"]


class PurposeTest(unittest.TestCase):
    def setUp(self):
        self.connection = harness.connect()
        self.addCleanup(self.connection.close)
        self.use(SQL / "models" / "debian-notes.gguf")

    def use(self, path):
        self.connection.execute("DELETE FROM temp.lm_models")
        self.connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('default', ?)", (str(path),))

    def hint(self):
        """The one about the model's purpose; there are others."""
        return harness.value(self.connection, "SELECT max(hint) FROM lm_stats WHERE model = 'default' AND hint LIKE '%made for one thing%'")

    def ask(self, prompt, system=None):
        self.connection.execute("SELECT lm_try(?, ?, ?)", (prompt, system, ONE_TOKEN)).fetchone()
        return self.hint()

    def test_no_wording_of_its_own_trade_is_taken_for_something_else(self):
        named = [w.format(choices="devel, games or net") for w in wordings.SECTION_AMONG] + [w.format(keys="role and use") for w in wordings.TAGS_NAMED]
        rng = random.Random(1)
        phrases = itertools.cycle(itertools.chain(*wordings.ABOUT_TAG.values(), *wordings.ABOUT_SECTION.values()))
        questions = [tasks.question(next(phrases), rng, wording, subject) for wording in wordings.QUESTION for subject in sorted(set(wordings.SUBJECTS))]
        alarms = [i for i in wordings.SYNOPSIS + wordings.SECTION + wordings.TAGS + named + questions if self.ask(TEXT, i)]
        self.assertEqual(alarms, [])
        self.assertIsNone(self.ask(f"{TEXT}\n\nDoes it draw charts? Answer yes or no."))

    def test_what_it_was_not_made_for_has_a_hint(self):
        for prompt in ELSEWHERE:
            hint = self.ask(prompt)
            self.assertRegex(hint or "", "^the model 'debian-notes' was made for one thing: .*package descriptions.* name another model", prompt)
        self.assertIsNotNone(self.ask("The lamp broke after a day.", "How does the writer feel?"))

    def test_the_hint_is_of_the_last_call(self):
        self.assertIsNotNone(self.ask("Hello"))
        self.assertIsNone(self.ask(TEXT, "Write a one-line summary."))
        self.assertIsNotNone(self.ask("Hello"))

    def test_every_form_tells(self):
        for sql in ("SELECT generate('Hello', NULL, '{\"max_tokens\":1}')", "SELECT piece FROM lm_stream('Hello', NULL, '{\"max_tokens\":1}')",
                    "SELECT value FROM lm_each('[\"Hello\"]', NULL, '{\"max_tokens\":1}')", "SELECT generate('Hello', NULL, '{\"choices\":[\"a\",\"b\"]}')"):
            self.assertIsNone(self.ask(TEXT, "Write a one-line summary."))
            self.connection.execute(sql).fetchall()
            self.assertIsNotNone(self.hint(), sql)
        # An answer from the memo, too; a question that is only foretold, not.
        self.connection.execute("SELECT lm_try(?, ?, ?)", (TEXT, "Write a one-line summary.", ONE_TOKEN)).fetchall()
        self.connection.execute("SELECT * FROM lm_explain('SELECT generate(''Hello'')')").fetchall()
        self.assertIsNone(self.hint())
        self.connection.execute("SELECT generate('Hello', NULL, '{\"max_tokens\":1}')").fetchall()
        self.assertIsNotNone(self.hint())

    def last(self, sql):
        """The hint after a call of a function whose wording has words of ours."""
        self.connection.execute(sql).fetchall()
        return self.hint()

    def test_words_of_ours_are_no_words_of_the_one_who_asks(self):
        review, labels = "'I love this phone'", "'[\"positive\",\"negative\"]'"
        fields = "'[\"name\",\"born\"]'"
        self.connection.execute(f"CREATE TEMP TABLE reviews AS SELECT 1 AS id, {review} AS body")
        self.connection.execute(f"CREATE VIRTUAL TABLE temp.people USING lm_extract_each({fields}, '{{\"max_tokens\":40}}')")
        elsewhere = [
            f"SELECT lm_classify({review}, {labels})",
            f"SELECT lm_classify({review}, {labels}, 'How does the writer feel?')",
            f"SELECT lm_classify({review}, {labels}, NULL, '{{\"multi\":true}}')",
            f"SELECT lm_classify({review}, {labels}, NULL, '{{\"scores\":true}}')",
            f"SELECT * FROM lm_classify_scores({review}, {labels})",
            f"SELECT lm_if({review}, 'Is the writer happy?'), lm_filter({review}, 'Is the writer happy?')",
            f"SELECT lm_score({review}, 'The writer is happy.')",
            f"SELECT lm_extract('Ada, born 1815', {fields}, '{{\"max_tokens\":40}}')",
            "SELECT lm_extract('Ada, born 1815', '{\"properties\":{\"name\":{\"type\":\"string\",\"description\":\"of her\"}}}', '{\"max_tokens\":40}')",
            "SELECT * FROM people('Ada, born 1815')",
            "SELECT * FROM lm_match('SELECT * FROM reviews', 'SELECT * FROM reviews', 'Are both happy?', '{\"blocking\":\"fts5\"}')",
        ]
        trade = [
            f"SELECT lm_classify('{TEXT}', '[\"libs\",\"games\"]')",
            f"SELECT lm_classify('{TEXT}', '[\"net\",\"games\"]', 'Name the section.')",
            f"SELECT lm_classify('{TEXT}', '{{\"net\":\"a package for networks\",\"games\":null}}', NULL, '{{\"multi\":true}}')",
            f"SELECT * FROM lm_classify_scores('{TEXT}', '[\"libs\",\"games\"]')",
            f"SELECT lm_if('{TEXT}', 'Is it a game?')",
            f"SELECT lm_score('{TEXT}', 'It is a game.'), lm_score('{TEXT}', 'This is a game.')",
            f"SELECT lm_extract('{TEXT}', '[\"implemented_in\"]', '{{\"max_tokens\":40}}')",
            f"SELECT lm_extract('{TEXT}', '{{\"kind\":\"what kind of package\"}}', '{{\"max_tokens\":40}}')",
        ]
        for sql in elsewhere:
            self.assertIsNone(self.ask(TEXT, "Write a one-line summary."))
            self.assertIsNotNone(self.last(sql), sql)
        for sql in trade:
            self.assertIsNotNone(self.ask("Hello"))
            self.assertIsNone(self.last(sql), sql)
        # A text of its trade will do where nothing else is said.
        self.assertIsNone(self.last("SELECT lm_classify('This package plays chess.', '[\"a\",\"b\"]')"))
        # Summaries and searches are its trade, whatever the text.
        self.assertIsNone(self.last(f"SELECT lm_summarize({review}, '{{\"max_tokens\":4}}')"))
        self.assertIsNone(self.last("SELECT * FROM lm_rank('a happy writer', '[\"I love this phone\"]')"))

    def test_a_job_tells_with_its_first_row(self):
        self.connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, body TEXT)")
        self.connection.executemany("INSERT INTO rows(body) VALUES (?)", [(f"The lamp broke after {i} days.",) for i in range(6)])
        for system, strays in (("Write a one-line summary.", False), ("How does the writer feel?", True)):
            self.connection.execute("INSERT INTO lm_jobs(name, query, system, options) VALUES (?1, 'SELECT id, body FROM rows', ?1, '{\"max_tokens\":1}')", (system,))
            hints = [hint for hint, in self.connection.execute("SELECT hint FROM lm_run(?, '{\"chunk\":2,\"progress_ms\":0}')", (system,))]
            self.assertGreater(len(hints), 1)
            self.assertEqual({hint is not None and "was made for one thing" in hint for hint in hints}, {strays}, hints)

    def test_connections_do_not_see_each_others(self):
        other = harness.connect()
        self.addCleanup(other.close)
        self.assertIsNotNone(self.ask("Hello"))
        self.assertEqual(harness.value(other, "SELECT count(hint) FROM lm_stats"), 0)

    def test_a_model_for_anything_has_none(self):
        self.use(harness.MODEL)
        self.assertIsNone(self.ask("What is SQLite?"))


if __name__ == "__main__":
    unittest.main()
