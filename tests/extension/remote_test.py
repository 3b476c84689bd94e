"""Models on the network: the same SQL over a server of OpenAI's API, whatever the server does.

LM_REMOTE_ROWS=5000 sends so many rows through random faults (CI: 300).
"""
import itertools
import json
import math
import os
import random
import sqlite3
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from chat_server import Handler
from remote_case import CANARY, RemoteCase, constrained

ROWS = int(os.environ.get("LM_REMOTE_ROWS", "300"))
FAULTS = ["busy", "busy_told", "error", "cut", "gone", "unfinished", "no_json", "no_utf8", "error_event", "wrong_usage"]


class NoRanks(Handler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.whole(404, {"error": "no such place"})


class Boaster(Handler):
    def good(self, body, **how):
        if self.path == "/tokenize":
            return self.whole(200, {"count": 2**64 - 1})
        return super().good(body, **how)


class Uneven(Handler):
    """Vectors as long as their texts: a server behind which there are several models."""
    def good(self, body, **how):
        return self.whole(200, {"data": [{"index": 0, "embedding": [1.0] * len(body["input"])}]})


class Reasons(Handler):
    """Takes 150 tokens before its answer, which it tells (context) or does not."""
    def good(self, body, **how):
        text, most = self.server.answer(body), body.get("max_tokens", 1000)
        cut = most < 160
        self.begin()
        if self.server.context:
            self.delta(reasoning_content="hm " * min(most, 150))
        self.delta(content="" if cut else text)
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length" if cut else "stop"}]})
        self.event(b"[DONE]")
        self.chunk(b"")


class Listless(Handler):
    """Has a code of HTTP in the place of its list of models, while there is one."""
    def do_GET(self):
        return self.whole(self.server.context, {"error": "no list"}) if self.server.context else super().do_GET()


def shy(times, before):
    """Counts the wishes for its list of models, of which the first ones are for `before`."""
    class Shy(Handler):
        def do_GET(self):
            self.server.events.append("looked")
            return before(self) if self.server.events.count("looked") <= times else super().do_GET()
    return Shy


def hang_up(handler):
    handler.close_connection = True


def slow_failure(handler):
    time.sleep(1)
    handler.whole(500, {"error": "slow"})


class RemoteTest(RemoteCase):
    def test_how_much_it_reasons_only_a_model_of_this_machine_is_told(self):
        server = self.server(answer=constrained(lambda body: "yes"), first=[("Yes", -0.105), ("No", -2.303)])
        db = self.connect(server.url)
        reasons = {"chat_template": '{{ messages[0].content }} <think>{{ "\\n" }}', "thinking_marks": ["<think>", "</think>"]}
        db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('local', ?, ?)", (harness.MODEL, json.dumps(reasons)))
        for call in ("generate('x', NULL, ?)", "lm_if('x', 'y?', ?)", "lm_classify('x', '[\"a\",\"b\"]', NULL, ?)"):
            self.fails(db, f"SELECT {call}", "thinking_tokens: how much a model on the network reasons its server decides", '{"thinking_tokens":5}')
        # A cascade's first model is, its second one goes without.
        cascade = '{"model":"local","thinking_tokens":5,"escalate":{"model":"default","below":%s}}'
        self.assertEqual(harness.value(db, "SELECT lm_if('x', 'y?', ?)", cascade % 1), 1)
        self.assertIn(harness.value(db, "SELECT lm_if('x', 'y?', ?)", cascade % 0.0001), (0, 1))
        # A setting is for models of this machine.
        db.execute("INSERT INTO temp.lm_settings VALUES ('thinking_tokens', 5)")
        self.assertEqual(harness.value(db, "SELECT lm_if('x', 'y?')"), 1)

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

    def test_what_a_server_is_told_has_an_answer_of_its_own(self):
        server = self.server()
        db = self.connect(server.url, dialect="vllm")
        thinks = "generate('yo', NULL, '{\"template_args\":{\"enable_thinking\":%s}}')"
        db.execute(f"SELECT {thinks % 'true'}, {thinks % 'false'}, {thinks % 'true'}").fetchall()
        self.assertEqual(sorted(request["chat_template_kwargs"]["enable_thinking"] for request in server.requests), [False, True])
        # No temperature is another one than 0 where none is sent.
        server = self.server()
        db = self.connect(server.url, dialect="openai")
        for options in ("{}", '{"temperature":0}', "{}"):
            db.execute("SELECT generate('yo', NULL, ?)", (options,)).fetchall()
        self.assertEqual([request.get("temperature") for request in server.requests], [None, 0])
        # Who asks may be in the headers.
        server = self.server()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for tenant in ("blue", "green", "blue"):
            db = self.connect(server.url, headers={"X-Tenant": tenant})
            db.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (folder.name + "/memo.db",))
            db.execute("SELECT generate('yo')").fetchall()
            db.close()
        self.assertEqual([headers["X-Tenant"] for headers in server.headers if "X-Tenant" in headers][-2:], ["blue", "green"])
        self.assertEqual(len(server.requests), 2)

    def test_numbers_of_a_server_are_remembered_in_a_file(self):
        schema = json.dumps({"type": "object", "properties": {"lat": {"type": "number"}, "p": {"type": "number", "minimum": 0}}})
        server = self.server(answer=constrained(lambda body: '{"lat": 48.856614123456789, "p": 1e-30}'))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = (f"import harness\nc = harness.connect()\nc.execute('INSERT INTO temp.lm_models(name, path) VALUES (?, ?)', ('default', {server.url!r}))\n"
                  f"c.execute('INSERT INTO temp.lm_settings VALUES (?, ?)', ('memo', {folder.name + '/memo.db'!r}))\n"
                  f"print(harness.value(c, 'SELECT generate_json(?, ?)', 'where', {schema!r}))")
        for _ in range(2):
            ran = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)}, check=True, capture_output=True, text=True)
            self.assertEqual(ran.stdout, '{"lat":48.85661412345679,"p":1e-30}\n')
        self.assertEqual(sum("where" in json.dumps(request) for request in server.requests), 1)

    def test_an_answer_that_many_wait_for_is_paid_once(self):
        server = self.server()
        db = self.connect(server.url, price_in=1e6, price_out=1e6)
        same = json.dumps(["b"] * 10)
        rows = db.execute("SELECT value, error FROM lm_each(?, NULL, '{\"max_tokens\":7,\"max_cost\":60}')", (same,)).fetchall()
        self.assertEqual(rows, [("re: b", None)] * 10)
        self.assertEqual(len(server.requests), 1)

    def test_what_one_server_fails_at_another_does(self):
        for fault in ("error", "cut"):
            with self.subTest(fault=fault):
                bad, good = self.server(faults=[fault]), self.server()
                db = self.connect(json.dumps([bad.url, good.url]))
                rows = db.execute("SELECT value, error FROM lm_each(?, NULL, '{\"cache\":false}')", (json.dumps([f"row {i}" for i in range(64)]),)).fetchall()
                self.assertEqual(rows, [(f"re: row {i}", None) for i in range(64)])
                # A first wave may be out before the first failure is back; retries go elsewhere.
                self.assertLess(len(bad.requests), 48)

    def test_a_row_is_not_lost_while_one_server_works(self):
        dead, failing = self.server(), self.server(faults=["error"])
        dead.leave()
        for bad in (dead, failing):
            good = self.server(delay=0.5, answer=constrained(lambda body: "yes"))
            with self.subTest(dead=bad is dead):
                db = self.connect(json.dumps([bad.url, good.url]), concurrency=2, retries=1)
                rows = db.execute("SELECT value, error FROM lm_each(?)", (json.dumps([f"row {i}" for i in range(9)]),)).fetchall()
                self.assertEqual(rows, [("yes", None)] * 9)
                # Nor is the first question of a constraint, while the others are full.
                busy = threading.Thread(target=lambda: db.execute("SELECT value FROM lm_each(?)", (json.dumps([f"more {i}" for i in range(12)]),)).fetchall())
                busy.start()
                time.sleep(0.2)
                other = self.connect(json.dumps([bad.url, good.url]), concurrency=2, retries=1)
                self.assertEqual(harness.value(other, "SELECT lm_classify('x', '[\"yes\",\"no\"]')"), "yes")
                busy.join()

    def test_a_server_of_several_that_refuses_fails_no_rows(self):
        def refuses(code):
            return self.server(answer=lambda body: {"code": code, "error": {"message": "not here"}})

        bad = [("{}", refuses(code)) for code in (404, 401, 403, 400)] + [('{"choices":["yes","no"]}', self.server())]
        for options, server in bad:
            for first in (True, False):
                good = self.server(delay=0.05, answer=constrained(lambda body: "yes"))
                with self.subTest(options=options, first=first):
                    db = self.connect(json.dumps([server.url, good.url] if first else [good.url, server.url]), concurrency=4)
                    rows = db.execute("SELECT value, error FROM lm_each(?, NULL, ?)", (json.dumps([f"row {i}" for i in range(100)]), options)).fetchall()
                    self.assertEqual(rows, [("yes", None)] * 100)
                    self.assertLess(len(server.requests), 40)
                    server.requests.clear()
        # What all of them refuse fails, at once and in their words.
        both = refuses(400), refuses(400)
        self.fails(self.connect(json.dumps([server.url for server in both])), "SELECT generate('x')", "HTTP 400: not here")
        self.assertEqual([len(server.requests) for server in both], [1, 1])
        ignoring = self.server(), self.server()
        self.fails(self.connect(json.dumps([server.url for server in ignoring])), "SELECT lm_classify('x', '[\"a\",\"b\"]')", "ignores choices: made to say zqx7413")

    def test_an_answer_may_be_as_long_as_its_tokens(self):
        def sends(times, event, end="42"):
            class Sends(Handler):
                def good(self, body, **how):
                    self.begin()
                    piece = b"data: " + json.dumps(event).encode() + b"\n\n"
                    for _ in range(times // 500):
                        self.chunk(piece * 500)
                    self.delta(content=end)
                    self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                    self.event(b"[DONE]")
                    self.chunk(b"")
            return self.server(handler=Sends)

        def says(**delta):
            return {"id": "chatcmpl-" + 240 * "x", "choices": [{"index": 0, "delta": delta}]}

        long, most = sends(60000, says(reasoning_content="hm ")), '{"max_tokens":65536}'
        db = self.connect(long.url)
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, ?)", most), "42")
        self.fails(db, "SELECT generate('x')", rf"{long.url}: the answer has more than 16777216 bytes")
        self.assertEqual(len(long.requests), 2)
        much = sends(500, says(content=40000 * "x"))
        self.fails(self.connect(much.url), "SELECT generate('x', NULL, ?)", rf"{much.url}: the answer says more than 16777216 bytes; lower max_tokens", most)
        line = sends(0, {}, end=17 * 2**20 * "x")
        self.fails(self.connect(line.url), "SELECT generate('x', NULL, ?)", rf"{line.url}: the answer says more than 16777216 bytes", most)

    def test_reasoning_is_an_answers_beginning(self):
        class Thinks(Handler):
            def good(self, body, **how):
                self.begin()
                self.delta(reasoning_content="hm")
                self.wfile.flush()
                time.sleep(2)
                self.delta(content="yes")
                self.event(b"[DONE]")
                self.chunk(b"")

        server = self.server(handler=Thinks)
        begun = time.monotonic()
        rows = self.connect(server.url).execute("SELECT value FROM lm_each('[\"a\",\"b\",\"c\"]', 'One prefix.')").fetchall()
        self.assertEqual(rows, [("yes",)] * 3)
        self.assertLess(time.monotonic() - begun, 3.9)  # the others went once the first had begun

    def test_servers_are_asked_again_when_they_want_it(self):
        servers = [self.server(faults=["busy_told"]) for _ in range(2)]
        db = self.connect(json.dumps([server.url for server in servers]))

        def recover():
            for server in servers:
                server.faults = []
        timer = threading.Timer(0.5, recover)
        timer.start()
        self.addCleanup(timer.cancel)
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "re: x")
        self.assertLessEqual(sum(len(server.requests) for server in servers), 3)

    def test_what_embeddings_will_ask_is_counted(self):
        db = self.connect(self.server().url)
        db.execute("CREATE TABLE texts AS SELECT 'text ' || value AS body, lm_embed('a') AS vector FROM json_each('[1,2,3]')")
        for sql, rows in (("SELECT lm_embed(body, '{\"dimensions\":2}') FROM texts", 3),
                          ("SELECT lm_similarity(vector, 'a question') FROM texts", 3),
                          ("SELECT lm_similarity(body, 'a question', '{\"dimensions\":2}') FROM texts", 6)):
            self.assertEqual(harness.value(db, "SELECT rows FROM lm_explain(?)", sql), rows)

    def test_a_key_is_one_line(self):
        os.environ["LM_TEST_LINES"] = "sk\r\nX-Evil: 1"
        self.fails(self.connect(self.server().url, key_env="LM_TEST_LINES"), "SELECT generate('x')", "'LM_TEST_LINES' has more than one line")

    def test_an_answer_that_is_given_up_is_none(self):
        def stream(reason):
            return b'data: {"choices":[{"delta":{"content":"half of it"},"finish_reason":"%s"}]}\n\ndata: [DONE]\n\n' % reason
        for reason in (b"abort", b"error"):
            server = self.server(events=stream(reason))
            self.fails(self.connect(server.url, retries=1), "SELECT generate('x')", f"given the answer up.*{reason.decode()}")
            self.assertEqual(len(server.requests), 2)
        db = self.connect(self.server(events=stream(b"model_length")).url)
        self.assertEqual(json.loads(harness.value(db, "SELECT lm_try('x')"))["finish"], "length")

    def test_an_answer_is_whole_when_it_says_so(self):
        for fault in ("unclean", "kept"):
            server = self.server(faults=[fault])
            began = time.monotonic()
            self.assertEqual(harness.value(self.connect(server.url, timeout_ms=30000), "SELECT generate('x')"), "re: x")
            self.assertEqual(len(server.requests), 1)
            self.assertLess(time.monotonic() - began, 15)

    def test_a_server_that_loads_its_model_is_waited_for(self):
        server = self.server()
        server.loading = 3
        self.assertEqual(harness.value(self.connect(server.url, retries=1), "SELECT generate('x')"), "re: x")
        self.assertEqual(server.loading, 0)

    def test_numbers_that_are_none(self):
        server = self.server(first=[("yes", 1e39), ("no", -1)], answer=constrained(lambda body: "yes"))
        self.fails(self.connect(server.url, retries=0), "SELECT lm_if('x', 'Is it?')", "no logprob")

    def test_reasoning_is_dropped(self):
        server = self.server(answer=lambda body: "<think>\nhm, hm\n</think>\n\n42")
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "42")
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"thinking\":\"keep\"}')"), "<think>\nhm, hm\n</think>\n\n42")

    def test_reasoning_that_the_prompt_has_begun_is_dropped(self):
        server = self.server(answer=constrained(lambda body: "Okay, yes or no? Stop.\n</think>\n\nyes" if "structured_outputs" in body else "Okay. Stop.\n</think>\n\nParis"))
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "Paris")
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"stop\":\".\"}')"), "Paris")
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"thinking\":\"keep\"}')"), "Okay. Stop.\n</think>\n\nParis")
        self.assertEqual(harness.value(db, "SELECT lm_classify('x', '[\"yes\",\"no\"]')"), "yes")
        # Who looks on while it comes has seen it when its end comes.
        self.assertEqual("".join(piece for piece, in db.execute("SELECT piece FROM lm_stream('x')")), "Okay. Stop.\n</think>\n\nParis")
        db = self.connect(self.server(answer=lambda body: "It ends with `</think>`, they say.").url)
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "It ends with `</think>`, they say.")

    def test_a_whole_answer_where_a_stream_was_asked_for(self):
        server = self.server(streams=False)
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT generate('héllo')"), "re: héllo")
        self.assertEqual("".join(piece for piece, in db.execute("SELECT piece FROM lm_stream('abc')")), "re: abc")
        self.assertEqual(db.execute("SELECT max(tokens_prefilled), max(tokens_decoded) FROM lm_stats WHERE model = 'default'").fetchone(), (24, 6))
        self.assertEqual(len(server.requests), 2)

    def test_done_is_an_end(self):
        told = b'data: {"choices":[{"delta":{"content":"all of it"}}]}\n\ndata: [DONE]\n\n'
        self.assertEqual(harness.value(self.connect(self.server(events=told).url), "SELECT generate('x')"), "all of it")
        self.fails(self.connect(self.server(events=b"data: [DONE]\n\n").url, retries=0), "SELECT generate('x')", "broke off")

    def test_schemas_are_strict_where_openai_takes_them(self):
        def formats(owner, sql, *parameters):
            server = self.server(owner=owner, answer=constrained(lambda body: '{"name": "Ada"}'))
            self.assertEqual(harness.value(self.connect(server.url), sql, *parameters), '{"name":"Ada"}')
            return server.requests[-1]["response_format"]["json_schema"]
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = formats("somebody", "SELECT lm_extract('x', ?)", json.dumps(schema))
        self.assertEqual((asked["strict"], asked["schema"]["additionalProperties"], asked["schema"]["required"]), (True, False, ["name"]))
        for more, strict in (({}, False), ({"additionalProperties": False}, False), ({"required": ["name"]}, False),
                             ({"additionalProperties": False, "required": ["name"]}, True),
                             ({"additionalProperties": False, "required": ["name"], "minProperties": 1}, False)):
            self.assertEqual(formats("somebody", "SELECT generate_json('x', ?)", json.dumps({**schema, **more}))["strict"], strict, more)
            self.assertEqual(formats("vllm", "SELECT generate_json('x', ?)", json.dumps({**schema, **more}))["strict"], True)

    def test_openais_own_are_told_no_temperature_that_nobody_named(self):
        server = self.server(owner="somebody")
        db = self.connect(server.url, dialect="openai", extra={"reasoning_effort": "low"})
        harness.value(db, "SELECT generate('x')")
        self.assertEqual({key: server.requests[-1].get(key) for key in ("temperature", "max_completion_tokens", "max_tokens", "reasoning_effort")},
                         {"temperature": None, "max_completion_tokens": 256, "max_tokens": None, "reasoning_effort": "low"})
        for temperature in (0, 0.5):
            harness.value(db, "SELECT generate('x', NULL, ?)", json.dumps({"temperature": temperature, "cache": False}))
            self.assertEqual(server.requests[-1]["temperature"], temperature)
        harness.value(self.connect(server.url), "SELECT generate('x')")
        self.assertEqual((server.requests[-1]["temperature"], server.requests[-1]["max_tokens"]), (0, 256))
        harness.value(self.connect(server.url, extra={"temperature": None}), "SELECT generate('x')")
        self.assertNotIn("temperature", server.requests[-1])

    def test_who_does_not_pay_is_not_waited_for(self):
        for error in ({"code": "insufficient_quota"}, {"type": "billing_not_active", "code": None}, {"code": "billing_hard_limit_reached"}):
            server = self.server(answer=lambda body, error=error: {"code": 429, "error": {"message": "You exceeded your quota.", **error}})
            self.fails(self.connect(server.url), "SELECT generate('x')", "HTTP 429: You exceeded your quota")
            self.assertEqual(len(server.requests), 1)

    def test_lists_of_models(self):
        for models, wanted, known in (([{"id": "a/b"}], None, "a/b"), ([{"id": "x"}, {"id": "a/b"}], "a/b", "a/b"), ({"data": [{"id": "qwen3:latest"}]}, "qwen3", "qwen3:latest"),
                                      ({"data": [{"id": "models/gemini"}]}, "gemini", "models/gemini")):
            server = self.server(models=models)
            options = {"model": wanted} if wanted else {}
            harness.value(self.connect(server.url, **options), "SELECT generate('x')")
            self.assertEqual(server.requests[-1]["model"], known)
        self.fails(self.connect(self.server(models=[{"id": "a/b"}]).url, model="b"), "SELECT generate('x')", "has no model 'b', but 'a/b'")

    def test_what_a_server_does_not_take_is_left_out(self):
        fields = ["messages", "model", "max_tokens", "temperature", "stream"]
        server = self.server(fields=fields)
        db = self.connect(server.url)
        drawn = "SELECT generate(?, NULL, '{\"temperature\":0.5,\"seed\":3}')"
        self.assertEqual(harness.value(db, drawn, "a"), "re: a")
        self.assertEqual(len(server.requests), 2)
        self.assertEqual(set(server.requests[0]) - set(server.requests[1]), {"seed", "stream_options"})
        self.assertEqual(harness.value(db, drawn, "b"), "re: b")  # from now on at once
        self.assertEqual(len(server.requests), 3)
        # One by one, and what the user's own options say is theirs.
        told = iter([{"code": 422, "detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]},
                     {"code": 400, "error": {"message": "Unsupported parameter: 'seed'"}}, "at last", {"code": 400, "error": {"message": "a bad seed"}}])
        server = self.server(answer=lambda body: next(told))
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, drawn, "a"), "at last")
        self.fails(db, drawn, "HTTP 400: a bad seed", "b")
        self.assertEqual([sorted(set(body) & {"seed", "stream_options"}) for body in server.requests], [["seed", "stream_options"], ["seed"], [], []])
        server = self.server(fields=fields)
        self.fails(self.connect(server.url, extra={"seed": 5, "stream_options": None}), "SELECT generate('a')", "Extra inputs are not permitted: ..seed")
        self.assertEqual(len(server.requests), 1)

    def test_reasoning_comes_once(self):
        deltas = [{"reasoning_content": "hm, ", "reasoning": "hm, "}, {"reasoning_content": "hm"}, {"reasoning": "!", "reasoning_content": ""}, {"content": "42"}]
        db = self.connect(self.server(events=[{"choices": [{"delta": delta}]} for delta in deltas]).url)
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "42")
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"thinking\":\"keep\"}')"), "<think>\nhm, hm!\n</think>\n\n42")

    def test_nothing_but_reasoning_is_an_error_and_not_remembered(self):
        def cut(delta):
            return self.server(events=b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": "length"}], "usage": {"completion_tokens": 256}}).encode() + b"\n\n")

        for delta in ({"reasoning_content": "hm, hm"}, {"content": "<think>\nhm, hm"}, {"content": "<think>hm</think>\n"}):
            server = cut(delta)
            db = self.connect(server.url, retries=0)
            for asked in (1, 2):
                self.fails(db, "SELECT generate('x')", "max_tokens = 256 cut the answer off within its reasoning: all 256 tokens went into that; raise max_tokens")
                self.assertEqual(len(server.requests), asked)
            self.assertIsNone(harness.value(db, "SELECT generate('x', NULL, '{\"on_error\":\"null\"}')"))
            self.assertIn("hm", harness.value(db, "SELECT generate('x', NULL, '{\"thinking\":\"keep\"}')"))
        # An answer may be empty on purpose, and one that is cut is one.
        empty = self.server(events=[{"choices": [{"index": 0, "delta": {"reasoning_content": "I say nothing."}, "finish_reason": None}]}])
        self.assertEqual(harness.value(self.connect(empty.url), "SELECT generate('x')"), "")
        self.assertEqual(harness.value(self.connect(cut({"content": "<think>hm</think>4"}).url), "SELECT generate('x')"), "4")

    def test_marks_of_reasoning_may_be_named(self):
        said = {"usual": "<think>hm</think>\n\n42", "own": "<why>hm</why> 42", "behind": "hm</why>\n42"}
        server = self.server(answer=lambda body: said[body["messages"][-1]["content"]])

        def answers(**options):
            db = self.connect(server.url, **options)
            return [harness.value(db, "SELECT generate(?)", name) for name in ("usual", "own", "behind")]

        self.assertEqual(answers(), ["42", said["own"], said["behind"]])
        self.assertEqual(answers(thinking_marks=["<why>", "</why>"]), [said["usual"], "42", "42"])
        self.assertEqual(answers(thinking_marks=[]), list(said.values()))

    def test_a_refusal_is_no_answer(self):
        said = {"refusal": {"message": {"content": None, "refusal": "I cannot help with that."}, "finish_reason": "stop"},
                "tool": {"message": {"content": None, "tool_calls": [{"id": "1"}]}, "finish_reason": "tool_calls"},
                "filter": {"message": {"content": None}, "finish_reason": "content_filter"},
                "bare": {"text": "hi", "finish_reason": "stop"}, "null": {"delta": None, "message": None, "finish_reason": "stop"},
                "beside": {"delta": None, "message": {"content": "hi"}, "finish_reason": "stop"}, "empty": {"message": {"content": ""}, "finish_reason": "stop"}}
        server = self.server(answer=constrained(lambda body: {"code": 200, "choices": [{"index": 0, **said[body["messages"][-1]["content"]]}]}))
        db = self.connect(server.url, retries=1)
        schema = '{"schema":{"type":"object","properties":{"word":{"type":"string"}}}}'
        for prompt, why, asked in (("refusal", "the model refuses to answer: I cannot help with that", 1), ("tool", "the model calls a tool and answers nothing .finish_reason tool_calls", 1),
                                   ("filter", "content filter", 1), ("bare", 'a choice without a message: .*"text":"hi"', 2), ("null", "a choice without a message", 2)):
            for options in ("{}", schema):
                if options != "{}":
                    harness.value(db, "SELECT lm_try('empty', NULL, ?)", schema)  # no first question is counted
                before = len(server.requests)
                self.fails(db, "SELECT generate(?, NULL, ?)", why, prompt, options)
                self.assertEqual(len(server.requests), before + asked, (prompt, options))
            self.assertIsNone(harness.value(db, "SELECT generate(?, NULL, '{\"on_error\":\"null\"}')", prompt))
        self.assertEqual((harness.value(db, "SELECT generate('beside')"), harness.value(db, "SELECT generate('empty')")), ("hi", ""))
        db.execute("CREATE TABLE t(body TEXT, y TEXT)")
        db.execute("INSERT INTO t(body) VALUES ('beside'), ('refusal')")
        self.fails(db, "UPDATE t SET y = generate(body)", "the model refuses to answer")
        # In a stream it comes piece by piece.
        pieces = [{"choices": [{"delta": delta}]} for delta in ({"role": "assistant", "content": "", "refusal": None}, {"refusal": "I can"}, {"refusal": "not."})]
        self.fails(self.connect(self.server(events=pieces).url), "SELECT generate('x')", "refuses to answer: I cannot[.]")

    def test_a_nul_is_no_text(self):
        said = ["", "bad\0nul", "<think>\n\0\n</think>\n\nfine"]
        server = self.server(answer=lambda body: said[int(body["messages"][-1]["content"])])
        db = self.connect(server.url, retries=0)
        self.fails(db, "SELECT generate('1')", r"the server's answer has a NUL character \(U\+0000\), at byte 3")
        self.assertEqual(harness.value(db, "SELECT generate('1', NULL, '{\"stop\":\"d\"}')"), "ba")  # it is behind the end
        self.assertEqual(harness.value(db, "SELECT generate('2')"), "fine")
        self.fails(db, "SELECT generate('2', NULL, '{\"thinking\":\"keep\"}')", "has a NUL character")
        # It is asked again, not remembered.
        asked = len(server.requests)
        self.fails(db, "SELECT generate('1')", "has a NUL character")
        self.assertEqual(len(server.requests), asked + 1)

    def test_content_in_parts(self):
        def said(*contents, options='{"thinking":"keep","cache":false}'):
            db = self.connect(self.server(events=[{"choices": [{"delta": {"content": content}}]} for content in contents]).url, retries=0)
            return harness.value(db, "SELECT generate('x', NULL, ?)", options)
        text = {"type": "text", "text": "hi"}
        self.assertEqual(said([text, {"type": "text", "text": " th"}], None, "", [], "ere"), "hi there")
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
        self.assertEqual(said([thought], [text]), "<think>\nhm\n</think>\n\nhi")
        self.assertEqual(said([thought], [text], options="{}"), "hi")
        for odd in (7, True, {"text": "hi"}, [text, 7], ["hi"], [{"text": "hi"}], [{"type": "text"}], [{"type": "text", "text": 7}], [{"type": "image_url", "image_url": "x"}]):
            with self.assertRaisesRegex(Exception, "the server sent content that is neither a text nor a list of texts: "):
                said("a", odd)

    def test_what_is_no_answer_is_shown(self):
        said = b'data: {"choices":[{"delta":{"content":"half"}}]}\n\n'
        for sent, why in ((b"<html>Log in</html>", "neither JSON nor events, but: <html>Log in</html>"), (b"\x1f\x8b\x08\0gz", "but: .x1f.x8b.x08"),
                          (b'[{"error":{"message":"no"}}]', 'but: .*"message":"no"'), (b'\xef\xbb\xbf{"choices":[]}', "but: .*choices"),
                          (said + b'event: error\ndata: {"message":"overloaded"}\n\n', "broke off before its end; the server said: overloaded"),
                          (b'{"detail":"come back later"}', "the server said: come back later")):
            self.fails(self.connect(self.server(events=sent).url, retries=0), "SELECT generate('x')", why)

    def test_only_the_first_of_several_answers_is_read(self):
        def pieces(*texts, end=True):
            choices = [(index, {"content": text}, None) for index, text in texts] + ([(1, {}, "stop"), (0, {}, "stop")] if end else [])
            return b"".join(b"data: " + json.dumps({"choices": [{"index": i, "delta": delta, "finish_reason": why}]}).encode() + b"\n\n" for i, delta, why in choices)

        for events, answer in ((pieces((0, "a"), (1, "x"), (0, "b"), (1, "y")), "ab"), (pieces((0, "a")) + b"data: [DONE]\n\n" + pieces((0, "more")), "a"),
                               (pieces((0, "a"), end=False) + b"data: [DONE] \n\n" + pieces((0, "more")), "a")):
            self.assertEqual(harness.value(self.connect(self.server(events=events).url, retries=0), "SELECT generate('x')"), answer)

    def test_an_answer_has_any_number(self):
        def events(first, last):
            return [{"choices": [{"delta": {"content": "hi"}, **first}]}, {"choices": [{"delta": {}, "finish_reason": "stop", **last}]}]

        for first, last in (({"index": 1}, {"index": 1}), ({"index": 1}, {}), ({"index": None}, {"index": 3}), ({}, {})):
            stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events(first, last))
            self.assertEqual(harness.value(self.connect(self.server(events=stream).url, retries=0), "SELECT generate('x')"), "hi")
        whole = {"code": 200, "choices": [{"index": 1, "message": {"content": "hi"}, "finish_reason": "stop"}]}
        self.assertEqual(harness.value(self.connect(self.server(answer=lambda body: dict(whole)).url, retries=0), "SELECT generate('x')"), "hi")

    def test_a_character_in_two_events(self):
        events = b"".join(b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % text for text in (b"a\\ud83d", b"", b"\\ude00b\\uD83C", b"\\udf0d.")) + b"data: [DONE]\n\n"
        self.assertEqual(harness.value(self.connect(self.server(events=events).url, retries=0), "SELECT generate('x')"), "a\U0001F600b\U0001F30D.")
        alone = events.replace(b"ude00b", b"u0041b")
        self.assertEqual(harness.value(self.connect(self.server(events=alone).url, retries=0), "SELECT generate('x')"), "aAb\U0001F30D.")

    def test_streams_are_read_as_their_specification_says(self):
        events = [b'data: {"choices":[{"delta":{"content":"h"}}]}', b': said by the way', b'data: {"choices":', b'data:[{"delta":{"content":"i"}, "finish_reason":"stop"}]}', b"data: [DONE]"]
        for end in (b"\n", b"\r", b"\r\n"):
            for mark in (b"", b"\xef\xbb\xbf"):
                stream = mark + b"".join(event + (end if number in (1, 2) else 2 * end) for number, event in enumerate(events))
                self.assertEqual(harness.value(self.connect(self.server(events=stream).url, retries=0), "SELECT generate('x')"), "hi")
        twice = b"\xef\xbb\xbf\xef\xbb\xbf" + events[0] + b"\n\n" + events[3][:5] + b'{"choices":' + events[3][5:] + b"\n\n"
        self.assertEqual(harness.value(self.connect(self.server(events=twice).url, retries=0), "SELECT generate('x')"), "i")  # one is stripped

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

    def test_a_thousand_connections_are_never_opened(self):
        server = self.server(delay=0.3)
        db = self.connect(server.url, concurrency=1000)
        rows = db.execute("SELECT count(value) FROM lm_each((WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) "
                          "SELECT json_group_array('row ' || i) FROM n))").fetchone()[0]
        self.assertEqual(rows, 600)
        self.assertLess(server.connections, 500)

    def test_each_row_is_answered_or_says_why_not(self):
        faults = FAULTS + ["redirect", "slow_headers", "ignored"] + (["hang", "endless"] if ROWS >= 5000 else [])
        server = self.server(answer=constrained(lambda body: "yes" if "structured_outputs" in body else "re: " + body["messages"][-1]["content"]))
        db = self.connect(server.url, concurrency=32, retries=8, timeout_ms=20000)
        harness.value(db, "SELECT generate('x', NULL, '{\"choices\":[\"yes\",\"no\"]}')")  # no fault hits the first question
        server.faults = [""] * 20 * len(faults) + faults
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(ROWS)])
        for sql, right in (("SELECT id, value, error FROM lm_query('SELECT id, body FROM t')", None),
                           ("SELECT id, value, error FROM lm_query('SELECT id, body FROM t', '{\"choices\":[\"yes\",\"no\"]}')", "yes")):
            rows = db.execute(sql).fetchall()
            self.assertEqual(sorted(id for id, _, _ in rows), list(range(1, ROWS + 1)))
            for id, value, error in rows:
                self.assertEqual((value is None), bool(error), (id, value, error))
                if value is None:
                    self.assertRegex(error, "redirects are not followed|more than 16777216 bytes|does not fit choices: as I please")
                elif right or value != "as I please":  # without a constraint a server may say anything
                    self.assertEqual(value, right or f"re: note {id - 1}")
            self.assertGreater(sum(value is not None for _, value, _ in rows), 0.9 * ROWS)

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

    def test_numbers_of_a_server_are_written_as_ours(self):
        said = iter(["0.00001", "100000000000000000000", "3.141592653589793", '{"p": 2e-5, "q": [1e+16, 3.0]}'])
        db = self.connect(self.server(answer=constrained(lambda body: next(said))).url)
        self.assertEqual(harness.value(db, "SELECT generate_json('x', '{\"type\":\"number\"}')"), "0.00001")
        for number in ("100000000000000000000", "3.141592653589793"):
            self.assertEqual(harness.value(db, "SELECT generate_json(?, '{\"type\":\"number\"}')", number), number)
        schema = {"type": "object", "properties": {"p": {"type": "number"}, "q": {"type": "array", "items": {"type": "number"}}}}
        self.assertEqual(harness.value(db, "SELECT generate_json('x', ?)", json.dumps(schema)), '{"p":0.00002,"q":[10000000000000000,3]}')

    def test_members_of_a_server_come_in_the_schemas_order(self):
        server = self.server(answer=constrained(lambda body: '{"b": 1, "a": 1}'))
        schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["b"]}
        self.assertEqual(harness.value(self.connect(server.url), "SELECT generate_json('x', ?)", json.dumps(schema)), '{"a":1,"b":1}')
        self.assertEqual(len(server.requests), 2)  # with the canary: it is not asked again

    def test_what_an_extraction_may_leave_out_is_offered_as_null(self):
        person = {"type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "integer"}}, "required": ["name"]}
        server = self.server(answer=constrained(lambda body: '[{"name": "Ada"}, {"born": 1950, "name": "Bob"}]'))
        db = self.connect(server.url)
        db.execute("CREATE VIRTUAL TABLE temp.people USING lm_extract_each('%s')" % json.dumps({"type": "array", "items": person}))
        self.assertEqual(db.execute("SELECT name, born FROM people('a letter')").fetchall(), [("Ada", None), ("Bob", 1950)])
        self.assertEqual(len(server.requests), 2)  # with the canary
        asked = server.requests[-1]["response_format"]["json_schema"]["schema"]["items"]
        self.assertEqual(asked["properties"], {"name": {"type": "string"}, "born": {"anyOf": [{"type": "integer"}, {"type": "null"}]}})
        self.assertEqual((asked["required"], asked["additionalProperties"]), (["name", "born"], False))

    def test_no_answer_is_believed(self):
        ignoring = self.server()
        db = self.connect(ignoring.url)
        self.fails(db, "SELECT lm_classify('x', '[\"a\",\"b\"]')", r"ignores choices: made to say zqx7413, it said re: Say hello\.")
        # The question that was never sent has ended, too; the first question is nobody's.
        self.assertEqual(db.execute("SELECT max(requests), max(failed) FROM lm_stats WHERE model = 'default'").fetchone(), (1, 1))
        # Once it says something else, and once more it is told.
        said = iter(["maybe", "yes", "maybe", "perhaps"])
        server = self.server(answer=constrained(lambda body: next(said)))
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT lm_classify('x', '[\"yes\",\"no\"]')"), "yes")
        self.assertEqual([m["role"] for m in server.requests[-1]["messages"]][-2:], ["assistant", "user"])
        self.fails(db, "SELECT lm_classify('y', '[\"yes\",\"no\"]')", "does not fit choices: perhaps")

    def test_a_first_question_has_as_many_tokens_as_who_waits_for_it(self):
        told = {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}, {"regex": "[a-z]+"}, {"grammar": 'root ::= "yes"'}
        for tells in (True, False):
            server = self.server(handler=Reasons, context=tells, answer=constrained(lambda body: '{"a": 1}' if "schema" in str(body.get("response_format")) else "yes"))
            for constraint in told:
                with self.subTest(tells=tells, constraint=constraint):
                    db = self.connect(server.url)
                    server.requests.clear()
                    # None is taken for a server that ignores it.
                    few = rf"whether the server keeps to {next(iter(constraint))} is not known: .* within its reasoning at max_tokens = 99; raise max_tokens"
                    self.fails(db, "SELECT generate('x', NULL, ?)", few, json.dumps({**constraint, "max_tokens": 99}))
                    self.assertIn(harness.value(db, "SELECT generate('x', NULL, ?)", json.dumps({**constraint, "max_tokens": 4000})), ("yes", '{"a":1}'))
                    self.assertEqual([body["max_tokens"] for body in server.requests], [99, 4000, 4000])
            self.assertEqual(set(self.proofs(self.connect(server.url, check=True)).values()), {"kept"})

    def proofs(self, db):
        return json.loads(harness.value(db, "SELECT constraints FROM temp.lm_models WHERE name = 'default'"))

    def test_who_may_have_more_tokens_asks_the_first_question_once_more(self):
        server = self.server(handler=Reasons, context=True, delay=0.3, answer=constrained(lambda body: "yes"))
        db = self.connect(server.url)
        rows = db.execute("SELECT lm_try('x', NULL, json_object('regex', '[a-z]+', 'max_tokens', value)) FROM json_each('[99,200,90]')").fetchall()
        self.assertEqual([json.loads(row)["value"] for row, in rows], [None, "yes", None])

    def test_what_a_server_does_not_prove_is_no_rows_failure(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        few, many = (json.dumps({"schema": schema, "max_tokens": tokens}) for tokens in (99, 400))
        for server, why in ((self.server(), "ignores schema"), (self.server(answer=lambda body: {"code": 400, "error": "no such thing"}), "HTTP 400: no such thing"),
                            (self.server(handler=Reasons, answer=constrained(lambda body: '{"a": 1}')), "raise max_tokens")):
            with self.subTest(why=why):
                db = self.connect(server.url)
                db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")
                db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(30)])
                db.execute("INSERT INTO lm_jobs(name, query, options) VALUES ('j', 'SELECT id, body FROM notes', ?)", (few,))
                self.fails(db, "SELECT * FROM lm_run('j')", why)
                self.assertEqual(db.execute("SELECT count(*) FROM lm_job_rows WHERE state IN ('done', 'failed')").fetchall(), [(0,)])
        # Which goes on once it has what it wants.
        db.execute("UPDATE lm_jobs SET options = ?", (many,))
        self.assertEqual(db.execute("SELECT max(done), max(failed) FROM lm_run('j')").fetchall(), [(30, 0)])

    def test_one_wrong_answer_to_a_first_question_is_chance(self):
        said = iter(["well", CANARY, "yes"])
        db = self.connect(self.server(answer=lambda body: next(said)).url)
        self.assertEqual(harness.value(db, "SELECT generate('x', NULL, '{\"regex\":\"[a-z]+\"}')"), "yes")

    def test_judgements_are_read_from_probabilities(self):
        server = self.server(first=[("Yes", -0.105), ("No", -2.303), ("Maybe", -5.0)])
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT lm_if('it pours', 'Does it rain?')"), 1)
        self.assertAlmostEqual(harness.value(db, "SELECT lm_score('it pours', 'It rains.')"), 0.9, places=3)
        self.assertEqual((server.requests[0]["max_tokens"], server.requests[0]["logprobs"]), (1, True))
        self.fails(self.connect(self.server().url), "SELECT lm_if('x', 'y?')", "gives no probabilities")
        odd = self.server(first=[("Well", -0.1), ("Hm", -1.0)])
        self.fails(self.connect(odd.url), "SELECT lm_if('x', 'y?')", "the first is Well")

    def test_labels_are_read_whatever_their_capitals(self):
        def scores(*first):
            db = self.connect(self.server(first=[(token, math.log(share)) for token, share in first]).url)
            return dict(db.execute("SELECT label, probability FROM lm_classify_scores('x', '[\"positive\",\"negative\"]')").fetchall())

        for first, positive in (([("Positive", 0.9), ("negative", 0.06), ("Negative", 0.04)], 0.9), ([("positive", 0.3), ("POSITIVE", 0.3), (" neg", 0.2)], 0.75)):
            self.assertAlmostEqual(scores(*first)["positive"], positive, places=3)
        # Too little is told of them.
        with self.assertRaisesRegex(Exception, r"the choices' beginnings have 0[.]7\d*% of the probability.* the most probable beginning is \*\*.*vote"):
            scores(("**", 0.99), ("negative", 0.007))
        # Those that differ in capitals are told by them, in whichever order they come.
        first = [("no", 0.9), ("Not", 0.05), ("NO", 0.03), ("nO", 0.02)]
        db = self.connect(self.server(first=[(token, math.log(share)) for token, share in first]).url)
        for labels in itertools.permutations(["Not a bug", "NO ANSWER", "no"]):
            told = dict(db.execute("SELECT label, probability FROM lm_classify_scores('x', ?)", (json.dumps(labels),)).fetchall())
            for label, share in (("no", 0.9), ("Not a bug", 0.05), ("NO ANSWER", 0.03)):
                self.assertAlmostEqual(told[label], share / 0.98, places=3, msg=labels)
        db = self.connect(self.server(first=[("yes", None), ("no", -4.6)]).url)
        self.fails(db, "SELECT lm_score('x', 'It rains.')", "too little to tell them apart")

    def test_a_yes_is_one_whatever_its_capitals(self):
        for shares, yes in (({"YES": 0.97, "NO": 0.02}, 0.97 / 0.99), ({"Yes": 0.5, "YES": 0.3, "No": 0.2}, 0.8),
                            ({"NO": 0.6, "Yes": 0.3, "No": 0.05}, 0.3 / 0.95), ({"yES": 0.1, "no": 0.3, "YES": 0.6}, 0.7)):
            for first in itertools.permutations(shares.items()):
                db = self.connect(self.server(first=[(token, math.log(share)) for token, share in first]).url)
                self.assertEqual(harness.value(db, "SELECT lm_if('it pours', 'Does it rain?')"), int(yes > 0.5), first)
                self.assertAlmostEqual(harness.value(db, "SELECT lm_score('it pours', 'It rains.')"), yes, places=5, msg=first)
                labels = harness.value(db, "SELECT lm_classify('it pours', '[\"wet\",\"dry\"]', NULL, '{\"multi\":true}')")
                self.assertEqual(json.loads(labels), ["wet", "dry"] if yes > 0.5 else [], first)
                match = "SELECT max(probability) FROM lm_match('SELECT 1, ''a b''', 'SELECT 2, ''b c''', 'q?', '{\"blocking\":\"fts5\",\"threshold\":0}')"
                self.assertAlmostEqual(harness.value(db, match), yes, places=5, msg=first)
        # What is said for labels that differ in capitals alone is half of each.
        db = self.connect(self.server(first=[("Us", math.log(0.6)), ("US", math.log(0.2)), ("them", math.log(0.2))]).url)
        told = dict(db.execute("SELECT label, round(probability, 3) FROM lm_classify_scores('x', '[\"us\",\"US\",\"them\"]')").fetchall())
        self.assertEqual(told, {"us": 0.3, "US": 0.5, "them": 0.2})

    def test_embeddings(self):
        db = self.connect(self.server().url)
        blob = harness.value(db, "SELECT lm_embed('abcd', '{\"normalize\":false}')")
        self.assertEqual(struct.unpack("<2f", blob), (4.0, 1.0))
        self.fails(db, "SELECT lm_embed('abcd', '{\"pooling\":\"last\"}')", "the server of a model on the network pools")

    def test_vectors_of_several_lengths_are_not_compared(self):
        db = self.connect(self.server(handler=Uneven).url)
        for options in ("{}", '{"on_error":"null","cache":false}'):
            self.fails(db, "SELECT * FROM lm_distinct('SELECT 0, NULL UNION ALL SELECT 1, ''rain'' UNION ALL SELECT 2, ''ra''', ?)",
                       "^lm_distinct: select_sql: row 3: a vector of 2 dimensions came, and one of 4 for row 2", options)
            self.fails(db, "SELECT * FROM lm_distinct('SELECT 1, ''ra'' UNION ALL SELECT 2, ''rain''', ?)",
                       "row 2: a vector of 4 dimensions came, and one of 2 for row 1", options)
            self.fails(db, "SELECT * FROM lm_match('SELECT 1, ''rain''', 'SELECT 0, NULL UNION ALL SELECT 1, ''ra''', 'Alike?', ?)",
                       "^lm_match: right_sql: row 2: a vector of 2 dimensions came, and one of 4 for row 1 of left_sql", options)
        self.assertEqual(db.execute("SELECT count(*) FROM lm_distinct('SELECT 1, ''snow'' UNION ALL SELECT 2, ''rain''')").fetchall(), [(2,)])
        self.assertEqual(db.execute("SELECT * FROM lm_match('SELECT 1, ''rain''', 'SELECT 1, NULL', 'Alike?')").fetchall(), [])

    def test_two_vectors_need_no_model(self):
        db = self.connect("http://127.0.0.1:1/v1", retries=0)
        a, b = struct.pack("<2f", 3, 4), struct.pack("<2f", 4, 3)
        self.assertEqual(db.execute("SELECT lm_similarity(?1, ?1), lm_similarity(?1, ?2), lm_similarity(?1, zeroblob(8), NULL)", (a, b)).fetchall(), [(1, 24 / 25, 0)])
        self.fails(db, "SELECT lm_similarity(x'0000803f', 'a text')", "127.0.0.1")

    def test_ranking(self):
        server = self.server()
        db = self.connect(server.url)
        db.execute("CREATE TABLE t(body TEXT)")
        db.executemany("INSERT INTO t VALUES (?)", [("x" * n,) for n in (4, 1, 2)])
        self.assertEqual(db.execute("SELECT body, lm_rerank('which?', body) AS score FROM t ORDER BY score DESC").fetchall(), [("x", 1.0), ("xx", 0.5), ("xxxx", 0.25)])
        self.assertEqual({(body["query"], len(body["documents"])) for body in server.requests}, {("which?", 1)})
        # What vLLM gives is a probability already; llama-server's is not.
        self.assertEqual(harness.value(db, "SELECT lm_rerank('which?', 'xx', '{\"normalize\":true}')"), 0.5)
        db = self.connect(self.server(owner="llamacpp").url)
        self.assertAlmostEqual(harness.value(db, "SELECT lm_rerank('which?', 'xx', '{\"normalize\":true}')"), 1 / (1 + math.exp(-0.5)), places=6)
        self.fails(self.connect(self.server(handler=NoRanks).url), "SELECT lm_rerank('a', 'b')", "HTTP 404: no such place")

    def test_lm_rank_takes_the_scores_of_a_server_that_is_said_to_rank(self):
        texts = ["xxxx", "x", "xx"]
        for owner, of in (("vllm", lambda score: score), ("llamacpp", lambda score: 1 / (1 + math.exp(-score)))):
            server = self.server(owner=owner, first=[("Yes", -0.1), ("No", -2.4)])
            db = self.connect(server.url, pooling="rank", check=True)
            rows = db.execute("SELECT value, score FROM lm_rank('which?', ?)", (json.dumps(texts),)).fetchall()
            best = json.loads(harness.value(db, "SELECT lm_top_k('which?', value, 2) FROM json_each(?)", json.dumps(texts)))
            for found in (rows, [(one["text"], one["score"]) for one in best]):
                self.assertEqual([text for text, _ in found], ["x", "xx", "xxxx"][:len(found)])
                for text, score in found:
                    self.assertAlmostEqual(score, of(1 / len(text)), places=6)
            equal = ["cc", "bb", "x", "aa", "dd"]
            best = json.loads(harness.value(db, "SELECT lm_top_k('which?', value, 3) FROM json_each(?)", json.dumps(equal)))
            self.assertEqual([one["text"] for one in best], ["x", "cc", "bb"])
            self.assertEqual({body["query"] for body in server.requests}, {"which?"})
            self.assertEqual(harness.value(db, "SELECT typeof(lm_rerank('which?', 'x'))"), "real")
            # It writes nothing.
            for sql in ("SELECT generate('x')", "SELECT lm_if('x', 'Is it?')", "SELECT * FROM lm_rank('q', '[\"a\",\"b\"]', 1, '{\"method\":\"pairwise\"}')"):
                self.fails(db, sql, "writes no text: it is a reranker")
            # Else it is asked for a yes.
            db = self.connect(server.url)
            self.assertAlmostEqual(db.execute("SELECT score FROM lm_rank('which?', '[\"x\"]')").fetchone()[0], 0.909, places=2)
            self.assertIn("messages", server.requests[-1])
        self.fails(db, "INSERT INTO temp.lm_models(name, path, options) VALUES ('far', ?, '{\"pooling\":\"mean\"}')", 'pooling must be "rank", .*got "mean"', server.url)

    def test_what_a_task_puts_before_a_text_stays_where_it_is_cut(self):
        server = self.server(context=100, models={"object": "list", "data": [{"id": "nomic-embed-text", "owned_by": "vllm", "max_model_len": 4096}]})
        text = " ".join(f"w{i:03}" for i in range(300))
        for options in ({}, {"tokenizer": harness.MODEL, "context_length": 200}):
            db = self.connect(server.url, **options)
            for how, begin, end in (("truncate_start", "w", " w299"), ("truncate_end", "w000 ", "")):
                for task, prefix in (("query", "search_query: "), ("document", "search_document: ")):
                    self.assertGreater(len(harness.value(db, "SELECT lm_embed(?, ?)", text, json.dumps({"on_overflow": how, "task": task}))), 0)
                    sent = server.requests[-1]["input"]
                    self.assertTrue(sent.startswith(prefix) and sent.endswith(end) and len(sent) < len(text), sent)
                    self.assertIn(begin, sent[len(prefix):][:len(begin) + 4])

    def test_a_key_is_in_no_error(self):
        class Echoes(Handler):
            def refuse(self):
                self.whole(self.server.context, {"error": {"message": f"who is {self.headers['Authorization']}, {self.headers['X-Key']}?"}})

            def do_GET(self):
                self.refuse() if self.server.models else super().do_GET()

            def good(self, body, **how):
                self.refuse()

        os.environ["LM_TEST_KEY"] = "sk-SECRET"
        self.addCleanup(os.environ.pop, "LM_TEST_KEY")
        for code, models in itertools.product((401, 400, 500), (None, True)):
            server = self.server(handler=Echoes, context=code, models=models)
            if (code, models) != (500, True):  # that is a server that is away
                db = self.connect(server.url, key_env="LM_TEST_KEY", headers={"X-Key": "Bearer SECRETS"}, retries=0)
                with self.assertRaises(sqlite3.Error) as said:
                    harness.value(db, "SELECT generate('x')")
                self.assertIn("who is ***, ***?", str(said.exception))
                self.fails(db, "SELECT lm_token_count('x')", "who is [*]{3}, [*]{3}[?]")

    def test_a_key_is_in_no_error_however_it_is_repeated(self):
        class Echoes(Handler):
            def good(self, body, **how):
                self.whole(401, {"error": {"message": body["messages"][-1]["content"] + self.headers["Authorization"].split()[-1]}})

        key = "sk-" + "SECRET" * 8
        os.environ["LM_TEST_KEY"] = key
        self.addCleanup(os.environ.pop, "LM_TEST_KEY")
        server = self.server(handler=Echoes)
        db = self.connect(server.url, key_env="LM_TEST_KEY", retries=0)
        for before in (0, 320, 370, 396):
            self.fails(db, "SELECT generate(?)", f"HTTP 401: {'x' * before}[*]{{3}}$", "x" * before)
        os.environ["LM_TEST_KEY"] = "sk-another"  # the server was told the first
        self.fails(db, "SELECT generate('is ')", r"HTTP 401: is \*\*\*$")
        self.fails(self.connect(server.url, headers={"Authorization": "Basic dXNlcjpwYXNzd29yZA=="}, retries=0), "SELECT generate('is ')", r"HTTP 401: is \*\*\* \(")

    def test_a_header_that_an_address_has_as_well_is_shown_there(self):
        db = self.connect("http://127.0.0.1:9/v1", headers={"X-Title": "models", "X-Org": "127.0.0.1"}, retries=0)
        self.fails(db, "SELECT generate('x')", "http://127.0.0.1:9/v1/models: Failed to connect to 127.0.0.1")

    def test_a_header_that_a_refusal_has_as_well_is_understood_there(self):
        refused = {"code": 400, "error": {"message": "Unknown field: stream_options"}}
        server = self.server(answer=lambda body: dict(refused) if "stream_options" in body else "yes")
        db = self.connect(server.url, headers={"X-Mode": "stream"})
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "yes")

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
        self.fails(db, "SELECT lm_tokenize('x')", "tokens of a model on the network are not known.*option tokenizer")
        gone = self.server()
        url = gone.url
        gone.__exit__()
        self.fails(self.connect(url), "SELECT generate('x')", r"127\.0\.0\.1.*(refused|connect)")

    def test_a_server_that_is_away_at_first_fails_rows(self):
        server = self.server()
        server.leave()
        db = self.connect(server.url)
        row = json.loads(harness.value(db, "SELECT lm_try('x')"))
        self.assertEqual((row["value"], row["finish"]), (None, "error"))
        self.assertIn(server.url, row["error"])
        for call in ("generate('x', NULL, ?)", "lm_classify('x', '[\"a\",\"b\"]', NULL, ?)", "lm_embed('x', ?)", "lm_summarize('x', ?)", "lm_if('x', 'Is it?', ?)"):
            with self.subTest(call):
                self.assertIsNone(harness.value(db, f"SELECT {call}", '{"on_error":"null"}'))
                self.fails(db, f"SELECT {call}", server.url, "{}")
        (value, error), = db.execute("SELECT value, error FROM lm_each('[\"x\"]')").fetchall()
        self.assertIsNone(value)
        self.assertIn(server.url, error)
        # What is wrong with the call is an error all the same.
        self.fails(db, "SELECT lm_try('x', NULL, '{\"max_tokens\":-1}')", "max_tokens")
        self.fails(db, "SELECT lm_try('x', NULL, '{\"regex\":\"(\"}')", "regex")
        self.fails(db, "SELECT lm_token_count('x')", server.url)
        self.fails(db, "SELECT * FROM lm_explain('SELECT generate(''x'')')", server.url)
        # A row of a second later looks again.
        db.create_function("come_back", 0, lambda: (server.come_back(), time.sleep(1.1))[0])
        row = db.execute("SELECT lm_try('a') ->> 'error', come_back(), lm_try('b') ->> 'value', generate('c')").fetchone()
        self.assertIn(server.url, row[0])
        self.assertEqual(row[1:], (None, "re: b", "re: c"))

    def test_a_second_model_that_is_away_and_not_asked(self):
        server = self.server()
        server.leave()
        db = harness.connect()
        self.addCleanup(db.close)
        db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('m', ?)", (server.url,))
        options = '{"escalate":{"model":"m","below":0}}'
        self.assertIn(harness.value(db, "SELECT lm_if('A game', 'Is it a game?', ?)", options), (0, 1))

    def test_a_server_whose_list_of_models_fails(self):
        server = self.server(handler=Listless, context=500)
        db = self.connect(server.url)
        self.assertIn("HTTP 500", json.loads(harness.value(db, "SELECT lm_try('x')"))["error"])
        for code in (401, 403, 404, 400):
            server.context = code
            time.sleep(1.1)
            self.fails(self.connect(server.url), "SELECT lm_try('x')", f"HTTP {code}")
        server.context = None
        self.assertEqual(harness.value(db, "SELECT generate('x')"), "re: x")

    def rows(self, path, number, **options):
        db = self.connect(path, **options)
        db.execute("CREATE TABLE t(x TEXT, y TEXT)")
        db.executemany("INSERT INTO t VALUES (?, 'old')", [(f"row {i}",) for i in range(number)])
        return db

    def test_a_statement_ends_with_its_first_row_where_the_server_is_away(self):
        server = self.server(handler=shy(1000, slow_failure))
        db = self.rows(server.url, 50)
        began = time.monotonic()
        self.fails(db, "UPDATE t SET y = generate(x)", "HTTP 500: slow")
        self.assertLess(time.monotonic() - began, 5)
        self.assertLessEqual(server.events.count("looked"), 2)  # while these last, other looks are due

    def test_a_server_that_comes_back_soon_answers_all_rows(self):
        server = self.server()
        server.leave()
        db = self.rows(server.url, 300)
        threading.Timer(1, server.come_back).start()
        db.execute("UPDATE t SET y = generate(x, NULL, '{\"on_error\":\"null\"}')")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE y = 're: ' || x"), 300)
        self.assertGreater(server.most_at_a_time, 1)

    def test_rows_share_a_look_for_a_server_that_is_away(self):
        server = self.server(handler=shy(2, lambda handler: handler.whole(500, {"error": "not yet"})))
        db = self.rows(server.url, 600, retries=0)
        db.execute("UPDATE t SET y = generate(x, NULL, '{\"on_error\":\"null\"}')")
        failed = harness.value(db, "SELECT count(*) FROM t WHERE y IS NULL")
        self.assertGreater(failed, 1)
        self.assertLessEqual(failed, 2 * 256)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE y = 're: ' || x"), 600 - failed)
        self.assertEqual(server.events.count("looked"), 3)
        self.assertGreater(server.most_at_a_time, 1)

    def test_of_several_servers_one_is_away_and_one_has_no_list(self):
        gone, listless = self.server(), self.server(handler=Listless, context=404)
        gone.leave()
        for urls in ([gone.url, listless.url], [listless.url, gone.url]):
            with self.subTest(urls):
                row = json.loads(harness.value(self.connect(json.dumps(urls), retries=0), "SELECT lm_try('x')"))
                self.assertIn(gone.url, row["error"])

    def test_a_certificate_that_nobody_vouches_for(self):
        server = self.server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(harness.MODELS.parent / "self_signed.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        address = server.url.replace("http:", "https:")
        self.fails(self.connect(address, retries=0), "SELECT generate('x')", r"https://127\.0\.0\.1.*certificate")
        self.assertEqual(server.requests, [])

    def test_affinity_is_the_same_in_every_process(self):
        server = self.server()
        script = (f"import harness, sys\nc = harness.connect()\nc.execute('INSERT INTO temp.lm_models(name, path, options) VALUES (?, ?, ?)', "
                  f"('default', {server.url!r}, '{{\"affinity_header\":\"X-Session\"}}'))\nharness.value(c, \"SELECT generate('a', 'One.')\")")
        for _ in range(2):
            subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)}, check=True)
        self.assertEqual(len({headers["X-Session"] for headers in server.headers}), 1)
        self.assertEqual(len(server.headers), 2)

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
                ("http://host/v1", '{"price_in":-1}', "price_in must be a number that is not negative, got -1"), ("http://host/v1", '{"tpm":"many"}', "tpm must be an integer"),
                ("http://host/v1", '{"affinity_header":"a: b"}', "affinity_header must be the name of a header"), ("http://host/v1", '{"dialect":"gemini"}', "dialect must be one of auto, openai, vllm"), ("http://host/v1", '{"headers":{"a":"x\\ny"}}', "headers must be")):
            self.fails(db, insert, pattern, path, options)
        for path, options in (("http://me:SECRET word@host/v1", "{}"), ("http://host/v1", '{"headers":{"Authorization":"Bearer SECRET","X-N":5}}')):
            with self.assertRaises(sqlite3.Error) as said:
                db.execute(insert, (path, options))
            self.assertNotIn("SECRET", str(said.exception))
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

    def test_tokens_of_tries_are_told_where_time_ends_between_them(self):
        class Breaks(Handler):
            def good(self, body, **how):
                if "waits" in body["messages"][-1]["content"]:
                    if len(self.server.requests) < 3:
                        return self.whole(429, {"error": "slow"}, Retry_After="4")
                    return super().good(body)
                self.begin()
                self.delta(content="half of an answer that is paid for")
                self.wfile.flush()
                time.sleep(0.5)
                self.close_connection = True

        db = self.connect(self.server(handler=Breaks).url)
        rows = db.execute("SELECT error, tokens_in, tokens_out FROM lm_each('[\"waits\",\"breaks\"]', NULL, '{\"timeout_ms\":1200}') ORDER BY key").fetchall()
        self.assertIn("timeout_ms = 1200", rows[1][0])
        self.assertGreater(rows[1][1], 0)
        self.assertGreater(rows[1][2], 0)

    def test_tries_do_not_make_prompts_seem_long(self):
        class Flaky(Handler):
            def good(self, body, **how):
                if len(self.server.requests) <= 4:
                    self.begin()
                    self.delta(content="half")
                    self.wfile.flush()
                    self.close_connection = True
                    return
                self.begin()
                self.delta(content="yes")
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                self.event({"choices": [], "usage": {"prompt_tokens": len(self.asked(body)) // 4 + 1, "completion_tokens": 1}})
                self.event(b"[DONE]")
                self.chunk(b"")

        db = self.connect(self.server(handler=Flaky).url)
        db.execute("INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')")
        # The first takes four prompts in vain, of some 410 tokens each; what is left is enough for six more.
        answers = db.execute("SELECT lm_try(value || ?, NULL, '{\"max_tokens\":10,\"max_total_tokens\":4700,\"cache\":false}') ->> 'value' FROM json_each('[1,2,3,4,5,6,7]')",
                             ("x" * 1600,)).fetchall()
        self.assertEqual(answers, [("yes",)] * 7)

    def test_timeout_ms_is_of_all_tries_together(self):
        def breaks(handler, body):
            handler.begin()
            handler.delta(content="half")
            handler.wfile.flush()
            time.sleep(0.5)
            handler.close_connection = True

        server = self.server(handler=type("Breaks", (Handler,), {"good": breaks}))
        begun = time.monotonic()
        self.fails(self.connect(server.url), "SELECT generate('x', NULL, '{\"timeout_ms\":1100}')", "timeout_ms = 1100")
        self.assertLess(time.monotonic() - begun, 2.4)
        self.assertLessEqual(len(server.requests), 3)

    def test_options_are_the_same_with_other_blanks(self):
        server = self.server(delay=0.3)
        rows = json.dumps([str(i) for i in range(8)])
        connections = [self.connect(server.url, concurrency=2) for _ in range(2)]
        connections[1].execute("UPDATE temp.lm_models SET options = '{ \"concurrency\" : 2 }'")
        threads = [threading.Thread(target=lambda db=db: db.execute("SELECT count(*) FROM lm_each(?, NULL, '{\"cache\":false}')", (rows,)).fetchall()) for db in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(server.requests), server.most_at_a_time), (16, 2))

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

    def test_tokens_a_minute(self):
        server = self.server()
        db = self.connect(server.url, tpm=30000)
        begun = time.monotonic()
        # 70 of 15 tokens: a second's 500 at once, and 500 a second. What was not used is given back: of the 256 an answer may have, each would cost half a second.
        db.execute("SELECT value FROM lm_each((WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70) "
                   "SELECT json_group_array('row ' || i) FROM n))").fetchall()
        taken = time.monotonic() - begun
        self.assertGreater(taken, 0.9)
        self.assertLess(taken, 25)
        self.assertEqual(len(server.requests), 70)

    def test_prices(self):
        server = self.server()
        db = self.connect(server.url, price_in=2, price_out=10.5)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_each('[\"a\",\"b\",\"c\",\"a\"]')"), 4)
        self.assertEqual(db.execute("SELECT phase, round(1e6 * cost, 3) FROM lm_stats WHERE model = 'default' ORDER BY phase").fetchall(),
                         [("decode", 3 * 3 * 10.5), ("prefill", 3 * 12 * 2.0)])
        rows, prompts, tokens, shared, basis, cost_in, cost_out = db.execute(
            "SELECT rows, prompts, tokens, tokens_shared > 0, basis, cost_in, cost_out FROM lm_explain('SELECT generate(value, ''Be brief.'', ''{\"max_tokens\":5}'') "
            "FROM json_each(''[\"how do you do\",\"how do they do\",\"how do you do\"]'')')").fetchone()
        self.assertEqual((rows, prompts, shared, basis), (3, 2, 1, "guessed tokens"))
        self.assertTrue(20 < tokens < 80, tokens)
        self.assertAlmostEqual(cost_in, tokens * 2e-6)
        self.assertAlmostEqual(cost_out, 10 * 10.5e-6)
        self.assertEqual(len(server.requests), 3)
        free = self.connect(self.server().url)
        harness.value(free, "SELECT generate('x')")
        self.assertEqual(harness.value(free, "SELECT sum(cost) FROM lm_stats WHERE model = 'default'"), None)

    def test_a_tokenizer_of_its_own(self):
        server = self.server(owner="somebody", answer=lambda body: "short")
        local, db = self.connect(harness.MODEL), self.connect(server.url, tokenizer=harness.MODEL, context_length=200)
        text = " ".join(f"Sentence {i} of a long text." for i in range(40))
        for sql in ("SELECT lm_token_count(?1)", "SELECT lm_tokenize(?1)", "SELECT lm_detokenize(lm_tokenize(?1))",
                    "SELECT json_group_array(chunk) FROM lm_chunks(?1, 60)", "SELECT group_concat(tokens) FROM lm_chunks(?1, 60, 10)",
                    "SELECT tokens FROM lm_explain('SELECT generate(''Who goes there?'', ''Ask.'')') WHERE ?1 > ''"):
            self.assertEqual(harness.value(db, sql, text), harness.value(local, sql, text), sql)
        self.assertEqual(harness.value(db, "SELECT basis FROM lm_explain('SELECT generate(''x'')')"), "tokens")
        self.assertEqual(server.requests, [])
        # Parts, and what was said of them.
        self.assertEqual(harness.value(db, "SELECT lm_summarize(?, '{\"max_tokens\":20}')", text), "short")
        self.assertGreater(len(server.requests), 3)
        self.assertEqual(harness.value(db, "SELECT lm_agg(value, 'What are they?', '{\"max_tokens\":20}') FROM json_each('[\"a\",\"b\"]')"), "short")
        # What is too long is not even sent, or is cut first, to where room for an answer is left.
        before = len(server.requests)
        self.fails(db, "SELECT generate(?)", "the prompt has [0-9]+ tokens, the context of 'tiny' 200", text)
        self.assertEqual(len(server.requests), before)
        for how, part in (("truncate_start", text[-60:]), ("truncate_end", text[:60])):
            self.assertEqual(harness.value(db, "SELECT generate(?, 'Sum up.', ?)", text, json.dumps({"on_overflow": how, "max_tokens": 50})), "short")
            kept = server.requests[-1]["messages"][-1]["content"]
            self.assertIn(part, kept)
            tokens = harness.value(local, "SELECT tokens FROM lm_explain('SELECT generate(' || quote(?) || ', ''Sum up.'')')", kept)
            self.assertTrue(90 < tokens <= 150, tokens)
        self.fails(db, "INSERT INTO temp.lm_models(name, path, options) VALUES ('far', ?, '{\"tokenizer\":\"/no/such.gguf\"}')", "tokenizer: .*no/such.gguf", server.url)

    def test_a_count_of_tokens_that_is_none(self):
        db = self.connect(self.server(handler=Boaster).url)
        self.fails(db, "SELECT lm_token_count('x')", "/tokenize: HTTP 200: wanted .\"count\":3. or .*, got .*18446744073709551615")
        self.assertEqual(harness.value(db, "SELECT json_group_array(chunk) FROM lm_chunks('some words', 5)"), '["some ","words"]')

    def test_texts_whose_server_counts_their_tokens(self):
        # It refuses what is longer than its context.
        server = self.server(context=4096, answer=lambda body: f"said of {len(body['messages'][-1]['content'].split())}")
        db = self.connect(server.url)
        # What fits by its bytes is one prompt, and nobody is asked.
        for sql in ("SELECT lm_summarize('a b c')", "SELECT lm_agg(value, 'Sum up.') FROM json_each('[\"a\",\"b\",\"c\"]')",
                    "SELECT lm_summarize_agg(value) FROM json_each('[\"a b\",\"c\"]')"):
            before = len(server.requests)
            self.assertEqual(harness.value(db, sql), "said of 3")
            self.assertEqual([body["messages"][0]["role"] for body in server.requests[before:]], ["system"])
        # More bytes than that, yet few enough tokens: still one prompt.
        words = [f"number{i:05}" for i in range(12000)]
        before = len(server.requests)
        self.assertEqual(harness.value(db, "SELECT lm_summarize(?)", " ".join(words[:1500])), "said of 1500")
        self.assertEqual([set(body) & {"prompt", "messages"} for body in server.requests[before:]], [{"prompt"}, {"messages"}])
        # Parts that are as long as they may be, and every word in one of them.
        before = len(server.requests)
        self.assertRegex(harness.value(db, "SELECT lm_summarize(?)", " ".join(words)), "said of [0-9]+$")
        asked = [body["messages"][-1]["content"] for body in server.requests[before:] if "messages" in body]
        parts = [text.split() for text in asked if "number" in text]
        self.assertEqual(sorted(sum(parts, [])), words)
        self.assertLess(len(parts), 6)
        self.assertLess(len(server.requests) - before, 6 * len(parts))
        # Rows together; each its own.
        before = len(server.requests)
        self.assertEqual(harness.value(db, "SELECT lm_agg(value, 'Sum up.') FROM json_each(?)", json.dumps(words[:3000])), "said of 3000")
        self.assertLess(len(server.requests) - before, 40)
        chunks = db.execute("SELECT chunk, tokens FROM lm_chunks(?, 100)", (" ".join(words[:1000]),)).fetchall()
        self.assertEqual("".join(chunk for chunk, _ in chunks), " ".join(words[:1000]))
        self.assertEqual([len(chunk.split()) for chunk, _ in chunks], [tokens for _, tokens in chunks])
        self.assertTrue(all(tokens <= 100 for _, tokens in chunks) and len(chunks) < 15, [tokens for _, tokens in chunks])
        self.assertEqual(db.execute("SELECT * FROM lm_chunks('a b c')").fetchall(), [(1, "a b c", 1, 3)])

    def test_a_server_is_asked_for_few_counts(self):
        """Some two for each part, however the text comes, and none twice."""
        dice = random.Random(3)

        def sentence():
            return " ".join("".join(dice.choices("abcdefgh", k=dice.randint(2, 11))) for _ in range(dice.randint(5, 25))) + ". "
        paragraphs = ["".join(sentence() for _ in range(dice.randint(2, 9))) for _ in range(160)]
        words = "".join(paragraphs).split()

        for sql, text in (("SELECT lm_summarize(?)", "\n\n".join(paragraphs)), ("SELECT lm_summarize_agg(value) FROM json_each(?)", json.dumps(paragraphs)),
                          ("SELECT lm_agg(value, 'Sum up.') FROM json_each(?)", json.dumps(words))):
            with self.subTest(sql=sql):
                server = self.server(context=4096, answer=lambda body: f"said of {len(body['messages'][-1]['content'].split())}")
                db = self.connect(server.url)
                self.assertRegex(harness.value(db, sql, text), "^said of [0-9]+$")
                counted = [body["prompt"] for body in server.requests if "prompt" in body]
                parts = [body["messages"][-1]["content"] for body in server.requests if "messages" in body and "said of" not in str(body)]
                self.assertEqual(sorted(" ".join(parts).split()), sorted(words))
                self.assertTrue(4 <= len(parts) <= 8 and min(len(part.split()) for part in parts[:-1]) > 2000, [len(part.split()) for part in parts])
                self.assertLessEqual(len(counted), 2 * len(parts), [len(text.split()) for text in counted])
                self.assertEqual(len(counted), len(set(counted)))
        # Of an instruction that is the same for all rows once.
        before = len(server.requests)
        db.execute("SELECT lm_summarize(value, json_object('instruction', ?)) FROM json_each('[1,2,3,4,5,6]')", ("In a few words. " * 40,)).fetchall()
        self.assertEqual(len(server.requests) - before, 6 + 2)

    def test_texts_in_parts_go_on_whatever_is_before_them(self):
        last = threading.Event()

        def answer(body):
            text = body["messages"][-1]["content"]
            number = int(text.split()[-1])
            if "said" in text:
                if number == 12:
                    last.set()
            elif number < 10:
                last.wait(20)
            return f"said {number}"
        server = self.server(answer=answer)
        db = self.connect(server.url, concurrency=64)
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?, NULL)", [(i, f"A text. {i}\n\n" * 9) for i in range(1, 13)])
        begun = time.monotonic()
        db.execute("UPDATE t SET y = lm_summarize(body, '{\"part_tokens\":10}')")
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(harness.value(db, "SELECT count(*) FROM t WHERE y = 'said ' || id"), 12)

    def test_texts_that_their_server_will_not_count(self):
        server = self.server(context=4096, counted=1000, answer=lambda body: "said")
        db = self.connect(server.url)
        words = [f"number{i:05}" for i in range(3000)]
        self.assertEqual(harness.value(db, "SELECT lm_summarize(?)", " ".join(words)), "said")
        asked = [body["messages"][-1]["content"] for body in server.requests if "messages" in body]
        self.assertEqual(sorted(" ".join(text for text in asked if "number" in text).split()), words)

    def test_texts_whose_server_counts_nothing(self):
        server = self.server(owner="somebody", context=700, answer=lambda body: "said")
        db = self.connect(server.url, context_length=700)
        text = " ".join(f"word{i:04}" for i in range(1000))
        # A token has a byte at least.
        self.assertEqual(harness.value(db, "SELECT lm_summarize('a b c')"), "said")
        self.assertEqual(len(server.requests), 1)
        self.assertEqual(harness.value(db, "SELECT lm_summarize(?, '{\"max_tokens\":100}')", text), "said")
        parts = [body["messages"][-1]["content"] for body in server.requests[1:]]
        self.assertEqual("".join(sorted((part for part in parts if "word" in part), key=str.split)).split(), text.split())
        self.assertTrue(all(len(part) < 600 for part in parts), [len(part) for part in parts])
        self.assertEqual(harness.value(db, "SELECT lm_agg(value, 'Sum up.', '{\"max_tokens\":100}') FROM json_each(?)",
                                       json.dumps(text.split())), "said")
        chunks = db.execute("SELECT chunk, tokens FROM lm_chunks(?, 90)", (text,)).fetchall()
        self.assertEqual("".join(chunk for chunk, _ in chunks), text)
        self.assertEqual({(len(chunk) <= 90, tokens) for chunk, tokens in chunks}, {(True, None)})
        self.fails(db, "SELECT lm_summarize(?, json_object('instruction', ?))", "too little of the context's 700", text, text)
        # Whose context nobody tells is given the whole, and says itself what is too long.
        unknown = self.server(owner="somebody", context=700, answer=lambda body: "said",
                              models={"object": "list", "data": [{"id": "tiny", "owned_by": "somebody"}]})
        db = self.connect(unknown.url)
        self.assertEqual(harness.value(db, "SELECT lm_summarize(?)", " ".join(text.split()[:500])), "said")
        self.fails(db, "SELECT lm_summarize(?)", "maximum context length is 700 tokens", text)
        # Rows go together.
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT)")
        db.executemany("INSERT INTO t(x) VALUES (?)", [(f"row {i}",) for i in range(20)])
        db.execute("SELECT lm_summarize(x) FROM t").fetchall()
        self.assertGreater(harness.value(db, "SELECT max(foreseen) FROM lm_stats"), 16)

    def test_tokens_are_asked_for(self):
        server = self.server()
        db = self.connect(server.url)
        self.assertEqual(harness.value(db, "SELECT lm_token_count('one two three')"), 3)
        self.assertEqual(server.requests, [{"model": "tiny", "prompt": "one two three", "add_special_tokens": True}])
        # An estimate says that it is one.
        self.fails(self.connect(self.server(owner="somebody").url), "SELECT lm_token_count('one two three')", "not known here.* has some 4")
        slow = self.connect(self.server(delay=30).url)
        threading.Timer(0.3, slow.interrupt).start()
        begun = time.monotonic()
        self.fails(slow, "SELECT lm_token_count('x')", "interrupted")
        self.assertLess(time.monotonic() - begun, 20)

    def test_what_a_server_finds_too_long_is_cut(self):
        server = self.server(context=100, first=[("Yes", -0.1), ("No", -2.4)])
        db = self.connect(server.url)
        text = " ".join(f"w{i:03}" for i in range(300))
        self.fails(db, "SELECT generate(?)", "maximum context length is 100 tokens", text)
        self.assertEqual(len(server.requests), 1)
        answers = []
        for how in ("truncate_start", "truncate_end"):
            answers.append(harness.value(db, "SELECT generate(?, 'Be brief.', ?)", text, json.dumps({"on_overflow": how, "max_tokens": 20})))
            self.assertEqual(server.requests[-1]["messages"][0]["content"], "Be brief.")
        self.assertTrue(answers[0].endswith(" w299") and answers[1].startswith("re: w000 w001 "), answers)
        for answer in answers:
            self.assertTrue(60 < len(answer.split()) < 81, answer)
        # Each is remembered as what it is.
        before = len(server.requests)
        self.assertEqual(harness.value(db, "SELECT generate(?, 'Be brief.', '{\"on_overflow\":\"truncate_end\",\"max_tokens\":20}')", text), answers[1])
        self.assertEqual(len(server.requests), before)
        self.fails(db, "SELECT generate(?, 'Be brief.', '{\"max_tokens\":20}')", "maximum context length", text)
        # The question stays.
        self.assertEqual(harness.value(db, "SELECT lm_if(?, 'Is it long?', '{\"on_overflow\":\"truncate_end\"}')", text), 1)
        self.assertIn("Is it long?", server.requests[-1]["messages"][-1]["content"])
        self.assertIn("w000 w001 ", server.requests[-1]["messages"][-1]["content"])
        self.assertGreater(len(harness.value(db, "SELECT lm_embed(?, '{\"on_overflow\":\"truncate_end\"}')", text)), 0)
        self.assertTrue(server.requests[-1]["input"].startswith("w000 "))
        self.assertGreater(harness.value(db, "SELECT lm_rerank('long?', ?, '{\"on_overflow\":\"truncate_start\"}')", text), 0)
        self.assertTrue(server.requests[-1]["documents"][0].endswith(" w299"))
        # No cutting makes up for a system prompt.
        self.fails(db, "SELECT generate('x', ?, '{\"on_overflow\":\"truncate_end\"}')", "maximum context length", text)

    def test_a_server_that_refuses_what_it_does_not_know(self):
        # As TensorRT-LLM's server does.
        server = self.server(owner="tensorrt_llm", answer=constrained(lambda body: '{"n": 4}' if "schema" in body.get("response_format", {}) else "4"),
                             first=[("Yes", -0.1), ("No", -2.4)],
                             fields=["messages", "model", "max_tokens", "temperature", "seed", "top_p", "top_k", "min_p", "repetition_penalty", "stop", "logit_bias",
                                     "logprobs", "top_logprobs", "response_format", "stream", "stream_options", "chat_template_kwargs", "input", "encoding_format"])
        db = self.connect(server.url)
        sampling = {"temperature": 0.5, "seed": 3, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "stop": "x", "logit_bias": {"7": 1}, "template_args": {"a": 1}}
        self.assertEqual(harness.value(db, "SELECT generate('x', 'S', ?)", json.dumps(sampling)), "4")
        self.assertEqual(harness.value(db, "SELECT lm_if('x', 'y?')"), 1)
        for kind, notation, format in (("choices", ["4", "5"], {"type": "regex", "regex": "(4|5)"}), ("regex", "[0-9]", {"type": "regex", "regex": "[0-9]"}),
                                       ("grammar", "root ::= [0-9]", {"type": "ebnf", "ebnf": "root ::= [0-9]"})):
            self.assertEqual(harness.value(db, "SELECT generate('x', NULL, ?)", json.dumps({kind: notation})), "4")
            self.assertEqual(server.requests[-1]["response_format"], format)
        self.assertEqual(harness.value(db, "SELECT generate_json('x', '{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}')"), '{"n":4}')
        self.assertEqual(server.requests[-1]["response_format"]["type"], "json")
        self.assertEqual(harness.value(db, "SELECT architecture FROM temp.lm_models"), "trtllm")
        self.fails(self.connect(server.url, extra={"nonsense": 1}), "SELECT generate('x')", r"HTTP 400: Extra inputs are not permitted: \['nonsense'\]")

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


