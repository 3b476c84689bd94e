"""The option `check`: what a model on the network is asked when its row is written, and what lm_models says of it."""
import json
import threading
import time
import unittest

import harness
from chat_server import SilentHandler
from remote_case import CANARY, RemoteCase, constrained

KINDS = ["choices", "regex", "schema", "grammar"]


class CheckTest(RemoteCase):
    def seen(self, connection):
        status, constraints = connection.execute("SELECT status, constraints FROM temp.lm_models WHERE name = 'default'").fetchone()
        return status, json.loads(constraints) if constraints else None

    def test_writing_a_row_sends_nothing(self):
        server = self.server(answer=constrained(lambda body: "a"))
        db = self.connect(server.url)
        self.assertEqual((server.connections, self.seen(db)), (0, (None, None)))
        harness.value(db, "SELECT generate('x')")
        self.assertEqual(self.seen(db), ("ready", dict.fromkeys(KINDS)))
        harness.value(db, "SELECT generate('x', NULL, '{\"choices\":[\"a\",\"b\"]}')")
        self.assertEqual(self.seen(db), ("ready", {**dict.fromkeys(KINDS), "choices": "kept"}))

    def test_a_checked_row_says_what_was_proved(self):
        server = self.server(answer=constrained(lambda body: "a"))
        db = self.connect(server.url, check=True)
        self.assertEqual(self.seen(db), ("ready", dict.fromkeys(KINDS, "kept")))
        self.assertEqual(len(server.requests), 4)
        self.assertTrue(all(CANARY in json.dumps(body) for body in server.requests))
        # Nothing is asked twice.
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"choices\":[\"a\",\"b\"]}')"), "a")
        self.assertEqual(len(server.requests), 5)

    def test_a_checked_row_says_what_was_not(self):
        ignoring = self.connect(self.server().url, check=True)
        status, constraints = self.seen(ignoring)
        self.assertEqual(status, "ready")
        for kind in KINDS:
            self.assertIn(f"the server ignores {kind}: made to say", constraints[kind])
        plain = self.server(owner="somebody", answer=lambda body: '{"word": "%s"}' % CANARY if '"word"' in json.dumps(body) else '{"answer": "%s"}' % CANARY)
        constraints = self.seen(self.connect(plain.url, check=True))[1]
        self.assertEqual({kind: words for kind, words in constraints.items() if words == "kept"}, {"choices": "kept", "regex": "kept", "schema": "kept"})
        self.assertRegex(constraints["grammar"], "spoken to as openai has no grammars")

    def test_a_server_that_is_down(self):
        server = self.server(answer=constrained(lambda body: "a"))
        gone = self.server()
        gone.__exit__()
        db = self.connect(gone.url, check=True)
        status, constraints = self.seen(db)
        self.assertRegex(status, r"127\.0\.0\.1.*(refused|connect)")
        self.assertIsNone(constraints)
        self.fails(db, "SELECT generate('x')", r"127\.0\.0\.1")
        # Another row takes its place, and its status.
        self.register(db, server.url, check=True)
        self.assertEqual(self.seen(db), ("ready", dict.fromkeys(KINDS, "kept")))

    def test_what_a_server_says_against_it_is_an_error(self):
        server = self.server()
        db = self.connect(server.url)
        with self.assertRaisesRegex(Exception, "has no model 'huge', but 'tiny'"):
            self.register(db, server.url, check=True, model="huge")
        self.assertEqual(json.loads(harness.value(db, "SELECT options FROM temp.lm_models")), {})
        with self.assertRaisesRegex(Exception, "check must be true or false"):
            self.register(db, server.url, check=1)
        db.execute("INSERT INTO temp.lm_settings VALUES ('network', 'off')")
        with self.assertRaisesRegex(Exception, "network 'off'"):
            self.register(db, server.url, check=True)
        self.register(db, server.url)

    def test_a_server_that_says_nothing(self):
        server = self.server(handler=SilentHandler)
        db = harness.connect()
        self.addCleanup(db.close)
        threading.Timer(0.5, db.interrupt).start()
        begun = time.monotonic()
        with self.assertRaisesRegex(Exception, "interrupted"):
            self.register(db, server.url, check=True)
        self.assertLess(time.monotonic() - begun, 20)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM temp.lm_models WHERE path LIKE 'http%'"), 0)


if __name__ == "__main__":
    unittest.main()
