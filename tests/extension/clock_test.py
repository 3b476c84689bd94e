"""Somebody sets the machine's clock while a statement waits: no pause and no budget is longer or shorter for it.

  LD_PRELOAD=build/release/tests/extension/libsettable_clock.so LM0=build/release/extension/lm0.so LM_MODEL=... python3 tests/extension/clock_test.py
"""
import ctypes
import json
import threading
import time
import unittest

from chat_server import Handler
from remote_case import RemoteCase

HOUR = 3600
PAUSE = 1  # seconds; Retry-After of a server that is busy


def set_clock(ahead):
    ctypes.CDLL(None).SetClock(ctypes.c_long(ahead))


class BusyOnce(Handler):
    """The clock is set as soon as it has been refused: `server.ahead`."""

    def good(self, body):
        if not self.path.endswith("/chat/completions") or self.server.refused:
            return super().good(body)
        self.server.refused = True
        self.whole(429, {"error": "busy"}, Retry_After=str(PAUSE))
        threading.Timer(0.2, set_clock, [self.server.ahead]).start()


class ClockTest(RemoteCase):
    def setUp(self):
        self.addCleanup(set_clock, 0)

    def test_the_clock_is_set(self):
        before = time.time()
        set_clock(HOUR)
        self.assertGreaterEqual(time.time() - before, HOUR)

    # The clock is set while the answer is waited for as well.
    def test_a_busy_server_is_asked_again_when_it_says(self):
        for ahead in (-HOUR, HOUR):
            server = self.server(handler=BusyOnce)
            server.refused, server.ahead = False, ahead
            db = self.connect(server.url)
            stop = threading.Timer(10, db.interrupt)
            stop.start()
            begin = time.monotonic()
            self.assertIsNotNone(db.execute("SELECT generate('hello')").fetchone()[0])
            self.assertGreaterEqual(time.monotonic() - begin, PAUSE)
            stop.cancel()
            set_clock(0)

    def run_job(self, max_seconds, ahead, rows):
        """The last report of a job over a server of which each answer takes a while; the clock is set behind the third."""
        class Slow(Handler):
            def good(self, body):
                time.sleep(0.1)
                super().good(body)
                self.server.answers += 1
                if self.server.answers == 3:
                    set_clock(ahead)

        server = self.server(handler=Slow)
        server.answers = 0
        db = self.connect(server.url, concurrency=1)
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")
        db.executemany("INSERT INTO notes(body) VALUES (?)", [(f"note {n}",) for n in range(rows)])
        db.execute("INSERT INTO lm_jobs(name, query) VALUES ('j', 'SELECT id, body FROM notes')")
        stop = threading.Timer(10, db.interrupt)
        stop.start()
        reports = db.execute("SELECT done, stopped, seconds FROM lm_run('j', ?)", [json.dumps({"max_seconds": max_seconds})]).fetchall()
        stop.cancel()
        return reports[-1]

    def test_a_job_is_not_out_of_time_where_it_goes_forward(self):
        done, stopped, seconds = self.run_job(max_seconds=120, ahead=HOUR, rows=6)
        self.assertEqual((done, stopped), (6, None))
        self.assertTrue(0 < seconds < 120, seconds)

    def test_a_job_has_no_more_time_where_it_goes_back(self):
        done, stopped, seconds = self.run_job(max_seconds=1, ahead=-HOUR, rows=60)
        self.assertIn("max_seconds = 1 are over", stopped)
        self.assertLess(done, 60)
        self.assertTrue(1 <= seconds < 120, seconds)


if __name__ == "__main__":
    unittest.main()
