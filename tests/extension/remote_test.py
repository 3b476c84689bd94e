"""Models on the network: the same SQL over a server of OpenAI's API, whatever the server does.

LM_REMOTE_ROWS=5000 sends so many rows through random faults (CI: 300).
"""
import json
import os
import ssl
import struct
import subprocess
import sys
import threading
import time
import unittest

import harness
from chat_server import ChatServer

ROWS = int(os.environ.get("LM_REMOTE_ROWS", "300"))
FAULTS = ["busy", "busy_told", "error", "cut", "gone", "unfinished", "no_json", "no_utf8", "error_event", "wrong_usage"]
CANARY = "zqx7413"


def constrained(answer):
    """Answers as a server does that keeps to constraints: the canary's word where it is asked for."""
    return lambda body: ('{"word": "%s"}' % CANARY if "response_format" in body else CANARY) if CANARY in json.dumps(body) else answer(body)


class RemoteTest(unittest.TestCase):
    def connect(self, path, name="default", **options):
        connection = harness.connect()
        self.addCleanup(connection.close)
        connection.execute("INSERT INTO temp.lm_models(name, path, options) VALUES (?, ?, ?)", (name, path, json.dumps(options)))
        return connection

    def server(self, **how):
        server = ChatServer(**how)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def fails(self, connection, sql, pattern, *parameters):
        with self.assertRaisesRegex(Exception, pattern):
            connection.execute(sql, parameters).fetchall()

    def test_what_is_asked_and_what_comes_back(self):
        server = self.server()
        os.environ["LM_TEST_KEY"] = "secret"
        db = self.connect(server.url + "/", key_env="LM_TEST_KEY", headers={"X-Team": "maps"}, extra={"top_k": 3, "stream_options": None})
        self.assertEqual(harness.value(db, "SELECT generate('héllo', 'Be brief.')"), "re: héllo")
        self.assertEqual(server.requests[0], {
            "model": "tiny", "max_tokens": 256, "temperature": 0, "stream": True, "top_k": 3,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "héllo"}]})
        self.assertEqual((server.headers[0]["Authorization"], server.headers[0]["X-Team"]), ("Bearer secret", "maps"))
        # The memo answers the second time.
        self.assertEqual(harness.value(db, "SELECT generate('héllo', 'Be brief.')"), "re: héllo")
        self.assertEqual(len(server.requests), 1)
        self.assertEqual(db.execute("SELECT architecture, device, context FROM temp.lm_models").fetchall(), [("vllm", "network", 4096)])
        row = json.loads(harness.value(db, "SELECT lm_try('x', NULL, '{\"temperature\":0.5,\"seed\":7,\"top_p\":0.9,\"stop\":\":\",\"cache\":false}')"))
        self.assertEqual(row, {"value": "re", "error": None, "finish": "stop", "tokens_in": 12, "tokens_out": 3})
        self.assertEqual([server.requests[-1][key] for key in ("temperature", "seed", "top_p", "stop")], [0.5, 7, 0.9, [":"]])
        chat = json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])
        self.assertEqual(harness.value(db, "SELECT generate(?, 'S', '{\"messages\":true}')", chat), "re: c")
        self.assertEqual([m["content"] for m in server.requests[-1]["messages"]], ["S", "a", "b", "c"])
        pieces = [piece for piece, in db.execute("SELECT piece FROM lm_stream('abcdefgh')")]
        self.assertEqual("".join(pieces), "re: abcdefgh")
        self.assertGreater(len(pieces), 1)

    def test_reasoning_is_dropped(self):
        server = self.server(answer=lambda body: "<think>\nhm, hm\n</think>\n\n42")
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "42")
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"thinking\":\"keep\"}')"), "<think>\nhm, hm\n</think>\n\n42")

    def test_a_plain_update_keeps_the_server_busy(self):
        server = self.server(delay=0.02)
        db = self.connect(server.url, concurrency=24)
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(200)])
        db.execute("UPDATE t SET y = generate(body, 'Label it.')")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE y = 're: ' || body"), 200)
        self.assertEqual(len(server.requests), 200)
        self.assertGreater(server.most_at_a_time, 16)
        self.assertLessEqual(server.most_at_a_time, 24)
        self.assertLessEqual(server.connections, 26)

    def test_every_row_is_answered_once_through_faults(self):
        server = self.server(faults=[""] * 50 + FAULTS, delay=0.002)
        db = self.connect(server.url, concurrency=32, retries=8)
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(ROWS)])
        db.execute("UPDATE t SET y = generate(body)")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE y = 're: ' || body"), ROWS)
        failing = self.server(faults=["error"])
        db = self.connect(failing.url, retries=1)
        self.fails(db, "SELECT generate('x')", r"HTTP 500: <html>oops</html>")
        self.assertEqual(len(failing.requests), 2)

    def test_constraints_are_spoken_in_each_dialect(self):
        for owner, kind, key in (("vllm", "choices", "structured_outputs"), ("sglang", "choices", "regex"), ("llamacpp", "choices", "grammar"),
                                 ("vllm", "regex", "structured_outputs"), ("sglang", "grammar", "ebnf"), ("vllm", "schema", "response_format")):
            answer = {"schema": '{"n": 4.0}'}.get(kind, "4")
            server = self.server(owner=owner, answer=constrained(lambda body, answer=answer: answer))
            db = self.connect(server.url)
            wanted = {"choices": ["4", "5"], "regex": "[0-9]", "grammar": 'root ::= [0-9]', "schema": {"type": "object", "properties": {"n": {"type": "number"}}}}[kind]
            got = harness.value(db, "SELECT generate('x', NULL, ?)", json.dumps({kind: wanted}))
            self.assertEqual(got, '{"n":4}' if kind == "schema" else "4")
            self.assertIn(key, server.requests[-1])
            self.assertEqual(len(server.requests), 2)  # with the canary
        server = self.server(owner="somebody", answer=lambda body: '{"answer": "%s"}' % (CANARY if CANARY in json.dumps(body) else "yes"))
        self.assertEqual(harness.value(self.connect(server.url), "SELECT lm_classify('x', '[\"yes\",\"no\"]')"), "yes")
        self.fails(self.connect(server.url), "SELECT generate('x', NULL, ?)", "spoken to as openai has no grammars", '{"grammar":"root ::= \\"a\\""}')

    def test_no_answer_is_believed(self):
        ignoring = self.server()
        db = self.connect(ignoring.url)
        self.fails(db, "SELECT lm_classify('x', '[\"a\",\"b\"]')", r"ignores choices: made to say zqx7413, it said re: Say hello\.")
        # Once it says something else, and once more it is told.
        said = iter(["maybe", "yes", "maybe", "perhaps"])
        server = self.server(answer=constrained(lambda body: next(said)))
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT lm_classify('x', '[\"yes\",\"no\"]')"), "yes")
        self.assertEqual([m["role"] for m in server.requests[-1]["messages"]][-2:], ["assistant", "user"])
        self.fails(db, "SELECT lm_classify('y', '[\"yes\",\"no\"]')", "does not fit choices: perhaps")

    def test_judgements_are_read_from_probabilities(self):
        server = self.server(first=[("Yes", -0.105), ("No", -2.303), ("Maybe", -5.0)])
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT lm_if('it pours', 'Does it rain?')"), 1)
        self.assertAlmostEqual(harness.value(db, "SELECT lm_score('it pours', 'It rains.')"), 0.9, places=3)
        self.assertEqual((server.requests[0]["max_tokens"], server.requests[0]["logprobs"]), (1, True))
        self.fails(self.connect(self.server().url), "SELECT lm_if('x', 'y?')", "gives no probabilities")
        odd = self.server(first=[("Well", -0.1), ("Hm", -1.0)])
        self.fails(self.connect(odd.url), "SELECT lm_if('x', 'y?')", "the first is Well")

    def test_embeddings(self):
        db = self.connect(self.server().url)
        blob = harness.value(db, "SELECT lm_embed('abcd', '{\"normalize\":false}')")
        self.assertEqual(struct.unpack("<2f", blob), (4.0, 1.0))
        self.fails(db, "SELECT lm_embed('abcd', '{\"pooling\":\"last\"}')", "the server of a model on the network pools")
        self.fails(db, "SELECT lm_rerank('a', 'b')", "ranks no texts")

    def test_errors_are_in_the_servers_words(self):
        answers = {"long": {"code": 400, "error": {"message": "This model's maximum context length is 4096 tokens."}},
                   "bad": {"code": 422, "detail": "no such field"}, "key": {"code": 401, "error": "who are you"},
                   "away": {"code": 302, "message": "elsewhere"}}
        server = self.server(answer=lambda body: dict(answers[body["messages"][-1]["content"]]))
        db = self.connect(server.url)
        for prompt, pattern in (("long", "HTTP 400: This model's maximum context"), ("bad", "HTTP 422: no such field"),
                                ("key", "HTTP 401: who are you .*key_env"), ("away", "redirects are not followed")):
            self.fails(db, "SELECT generate(?)", pattern, prompt)
        self.assertEqual(len(server.requests), 4)  # none was sent again
        self.fails(self.connect(server.url, key_env="LM_NO_SUCH_KEY"), "SELECT generate('x')", "no environment variable 'LM_NO_SUCH_KEY'")
        self.fails(self.connect(server.url, model="huge"), "SELECT generate('x')", "has no model 'huge', but 'tiny'")
        self.fails(db, "SELECT lm_logprobs('x')", "does not tell the probabilities of a prompt")
        self.fails(db, "SELECT lm_tokenize('x')", "tokens of a model on the network are not known")
        self.fails(db, "SELECT generate('x', NULL, '{\"on_overflow\":\"truncate_end\"}')", "on_overflow")
        gone = self.server()
        url = gone.url
        gone.__exit__()
        self.fails(self.connect(url), "SELECT generate('x')", r"127\.0\.0\.1.*(refused|connect)")

    def test_a_certificate_that_nobody_vouches_for(self):
        server = self.server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(harness.MODELS.parent / "self_signed.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        address = server.url.replace("http:", "https:")
        self.fails(self.connect(address, retries=0), "SELECT generate('x')", r"https://127\.0\.0\.1.*certificate")
        self.assertEqual(server.requests, [])

    def test_affinity_header(self):
        server = self.server()
        db = self.connect(server.url, affinity_header="X-Session")
        for prompt, system in (("a", "One."), ("b", "One."), ("c", "Two."), ("d", None)):
            harness.value(db, "SELECT generate(?, ?)", prompt, system)
        marks = [headers.get("X-Session") for headers in server.headers]
        self.assertEqual((marks[0] == marks[1], marks[0] == marks[2], marks[3], marks[0] is None), (True, False, None, False))

    def test_what_is_written_is_checked(self):
        db = harness.connect()
        self.addCleanup(db.close)
        insert = "INSERT INTO temp.lm_models(name, path, options) VALUES ('far', ?, ?)"
        for path, options, pattern in (
                ("http://", "{}", "must be an address"), ("http://u:p@host/v1", "{}", "key_env names a variable"), ("[1]", "{}", "must be a text, got 1"),
                ("http://host/v1?x=1", "{}", "must be an address"), ("http://host/v1", '{"modle":"x"}', "unknown option 'modle'.* model, dialect"),
                ("http://host/v1", '{"concurrency":0}', "concurrency must be an integer from 1 to 1024, got 0"),
                ("http://host/v1", '{"affinity_header":"a: b"}', "affinity_header must be the name of a header"), ("http://host/v1", '{"dialect":"gemini"}', "dialect must be one of auto, openai, vllm"), ("http://host/v1", '{"headers":{"a":"x\\ny"}}', "headers must be")):
            self.fails(db, insert, pattern, path, options)
        self.fails(db, "SELECT generate('x', NULL, '{\"model\":\"http://host/v1\"}')", "an address needs a name")
        for variables, pattern in (({"LM_NETWORK": "off"}, "LM_NETWORK=off"), ({"LM_HOSTS": "a.example, b.example"}, "none of the hosts that LM_HOSTS allows")):
            script = ("import harness\nc = harness.connect()\ntry:\n c.execute(\"INSERT INTO temp.lm_models(name, path) VALUES ('far', 'http://host/v1')\")\n"
                      "except Exception as e: print(e)")
            ran = subprocess.run([sys.executable, "-c", script], env={**os.environ, **variables, "PYTHONPATH": os.path.dirname(__file__)},
                                 capture_output=True, text=True, check=True)
            self.assertIn(pattern, ran.stdout)

    def test_loading_the_extension_opens_no_library_of_the_network(self):
        script = "import harness\nc = harness.connect()\nc.execute('SELECT lm_version()').fetchall()\nprint('libcurl' in open('/proc/self/maps').read())"
        ran = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)}, capture_output=True, text=True, check=True)
        self.assertEqual(ran.stdout.strip(), "False")

    def test_who_waits_can_leave(self):
        server = self.server(delay=30)
        db = self.connect(server.url)
        threading.Timer(0.3, db.interrupt).start()
        begun = time.monotonic()
        self.fails(db, "SELECT generate('x')", "interrupted")
        self.assertLess(time.monotonic() - begun, 20)
        self.fails(db, "SELECT generate('y', NULL, '{\"timeout_ms\":200}')", "timeout_ms = 200")

    def test_several_servers(self):
        first, second = self.server(delay=0.02), self.server(delay=0.02)
        dead = self.server()
        dead.__exit__()
        db = self.connect(json.dumps([dead.url, first.url, second.url]), concurrency=4, retries=6)
        db.execute("CREATE TABLE t(body TEXT, y TEXT)")
        db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(60)])
        db.execute("UPDATE t SET y = generate(body)")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE y = 're: ' || body"), 60)
        self.assertGreater(min(len(first.requests), len(second.requests)), 10)
        # The rows of a system prompt go where it is, after the first of them; without one they would go to both.
        before = len(first.requests), len(second.requests)
        first.events, second.events = [], []
        self.assertEqual(harness.value(db, "SELECT count(value) FROM lm_each('[\"a\",\"b\",\"c\",\"d\"]', 'One prefix.')"), 4)
        self.assertEqual({len(first.requests) - before[0], len(second.requests) - before[1]}, {0, 4})
        self.assertEqual((first.events + second.events)[:2], ["asked", "answers"])

    def test_what_a_server_refuses_is_no_failure(self):
        codes = iter([429, 503, 429, 429])
        server = self.server(answer=lambda body: {"code": code, "error": "full"} if (code := next(codes, 0)) else "at last")
        self.assertEqual(harness.value(self.connect(server.url, retries=0), "SELECT generate('x')"), "at last")
        self.assertEqual(len(server.requests), 5)

    def test_requests_a_minute(self):
        server = self.server()
        db = self.connect(server.url, rpm=600)
        begun = time.monotonic()
        db.execute("SELECT value FROM lm_each((WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25) "
                   "SELECT json_group_array('row ' || i) FROM n))").fetchall()
        self.assertGreater(time.monotonic() - begun, 1.3)  # ten at once, and ten a second
        self.assertEqual(len(server.requests), 25)

    def test_a_job(self):
        server = self.server()
        db = self.connect(server.url)
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(40)])
        db.execute("INSERT INTO lm_jobs(name, query, system, target) VALUES ('short', 'SELECT id, body FROM notes', 'Be brief.', "
                   "'UPDATE notes SET y = :value WHERE id = :id')")
        db.execute("SELECT * FROM lm_run('short')").fetchall()
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE y = 're: ' || body"), 40)
        requests, prefilled, reused, decoded = db.execute(
            "SELECT max(requests), max(tokens_prefilled), max(tokens_reused), max(tokens_decoded) FROM lm_stats WHERE model = 'default'").fetchone()
        self.assertEqual((requests, prefilled, reused, decoded), (40, 160, 320, 120))


if __name__ == "__main__":
    unittest.main()
