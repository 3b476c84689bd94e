#!/usr/bin/python3
"""Compares our greedy answers, through SQL, with a peer engine's on the same GGUF.

    tests/parity/compare_answers.py --lm0 build/release/extension/lm0 --peer /path/to/peer --model MODEL.gguf PROMPTS.db [--rows 200]

PROMPTS.db has tables with the columns prompt and system (heldout.db of sql/models/recipe is one); rows are drawn from all of them.
The peer is llama_cpp_greedy.cc, whose head says how it is built.

Where an answer differs, the gap at the first differing token is printed: with quantised weights both engines round activations to
8 bits in their own ways, and a token whose two best logits lie closer than that may fall either way.
"""
import argparse
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile


def draw_prompts(path, rows):
    db = sqlite3.connect(path)
    found = []
    for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%prompt%' AND sql LIKE '%system%'"):
        found += db.execute(f"SELECT prompt, system FROM {table} WHERE length(prompt) < 1500").fetchall()
    random.Random(1).shuffle(found)
    return found[:rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--lm0", "--peer", "--model"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("database")
    args = parser.parse_args()
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(args.lm0)
    db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('compared', ?)", (args.model,))
    options = '{"model":"compared","max_tokens":%d}' % args.tokens
    prompts = draw_prompts(args.database, args.rows)
    ours = [db.execute("SELECT generate(?, ?, ?)", (p, s, options)).fetchone()[0] for p, s in prompts]
    rendered = [db.execute("SELECT lm_render(?, ?, '{\"model\":\"compared\"}')", (p, s)).fetchone()[0] for p, s in prompts]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "prompts"
        file.write_bytes("\x1e".join(rendered).encode())
        done = subprocess.run([args.peer, args.model, str(file), str(args.tokens)], capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    theirs = [answer.split("\x1f") for answer in done.stdout.decode(errors="replace").split("\x1e")[: len(prompts)]]
    equal = 0
    for (prompt, _), mine, (text, smallest, gaps) in zip(prompts, ours, theirs):
        if mine == text:
            equal += 1
        else:
            print(f"differs (smallest gap {smallest}): ours {mine!r}, peer {text!r}; prompt {prompt[:60]!r}")
    print(f"{equal} of {len(prompts)} answers equal")


if __name__ == "__main__":
    main()
