"""Rows over a server that takes its time: how near a plain UPDATE comes to what the server can do.

    LM0=build/release/extension/lm0.so python3 tests/benchmarks/remote_rows.py [--rows 6400] [--delay 0.1] [--slots 64]

The server, a process of its own, answers after --delay, --slots requests at a time. Printed are rows a second
over its own limit: all well; with one call in twenty failing (500, 429, 503, cut and closed connections), over
what the other calls can be; resident memory after each fifth of the rows; connections opened; and how long after
sqlite3_interrupt an UPDATE with requests under way ends.
"""
import argparse
import asyncio
import json
import multiprocessing
import os
import pathlib
import random
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "extension"))
import harness  # noqa: E402

MODELS = b'{"data":[{"id":"tiny","owned_by":"vllm","max_model_len":4096}]}'
FAULTS = ("500", "429", "503", "cut", "gone")


def http(status, body, kind=b"application/json", length=None):
    return b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (status, kind, len(body) if length is None else length, body)


class Server:
    def __init__(self, delay, slots, share):
        self.delay, self.slots, self.share = delay, asyncio.Semaphore(slots), share
        self.stats = {"connections": 0, "requests": 0, "open": 0, "most_open": 0, "failed": 0}
        self.dice = random.Random(1)

    async def serve(self, reader, writer):
        stats = self.stats
        stats["connections"] += 1
        stats["open"] += 1
        stats["most_open"] = max(stats["most_open"], stats["open"])
        try:
            while await self.answer(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        stats["open"] -= 1
        writer.close()

    async def answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            writer.write(http(b"200 OK", json.dumps(self.stats).encode() if b"/stats" in head else MODELS))
            return True
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.stats["requests"] += 1
        fault = self.dice.choice(FAULTS) if self.dice.random() < self.share else ""
        async with self.slots:
            await asyncio.sleep(self.delay)
        self.stats["failed"] += fault != ""
        if fault == "gone":
            return False
        if fault in ("500", "429", "503"):
            writer.write(http(fault.encode() + b" Failed", b'{"error":"not now"}'))
            return True
        event = {"choices": [{"delta": {"content": "re: " + body["messages"][-1]["content"]}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}
        text = b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"
        writer.write(http(b"200 OK", text[:20] if fault == "cut" else text, b"text/event-stream", len(text)))
        return fault != "cut"


def run_server(pipe, delay, slots, share):
    async def main():
        state = Server(delay, slots, share)
        server = await asyncio.start_server(state.serve, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())


class Running:
    def __init__(self, delay, slots, share=0.0):
        mine, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=run_server, args=(theirs, delay, slots, share), daemon=True)
        self.process.start()
        self.root = f"http://127.0.0.1:{mine.recv()}"

    def stats(self):
        with urllib.request.urlopen(self.root + "/stats") as answer:
            return json.load(answer)

    def stop(self):
        self.process.kill()
        self.process.join()


def table(server, rows, **options):
    db = harness.connect()
    db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('default', ?, ?)", (server.root + "/v1", json.dumps(options)))
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
    db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(rows)])
    harness.value(db, "SELECT generate('the first')")
    return db


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def update(db, where="1"):
    begun = time.monotonic()
    db.execute(f"UPDATE t SET y = generate(body, 'Label it.', '{{\"cache\":false}}') WHERE {where}")
    return time.monotonic() - begun


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rows", type=int, default=6400)
    args.add_argument("--delay", type=float, default=0.1)
    args.add_argument("--slots", type=int, default=64)
    args.add_argument("--interrupts", type=int, default=50)
    args = args.parse_args()
    limit = args.slots / args.delay
    for share in (0.0, 0.05):
        server = Running(args.delay, args.slots, share)
        db = table(server, args.rows, concurrency=args.slots, retries=20)
        memory, seconds = [resident()], 0.0
        for fifth in range(5):
            seconds += update(db, f"id % 5 = {fifth}")
            memory.append(resident())
        right = harness.value(db, "SELECT count(*) FROM t WHERE y = 're: ' || body")
        stats = server.stats()
        able = limit * (1 - share)
        print(f"{share:.0%} of calls fail: {right} of {args.rows} rows right, {args.rows / seconds:.0f} rows/s = {args.rows / seconds / able:.1%} of the server's {able:.0f}; "
              f"{stats['requests']} requests ({stats['failed']} failed), {stats['connections']} connections, {stats['most_open']} at a time; "
              f"MB resident {', '.join(f'{mb:.1f}' for mb in memory)}")
        server.stop()
    server = Running(args.delay, 4096)
    db = table(server, 3000, concurrency=1024)
    update(db)
    print(f"concurrency 1024: {server.stats()['most_open']} connections at a time, {server.stats()['connections']} in all")
    server.stop()
    server = Running(30.0, args.slots)
    db = harness.connect()
    db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('default', ?, '{\"concurrency\":64}')", (server.root + "/v1",))
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT)")
    db.executemany("INSERT INTO t(body) VALUES (?)", [(f"note {i}",) for i in range(500)])
    waits = []
    for i in range(args.interrupts):
        at = []
        timer = threading.Timer(random.uniform(0.05, 0.3), lambda: (at.append(time.monotonic()), db.interrupt()))
        timer.start()
        try:
            update(db)
        except Exception as error:
            assert "interrupted" in str(error), error
        waits.append(1e3 * (time.monotonic() - at[0]))
    waits.sort()
    print(f"{args.interrupts} interrupts with {args.slots} requests under way: ms, median {waits[len(waits) // 2]:.1f}, longest {waits[-1]:.1f}")
    server.stop()


if __name__ == "__main__":
    main()
