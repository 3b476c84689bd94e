"""How long a constraint that is hard to follow keeps others waiting: each runs on one connection while another streams.

  LM0=build/release/extension/lm0.so LM_MODEL=sql/models/debian-notes.gguf python3 tests/extension/constraint_pauses.py [seconds]

For each constraint: the longest and the 99th percentile of the pauses between two tokens of the stream (ms), the tokens of it, and
how the constrained answer ended within so many seconds (default 6). Run by name; what CI checks is counted in work, in
tests/engine/runtime/grammar_turns_test.cc.
"""
import json
import sqlite3
import sys
import threading
import time

import harness

SECONDS = float(sys.argv.pop(1)) if len(sys.argv) > 1 else 6.0

WIDE = "root ::= " + " | ".join(f"r{i}" for i in range(3000)) + "\n" + "".join(
    f'r{i} ::= "x" r{(i * 7 + 1) % 3000}? [a-z]{{0,40}}\n' for i in range(3000))
CONSTRAINTS = {
    "none": {},
    "regex: counts in counts": {"regex": "((3(x{1,100}){1,100}){100}){3,40}"},
    "regex: [^\"4]* nested": {"regex": "((([^\"4]*){100}c([^\"4]*){100}){10}){100}"},
    "regex: any text, ambiguous": {"regex": "((.{0,60}a){0,60}.{0,60}b){0,60}"},
    "regex: (a|aa)+ towers": {"regex": "((([a-z ]|[a-z ][a-z ]){1,99}){1,99}){1,99}"},
    "gbnf: 3,000 rules at once": {"grammar": WIDE},
    "gbnf: ambiguous lists": {"grammar": 'root ::= e{1,60}\ne ::= w | w w | w w w | e2 e2\ne2 ::= w{1,40} | w{1,41}\nw ::= [a-z]{1,30} " "?\n'},
    "schema: 400 properties, none required": {"schema": {"type": "object", "properties": {
        f"property_{i}": {"anyOf": [{"type": "string", "pattern": "^([a-z]{0,40} ?){0,40}$"}, {"type": "integer"}]} for i in range(400)}}},
    "choices: 40,000": {"choices": [f"{i * 7919 % 40000:05d} of the many {i}" for i in range(40000)]},
}


def answer(connection, options, result):
    begin = time.monotonic()
    try:
        options = json.dumps({"max_tokens": 200, "temperature": 1, "cache": False, **options})
        text = harness.value(connection, "SELECT generate('go on', NULL, ?)", options)
        result.append(f"{time.monotonic() - begin:.1f} s: {text[:30]!r}")
    except sqlite3.OperationalError as error:
        result.append(f"{time.monotonic() - begin:.1f} s: {str(error)[:200]}")


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def main():
    streaming, other = harness.connect(), harness.connect()
    harness.value(streaming, "SELECT lm_token_count('load it')")
    harness.value(other, "SELECT generate('go', NULL, '{\"max_tokens\":1}')")
    print(f"{'constraint':40} {'max ms':>7} {'p99 ms':>7} {'tokens':>7}  the constrained answer")
    worst = 0.0
    for name, options in CONSTRAINTS.items():
        result, pauses = [], []
        bomb = threading.Thread(target=answer, args=(other, options, result))
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end and not result:
            # A stream of its own for every turn; the pauses that count are those after its first token.
            number += 1
            rows = streaming.execute("SELECT piece FROM lm_stream(?, NULL, '{\"max_tokens\":400,\"temperature\":3}')", (f"{name} {number}",))
            before = None
            for _ in rows:
                now = time.monotonic()
                if before is not None:
                    pauses.append(now - before)
                elif not bomb.ident:
                    bomb.start()
                before = now
        while bomb.is_alive():
            other.interrupt()
            time.sleep(0.005)
        worst = max(worst, *pauses)
        print(f"{name:40} {1000 * max(pauses):7.1f} {1000 * percentile(pauses, 0.99):7.1f} {len(pauses):7}  {result[0]}", flush=True)
    print(f"longest pause: {1000 * worst:.1f} ms")


if __name__ == "__main__":
    main()
