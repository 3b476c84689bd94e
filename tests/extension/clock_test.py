"""Somebody sets the machine's clock while a statement waits: no pause is longer or shorter for it.

  LD_PRELOAD=build/release/tests/extension/libsettable_clock.so LM0=build/release/extension/lm0.so LM_MODEL=... python3 tests/extension/clock_test.py
"""
import ctypes
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


if __name__ == "__main__":
    unittest.main()