def refused(status, message, **error):
    return lambda body: {"code": status, "error": {"message": message, **error}}


class JobTroubleTest(RemoteCase):
    """What is no row's fault stops a job's run, and fails no row."""

    def job(self, server, rows=40, options=None, **model):
        db = self.connect(server.url, **{"concurrency": 4, "retries": 1, **model})
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(1, rows + 1)])
        db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM notes', "
                   "'UPDATE notes SET y = :value WHERE id = :id', ?)", (options,))
        return db

    def end(self, db, **options):
        """total, done, failed of the last row."""
        return db.execute("SELECT total, done, failed FROM lm_run('j', ?)", (json.dumps(options),)).fetchall()[-1]

    def states(self, db):
        return dict(db.execute("SELECT state, count(*) FROM lm_job_rows GROUP BY 1"))

    def stops(self, db, pattern, **options):
        """The run ends so; no row has failed, and those that wait are as if nobody had claimed them."""
        self.fails(db, "SELECT * FROM lm_run('j', ?)", "job 'j' stopped: .*" + pattern, json.dumps(options))
        states = self.states(db)
        self.assertEqual(set(states) - {"done", "waiting"}, set())
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'waiting' AND (attempts > 0 OR worker IS NOT NULL OR error IS NOT NULL)"), 0)
        self.assertRegex(harness.value(db, "SELECT status FROM lm_jobs"), "^stopped: .*" + pattern)
        return states

    def ends_well(self, db, rows=40):
        self.assertEqual(self.end(db), (rows, rows, 0))
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE y = 're: ' || body"), rows)
        self.assertEqual(harness.value(db, "SELECT max(attempts) FROM lm_job_rows"), 1)

    def turning(self, server, after, otherwise):
        """Answers so many, and then something else."""
        good, begun = server.answer, itertools.count(1)
        server.answer = lambda body: good(body) if next(begun) <= after else otherwise(body)
        return good

    def test_the_key_or_the_account(self):
        for code, message, error in ((401, "no such key", {}), (402, "credit is at its end", {}), (403, "not for you", {}),
                                     (429, "pay first", {"code": "insufficient_quota"}), (404, "no such model", {})):
            for options in (None, '{"on_error":"json"}', '{"on_error":"error"}'):
                with self.subTest(code=code, options=options):
                    server = self.server()
                    good = self.turning(server, 10, refused(code, message, **error))
                    db = self.job(server, 40, options)
                    self.assertEqual(self.stops(db, f"HTTP {code}: {message}"), {"done": 10, "waiting": 30})
                    self.assertLess(len(server.requests), 10 + 2 * 40)
                    server.answer = good
                    self.ends_well(db)

    def test_an_outage_is_waited_for(self):
        server = self.server()
        leaving = threading.Lock()

        def otherwise(body):
            if leaving.acquire(blocking=False):
                threading.Thread(target=leave).start()
            return {"code": 500, "error": "ends"}

        def leave():
            server.leave()
            server.answer = good
            time.sleep(2)
            server.come_back()
        good = self.turning(server, 10, otherwise)
        db = self.job(server)
        rows = db.execute("SELECT total, done, failed, hint FROM lm_run('j', '{\"progress_ms\":100}')").fetchall()
        self.assertEqual(rows[-1][0::2], (40, 0))
        self.assertEqual(rows[-1][1], 40)
        self.assertIn(True, ["waits for an answer: " + server.url in (hint or "") for _, _, _, hint in rows])
        self.assertEqual(self.states(db), {"done": 40})

    def test_without_a_wait_for_outages_a_server_is_tried_as_by_a_row(self):
        server = self.server()
        db = self.job(server, retries=6)
        server.leave()
        threading.Timer(0.4, server.come_back).start()
        self.assertEqual(self.end(db, outage_seconds=0), (40, 40, 0))

    def test_a_server_that_stays_away(self):
        server = self.server()
        db = self.job(server)
        harness.value(db, "SELECT generate('x')")  # so that it is known
        server.leave()
        began = time.monotonic()
        self.assertEqual(self.stops(db, server.url, outage_seconds=2), {"waiting": 40})
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(self.stops(db, server.url, outage_seconds=0), {"waiting": 40})
        # The wait is interrupted.
        threading.Timer(1.5, db.interrupt).start()
        began = time.monotonic()
        self.fails(db, "SELECT * FROM lm_run('j')", "interrupted")
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual({"done", "failed"} & set(self.states(db)), set())
        # A budget of time goes before.
        self.assertRegex(db.execute("SELECT stopped FROM lm_run('j', '{\"max_seconds\":1}')").fetchall()[-1][0], "max_seconds = 1 are over; 40 of 40")
        db.execute("UPDATE lm_job_rows SET attempts = 0")
        server.come_back()
        self.ends_well(db)

    def test_a_server_that_is_away_at_first(self):
        server = self.server()
        db = self.job(server)
        server.leave()
        began = time.monotonic()
        self.assertEqual(self.stops(db, server.url, outage_seconds=2), {})
        self.assertRegex(harness.value(db, "SELECT status FROM lm_jobs"), "; it is left for a later run$")
        self.assertGreater(time.monotonic() - began, 2)
        self.stops(db, server.url, outage_seconds=0)
        self.fails(db, "SELECT * FROM lm_batch_submit('j', 'default')", server.url)
        threading.Timer(1, db.interrupt).start()
        self.fails(db, "SELECT * FROM lm_run('j')", "interrupted")
        self.assertRegex(db.execute("SELECT stopped FROM lm_run('j', '{\"max_seconds\":1}')").fetchall()[-1][0], "max_seconds = 1 are over")
        threading.Timer(1.5, server.come_back).start()
        rows = db.execute("SELECT total, done, failed, eta_seconds, hint FROM lm_run('j', '{\"progress_ms\":100}')").fetchall()
        self.assertEqual(rows[0][:4], (0, 0, 0, None))
        self.assertIn("waits for an answer: " + server.url, rows[0][4])
        self.assertEqual(rows[-1][:4], (40, 40, 0, 0))
        self.ends_well(db)
        # What is wrong with its options is not waited for.
        server.leave()
        other = self.job(server, options='{"model":"lost"}')
        self.fails(other, "SELECT * FROM lm_run('j')", "the job's options: there is no model named 'lost'")

    def test_a_server_that_loads_its_model_at_first(self):
        server = self.server()
        server.loading = 1000
        db = self.job(server)
        began = time.monotonic()
        self.assertRegex(db.execute("SELECT stopped FROM lm_run('j', '{\"max_seconds\":1}')").fetchall()[-1][0], "max_seconds = 1 are over")
        self.stops(db, "HTTP 503: Loading model", outage_seconds=1)
        self.assertLess(time.monotonic() - began, 10)
        server.loading = 2
        self.ends_well(db)

    def test_a_server_that_hangs_up_at_first(self):
        server = self.server(handler=shy(1, hang_up))
        db = self.job(server)
        # It was reached: what it makes of a second try is seen, as with one that was met.
        self.assertEqual(self.end(db, outage_seconds=0), (40, 40, 0))

    def test_a_server_that_fails_at_every_row(self):
        server = self.server()
        good = self.turning(server, 10, refused(500, "out of order"))
        db = self.job(server, retries=0)
        self.assertEqual(self.stops(db, "HTTP 500: out of order", outage_seconds=1), {"done": 10, "waiting": 30})
        server.answer = good
        self.ends_well(db)

    def test_rows_that_fail_alone(self):
        bad = {"note 7": (400, "content policy", "content policy"), "note 9": (500, "cannot do that one", "HTTP 500: cannot do that one"),
               "note 11": (403, "flagged", "HTTP 403: flagged"), "note 13": (400, "maximum context length is 7", "the prompt is too long"),
               "note 39": (403, "flagged", "HTTP 403: flagged"), "note 40": (500, "cannot do that one", "HTTP 500: cannot do that one")}

        def answer(body):
            text = body["messages"][-1]["content"]
            return {"code": bad[text][0], "error": {"message": bad[text][1]}} if text in bad else "re: " + text
        for concurrency in (1, 16):
            with self.subTest(concurrency=concurrency):
                server = self.server(answer=answer)
                db = self.job(server, retries=0, concurrency=concurrency)
                self.assertEqual(self.end(db, outage_seconds=1), (40, 34, 6))
                errors = dict(db.execute("SELECT prompt, error FROM lm_job_rows WHERE state = 'failed'"))
                self.assertEqual(set(errors), set(bad))
                for text, (_, _, pattern) in bad.items():
                    self.assertIn(pattern, errors[text])

    def test_rows_that_are_refused_and_nothing_else(self):
        """However many they are: what else the server answers tells that it is not the server."""
        for code in (403, 500):
            for bad in (range(1, 41), range(11, 41), [1]):
                with self.subTest(code=code, bad=bad):
                    texts = {f"note {i}" for i in bad}
                    server = self.server(answer=lambda body: refused(code, "flagged")(body) if body["messages"][-1]["content"] in texts else "fine")
                    rows = max(bad)
                    db = self.job(server, rows, retries=0)
                    # A server that fails may do so with all but the probe, for a while.
                    self.assertEqual(self.end(db, outage_seconds=60 if code == 403 else 1), (rows, rows - len(bad), len(bad)))
                    self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE error LIKE '%flagged%' AND attempts = 1"), len(bad))
                    self.assertEqual(harness.value(db, "SELECT status FROM lm_jobs"), "done")
                    # Three times each, and a probe or two in between.
                    self.assertLess(len(server.requests), rows + 2 * len(bad) + 5 + (0 if code == 403 else len(bad)))
                    probes = [body for body in server.requests if body.get("max_tokens", 256) == 16]
                    self.assertEqual({body["messages"][-1]["content"] for body in probes} - {f"note {i}" for i in range(1, 11)} - {"Hello."}, set())

    def test_a_probe_that_is_not_sent_has_no_answer(self):
        for code in (403, 500):
            for options in ('{"messages":true}', '{"max_total_tokens":400,"max_tokens":16}'):
                with self.subTest(code=code, options=options):
                    server = self.server(answer=refused(code, "out of order"))
                    db = self.job(server, options=options, retries=0)
                    if "messages" in options:
                        db.execute("UPDATE notes SET body = json_array(json_object('role', 'user', 'content', body))")
                    self.assertEqual(self.stops(db, "out of order", outage_seconds=1), {"waiting": 40})
                    if "messages" in options:
                        self.assertIn("Hello.", [body["messages"][-1]["content"] for body in server.requests])

    def test_a_server_that_answers_the_probe_alone(self):
        """For a while: rows are asked one by one behind it, and none fails."""
        server = self.server()
        good, well = server.answer, time.monotonic() + 2
        server.answer = lambda body: good(body) if time.monotonic() > well or body["messages"][-1]["content"] == "Hello." else refused(500, "no memory")(body)
        db = self.job(server, retries=0)
        self.assertEqual(self.end(db, outage_seconds=60), (40, 40, 0))
        self.assertLess(len(server.requests), 40 + 40 + 20)  # all at first, few while it lasts, all again

    def test_tokens_that_are_not_counted_for_a_while(self):
        text = " It is a text of many words that are read in parts." * 45
        for begin in (0, 3):
            with self.subTest(begin=begin):
                counts, well = itertools.count(1), time.monotonic() + 1

                class Forgetful(Handler):
                    def do_POST(self):
                        if self.path == "/tokenize" and next(counts) > begin and time.monotonic() < well:
                            self.rfile.read(int(self.headers["Content-Length"]))
                            return self.whole(503, {"error": {"message": "not now"}})
                        return super().do_POST()
                server = self.server(handler=Forgetful, answer=lambda body: "In short.")
                db = self.job(server, rows=3, options='{"summarize":true,"max_tokens":16}', retries=0, context_length=512)
                db.execute("UPDATE notes SET body = body || ?", (text,))
                self.assertEqual(self.end(db, outage_seconds=60), (3, 3, 0))

    def test_rows_that_are_left_by_a_run_that_was_stopped(self):
        server = self.server()
        good, bad = server.answer, {f"note {i}" for i in range(11, 41)}
        server.answer = lambda body: refused(403, "flagged")(body) if body["messages"][-1]["content"] in bad else good(body)
        db = self.job(server, retries=0)
        db.execute("UPDATE lm_jobs SET query = query || ' LIMIT 10'")
        self.assertEqual(self.end(db), (10, 10, 0))
        db.execute("UPDATE lm_jobs SET query = replace(query, ' LIMIT 10', ''), total = NULL")
        # The key is gone in the middle of the trouble, and is there again.
        flagged = server.answer
        server.answer = refused(403, "no such key")
        self.assertEqual(self.stops(db, "HTTP 403: no such key", refresh=True), {"done": 10, "waiting": 30})
        self.assertEqual(self.stops(db, "HTTP 403: no such key"), {"done": 10, "waiting": 30})
        server.answer = flagged
        self.assertEqual(self.end(db), (40, 10, 30))

    def test_the_only_row_of_a_server_that_fails(self):
        db = self.job(self.server(answer=refused(500, "out of order")), rows=1, retries=0)
        self.assertEqual(self.stops(db, "HTTP 500: out of order", outage_seconds=1), {"waiting": 1})

    def test_rows_that_fail_again(self):
        """Tried again, they fail for what they failed for, and the job is done."""
        server = self.server(answer=lambda body: {"code": 403, "error": {"message": "flagged"}}
                             if int(body["messages"][-1]["content"].split()[1]) % 6 == 3 else "fine")
        db = self.job(server, retries=0)
        for options in ({}, {"retry": True}, {}):
            self.assertEqual(self.end(db, outage_seconds=1, **options), (40, 33, 7))
            self.assertEqual(harness.value(db, "SELECT status FROM lm_jobs"), "done")

    def test_a_probe_whose_answer_comes_while_a_lock_is_waited_for(self):
        server = self.server()
        good, well, probed = server.answer, threading.Event(), threading.Event()

        def answer(body):
            if not well.is_set():
                return {"code": 500, "error": {"message": "out of order"}}
            if not probed.is_set():
                probed.set()
                time.sleep(1.5)
            return good(body)
        server.answer = answer
        path, db = self.with_target(server, "INSERT INTO labels VALUES (:id, :value)", retries=0)
        db.execute("DELETE FROM notes WHERE id = 3 OR id > 12")
        other = sqlite3.connect(path, isolation_level=None, timeout=20, check_same_thread=False)
        self.addCleanup(other.close)

        def write():
            probed.wait(30)
            time.sleep(0.3)
            other.execute("BEGIN IMMEDIATE")
            time.sleep(2.2)
            other.execute("COMMIT")
        writer = threading.Thread(target=write)
        writer.start()
        threading.Timer(0.3, well.set).start()
        self.assertEqual(self.end(db, outage_seconds=6, chunk=4), (11, 11, 0))
        writer.join()

    def test_a_row_that_is_held_and_then_gone(self):
        server = self.server()
        path, db = self.with_target(server, "INSERT INTO labels VALUES (:id, :value)", retries=0)
        db.execute("DELETE FROM notes WHERE id > 2")
        db.execute("UPDATE notes SET body = 'a note 2' WHERE id = 2")  # the first, in the order of the texts
        other = harness.connect(path)
        self.addCleanup(other.close)
        self.register(other, server.url, concurrency=2, retries=0)
        begun, failed = threading.Event(), threading.Event()

        def answer(body):
            if body["messages"][-1]["content"] == "note 1":
                failed.set()
                return {"code": 500, "error": {"message": "cannot do that one"}}
            begun.set()
            time.sleep(4)
            return "re: that"

        def delete():
            failed.wait(30)
            time.sleep(0.8)  # once it has been asked again
            third = sqlite3.connect(path, isolation_level=None, timeout=20)
            third.execute("DELETE FROM lm_job_rows WHERE number = 1")
            third.close()
        server.answer = answer
        run = threading.Thread(target=lambda: other.execute("SELECT * FROM lm_run('j', '{\"chunk\":1}')").fetchall())
        run.start()
        begun.wait(30)
        deleter = threading.Thread(target=delete)
        deleter.start()
        self.assertEqual(self.end(db, outage_seconds=2), (1, 1, 0))
        run.join()
        deleter.join()

    def with_target(self, server, target, options='{"cache":false}', **model):
        """A job whose answers no memo has; in a file, for others to get at."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "notes.db")
        db = harness.connect(path)
        self.addCleanup(db.close)
        db.execute("PRAGMA journal_mode = wal").fetchall()
        self.register(db, server.url, **{"concurrency": 2, "retries": 1, **model})
        db.executescript("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT); CREATE TABLE labels(id PRIMARY KEY, y CHECK (y <> 're: note 3'));")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(1, 41)])
        db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM notes', ?, ?)", (target, options))
        return path, db

    def test_a_lock_that_outlasts_the_claims(self):
        """Two runs wait for it, each with answers: none takes the rows of the other, which could not renew its claims."""
        server = self.server(answer=lambda body: time.sleep(0.5) or "fine")
        path, db = self.with_target(server, "INSERT INTO labels VALUES (:id, :value)", concurrency=4)
        db.execute("DELETE FROM notes WHERE id > 16")
        other = harness.connect(path)
        self.addCleanup(other.close)
        self.register(other, server.url, concurrency=4, retries=1)
        ends = []
        runs = [threading.Thread(target=lambda db=db: ends.append(self.end(db, chunk=8, lease_ms=3000))) for db in (db, other)]
        for run in runs:
            run.start()
            time.sleep(0.2)
        while len(server.requests) < 6:
            time.sleep(0.01)
        third = sqlite3.connect(path, isolation_level=None, timeout=20)
        third.execute("BEGIN IMMEDIATE")
        time.sleep(4.5)
        third.execute("COMMIT")
        third.close()
        for run in runs:
            run.join()
        self.assertEqual(ends, [(16, 16, 0)] * 2)
        self.assertEqual(len(server.requests), 16)
        self.assertEqual(harness.value(db, "SELECT max(attempts) FROM lm_job_rows"), 1)

    def test_few_texts_are_held_that_are_huge(self):
        claimed = []
        server = self.server(answer=lambda body: claimed.append(harness.value(watch, "SELECT count(*) FROM lm_job_rows WHERE state = 'running'")) or "fine")
        path, db = self.with_target(server, "INSERT INTO labels VALUES (:id, :value)", concurrency=1, retries=0)
        db.execute("DELETE FROM notes WHERE id > 18")
        db.execute("UPDATE notes SET body = body || replace(hex(zeroblob(400000)), '0', 'a word ')")
        watch = sqlite3.connect(path, check_same_thread=False)
        self.addCleanup(watch.close)
        self.assertEqual(self.end(db), (18, 18, 0))
        self.assertTrue(5 < max(claimed) < 14, claimed)

    def test_an_answer_that_the_target_refused_is_not_bought_again(self):
        server = self.server()
        _, db = self.with_target(server, "INSERT INTO labels VALUES (:id, :value)")
        self.assertEqual(self.end(db), (40, 39, 1))
        self.assertEqual(db.execute("SELECT id, value, finish, error LIKE 'the job''s target: CHECK%' FROM lm_job_rows WHERE state = 'failed'").fetchall(),
                         [(3, "re: note 3", "stop", 1)])
        # It is still refused, and then no more.
        self.assertEqual(self.end(db, retry=True), (40, 39, 1))
        db.executescript("ALTER TABLE labels RENAME TO old; CREATE TABLE labels(id PRIMARY KEY, y); INSERT INTO labels SELECT * FROM old; DROP TABLE old;")
        self.assertEqual(db.execute("SELECT done, failed, cached FROM lm_run('j', '{\"retry\":true}')").fetchall()[-1], (40, 0, 1))
        self.assertEqual(harness.value(db, "SELECT y FROM labels WHERE id = 3"), "re: note 3")
        self.assertEqual(db.execute("SELECT value, finish, error, tokens_in, tokens_out FROM lm_job_rows WHERE id = 3").fetchall(), [("re: note 3", "stop", None, 12, 3)])
        self.assertEqual(len(server.requests), 40)
        # One that was is no answer to what the row asks by now, nor to who wants another.
        db.executescript("UPDATE lm_job_rows SET state = 'failed', error = 'the target''s' WHERE id IN (3, 4, 5); UPDATE lm_job_rows SET prompt = 'note IV' WHERE id = 4; "
                         "UPDATE lm_job_rows SET value = NULL, state = 'waiting' WHERE id = 5; DELETE FROM labels WHERE id IN (3, 4, 5);")
        self.assertEqual(self.end(db, retry=True), (40, 40, 0))
        self.assertEqual(sorted(body["messages"][-1]["content"] for body in server.requests[40:]), ["note 5", "note IV"])
        self.assertEqual(harness.value(db, "SELECT group_concat(y) FROM (SELECT y FROM labels WHERE id IN (3, 4, 5) ORDER BY id)"), "re: note 3,re: note IV,re: note 5")

    def test_a_target_that_takes_no_answer_at_all(self):
        for drop, pattern, mend in (
                ("DROP TABLE labels", "the job's target: no such table: labels", "CREATE TABLE labels(id PRIMARY KEY, y)"),
                ("ALTER TABLE labels RENAME COLUMN y TO z", "the job's target: table labels has no column named y", "ALTER TABLE labels RENAME COLUMN z TO y"),
                ("CREATE TRIGGER t AFTER INSERT ON labels BEGIN INSERT INTO log VALUES (1); END", "the job's target: no such table: main.log", "DROP TRIGGER t")):
            with self.subTest(drop=drop):
                server = self.server()
                path, db = self.with_target(server, "INSERT INTO labels(id, y) VALUES (:id, :value)")
                begun = itertools.count(1)

                def answer(body):
                    number = next(begun)
                    if number == 21:
                        other = sqlite3.connect(path, isolation_level=None, timeout=30)
                        other.execute(drop)
                        other.close()
                    elif 21 < number <= 40:
                        time.sleep(0.2)  # the job has time to see it
                    return "re: " + body["messages"][-1]["content"].replace("note 3", "note iii")
                server.answer = answer
                self.fails(db, "SELECT * FROM lm_run('j', '{\"chunk\":8}')", "job 'j' stopped: " + pattern)
                self.assertEqual(set(self.states(db)), {"done", "waiting"})
                self.assertGreater(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'waiting' AND value IS NOT NULL"), 0)
                answered = {f"note {id}" for id, in db.execute("SELECT id FROM lm_job_rows WHERE state = 'done' OR value IS NOT NULL")}
                self.assertRegex(harness.value(db, "SELECT status FROM lm_jobs"), "^stopped: " + pattern)
                bought = len(server.requests)
                self.assertLess(bought, 40)
                db.execute(mend)
                self.assertEqual(self.end(db), (40, 40, 0))
                self.assertEqual(harness.value(db, "SELECT sum(cached) FROM (SELECT max(cached) AS cached FROM lm_run('j'))"), 0)
                # Only what was under way when it stopped is bought again, and what had not begun.
                later = {body["messages"][-1]["content"] for body in server.requests[bought:]}
                self.assertEqual(later & answered, set())
                self.assertEqual(len(later | answered), 40)


if __name__ == "__main__":
    unittest.main()
