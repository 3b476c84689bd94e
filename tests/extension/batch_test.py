"""Batch files: a job's rows go out as files of requests, and their answers come back in any order, in parts, twice, or a day later.

LM_BATCH_ROWS=120000 for the full size (50,000 lines a shard; CI: 1,200 rows, 500 lines a shard).
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from batch_api_server import BatchServer, answer_line

ROWS = int(os.environ.get("LM_BATCH_ROWS", "1200"))
LINES = max(1, ROWS * 5 // 12)
LABELS = '["praise","complaint"]'
WORKER = f"""
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.enable_load_extension(True)
db.load_extension({harness.LM0!r})
for sql in json.loads(sys.argv[2]):
    for row in db.execute(sql):
        print(json.dumps(row), flush=True)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0], file=sys.stderr)
"""


def label(body):
    """What a good server says: openai's constraint wants an object with the answer."""
    text = body["messages"][-1]["content"]
    return json.dumps({"answer": "praise" if int(text.split()[1]) % 2 else "complaint"})


class BatchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make(self, rows=20, name="notes.db", options=None, **job):
        path = str(self.folder / name)
        db = harness.connect(path)
        self.addCleanup(db.close)
        db.execute("PRAGMA journal_mode = wal").fetchall()
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, label TEXT, stored INTEGER DEFAULT 0)")
        db.execute("INSERT INTO notes(body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                   "SELECT 'note ' || i || ' says: it rained all day, and the umbrella was at home' FROM n", (rows,))
        job = {"name": "label", "query": "SELECT id, body FROM notes", "system": "Is it praise or a complaint?",
               "options": json.dumps({"choices": json.loads(LABELS)} if options is None else options),
               "target": "UPDATE notes SET label = :value, stored = stored + 1 WHERE id = :id", **job}
        db.execute(f"INSERT INTO lm_jobs({', '.join(job)}) VALUES ({', '.join('?' * len(job))})", tuple(job.values()))
        return path, db

    def server(self, **how):
        server = BatchServer(answer=how.pop("answer", label), owner="somebody", **how)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def register(self, db, server, name="gpt", **options):
        db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES (?, ?, ?)", (name, server.url, json.dumps(options)))

    def lines(self, db, **options):
        return [text for text, in db.execute("SELECT text FROM lm_batch_export('label', ?)", (json.dumps({"model": "m", **options}),))]

    def take(self, db, lines, name="answers.jsonl"):
        """(done, failed, again, unbegun, refused), and the refusals."""
        path = self.folder / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        rows = db.execute("SELECT done, failed, again, unbegun, refused, refusal FROM lm_batch_import('label', ?)", (str(path),)).fetchall()
        self.assertIsNone(rows[-1][5])
        return rows[-1][:5], [row[5] for row in rows[:-1]]

    def fails(self, db, sql, pattern, *parameters):
        with self.assertRaisesRegex(Exception, pattern):
            db.execute(sql, parameters).fetchall()

    def worker(self, path, *statements):
        ran = subprocess.run([sys.executable, "-c", WORKER, path, json.dumps(statements)], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines()], json.loads(ran.stderr) / 1024

    def test_settings_for_models_of_this_machine_are_not_the_files(self):
        _, db = self.make(rows=4)
        before = self.lines(db)
        db.execute("INSERT INTO temp.lm_settings VALUES ('thinking_tokens', 7)")
        self.assertEqual(self.lines(db), before)
        server = self.server()
        _, db = self.make(rows=4, name="sent.db")
        self.register(db, server, model="tiny", dialect="openai")
        db.execute("SELECT * FROM lm_batch_submit('label', 'gpt')").fetchall()
        db.execute("INSERT INTO temp.lm_settings VALUES ('thinking_tokens', 7)")
        while harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1") < 4:
            db.execute("SELECT * FROM lm_batch_poll('label')").fetchall()
        with self.assertRaisesRegex(Exception, "thinking_tokens: how much a model on the network"):
            _, other = self.make(name="other.db", options={"thinking_tokens": 7})
            self.lines(other)

    def test_out_and_back(self):
        path, db = self.make(ROWS)
        began = time.monotonic()
        prefix = self.folder / "label"
        files, exported_mb = self.worker(path, f"SELECT shard, lines, bytes, text FROM lm_batch_export('label', "
                                               f"'{{\"model\":\"m\",\"path\":\"{prefix}\",\"lines\":{LINES}}}')")
        exporting = time.monotonic() - began
        self.assertEqual([(shard, lines, file) for shard, lines, _, file in files],
                         [(i + 1, min(LINES, ROWS - i * LINES), f"{prefix}-{i + 1:05}.jsonl") for i in range(3)])
        requests = []
        for _, lines, size, file in files:
            text = pathlib.Path(file).read_text(encoding="utf-8")
            self.assertEqual((text.count("\n"), len(text.encode())), (lines, size))
            requests += text.splitlines()
        self.assertEqual(len({json.loads(line)["custom_id"] for line in requests}), ROWS)
        self.assertEqual(sorted(p.name for p in self.folder.glob("label*")), [f"label-{i:05}.jsonl" for i in (1, 2, 3)])
        # A tenth is missing, some failed, some answers do not fit, some are there twice; in any order.
        dice = random.Random(7)
        dice.shuffle(requests)
        missing, failed, wrong = ROWS // 10, ROWS // 50, ROWS // 50
        answers = [answer_line(line, lambda body: {"code": "server_error", "message": "it burns"}) for line in requests[missing:missing + failed]]
        answers += [answer_line(line, lambda body: '{"answer": "perhaps"}') for line in requests[missing + failed:missing + failed + wrong]]
        good = [answer_line(line, label) for line in requests[missing + failed + wrong:]]
        answers += good + dice.sample(good, ROWS // 20)
        dice.shuffle(answers)
        outputs = []
        for i in range(3):
            outputs.append(str(self.folder / f"out-{i}.jsonl"))
            pathlib.Path(outputs[-1]).write_text("".join(line + "\n" for line in answers[i::3]), encoding="utf-8")
        took = "SELECT lines, done, failed, again, unbegun, refused FROM lm_batch_import('label', '{}')"
        began = time.monotonic()
        sums, imported_mb = self.worker(path, *(took.format(output) for output in outputs))
        importing = time.monotonic() - began
        self.assertEqual([sum(column) for column in zip(*sums)], [len(answers), len(good), failed + wrong, ROWS // 20, 0, 0])

        def check(expected):
            self.assertEqual(db.execute("SELECT state, count(*) FROM lm_job_rows GROUP BY 1 ORDER BY 1").fetchall(), expected)
            self.assertEqual(harness.value(db, "SELECT count(*) FROM notes JOIN lm_job_rows AS r USING (id) WHERE (r.state = 'done') IS NOT (stored = 1) OR "
                                               "(r.state = 'done') IS NOT (label IS iif(notes.id % 2, 'praise', 'complaint')) OR label IS NOT r.value"), 0)
        check([("done", len(good)), ("failed", failed + wrong), ("waiting", missing)])
        self.assertEqual({error for error, in db.execute("SELECT error FROM lm_job_rows WHERE state = 'failed'")},
                         {"server_error: it burns", "the server's answer does not fit choices: {\"answer\": \"perhaps\"}"})
        # Twice harmlessly.
        again, _ = self.worker(path, *(took.format(output) for output in outputs))
        self.assertEqual([sum(column) for column in zip(*again)], [len(answers), 0, 0, len(answers), 0, 0])
        # What waits and what failed goes out once more, in another dialect.
        rest = self.lines(db, retry=True, dialect="vllm")
        self.assertEqual(len(rest), missing + failed + wrong)
        self.assertIn("structured_outputs", rest[0])
        counts, refusals = self.take(db, [answer_line(line, lambda body: json.loads(label(body))["answer"]) for line in rest])
        self.assertEqual((counts, refusals), ((len(rest), 0, 0, 0, 0), []))
        check([("done", ROWS)])
        self.assertIsNotNone(harness.value(db, "SELECT ended FROM lm_jobs"))
        print(f"{ROWS} rows: export {exporting:.1f} s, {exported_mb:.0f} MB; import of {len(answers)} lines {importing:.1f} s, {imported_mb:.0f} MB", file=sys.stderr)

    def test_bare_answers_fit_as_they_stand(self):
        for dialect in ("openai", "ollama", "vllm"):
            with self.subTest(dialect=dialect):
                _, db = self.make(4, name=f"{dialect}.db")
                said = iter((" praise\n", '{"answer": "complaint"}' if dialect != "vllm" else "complaint", "prai", '"praise"'))
                answers = [answer_line(line, lambda body: next(said)) for line in self.lines(db, dialect=dialect)]
                self.assertEqual(self.take(db, answers), ((2, 2, 0, 0, 0), []))
                self.assertEqual(db.execute("SELECT label FROM notes ORDER BY id").fetchall(), [("praise",), ("complaint",), (None,), (None,)])

    def test_a_line(self):
        _, db = self.make(2, options={"max_tokens": 9, "temperature": 0.5, "seed": 3})
        line = json.loads(self.lines(db, dialect="openai")[0])
        self.assertRegex(line.pop("custom_id"), "^label:1:[0-9a-f]{32}$")
        self.assertEqual(line, {"method": "POST", "url": "/v1/chat/completions", "body": {
            "model": "m", "max_completion_tokens": 9, "temperature": 0.5, "seed": 3,
            "messages": [{"role": "system", "content": "Is it praise or a complaint?"},
                         {"role": "user", "content": "note 1 says: it rained all day, and the umbrella was at home"}]}})
        shards = db.execute("SELECT shard, lines FROM lm_batch_export('label', '{\"model\":\"m\",\"bytes\":1}')").fetchall()
        self.assertEqual(shards, [(1, 1), (2, 1)])
        # Without a word in the options, as the model of the job is registered.
        server = self.server()
        self.register(db, server, "default", model="tiny-3", extra={"service_tier": "flex"})
        db.execute("UPDATE lm_jobs SET model = NULL")
        body = json.loads(harness.value(db, "SELECT text FROM lm_batch_export('label')"))["body"]
        self.assertEqual((body["model"], body["service_tier"], server.requests), ("tiny-3", "flex", []))

    def test_a_job_ends_with_its_last_row(self):
        ended = "SELECT status, ended IS NOT NULL FROM lm_jobs"
        _, db = self.make(4)
        lines = [answer_line(line, label) for line in self.lines(db)]
        path = self.folder / "cut.jsonl"
        path.write_text("garbage\n" + "".join(line + "\n" for line in lines[:3]), encoding="utf-8")
        cut = "SELECT * FROM lm_batch_import('label', ?) LIMIT 1"  # its first line, and no more
        db.execute(cut, (str(path),)).fetchall()
        self.assertEqual(db.execute(ended).fetchall(), [(None, 0)])
        path.write_text("garbage\n" + lines[3] + "\n" + "again\n" * 300, encoding="utf-8")
        db.execute(cut, (str(path),)).fetchall()
        self.assertEqual(db.execute(ended).fetchall(), [("done", 1)])
        # One that has ended, and did not get to say so; and when is what it was.
        db.execute("UPDATE lm_jobs SET ended = NULL, status = NULL")
        for ends in range(2):
            self.assertEqual(self.take(db, lines)[0], (0, 0, 4, 0, 0))
            self.assertEqual(db.execute(ended).fetchall(), [("done", 1)])
            if ends == 0:
                db.execute("UPDATE lm_jobs SET ended = 'then'")
        self.assertEqual(harness.value(db, "SELECT ended FROM lm_jobs"), "then")
        # Without a model.
        _, db = self.make(3, name="nulls.db")
        db.execute("UPDATE notes SET body = NULL")
        self.assertEqual(self.lines(db), [])
        self.assertEqual(db.execute(ended).fetchall(), [("done", 1)])
        server = self.server()
        _, db = self.make(3, name="sent.db")
        db.execute("UPDATE notes SET body = NULL")
        self.register(db, server, model="tiny")
        db.execute("SELECT * FROM lm_batch_submit('label', 'gpt')").fetchall()
        self.assertEqual(db.execute(ended).fetchall(), [("done", 1)])

    def test_what_asks_nothing_is_done_at_once(self):
        _, db = self.make(4)
        db.execute("UPDATE notes SET body = iif(id = 2, NULL, x'00') WHERE id IN (2, 3)")
        self.assertEqual(len(self.lines(db)), 2)
        self.assertEqual(db.execute("SELECT id, state, value FROM lm_job_rows ORDER BY id").fetchall(),
                         [(1, "waiting", None), (2, "done", None), (3, "failed", None), (4, "waiting", None)])

    def test_a_row_that_cannot_be_asked_fails_alone(self):
        _, db = self.make(4, options={"messages": True}, system=None)
        db.execute("UPDATE notes SET body = iif(id = 2, 'no JSON', json_array(json_object('role', 'user', 'content', body)))")
        self.assertEqual(len(self.lines(db)), 3)
        self.assertEqual(db.execute("SELECT id, state FROM lm_job_rows ORDER BY id").fetchall(),
                         [(1, "waiting"), (2, "failed"), (3, "waiting"), (4, "waiting")])
        self.assertIn("messages", harness.value(db, "SELECT error FROM lm_job_rows WHERE id = 2"))
        # What no row can ask is the job's, and fails none.
        db.execute("UPDATE lm_jobs SET options = '{\"lora\":[{\"name\":\"a\"}]}'")
        self.fails(db, "SELECT * FROM lm_batch_export('label', '{\"model\":\"m\"}')", "lora: a model on the network")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'failed'"), 1)

    def test_an_answer_with_a_nul(self):
        _, db = self.make(3, options={})
        said = iter(("yes", "bad\0nul", "no"))
        answers = [answer_line(line, lambda body: next(said)) for line in self.lines(db)]
        self.assertIn("bad\\u0000nul", answers[1])
        self.assertEqual(self.take(db, answers), ((2, 1, 0, 0, 0), []))
        self.assertEqual(db.execute("SELECT state, value, error, label FROM lm_job_rows JOIN notes USING (id) ORDER BY id").fetchall(), [
            ("done", "yes", None, "yes"),
            ("failed", None, "the server's answer has a NUL character (U+0000), at byte 3: to SQL, a text ends there", None), ("done", "no", None, "no")])
        # Another answer of that row's takes its place.
        self.assertEqual(self.take(db, [answer_line(line, lambda body: "maybe") for line in self.lines(db, retry=True)])[0], (1, 0, 0, 0, 0))

    def test_pages_that_ask_nothing(self):
        _, db = self.make(1700)
        db.execute("UPDATE notes SET body = NULL WHERE id <> 1650")
        self.assertEqual(len(self.lines(db)), 1)
        self.assertEqual(db.execute("SELECT state, count(*) FROM lm_job_rows GROUP BY 1 ORDER BY 1").fetchall(), [("done", 1699), ("waiting", 1)])

    def test_lines_that_no_row_can_take(self):
        _, db = self.make(6)
        good = [answer_line(line, label) for line in self.lines(db)]
        db.execute("UPDATE lm_job_rows SET prompt = 'note 8' WHERE id = 1")
        counts, refusals = self.take(db, [
            good[0], "no json", '{"custom_id":"x","response":{}}', good[1].replace("label:2:", "other:2:"), good[2].replace("label:3:", "label:77:"),
            answer_line(self.lines(db)[3], lambda body: {"code": "batch_expired", "message": "too late"}), good[4],
            good[5].replace('"body"', '"nobody"'), ""])
        self.assertEqual(counts, (1, 1, 0, 1, 5))
        for refusal, pattern in zip(refusals, ("line 1 is of row 1, id 1, whose prompt, system prompt or options have changed since", "line 2 is no JSON",
                                               "line 3 has no custom_id of ours", "line 4 is of the job 'other'", "line 5 is of row 77, which the job has not")):
            self.assertIn(pattern, refusal)
        # Other options ask something else.
        db.execute("UPDATE lm_jobs SET options = '{\"choices\":[\"a\",\"b\"]}'")
        self.assertEqual(self.take(db, good[1:2])[0], (0, 0, 0, 0, 1))
        self.fails(db, "SELECT * FROM lm_batch_import('label', '/no/such/file')", "/no/such/file.*No such file")
        self.fails(db, "SELECT * FROM lm_batch_export('label')", "which model is to answer")
        self.fails(db, "SELECT * FROM lm_batch_export('label', '{\"model\":\"m\",\"path\":\"/no/such/folder/x\"}')", "'/no/such/folder/x-00001.jsonl.part': cannot be made")
        self.fails(db, "SELECT * FROM lm_batch_export('label', '{\"model\":\"m\",\"dialect\":\"latin\"}')", "dialect must be one of")

    def test_a_target_that_rolls_back_refuses_its_row_alone(self):
        _, db = self.make(6)
        db.execute("CREATE TRIGGER no BEFORE UPDATE ON notes WHEN new.id IN (2, 5) BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END")
        lines = [answer_line(line, label) for line in self.lines(db)]
        self.assertEqual(self.take(db, lines), ((4, 2, 0, 0, 0), []))
        self.assertEqual(db.execute("SELECT id, error, value IS NOT NULL FROM lm_job_rows WHERE state = 'failed'").fetchall(),
                         [(2, "the job's target: not this one", 1), (5, "the job's target: not this one", 1)])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 4)
        # What they have is given to a target that takes it, by an export that finds nothing to ask.
        db.execute("DROP TRIGGER no")
        self.assertEqual(self.lines(db, retry=True), [])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 6)

    def test_many_that_roll_back(self):
        _, db = self.make(200)
        db.execute("CREATE TRIGGER no BEFORE UPDATE ON notes WHEN new.id % 4 BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END")
        lines = [answer_line(line, label) for line in self.lines(db)]
        self.assertEqual(self.take(db, lines + lines[:40]), ((50, 150 + 30, 10, 0, 0), []))  # a row that has failed takes another answer
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes JOIN lm_job_rows USING (id) WHERE (state = 'done') IS NOT (stored = 1) OR "
                                           "(state = 'done') IS NOT (id % 4 = 0)"), 0)
        self.assertEqual(self.lines(db, retry=True), [])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 50)
        db.execute("DROP TRIGGER no")
        self.assertEqual(self.lines(db, retry=True), [])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 200)

    def test_the_memo_knows_the_answers(self):
        server = self.server()
        _, db = self.make(5, options={"model": "gpt", "max_tokens": 7})
        self.register(db, server, model="tiny")
        self.take(db, [answer_line(line, lambda body: "fine") for line in self.lines(db, model="tiny")])
        answer = harness.value(db, "SELECT generate(body, 'Is it praise or a complaint?', '{\"model\":\"gpt\",\"max_tokens\":7}') FROM notes WHERE id = 3")
        self.assertEqual((answer, server.requests), ("fine", []))
        # Not those of another model.
        _, db = self.make(5, name="other.db", options={"model": "gpt", "max_tokens": 7}, system="Which of the two?")
        self.register(db, server, model="tiny")
        self.take(db, [answer_line(line, lambda body: "fine") for line in self.lines(db, model="large")])
        server.answer = lambda body: "asked"
        answer = harness.value(db, "SELECT generate(body, 'Which of the two?', '{\"model\":\"gpt\",\"max_tokens\":7}') FROM notes WHERE id = 3")
        self.assertEqual((answer, len(server.requests)), ("asked", 1))

    def test_tokens_that_an_answer_does_not_tell_are_estimated(self):
        _, db = self.make(3, options={})
        lines = [json.loads(answer_line(line, lambda body: "a fine day")) for line in self.lines(db)]
        for line in lines[1:]:
            del line["response"]["body"]["usage"]
        lines[2]["response"]["body"]["choices"][0]["finish_reason"] = None  # it is no answer, and paid
        self.take(db, map(json.dumps, lines))
        rows = db.execute("SELECT state, tokens_in, tokens_out FROM lm_job_rows ORDER BY number").fetchall()
        self.assertEqual(rows[0], ("done", 12, 3))
        self.assertEqual([(state, tokens_out) for state, _, tokens_out in rows[1:]], [("done", 3), ("failed", 3)])
        messages = len('[{"role":"system","content":"Is it praise or a complaint?"},{"role":"user","content":"note 2 says: it rained all day, and the umbrella was at home"}]')
        self.assertEqual([tokens_in for _, tokens_in, _ in rows[1:]], [(messages + 3) // 4] * 2)

    def submit(self, db, **options):
        return db.execute("SELECT batch, state, lines FROM lm_batch_submit('label', 'gpt', ?)", (json.dumps(options),)).fetchall()

    def test_submit_and_poll(self):
        os.environ["LM_TEST_KEY"] = "secret"
        refused = {"code": "rate", "message": "no"}
        server = self.server(answer=lambda body: refused if "note 7 " in body["messages"][-1]["content"] else label(body))
        path, db = self.make(50)
        self.register(db, server, key_env="LM_TEST_KEY", retries=2)
        server.hold = True
        self.assertEqual(self.submit(db, lines=20), [("batch_1", "submitted", 20), ("batch_2", "submitted", 20), ("batch_3", "submitted", 10)])
        self.assertEqual(self.submit(db, lines=20), [])  # every row is in one
        self.assertEqual({headers["Authorization"] for headers in server.headers}, {"Bearer secret"})
        poll = "SELECT batch, state, status, done, failed, again FROM lm_batch_poll('label')"
        self.assertEqual(db.execute(poll).fetchall(), [(f"batch_{i}", "submitted", "validating", 0, 0, 0) for i in (1, 2, 3)])
        # An interrupt while they are waited for.
        threading.Timer(0.3, db.interrupt).start()
        began = time.monotonic()
        self.fails(db, "SELECT * FROM lm_batch_poll('label', '{\"wait_seconds\":60,\"pause_ms\":50000}') LIMIT 9", "interrupted")
        self.assertLess(time.monotonic() - began, 20)
        # From another process, with a connection that breaks.
        server.hold, server.cuts = False, 2
        model = f"INSERT INTO temp.lm_models(name, path) VALUES ('gpt', '{server.url}')"
        rows, _ = self.worker(path, model, poll)
        self.assertEqual(rows, [["batch_1", "ended", "completed", 19, 1, 0], ["batch_2", "ended", "completed", 20, 0, 0], ["batch_3", "ended", "completed", 10, 0, 0]])
        self.assertEqual(db.execute(poll).fetchall(), [])
        self.assertEqual(db.execute("SELECT id, error FROM lm_job_rows WHERE state <> 'done'").fetchall(), [(7, "rate: no")])
        server.answer = label
        self.assertEqual(self.submit(db, retry=True), [("batch_4", "submitted", 1)])
        self.assertEqual(db.execute(poll).fetchall(), [("batch_4", "ended", "completed", 1, 0, 0)])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1 AND label = iif(id % 2, 'praise', 'complaint')"), 50)
        # What a table says of an address is not spoken to.
        db.execute("UPDATE lm_job_batches SET state = 'submitted', url = 'http://127.0.0.1:9/v1' WHERE number = 4")
        self.fails(db, poll, "which is no address of 'gpt' in lm_models")
        self.fails(db, "SELECT * FROM lm_batch_submit('label', ?)", "is not on the network", harness.MODEL)
        db.execute("INSERT INTO temp.lm_settings VALUES ('network', 'off')")
        self.fails(db, "SELECT * FROM lm_batch_submit('label', 'gpt')", "lm_settings has network 'off'")
        db.execute("DELETE FROM lm_jobs")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_batches"), 0)

    def test_what_a_server_has_no_run_asks_for(self):
        server = self.server()
        _, db = self.make(30, options={"cache": False})
        self.register(db, server, "default", model="tiny", dialect="openai", retries=0)
        counts = "SELECT total, done, failed, submitted, eta_seconds FROM lm_run('label', ?)"
        server.hold = True
        db.execute("UPDATE lm_jobs SET query = query || ' WHERE id <= 20'")
        self.assertEqual(db.execute("SELECT lines FROM lm_batch_submit('label', 'default', '{\"lines\":10}')").fetchall(), [(10,), (10,)])
        self.assertEqual(harness.value(db, "SELECT status FROM lm_jobs"), "submitted: 20 of 20 rows are in batches of a server (lm_batch_poll); 0 others wait")
        self.assertEqual(db.execute(counts, (None,)).fetchall(), [(20, 0, 0, 20, 0.0)])
        # Not those either that have failed, nor do they go out in files.
        self.assertEqual(db.execute(counts, ('{"refresh":true}',)).fetchall()[-1], (20, 0, 0, 20, 0.0))
        self.assertEqual(self.lines(db, model="tiny"), [])
        db.execute("UPDATE lm_job_rows SET state = 'failed' WHERE id = 3")
        self.assertEqual(db.execute(counts, ('{"retry":true}',)).fetchall()[-1], (20, 0, 1, 19, 0.0))
        self.assertEqual(server.requests, [])
        # One is answered, of one the server gives up half.
        server.batches["batch_2"].update(status="expired")
        server.hold = False
        self.assertEqual(db.execute("SELECT batch, status, done FROM lm_batch_poll('label')").fetchall(), [("batch_1", "completed", 10), ("batch_2", "expired", 0)])
        self.assertEqual(harness.value(db, "SELECT status FROM lm_jobs"), "stopped: no batch is under way; 10 of 20 rows are left for lm_run() or another batch")
        self.assertEqual(db.execute(counts, (None,)).fetchall()[-1], (20, 20, 0, 0, 0.0))
        self.assertEqual(len(server.requests), 10)
        self.assertEqual(harness.value(db, "SELECT status FROM lm_jobs"), "done")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 20)

    def test_a_batch_that_never_came_to_the_server_keeps_no_row(self):
        for where, code in (("upload", 404), ("create", 400), ("create", 401), ("create", 403), ("create", 404)):
            with self.subTest(where=where, code=code):
                server = self.server()
                server.refuses = {where: code}
                _, db = self.make(5, name=f"{where}{code}.db", options={"cache": False})
                self.register(db, server, "default", model="tiny", dialect="openai", retries=0)
                self.fails(db, "SELECT * FROM lm_batch_submit('label', 'default')", f"HTTP {code}")
                self.assertEqual(db.execute("SELECT total, done, submitted FROM lm_run('label')").fetchall()[-1], (5, 5, 0))
                self.assertEqual(len(server.requests), 5)

    def test_a_run_and_a_batch_at_a_time(self):
        """Each row is asked once: the batch has those that the run has not claimed."""
        server = self.server(delay=0.02)
        path, db = self.make(200, options={"cache": False})
        self.register(db, server, "default", model="tiny", dialect="openai", concurrency=2)
        other = harness.connect(path)
        self.addCleanup(other.close)
        self.register(other, server, "default", model="tiny", dialect="openai")
        run = threading.Thread(target=lambda: db.execute("SELECT * FROM lm_run('label', '{\"chunk\":4}')").fetchall())
        run.start()
        while len(server.requests) < 20:
            time.sleep(0.005)
        self.assertEqual(len(other.execute("SELECT * FROM lm_batch_submit('label', 'default')").fetchall()), 1)
        run.join(60)
        self.assertFalse(run.is_alive())
        asked = [body["messages"][-1]["content"] for body in server.requests]
        lines = [json.loads(line)["body"]["messages"][-1]["content"] for batch in server.batches.values()
                 for line in server.files[batch["input_file_id"]]["data"].decode().splitlines()]
        self.assertGreater(len(lines), 20)
        self.assertEqual((len(asked) + len(lines), len(set(asked + lines))), (200, 200))
        other.execute("SELECT * FROM lm_batch_poll('label')").fetchall()
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 200)

    def test_a_server_says_when_to_come_back(self):
        server = self.server()
        _, db = self.make(5)
        self.register(db, server, retries=1)
        self.assertEqual(self.submit(db), [("batch_1", "submitted", 5)])
        server.rests_until, server.rest = time.monotonic() + 60, 3600
        began = time.monotonic()
        self.fails(db, "SELECT done FROM lm_batch_poll('label')", "slow down.*to be asked again in 1h")
        self.assertLess(time.monotonic() - began, 20)
        server.rests_until, server.rest = time.monotonic() + 0.9, 1
        self.assertEqual(harness.value(db, "SELECT done FROM lm_batch_poll('label')"), 5)

    def test_a_job_that_is_begun_anew_has_no_batches(self):
        server = self.server()
        _, db = self.make(5)
        self.register(db, server)
        server.hold = True
        self.assertEqual(self.submit(db), [("batch_1", "submitted", 5)])
        db.execute("UPDATE lm_jobs SET total = NULL")
        self.assertEqual(self.submit(db), [("batch_2", "submitted", 5)])
        db.execute("INSERT OR REPLACE INTO lm_jobs(name, query, system, options) SELECT name, query || ' LIMIT 3', system, options FROM lm_jobs")
        self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_batches"), 0)
        self.assertEqual(self.submit(db), [("batch_3", "submitted", 3)])
        self.assertEqual(db.execute("SELECT batch FROM lm_job_batches").fetchall(), [("batch_3",)])

    def test_a_refresh_keeps_what_is_under_way(self):
        for by in ("this version", "an earlier one"):
            with self.subTest(tables=by):
                server = self.server()
                _, db = self.make(30, name=by + ".db", options={"cache": False}, query="SELECT id, body FROM notes WHERE id <= 20")
                self.register(db, server, "default", model="tiny", dialect="openai", retries=0)
                server.hold = True
                self.assertEqual(db.execute("SELECT lines FROM lm_batch_submit('label', 'default')").fetchall(), [(20,)])
                if by == "an earlier one":
                    db.execute("DROP TRIGGER lm_job_batches_replace")
                    db.execute("CREATE TRIGGER lm_job_batches_anew AFTER UPDATE OF total ON lm_jobs WHEN old.total IS NULL "
                               "BEGIN DELETE FROM lm_job_batches WHERE job = new.name; END")
                db.execute("UPDATE lm_jobs SET query = 'SELECT id, body FROM notes', total = NULL")
                run = "SELECT total, done, submitted, joined, changed FROM lm_run('label', '{\"refresh\":true}')"
                self.assertEqual(db.execute(run).fetchall()[-1], (30, 10, 20, 10, 0))
                self.assertEqual(len(server.requests), 10)
                server.hold = False
                self.assertEqual(db.execute("SELECT batch, state, done, again FROM lm_batch_poll('label')").fetchall(), [("batch_1", "ended", 20, 0)])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 30)

    def test_rows_of_a_run_that_is_gone(self):
        server = self.server()
        _, db = self.make(5)
        self.register(db, server)
        self.lines(db, model="tiny")
        db.execute("UPDATE lm_job_rows SET state = 'running', worker = 'nobody', lease = 1 WHERE id < 4")
        self.assertEqual(self.submit(db), [("batch_1", "submitted", 5)])

    def test_a_batch_of_another_model_is_not_gone_on_with(self):
        server = self.server()
        path, db = self.make(5)
        self.register(db, server, model="tiny")
        self.submit(db)
        db.execute("UPDATE lm_job_batches SET state = 'making', model = 'other', file = NULL, batch = NULL")
        self.assertEqual(self.submit(db), [])
        self.assertEqual(db.execute("SELECT state, model FROM lm_job_batches").fetchall(), [("making", "other")])

    def test_what_has_ended_stays_ended(self):
        server = self.server()
        path, db = self.make(3)
        self.register(db, server)
        self.submit(db)
        server.hold = True
        # Another process takes the answers while this one is told that there are none yet.
        other = harness.connect(path)
        self.addCleanup(other.close)
        server.while_asked = lambda: other.execute("UPDATE lm_job_batches SET state = 'ended', status = 'completed'")
        db.execute("SELECT * FROM lm_batch_poll('label')").fetchall()
        self.assertEqual(db.execute("SELECT state, status FROM lm_job_batches").fetchall(), [("ended", "completed")])

    def test_a_batch_that_the_server_refuses(self):
        server = self.server()
        _, db = self.make(3)
        self.register(db, server)
        self.submit(db)
        server.batches["batch_1"].update(status="failed", errors={"data": [{"code": "bad", "message": "line 2 is odd"}]})
        self.assertEqual(db.execute("SELECT state, status, note FROM lm_batch_poll('label')").fetchall(), [("ended", "failed", "line 2 is odd")])
        self.assertEqual(self.submit(db), [("batch_2", "submitted", 3)])

    def test_a_batch_that_is_lost_keeps_no_other_from_being_fetched(self):
        server = self.server()
        _, db = self.make()
        self.register(db, server, model="tiny", dialect="openai", retries=0)
        self.assertEqual(len(self.submit(db, lines=5)), 4)
        server.batches["batch_1"] = None
        server.finish(server.batches["batch_2"])
        server.files[server.batches["batch_2"]["output_file_id"]] = None  # kept for some days only
        db.execute("UPDATE lm_job_batches SET model = 'of another name' WHERE number = 3")
        poll = "SELECT batch, state, done, note FROM lm_batch_poll('label', '{\"wait_seconds\":60}')"
        began = time.monotonic()
        rows = db.execute(poll).fetchall()
        self.assertLess(time.monotonic() - began, 20)  # what is lost is not waited for
        self.assertEqual([row[:3] for row in rows], [("batch_1", "submitted", 0), ("batch_2", "submitted", 0), ("batch_3", "submitted", 0), ("batch_4", "ended", 5)])
        for (*_, note), said in zip(rows, ("no such batch", "no such file")):
            self.assertRegex(note, said + ".*DELETE FROM lm_job_batches WHERE number = [12] forgets the batch")
        # Of a model that is not registered here nothing is lost.
        self.assertRegex(rows[2][3], "of another name")
        self.assertNotIn("DELETE", rows[2][3])
        self.assertEqual([note for note, in db.execute("SELECT note FROM lm_job_batches")], [row[3] for row in rows])
        self.assertIn("submitted: 15 of 20 rows are in batches", harness.value(db, "SELECT status FROM lm_jobs"))
        # Where nothing is heard of any, that is an error.
        self.fails(db, poll, "HTTP 404: no such batch")
        db.execute("DELETE FROM lm_job_batches WHERE number < 4")
        self.assertEqual(self.submit(db), [("batch_5", "submitted", 15)])
        self.assertEqual(db.execute(poll).fetchall(), [("batch_5", "ended", 15, None)])
        self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1"), 20)

    def test_what_was_answered_since_an_upload_is_not_handed_in(self):
        for answered in (12, 20):
            with self.subTest(answered=answered):
                server = self.server()
                path, db = self.make(name=f"{answered}.db")
                model = f"INSERT INTO temp.lm_models(name, path, options) VALUES ('gpt', '{server.url}', '{{\"retries\":0}}')"
                child = subprocess.Popen([sys.executable, "-c", WORKER, path, json.dumps([model, "SELECT * FROM lm_batch_submit('label', 'gpt')"])],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                server.steps, server.kill_at = 0, (1, lambda: child.pid, "done")
                self.assertEqual(child.wait(60), -9)
                server.kill_at = None
                self.assertEqual((len(server.files), len(server.batches)), (1, 0))
                db.execute("UPDATE lm_job_rows SET state = 'done' WHERE id <= ?", (answered,))  # as lm_run has it
                self.register(db, server, retries=0)
                submitted = self.submit(db)
                self.assertEqual(submitted, [(None, "ended", 20)] + [("batch_1", "submitted", 8)] * (answered == 12))
                asked = [line for batch in server.batches.values() for line in server.files[batch["input_file_id"]]["data"].splitlines()]
                self.assertEqual(len(asked), 20 - answered)
                self.assertEqual(db.execute("SELECT sum(done), sum(again) FROM lm_batch_poll('label')").fetchall(), [(8, 0) if answered == 12 else (None, None)])
                self.assertEqual(harness.value(db, "SELECT count(*) FROM lm_job_rows WHERE state = 'done'"), 20)

    def test_killed_between_all_steps(self):
        for how in ("lost", "done", "answered"):
            with self.subTest(how=how):
                server = self.server()
                path, db = self.make(30, name=f"{how}.db")
                model = f"INSERT INTO temp.lm_models(name, path, options) VALUES ('gpt', '{server.url}', '{{\"retries\":0}}')"
                kills = 0
                for statement in ("SELECT * FROM lm_batch_submit('label', 'gpt', '{\"lines\":20}')", "SELECT * FROM lm_batch_poll('label')"):
                    for step in range(1, 40):
                        child = subprocess.Popen([sys.executable, "-c", WORKER, path, json.dumps([model, statement])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                        server.steps, server.kill_at = 0, (step, lambda child=child: child.pid, how)
                        _, error = child.communicate(timeout=60)
                        if child.returncode == 0:
                            break
                        self.assertEqual(child.returncode, -9, error)
                        kills += 1
                    server.kill_at = None
                self.assertEqual(child.returncode, 0)
                self.assertGreaterEqual(kills, 6)
                self.assertEqual(len(server.batches), 2)
                asked = [json.loads(line)["custom_id"] for batch in server.batches.values() for line in server.files[batch["input_file_id"]]["data"].decode().splitlines()]
                self.assertEqual((len(asked), len(set(asked))), (30, 30))
                self.assertEqual(harness.value(db, "SELECT count(*) FROM notes WHERE stored = 1 AND label = iif(id % 2, 'praise', 'complaint')"), 30)
                self.assertEqual(db.execute("SELECT state, count(*) FROM lm_job_batches GROUP BY 1").fetchall(), [("ended", 2)])
                print(f"{how}: {kills} kills", file=sys.stderr)

    def test_two_processes_submit_at_a_time(self):
        server = self.server()
        path, db = self.make(60)
        model = f"INSERT INTO temp.lm_models(name, path) VALUES ('gpt', '{server.url}')"
        children = [subprocess.Popen([sys.executable, "-c", WORKER, path, json.dumps([model, "SELECT * FROM lm_batch_submit('label', 'gpt', '{\"lines\":7}')"])],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
        for child in children:
            _, error = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, error)
        asked = [json.loads(line)["custom_id"] for batch in server.batches.values() for line in server.files[batch["input_file_id"]]["data"].decode().splitlines()]
        self.assertEqual((len(asked), len(set(asked))), (60, 60))


if __name__ == "__main__":
    unittest.main()
