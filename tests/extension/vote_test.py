"""A vote: where a server tells no probabilities, several answers are counted."""
import json
import threading
import time
import unittest

import harness
from chat_server import SilentHandler
from remote_case import RemoteCase, constrained


class VoteTest(RemoteCase):
    def voting(self, votes, **how):
        """A server without probabilities, which answers by the seed."""
        return self.server(answer=constrained(lambda body: votes[body.get("seed", 0) % len(votes)]), **how)

    def test_shares_are_scores_and_the_most_have_it(self):
        server = self.voting(["yes", "No", "Yes", "yes", "no"])
        db = self.connect(server.url)
        self.fails(db, "SELECT lm_score('it pours', 'It rains.')", r'gives no probabilities.*\{"vote": 5\}')
        before = len(server.requests)
        self.assertEqual(harness.value(db, "SELECT lm_score('it pours', 'It rains.', '{\"vote\":5}')"), 0.6)
        ballots = server.requests[before + 1:]  # behind the first question
        self.assertEqual(sorted(body["seed"] for body in ballots), [0, 1, 2, 3, 4])
        for body in ballots:
            self.assertEqual(body["temperature"], 1)
            self.assertEqual(body["structured_outputs"], {"choice": ["yes", "no", "Yes", "No"]})
            self.assertNotIn("logprobs", body)
        self.assertEqual(harness.value(db, "SELECT lm_if('it pours', 'Does it rain?', '{\"vote\":5}')"), 1)
        self.assertEqual(harness.value(db, "SELECT lm_if('it pours', 'Does it rain?', '{\"vote\":1,\"seed\":4}')"), 0)
        # All of them are counted and paid for.
        counts = "SELECT max(requests), max(tokens_decoded) FROM lm_stats WHERE model = 'default'"
        asked = db.execute(counts).fetchone()
        harness.value(db, "SELECT lm_if('it snows', 'Does it rain?', '{\"vote\":3,\"temperature\":0.5}')")
        self.assertEqual(db.execute(counts).fetchone(), (asked[0] + 3, asked[1] + 9))
        self.assertEqual({body["temperature"] for body in server.requests[-3:]}, {0.5})

    def test_labels(self):
        server = self.voting(["net", "games", "net"])
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT lm_classify('x', '[\"games\",\"net\"]', NULL, '{\"vote\":3}')"), "net")
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"choices\":[\"games\",\"net\"],\"vote\":3}')"), "net")
        told = json.loads(harness.value(db, "SELECT lm_try('y', NULL, '{\"choices\":[\"games\",\"net\"],\"vote\":3}')"))
        self.assertEqual(told, {"value": "net", "error": None, "finish": "stop", "tokens_in": 36, "tokens_out": 9,
                                "votes": {"net": 0.666667, "games": 0.333333}})

    def test_a_tie_is_the_rows_failure(self):
        db = self.connect(self.voting(["yes", "no"]).url)
        tie = "SELECT lm_if('x', 'y?', '{\"vote\":4%s}')"
        self.fails(db, tie % "", "lm_if: a tie: of 4 votes as many are a yes as a no")
        self.assertEqual(harness.value(db, tie % ',\"on_error\":\"null\"'), None)
        self.assertEqual(harness.value(db, "SELECT lm_score('x', 'y', '{\"vote\":4}')"), 0.5)
        self.fails(db, "SELECT lm_classify('x', '[\"no\",\"yes\"]', NULL, '{\"vote\":4}')", "a tie: 'no' and 'yes' have 2 of 4 votes each")
        multi = "SELECT lm_classify('x', '[\"a\",\"b\"]', NULL, '{\"multi\":true,\"vote\":4%s}')"
        self.fails(db, multi % "", "lm_classify: label 'a': a tie: of 4 votes as many are a yes as a no")
        self.assertEqual(harness.value(db, multi % ',\"on_error\":\"null\"'), None)
        self.assertEqual(harness.value(db, multi % ',\"threshold\":0.5'), "[]")
        self.assertEqual(json.loads(harness.value(db, multi % ',\"scores\":true')), {"a": 0.5, "b": 0.5})
        match = "SELECT count(*), max(probability) FROM lm_match('SELECT 1, ''a b''', 'SELECT 2, ''b c''', 'q?', '{\"blocking\":\"fts5\",\"vote\":4%s}')"
        self.fails(db, match % "", "lm_match: rows 1 and 1: a tie: of 4 votes as many are a yes as a no")
        self.assertEqual(db.execute(match % ',\"on_error\":\"null\"').fetchone(), (0, None))
        self.assertEqual(db.execute(match % ',\"threshold\":0.5').fetchone(), (0, None))
        self.assertEqual(db.execute(match % ',\"threshold\":0.4').fetchone(), (1, 0.5))

    def test_the_shares_are_those_of_the_ballots_that_say_something(self):
        cut = {"code": 200, "choices": [{"index": 0, "message": {"content": "", "reasoning_content": "well"}, "finish_reason": "length"}]}
        for votes, yes in ((["yes", "no", cut], 1 / 2), (["no", "yes", "yes", cut, "no"], 1 / 2), (["yes", cut, cut], 1), (["no", "no", cut], 0), (["yes", "no", cut, "no"], 1 / 3)):
            with self.subTest(votes=votes):
                db = self.connect(self.server(answer=constrained(lambda body: dict(vote) if isinstance(vote := votes[body["seed"]], dict) else vote)).url)
                options = json.dumps({"vote": len(votes)})
                for _ in range(2):  # of the memo, too
                    self.assertEqual(harness.value(db, "SELECT lm_score('x', 'y', ?)", options), yes)
                scores = dict(db.execute("SELECT label, probability FROM lm_classify_scores('x', '[\"yes\",\"no\"]', NULL, ?)", (options,)))
                self.assertAlmostEqual(scores["yes"], yes, places=12)
                self.assertAlmostEqual(scores["no"], 1 - yes, places=12)
                if yes == 1 / 2:
                    self.fails(db, "SELECT lm_if('x', 'y?', ?)", f"a tie: of {len(votes)} votes as many are a yes as a no", options)
                else:
                    self.assertEqual(harness.value(db, "SELECT lm_if('x', 'y?', ?)", options), int(yes > 1 / 2))

    def test_the_memo_knows_votes_from_probabilities(self):
        server = self.voting(["yes", "yes", "no"], first=[("Yes", -0.105), ("No", -2.303)])
        db = self.connect(server.url)
        score = "SELECT round(lm_score('x', 'y', ?), 3)"
        said = [harness.value(db, score, options) for options in ('{"vote":3}', "{}", '{"vote":3}', '{"vote":1}', "{}")]
        self.assertEqual(said, [0.667, 0.9, 0.667, 1.0, 0.9])
        self.assertEqual(len(server.requests), 1 + 3 + 1 + 1)

    def test_many_rows(self):
        server = self.voting(["yes", "no", "yes"], delay=0.02)
        db = self.connect(server.url, concurrency=16)
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT)")
        db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(40)])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE lm_if(body, 'y?', '{\"vote\":3}')"), 40)
        self.assertEqual(len(server.requests), 1 + 120)
        self.assertGreater(server.most_at_a_time, 8)
        rows, prompts, tokens = db.execute("SELECT rows, prompts, tokens FROM lm_explain('SELECT lm_if(body, ''y?'', ''{\"vote\":3}'') FROM t')").fetchone()
        once = harness.value(db, "SELECT tokens FROM lm_explain('SELECT lm_if(body, ''y?'') FROM t')")
        self.assertEqual((rows, prompts, tokens), (40, 40, 3 * once))

    def test_one_ballot_that_fails_fails_the_vote(self):
        server = self.server(answer=constrained(lambda body: {"code": 400, "error": "not that one"} if body["seed"] == 1 else "yes"))
        db = self.connect(server.url)
        self.fails(db, "SELECT lm_if('x', 'y?', '{\"vote\":3}')", "HTTP 400: not that one")

    def test_who_waits_for_a_vote_can_leave(self):
        db = self.connect(self.server(handler=SilentHandler).url)
        threading.Timer(0.3, db.interrupt).start()
        begun = time.monotonic()
        self.fails(db, "SELECT lm_if('x', 'y?', '{\"vote\":3}')", "interrupted")
        self.assertLess(time.monotonic() - begun, 20)

    def test_what_no_vote_is_for(self):
        db = self.connect(self.voting(["yes"]).url)
        self.fails(db, "SELECT lm_embed('x', '{\"vote\":3}')", "option 'vote' is for answers that are generated, and here none is")
        self.fails(db, "SELECT piece FROM lm_stream('x', NULL, '{\"vote\":3,\"choices\":[\"a\"]}')", "vote: its answer is known at its end")
        self.fails(db, "SELECT lm_if('x', 'y?', '{\"vote\":101}')", "vote must be from 0 to 100, got 101")
        self.fails(db, "INSERT INTO temp.lm_settings VALUES ('vote', 3)", "belongs in a call's options")
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")
        db.execute("INSERT INTO lm_jobs(name, query, options) VALUES ('far', 'SELECT id, body FROM notes', '{\"choices\":[\"a\",\"b\"],\"vote\":3}')")
        self.fails(db, "SELECT * FROM lm_batch_export('far', '{\"model\":\"tiny\"}')", "vote: a row of a batch file is one request")


if __name__ == "__main__":
    unittest.main()
