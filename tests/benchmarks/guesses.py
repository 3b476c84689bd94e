#!/usr/bin/python3
"""What guessed tokens bring a single stream: one answer without them, then with those that pay, in turns, each run a process.

    tests/benchmarks/guesses.py MODEL.gguf [--options '{"draft":"small.gguf"}'] [--tokens 500] [--rounds 3] [--lm0 build/release/extension/lm0.so]

The answers must be the same. Random weights made guessable (tests/parity/guessable_model.py, a file with an output.weight of its own) write
texts that do not repeat and that a draft model or a layer for multi-token prediction is right about more or less often.
"""
import argparse
import json
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def answer(args):
    """Of one run: the answer, seconds, and what was guessed."""
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(args.lm0)
    db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('m', ?, ?)", (args.model, args.options))

    def generate(prompt, tokens):
        options = {"model": "m", "max_tokens": tokens, "speculate": args.speculate}
        return db.execute("SELECT generate(?, NULL, ?)", (prompt, json.dumps(options))).fetchone()[0]

    generate("Loads the model.", 2)
    begin = time.time()
    text = generate("Once upon a time there was a house", args.tokens)
    seconds = time.time() - begin
    stats = "SELECT drafted, accepted FROM lm_stats WHERE phase = 'decode'"
    return text, seconds, db.execute(stats).fetchone()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--options", default="{}")
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lm0", default=str(ROOT / "build/release/extension/lm0.so"))
    parser.add_argument("--speculate", help="one run, as JSON")
    args = parser.parse_args()
    if args.speculate:
        print(json.dumps(answer(args)))
        return
    rates, guessed, texts = {"off": [], "auto": []}, [], set()
    for _ in range(args.rounds):
        for speculate, all_rates in rates.items():
            run = subprocess.run([sys.executable, *sys.argv, "--speculate", speculate], capture_output=True, text=True, check=True)
            text, seconds, (drafted, accepted) = json.loads(run.stdout)
            all_rates.append(args.tokens / seconds)
            texts.add(text)
            if speculate == "auto":
                guessed.append(f"{drafted} guessed, {accepted} right")
    if len(texts) != 1:
        sys.exit("the answers differ")
    off, auto = statistics.median(rates["off"]), statistics.median(rates["auto"])
    print(f"{off:.1f} tokens/s, with guesses {auto:.1f} ({auto / off:.2f}); " + "; ".join(guessed))


if __name__ == "__main__":
    main()
