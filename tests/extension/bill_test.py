"""What servers are paid for is counted: lm_stats, tokens_in and tokens_out, budgets."""
import json
import threading
import unittest

import harness
from chat_server import Handler
from remote_case import RemoteCase, constrained

PAID = "SELECT sum(tokens_prefilled) + sum(tokens_reused), sum(tokens_decoded), max(requests) FROM lm_stats WHERE model = 'default'"


def told(finish):
    """An answer's events: 1,000 tokens were read, and 500 written."""
    events = [{"choices": [{"index": 0, "delta": {"content": "hello"}}]}, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
              {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 500}}]
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def untold():
    """An answer's events; how many tokens it was the server does not say."""
    return told("stop").replace(b'"usage"', b'"other"')


def cut():
    """The first of them, and no more."""
    return told("stop").split(b"\n\n")[0] + b"\n\n"


def guess(prompt):
    """The tokens of a prompt whose server does not say."""
    return (len(json.dumps([{"role": "user", "content": prompt}], separators=(",", ":"))) + 3) // 4


class Told(Handler):
    """Says what it is told to, one by one, and then the last for ever: bytes, or a refusal."""
    def good(self, body, **how):
        answer = self.server.answer(body)
        if isinstance(answer, dict):
            return self.whole(answer["code"], answer)
        self.begin()
        self.chunk(answer)
        self.chunk(b"")


