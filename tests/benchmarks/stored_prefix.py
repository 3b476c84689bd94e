#!/usr/bin/python3
"""How soon a process answers whose system prompt another one has stored (prefix_store): its first answer beside its next ones, which find
the prompt in memory, and beside the one that computed it.

    tests/benchmarks/stored_prefix.py MODEL.gguf [--words 300] [--processes 5] [--lm0 build/release/extension/lm0.so]

Answers are of one token; each process has the model loaded before. A word is some seven tokens of the models with random weights.
"""
import argparse
import json
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def answers(args):
    """Of one process: the seconds of each answer, and the tokens that it computed and found."""
    db = sqlite3.connect(f"{args.folder}/notes.db")
    db.enable_load_extension(True)
    db.load_extension(args.lm0)
    db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('m', ?, ?)", (args.model, json.dumps({"prefix_store": args.folder})))
    options = json.dumps({"model": "m", "max_tokens": 1, "cache": False})
    system = " ".join(f"word{i * 7919 % 1000}" for i in range(args.words))
    seconds = []
    for i in range(2 + args.answers):
        begin = time.perf_counter()
        db.execute("SELECT generate(?, ?, ?)", (f"{chr(65 + i)} {args.process}", system if i > 1 else None, options)).fetchone()
        seconds.append(time.perf_counter() - begin)
    time.sleep(1)  # what is written behind is written
    return seconds[2:], db.execute("SELECT tokens_prefilled, tokens_reused FROM lm_stats WHERE phase = 'prefill'").fetchone()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--answers", type=int, default=6)
    parser.add_argument("--lm0", default=str(ROOT / "build/release/extension/lm0.so"))
    parser.add_argument("--folder", help="run as one of the processes, with the store there")
    parser.add_argument("--process", type=int, default=0)
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(answers(args)))
        return
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(1 + args.processes):
            run = subprocess.run(
                [sys.executable, *sys.argv, "--folder", folder, "--process", str(i)], capture_output=True, text=True, check=True
            )
            (first, *others), (computed, found) = json.loads(run.stdout)
            warm = statistics.median(others[1:])
            print(f"{'computes it' if i == 0 else 'finds it stored'}: first {first:.3f} s, warm {warm:.3f} s ({first / warm:.2f}); {computed} tokens computed, {found} found")
            if i > 0:
                ratios.append(first / warm)
    print(f"median of those that find it: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
