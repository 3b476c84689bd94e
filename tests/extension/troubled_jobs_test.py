"""Jobs over servers that fail in every way for a while: no good row fails, none is answered twice, and every run ends.

  LM_TROUBLES=200 LM0=build/release/extension/lm0.so LM_MODEL=... python3 tests/extension/troubled_jobs_test.py

tries so many servers, rows and moments at random (from LM_TROUBLES_FROM on); by default, in CI, a few.
"""
import collections
import json
import os
import random
import threading
import time
import unittest

import harness
from remote_case import RemoteCase

COUNT = int(os.environ.get("LM_TROUBLES", "4"))
FIRST = int(os.environ.get("LM_TROUBLES_FROM", "9"))
PATIENCE = 3  # outage_seconds
PROBE_TOKENS = 16


class Scenario:
    def __init__(self, seed):
        dice = self.dice = random.Random(seed)
        self.rows = dice.randint(1, 30)
        self.concurrency = dice.choice([1, 2, 4, 8])
        self.chunk = dice.choice([1, 3, 8, 128])
        self.retries = dice.choice([0, 0, 1])
        self.delay = dice.choice([0, 0.02, 0.2])
        share = dice.choice([0, 0, 0.1, 0.5, 1])
        self.bad = {number: dice.choice([403, 500]) for number in range(1, self.rows + 1) if dice.random() < share}
        # What happens when: (from, to, what); shorter than patience.
        self.troubles = []
        at = 0.0
        for _ in range(dice.choice([0, 1, 1, 2])):
            at += dice.uniform(0, 0.8)
            lasts = dice.uniform(0.1, 0.5 * PATIENCE)
            self.troubles.append((at, at + lasts, dice.choice(["fails", "fails but the probe", "drains", "gone"])))
            at += lasts

    def __str__(self):
        return (f"{self.rows} rows, concurrency {self.concurrency}, chunk {self.chunk}, retries {self.retries}, delay {self.delay}, bad {self.bad}, "
                f"{[(round(a, 2), round(b, 2), what) for a, b, what in self.troubles]}")


class TroubledJobsTest(RemoteCase):
    def run_one(self, seed):
        scenario = Scenario(seed)
        answered, begin = collections.Counter(), time.monotonic()
        lock = threading.Lock()

        def trouble_now():
            now = time.monotonic() - begin
            return next((what for a, b, what in scenario.troubles if a <= now < b), None)

        def answer(body):
            asked = body["messages"][-1]["content"]
            is_probe = body.get("max_tokens") == PROBE_TOKENS
            before = trouble_now()
            time.sleep(scenario.delay)
            what = before if before != "gone" else None
            if what == "fails" or what == "drains" or (what == "fails but the probe" and not is_probe):
                return {"code": 500, "error": {"message": "out of order"}}
            if not asked.startswith("note"):
                return "Hello to you."
            number = int(asked.split()[1])
            if number in scenario.bad:
                return {"code": scenario.bad[number], "error": {"message": "flagged"}}
            if not is_probe:
                with lock:
                    answered[number] += 1
            return "re: " + asked

        server = self.server(answer=answer)

        def leave_and_come_back():
            for a, b, what in scenario.troubles:
                if what != "gone":
                    continue
                time.sleep(max(0, begin + a - time.monotonic()))
                server.leave()
                time.sleep(max(0, begin + b - time.monotonic()))
                server.come_back()
                threading.Thread(target=server.serve_forever, daemon=True).start()
        db = self.connect(server.url, concurrency=scenario.concurrency, retries=scenario.retries)
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {i}",) for i in range(1, scenario.rows + 1)])
        db.execute("INSERT INTO lm_jobs(name, query, target, options) VALUES ('j', 'SELECT id, body FROM notes', "
                   "'UPDATE notes SET y = :value WHERE id = :id', '{\"cache\":false}')")
        begin = time.monotonic()
        mover = threading.Thread(target=leave_and_come_back, daemon=True)
        mover.start()
        runs = []
        for _ in range(4):
            watch = threading.Timer(30 + 2 * scenario.rows, db.interrupt)
            watch.start()
            started = time.monotonic()
            try:
                last = db.execute("SELECT total, done, failed FROM lm_run('j', ?)",
                                  (json.dumps({"outage_seconds": PATIENCE, "chunk": scenario.chunk}),)).fetchall()[-1]
            except Exception as raised:  # the run was stopped
                last = str(raised)
            watch.cancel()
            runs.append((round(time.monotonic() - started, 1), last))
            self.assertNotIn("interrupted", str(last), runs)
            if isinstance(last, tuple) and last[1] + last[2] == last[0]:
                break
            mover.join()
        states = dict(db.execute("SELECT CAST(substr(prompt, 6) AS INT), state FROM lm_job_rows"))
        told = f"{scenario}\n{runs}\n{states}\n{dict(answered)}"
        self.assertEqual({number: state for number, state in states.items()},
                         {number: "failed" if number in scenario.bad else "done" for number in range(1, scenario.rows + 1)}, told)
        self.assertEqual({number: count for number, count in answered.items() if count != 1}, {}, told)
        db.close()
        return told

    def test_at_random(self):
        for seed in range(FIRST, FIRST + COUNT):
            with self.subTest(seed=seed):
                began = time.monotonic()
                try:
                    told = self.run_one(seed)
                except AssertionError as wrong:
                    told = str(wrong)
                    raise
                finally:
                    if "LM_TROUBLES" in os.environ:
                        print(f"{seed}: {time.monotonic() - began:.1f} s {told}", flush=True)


if __name__ == "__main__":
    unittest.main()
