"""lm_stream of a model on the network: its pieces together are what generate() returns, whatever the server does."""
import json
import unittest

import harness
from chat_server import Handler
from remote_case import CANARY, RemoteCase, constrained

BREAK = object()  # the connection ends
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
GIVEN_UP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}
FAILED = {"error": {"message": "out of memory"}}


def thought(text):
    return {"choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": None}]}


class Scripted(Handler):
    """Sends what the server's answer lists: texts, events."""
    def good(self, body, **how):
        self.begin()
        for one in self.server.answer(body):
            if one is BREAK:
                self.wfile.flush()
                self.close_connection = True
                return
            self.delta(content=one) if isinstance(one, str) else self.event(one)
        self.chunk(b"")


class RemoteStreamTest(RemoteCase):
    def serving(self, *answers, **options):
        """A server that says these, one by one, and then the last for ever; and a connection."""
        left = list(answers)
        server = self.server(handler=Scripted, answer=lambda body: left.pop(0) if len(left) > 1 else left[0])
        return server, self.connect(server.url, **options)

    def pieces(self, db, options={}):
        return [piece for piece, in db.execute("SELECT piece FROM lm_stream('x', NULL, ?)", (json.dumps(options),))]

    def assert_same(self, db, options, text):
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, ?)", json.dumps(options)), text)
        self.assertEqual("".join(self.pieces(db, options)), text)

    def test_what_is_sent_again_is_not_handed_out_again(self):
        whole = ["One ", "two ", "three ", "four", STOP]
        for broken in (["One ", "two ", "three ", BREAK], ["One ", "two ", "three ", FAILED], ["One ", "two ", "three ", GIVEN_UP], ["One ", "two ", "three "]):
            for options in ({}, {"temperature": 0.7}):
                with self.subTest(end=broken[3:], options=options):
                    server, db = self.serving(broken, whole)
                    self.assertEqual(self.pieces(db, options), ["One ", "two ", "three ", "four"])
                    self.assertEqual(len(server.requests), 2)

    def test_what_is_sent_again_may_come_in_other_pieces(self):
        server, db = self.serving(["One ", "two ", BREAK], ["One t", FAILED], [BREAK], ["O", "ne two th", "ree", BREAK], ["One two three ", "four", STOP])
        self.assertEqual(self.pieces(db), ["One ", "two ", "th", "ree", " ", "four"])
        self.assertEqual(len(server.requests), 5)
        self.assertEqual(db.execute("SELECT max(requests), max(failed) FROM lm_stats WHERE model = 'default'").fetchone(), (1, 0))

    def test_another_answer_is_no_end_of_the_first(self):
        error = r"v1: the answer before this one broke off after 8 bytes that had been handed out, and this one differs from them"
        for other in (["One ", "zwei ", "drei", STOP], ["Eins zwei ", "drei", STOP], ["One ", "two", STOP], [STOP]):
            with self.subTest(other=other):
                for options in ({}, {"temperature": 0.7}):
                    server, db = self.serving(["One ", "two ", BREAK], other)
                    self.fails(db, "SELECT piece FROM lm_stream('x', NULL, ?)", error, json.dumps(options))
                    self.assertEqual(len(server.requests), 2)
                    self.assertEqual(db.execute("SELECT max(requests), max(failed) FROM lm_stats WHERE model = 'default'").fetchone(), (1, 1))
                server, db = self.serving(["One ", "two ", BREAK], other)
                self.assertEqual(self.pieces(db, {"on_error": "null"}), ["One ", "two ", None])
        # Who has seen nothing of the first takes any.
        server, db = self.serving(["One ", "two ", BREAK], ["Eins ", "zwei", STOP])
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "Eins zwei")

    def test_a_constrained_answer_comes_once_it_is_proved(self):
        answers = iter(["abc 12", "abc 123"])
        server = self.server(answer=constrained(lambda body: next(answers)))
        db = self.connect(server.url)
        self.assertEqual(self.pieces(db, {"regex": "abc 123"}), ["abc 123"])
        self.assertEqual(len(server.requests), 3)  # with the first question; the first answer was sent back
        db = self.connect(self.server(answer=constrained(lambda body: '{"a": 1}')).url)
        self.assertEqual(self.pieces(db, {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}), ['{"a":1}'])
        db = self.connect(self.server(answer=constrained(lambda body: "neither")).url)
        self.fails(db, "SELECT piece FROM lm_stream('x', NULL, '{\"choices\":[\"a\",\"b\"]}')", "does not fit choices: neither")

    def test_a_constrained_answer_that_breaks_off_is_asked_for_again(self):
        half = iter([["ab", BREAK], ["cd", STOP]])
        server = self.server(handler=Scripted, answer=lambda body: [CANARY, STOP] if CANARY in json.dumps(body) else next(half))
        self.assertEqual(self.pieces(self.connect(server.url), {"regex": "[a-d]+"}), ["cd"])

    def test_what_was_held_back_comes_at_the_end(self):
        server, db = self.serving(["It is 4", ". ", "Done <", STOP])
        self.assertEqual(self.pieces(db, {"stop": "<end>"}), ["It is 4", ". ", "Done ", "<"])
        self.assert_same(db, {"stop": "<end>"}, "It is 4. Done <")
        self.assert_same(db, {"stop": [". D", "x"]}, "It is 4")
        # What may become a mark of reasoning.
        server, db = self.serving(["<th", STOP])
        self.assert_same(db, {}, "<th")

    def test_reasoning_that_is_kept_comes_as_it_is_made(self):
        server, db = self.serving([thought("let me "), thought("think"), "It is 4", ". ", "Done <", STOP])
        keep = {"thinking": "keep"}
        self.assertEqual(self.pieces(db, keep), ["<think>\nlet me ", "think", "\n</think>\n\nIt is 4", ". ", "Done <"])
        self.assert_same(db, keep, "<think>\nlet me think\n</think>\n\nIt is 4. Done <")
        self.assert_same(db, {**keep, "stop": "<end>"}, "<think>\nlet me think\n</think>\n\nIt is 4. Done <")
        self.assert_same(db, {**keep, "stop": "4"}, "<think>\nlet me think\n</think>\n\nIt is ")
        self.assert_same(db, {}, "It is 4. Done <")
        # One that breaks off within it.
        server, db = self.serving([thought("let me "), BREAK], [thought("let "), thought("me think"), "4", STOP])
        self.assertEqual(self.pieces(db, keep), ["<think>\nlet me ", "think", "\n</think>\n\n4"])
        # Nothing else; and more of it behind some of the answer.
        server, db = self.serving([thought("hm"), STOP])
        self.assert_same(db, keep, "<think>\nhm\n</think>\n\n")
        server, db = self.serving([thought("hm"), "It is ", thought("well"), "4", STOP])
        self.assert_same(db, keep, "<think>\nhm\n</think>\n\nIt is <think>\nwell\n</think>\n\n4")

    def test_what_a_constraint_allows_is_all_of_an_answer(self):
        for answer in ([thought("hm"), "yes", STOP], ["<think>hm</think>", "yes", STOP]):
            server = self.server(handler=Scripted, answer=lambda body: [CANARY, STOP] if CANARY in json.dumps(body) else answer)
            self.assert_same(self.connect(server.url), {"thinking": "keep", "choices": ["yes", "no"]}, "yes")


if __name__ == "__main__":
    unittest.main()
