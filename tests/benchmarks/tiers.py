#!/usr/bin/env python3
"""A table whose rows have more system prompts than the KV cache has room for: with tiers and without.

    python3 tests/benchmarks/tiers.py LM0 MODEL [--rows 2000] [--prompts 40] [--room 10] [--tokens 400]

Every row is one generate() of a few tokens behind one of the system prompts, in random order and in turn
(the worst one for a cache that forgets what was used longest ago). kv_bytes has room for --room of the
prompts and for rows that run. Each line is a process of its own: "memory" has the KV cache alone, "disk"
lm_settings('prefix_store') beside it, in an empty folder; "disk, again" is the next process with what that
one has left. Tokens are lm_stats'; all answers are compared with those of "memory".
"""
import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

WORDS = ("the a of river stone letter market winter green small old house road night song paper garden train bread "
         "window is was and to in on with for at by from over under between").split()


def text(generator, words):
    return " ".join(generator.choice(WORDS) for _ in range(words))


def connect(arguments, name):
    db = sqlite3.connect(name, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(arguments.lm0)
    db.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (arguments.model,))
    return db


def build(arguments, path):
    """The table: prompts of about --tokens tokens, rows in random order and in turn."""
    generator = random.Random(19)
    db = connect(arguments, path)
    words = arguments.tokens
    while db.execute("SELECT lm_token_count(?)", (text(random.Random(1), words),)).fetchone()[0] > arguments.tokens:
        words = words * 9 // 10
    db.execute("CREATE TABLE prompts(id INTEGER PRIMARY KEY, system TEXT)")
    db.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, prompt INTEGER, body TEXT)")
    for prompt in range(arguments.prompts):
        db.execute("INSERT INTO prompts VALUES (?, ?)", (prompt, f"Desk {prompt}. " + text(generator, words)))
    for row in range(arguments.rows):
        prompt = row % arguments.prompts if arguments.order == "in turn" else generator.randrange(arguments.prompts)
        db.execute("INSERT INTO rows VALUES (?, ?, ?)", (row, prompt, text(generator, 5)))
    did = json.loads(db.execute("SELECT lm_prefill(NULL, system) FROM prompts LIMIT 1").fetchone()[0])
    running = json.loads(db.execute("SELECT lm_prefill('x', system) FROM prompts LIMIT 1").fetchone()[0])
    db.close()
    return did["tokens"], arguments.room * did["bytes"] + 2 * running["bytes"]


def run(arguments):
    """One process: its answers and numbers, as JSON."""
    db = connect(arguments, arguments.database)
    db.execute("INSERT INTO temp.lm_settings VALUES ('kv_bytes', ?)", (arguments.kv_bytes,))
    if arguments.store:
        db.execute("INSERT INTO temp.lm_settings VALUES ('prefix_store', ?)", (arguments.store,))
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    answers = [row[0] for row in db.execute(
        "SELECT generate(body, system, '{\"max_tokens\":4,\"cache\":false}') FROM rows JOIN prompts ON prompt = prompts.id "
        "ORDER BY rows.id")]
    seconds, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    prefilled, reused, store = db.execute(
        "SELECT tokens_prefilled, tokens_reused, prefix_store FROM lm_stats WHERE phase = 'prefill'").fetchone()
    print(json.dumps({"answers": answers, "prefilled": prefilled, "reused": reused, "store": store, "seconds": seconds,
                      "cpu": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lm0")
    parser.add_argument("model")
    for name, default in (("rows", 2000), ("prompts", 40), ("room", 10), ("tokens", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--database", help=argparse.SUPPRESS)
    parser.add_argument("--kv-bytes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.database:
        return run(arguments)
    print("| order | | tokens prefilled | reused | seconds | CPU seconds | answers that differ | store |\n|---|---|---|---|---|---|---|---|")
    for arguments.order in ("random", "in turn"):
        folder = tempfile.mkdtemp()
        try:
            database, store = os.path.join(folder, "rows.db"), os.path.join(folder, "store")
            tokens, kv_bytes = build(arguments, database)
            first = None
            for name in ("memory", "disk", "disk, again"):
                command = [sys.executable, __file__, arguments.lm0, arguments.model, "--database", database, "--kv-bytes", str(kv_bytes)]
                if name != "memory":
                    command += ["--store", store]
                ran = subprocess.run(command, capture_output=True, text=True)
                if ran.returncode:
                    sys.exit(ran.stderr)
                did = json.loads(ran.stdout)
                first = first or did
                differ = sum(a != b for a, b in zip(first["answers"], did["answers"], strict=True))
                print(f"| {arguments.order} | {name} | {did['prefilled']:,} | {did['reused']:,} | {did['seconds']:.1f} | {did['cpu']:.1f} "
                      f"| {differ} | {did['store']} |", flush=True)
            print(f"| | | {arguments.prompts} prompts of {tokens} tokens, kv_bytes {kv_bytes:,} | | | | | |")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
