"""thinking_tokens: a model reasons before an answer for as long as it may, and then gives one, whatever it must look like."""
import json
import unittest

import harness
from remote_case import RemoteCase

SHIPPED = str(harness.MODELS.parents[2] / "sql" / "models" / "debian-notes.gguf")
# It begins each answer's reasoning.
REASONS = '{{ messages[0].content }} <think>{{ "\\n" }}'
ASKED = "A puzzle game with a maze."


class ReasoningTest(RemoteCase):
    def thinking(self, template=REASONS, **options):
        db = harness.connect()
        self.addCleanup(db.close)
        self.register(db, SHIPPED, chat_template=template, **options)
        return db

    def tried(self, db, **options):
        return json.loads(harness.value(db, "SELECT lm_try(?, NULL, ?)", ASKED, json.dumps(options)))

    def test_the_answer_is_that_of_who_is_told_the_reasoning(self):
        db = self.thinking()
        for tokens in (5, 12, 40):
            kept = self.tried(db, thinking_tokens=tokens, thinking="keep", max_tokens=8)
            thought = kept["value"].split("</think>")[0]
            told = self.thinking('{{ messages[0].content }} {{ %s }}' % json.dumps("<think>\n" + thought + "</think>\n\n"), thinking_marks=[])
            answer = self.tried(db, thinking_tokens=tokens, max_tokens=8)
            self.assertEqual(answer["value"], kept["value"].split("</think>")[1].lstrip())
            self.assertEqual(answer["tokens_out"], kept["tokens_out"])
            self.assertEqual(answer["value"], self.tried(told, max_tokens=8)["value"])
            for constraint in ({"choices": ["games", "net", "admin"]}, {"regex": "[a-z]{1,9}"}, {"schema": {"type": "integer"}}):
                ours = self.tried(db, thinking_tokens=tokens, **constraint)
                theirs = self.tried(told, **constraint)
                self.assertEqual(ours["value"], theirs["value"], (tokens, constraint))
                self.assertGreaterEqual(ours["tokens_out"], theirs["tokens_out"] + tokens)

    def test_an_answer_about_a_part_says_which_of_the_tokens_it_has(self):
        db = self.thinking('{% for m in messages %}{{ m.content }} {% endfor %}<think>{{ "\\n" }}', context_length=300)
        asked = "SELECT lm_summarize(?, '{\"max_tokens\":%d}')"
        self.fails(db, asked % 60, r"of the max_tokens = 60 an answer about a part of the text has (\d+), a quarter .*; max_tokens = \1 cut the answer off within its reasoning", "word " * 900)
        self.fails(db, asked % 20, r"\A(lm_summarize: )?max_tokens = 20 cut the answer off", "word " * 900)

    def test_with_none_a_model_that_begins_one_all_the_same_answers(self):
        """As the one that ships does, behind a template that has ended it."""
        db = self.thinking()
        for tokens in (6, 20):
            answer = self.tried(db, thinking_tokens=0, max_tokens=tokens)
            self.assertIsNone(answer["error"])
            self.assertTrue(answer["value"])
            self.assertGreater(answer["tokens_out"], tokens)  # with what it has begun, and what ended that

    def test_it_comes_before_whatever_is_asked(self):
        db = self.thinking()
        options = '{"thinking_tokens":9}'
        self.assertIn(harness.value(db, "SELECT lm_classify(?, '[\"games\",\"net\"]', NULL, ?)", ASKED, options), ("games", "net"))
        self.assertIn(harness.value(db, "SELECT lm_if(?, 'Is it a game?', ?)", ASKED, options), (0, 1))
        score = harness.value(db, "SELECT lm_score(?, 'It is a game.', ?)", ASKED, options)
        self.assertTrue(0 < score < 1)
        self.assertNotEqual(score, harness.value(db, "SELECT lm_score(?, 'It is a game.')", ASKED))
        scores = "SELECT label, probability FROM lm_classify_scores(?, '[\"games\",\"net\"]', NULL, ?)"
        behind, at_once = dict(db.execute(scores, (ASKED, options))), dict(db.execute(scores, (ASKED, "{}")))
        self.assertAlmostEqual(sum(behind.values()), 1, places=5)
        self.assertNotEqual(behind, at_once)
        # Labels that begin alike: the model is asked behind the same reasoning.
        alike = "SELECT label, probability FROM lm_classify_scores(?, '[\"games\",\"gadgets\",\"net\"]', NULL, ?)"
        parted = dict(db.execute(alike, (ASKED, options)))
        self.assertAlmostEqual(sum(parted.values()), 1, places=5)
        self.assertEqual(max(parted, key=parted.get), harness.value(db, "SELECT lm_classify(?, '[\"games\",\"gadgets\",\"net\"]', NULL, ?)", ASKED, options))
        schema = '{"type":"object","properties":{"kind":{"enum":["game","tool"]},"players":{"type":"integer"}},"required":["kind"]}'
        self.assertIn(json.loads(harness.value(db, "SELECT lm_extract(?, ?, ?)", ASKED, schema, options))["kind"], ("game", "tool"))
        several = self.tried(db, thinking_tokens=9, choices=["games", "net"], n=5, seed=1)
        self.assertLessEqual(set(json.loads(several["value"])), {"games", "net"})
        self.assertGreaterEqual(several["tokens_out"], 5 * 10)
        self.assertIn(self.tried(db, thinking_tokens=9, choices=["games", "net"], best_of=3)["value"], ("games", "net"))
        pieces = db.execute("SELECT group_concat(piece, ''), count(*) FROM lm_stream(?, NULL, ?)", (ASKED, '{"thinking_tokens":9,"choices":["games","net"]}')).fetchone()
        self.assertIn(pieces[0], ("games", "net"))
        self.assertGreater(pieces[1], 9)

    def test_it_is_counted_remembered_and_kept_within_budgets(self):
        db = self.thinking()
        options = '{"thinking_tokens":9,"choices":["games","net"]}'
        decoded = lambda: harness.value(db, "SELECT max(tokens_decoded) FROM lm_stats WHERE model = 'default'")
        first = harness.value(db, "SELECT generate(?, NULL, ?)", ASKED, options)
        made = decoded()
        self.assertGreaterEqual(made, 10)
        self.assertEqual(harness.value(db, "SELECT generate(?, NULL, ?)", ASKED, options), first)
        self.assertEqual(decoded(), made)
        harness.value(db, "SELECT generate(?, NULL, ?)", ASKED, options.replace("9", "8"))
        self.assertGreater(decoded(), made)
        self.fails(db, "SELECT generate(?, NULL, '{\"thinking_tokens\":500,\"max_tokens\":5,\"max_total_tokens\":100}')", "max_total_tokens", ASKED)
        most = "SELECT answer_tokens FROM lm_explain('SELECT generate(''x'', NULL, ''{%s\"max_tokens\":5}'')')"
        self.assertGreaterEqual(harness.value(db, most % '"thinking_tokens":70,'), harness.value(db, most % "") + 70)

    def test_what_failed_was_paid_for_too(self):
        db = self.thinking("{{ messages[0].content }}")
        prompts = json.dumps([f"row {i}" for i in range(100)])
        begun = {}
        for drawn in ({}, {"n": 3}, {"best_of": 3}, {"vote": 3}):
            options = {"schema": {"type": "string", "minLength": 60}, "max_tokens": 5, "max_total_tokens": 200, "cache": False, **drawn}
            counts = "SELECT sum(tokens_decoded) + sum(tokens_prefilled) + sum(tokens_reused) FROM lm_stats WHERE model = 'default'"
            before = harness.value(db, counts) or 0
            rows = db.execute("SELECT error, tokens_in + tokens_out FROM lm_each(?, NULL, ?)", (prompts, json.dumps(options))).fetchall()
            cut = [tokens for error, tokens in rows if "max_tokens = 5" in error]
            self.assertLessEqual(sum(cut), 200)
            self.assertGreaterEqual(sum(cut), 100)
            self.assertLessEqual(harness.value(db, counts) - before, 200)

    def test_near_the_contexts_end_it_answers_at_once(self):
        db = self.thinking()
        self.tried(db, max_tokens=1, thinking="keep")  # it is loaded
        context = harness.value(db, "SELECT context FROM lm_models WHERE name = 'default'")
        for words in range(context - 100, context - 5, 9):
            prompt = "a " * words
            tried = "SELECT lm_try(?, NULL, ?)"
            if harness.value(db, "SELECT lm_token_count(?)", prompt) > context - 24:
                break
            answer = json.loads(harness.value(db, tried, prompt, '{"thinking_tokens":100,"choices":["a","b"]}'))
            self.assertIn(answer["value"], ("a", "b"), (words, answer))

    def test_a_prompt_that_is_cut_leaves_what_room_there_is(self):
        for context in (100, 128, 300):
            db = self.thinking(context_length=context)
            said = json.loads(harness.value(db, "SELECT lm_try(?, NULL, ?)", "word " * 500, '{"thinking_tokens":200,"on_overflow":"truncate_end","max_tokens":5}'))
            self.assertIsNone(said["error"], (context, said))

    def test_settings_and_errors(self):
        db = self.thinking()
        db.execute("INSERT INTO temp.lm_settings VALUES ('thinking_tokens', 6)")
        self.assertEqual(self.tried(db, choices=["games", "net"]), self.tried(db, choices=["games", "net"], thinking_tokens=6))
        self.fails(db, "INSERT INTO temp.lm_settings VALUES ('thinking_tokens', -6)", "thinking_tokens must be >= 0, got -6")
        self.fails(db, "SELECT lm_embed('x', '{\"thinking_tokens\":6}')", "'thinking_tokens' is for answers")


if __name__ == "__main__":
    unittest.main()