class BillTest(RemoteCase):
    def serving(self, *answers):
        left = list(answers)
        return self.server(handler=Told, answer=lambda body: left.pop(0) if len(left) > 1 else left[0])

    def test_answers_that_were_asked_for_again(self):
        answers = iter(["maybe", "yes"])
        server = self.server(answer=constrained(lambda body: next(answers)))
        db = self.connect(server.url, price_in=1e6, price_out=1e6)
        row = json.loads(harness.value(db, "SELECT lm_try('x', NULL, '{\"choices\":[\"yes\",\"no\"]}')"))
        self.assertEqual([row[key] for key in ("value", "tokens_in", "tokens_out")], ["yes", 24, 6])
        # And the first question, which is no row's.
        self.assertEqual(len(server.requests), 3)
        self.assertEqual(db.execute(PAID).fetchone(), (36, 9, 1))
        self.assertEqual(harness.value(db, "SELECT sum(cost) FROM lm_stats WHERE model = 'default'"), 45)
        db.execute("SELECT lm_embed('five words are in here')").fetchall()
        self.assertEqual(db.execute(PAID).fetchone(), (41, 9, 2))
        self.assertEqual(harness.value(db, "SELECT max(tokens_reused) FROM lm_stats WHERE model = 'default'"), 24)
        rows = db.execute("SELECT lm_embed('five words are in ' || value, '{\"max_cost\":12,\"on_error\":\"null\"}') IS NULL FROM json_each('[1,2,3,4]')").fetchall()
        self.assertEqual(len([1 for missing, in rows if missing]), 2)

    def test_an_answer_that_is_weighed_is_foreseen_as_the_one_token_that_is_asked_for(self):
        server = self.server(first=[("Yes", -0.1), ("No", -2.4)])
        db = self.connect(server.url, price_in=0, price_out=1e6)
        question = "SELECT lm_if(value, ''Is it?'') FROM json_each(''[\"a\",\"b\"]'')"
        self.assertEqual(db.execute(f"SELECT answer_tokens, cost_out FROM lm_explain('{question}')").fetchone(), (2, 2))
        harness.value(db, "SELECT lm_if('a', 'Is it?')")
        self.assertEqual(server.requests[-1]["max_tokens"], 1)

    def test_answers_that_the_server_gave_up(self):
        server = self.serving(*3 * [told("abort")], told("stop"))
        db = self.connect(server.url, price_in=1, price_out=2)
        row = json.loads(harness.value(db, "SELECT lm_try('x')"))
        self.assertEqual([row[key] for key in ("value", "tokens_in", "tokens_out")], ["hello", 4000, 2000])
        self.assertEqual(len(server.requests), 4)
        self.assertEqual(db.execute(PAID).fetchone(), (4000, 2000, 1))
        self.assertAlmostEqual(harness.value(db, "SELECT sum(cost) FROM lm_stats WHERE model = 'default'"), 8000e-6)

    def test_an_answer_that_none_came_of(self):
        server = self.serving(told("abort"))
        db = self.connect(server.url, retries=2)
        row = json.loads(harness.value(db, "SELECT lm_try('x')"))
        self.assertEqual([row[key] for key in ("value", "tokens_in", "tokens_out")], [None, 3000, 1500])
        self.assertEqual(db.execute(PAID).fetchone(), (3000, 1500, 1))

    def test_an_answer_that_nobody_waits_for_any_more(self):
        server = self.serving(told("abort"), {"code": 429, "error": {"message": "slow down"}})
        db = self.connect(server.url)

        def leave():
            while len(server.requests) < 3 and not server.stopped.wait(0.01):
                pass
            db.interrupt()
        threading.Thread(target=leave, daemon=True).start()
        self.fails(db, "SELECT generate('x')", "interrupted")
        self.assertEqual(db.execute(PAID).fetchone()[:2], (1000, 500))

    def test_budgets_see_them(self):
        server = self.serving(*3 * [told("abort")], told("stop"))
        db = self.connect(server.url, price_in=1e6, price_out=1e6)
        nested = "SELECT generate(generate('x', NULL, ?1), NULL, ?1)"
        self.fails(db, nested, "max_total_tokens = 3000 does not reach for another answer: 1 have taken 6000,", '{"max_total_tokens":3000,"max_tokens":600}')
        self.assertEqual(len(server.requests), 4)

    def test_a_server_that_does_not_tell(self):
        server = self.serving(untold())
        db = self.connect(server.url, price_in=1e6, price_out=1e6)
        words = "word " * 100
        options = {"max_tokens": 20, "max_total_tokens": 600, "on_error": "null", "cache": False}
        answered = harness.value(db, "SELECT count(generate(? || value, NULL, ?)) FROM json_each('[1,2,3,4,5,6,7,8]')", words, json.dumps(options))
        each = guess(words + "1") + 2  # and "hello"
        self.assertEqual((answered, len(server.requests)), (4, 4))
        self.assertLessEqual(4 * each, 600)
        self.assertEqual(db.execute(PAID).fetchone(), (4 * (each - 2), 4 * 2, 4))
        self.assertEqual(harness.value(db, "SELECT sum(cost) FROM lm_stats WHERE model = 'default'"), 4 * each)
        row = json.loads(harness.value(db, "SELECT lm_try(?, NULL, '{\"max_cost\":200,\"max_tokens\":20}')", words))
        self.assertEqual([row[key] for key in ("value", "tokens_in", "tokens_out")], ["hello", guess(words), 2])

    def test_guesses_are_corrected_by_what_has_come(self):
        server = self.serving(told("stop"))
        db = self.connect(server.url)
        db.execute("INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')")
        options = {"max_tokens": 600, "max_total_tokens": 8250, "on_error": "null", "cache": False}
        # Each takes 1,500; by the guess of a few for its prompt a sixth might begin after five.
        answered = harness.value(db, "SELECT count(generate('x' || value, NULL, ?)) FROM json_each('[1,2,3,4,5,6,7,8]')", json.dumps(options))
        self.assertEqual((answered, len(server.requests)), (5, 5))

    def test_answers_that_broke_off(self):
        server = self.serving(cut(), cut(), told("stop"))
        db = self.connect(server.url)
        row = json.loads(harness.value(db, "SELECT lm_try('a few words')"))
        paid = 2 * guess("a few words") + 1000, 2 * 2 + 500
        self.assertEqual((row["value"], row["tokens_in"], row["tokens_out"]), ("hello", *paid))
        self.assertEqual(db.execute(PAID).fetchone(), (*paid, 1))

    def test_reasoning_and_whole_answers_that_are_not_counted(self):
        deltas = [{"reasoning": "I think"}, {"reasoning": "of it"}, {"content": "yes"}]
        events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas] + [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
        streamed = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
        whole = {"code": 200, "choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * 40}, "finish_reason": "stop"}]}
        for answer, most, tokens in ((streamed, 256, 4), (whole, 256, 10), (whole, 4, 4)):
            db = self.connect(self.serving(answer).url)
            row = json.loads(harness.value(db, "SELECT lm_try('x', NULL, ?)", json.dumps({"max_tokens": most})))
            self.assertEqual((row["error"], row["tokens_in"], row["tokens_out"]), (None, guess("x"), tokens))

    def test_vectors_and_ranks_that_are_not_counted(self):
        db = self.connect(self.serving({"code": 200, "data": [{"embedding": [1.0, 0.0]}]}).url)
        db.execute("SELECT lm_embed('twelve bytes')").fetchall()
        self.assertEqual(db.execute(PAID).fetchone(), (3, 0, 1))
        db = self.connect(self.serving({"code": 200, "results": [{"index": 0, "relevance_score": 0.5}]}).url)
        db.execute("SELECT lm_rerank('which', 'this')").fetchall()
        self.assertEqual(db.execute(PAID).fetchone(), (len('["which","this"]') // 4, 0, 1))
        # Refusals are no answers.
        db = self.connect(self.serving({"code": 400, "error": "no"}).url)
        self.fails(db, "SELECT generate('x')", "HTTP 400")
        self.assertEqual(db.execute(PAID).fetchone(), (0, 0, 1))

    def test_first_questions_are_theirs_who_asked(self):
        server = self.server(answer=constrained(lambda body: "yes"))
        mine, other, checked = (harness.connect() for _ in range(3))
        for db, salt, options in ((mine, "mine", {}), (other, "another's", {}), (checked, "a third's", {"check": True})):
            self.addCleanup(db.close)
            db.execute("INSERT INTO temp.lm_settings VALUES ('salt', ?)", (salt,))
            self.register(db, server.url, **options)
        for db, paid in ((mine, (24, 6, 1)), (other, (12, 3, 1))):
            self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"regex\":\"yes\"}')"), "yes")
            self.assertEqual(db.execute(PAID).fetchone(), paid)
        self.assertEqual(len(server.requests), 7)
        self.assertEqual(harness.value(checked, "SELECT json_extract(constraints, '$.regex') FROM temp.lm_models"), "kept")
        self.assertEqual(checked.execute(PAID).fetchone(), (48, 12, 0))
        self.assertEqual(mine.execute(PAID).fetchone(), (24, 6, 1))


if __name__ == "__main__":
    unittest.main()
