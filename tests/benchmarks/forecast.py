"""lm_explain's forecast after a sample of 32 rows, beside what the statement then takes.

    LM0=build/release/extension/lm0.so LM_MODEL=sql/models/debian-notes.gguf python3 tests/benchmarks/forecast.py [rows [rounds]]

Each round of a statement has a process of its own, so that nothing is remembered or cached but what the sample leaves there; the
table has the round whose error is the median, and the least and the greatest. A forecast is of a machine that goes on as it was
during the sample: `processors` is how much of a second of processors' time the process was given in a second, sample / statement.
Where these two part, something else was running, and the error is its.
"""
import csv
import os
import pathlib
import sqlite3
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = '{"type":"object","properties":{"role":{"type":"array","items":{"enum":["program","shared-lib","devel-lib","documentation","plugin"]},"maxItems":1}}}'
STATEMENTS = {
    "a summary": "SELECT generate(body, 'Write a one-line summary.', '{\"max_tokens\":32}') FROM notes",
    "a section": "SELECT lm_classify(body, '[\"libs\",\"games\",\"fonts\",\"net\",\"doc\",\"science\",\"mail\"]', "
                 "'Name the section this package belongs to.') FROM notes",
    "yes or no": "SELECT lm_if(body, 'Does the package run as a daemon?') FROM notes",
    "fields": f"SELECT lm_extract(body, '{SCHEMA}') FROM notes",
    "a long text": "SELECT generate(body, 'Describe it.', '{\"max_tokens\":96,\"temperature\":1}') FROM notes",
}


def timed(query):
    began, busy = time.monotonic(), time.process_time()
    rows = query().fetchall()
    took = time.monotonic() - began
    return rows, took, (time.process_time() - busy) / took


def measure(statement, rows):
    """Seconds and answer tokens as foretold and as they were, and the processors' share during sample and statement."""
    with open(ROOT / "sql" / "demo" / "documents.csv", newline="", encoding="utf-8") as file:
        documents = [text for _, text in csv.reader(file)]
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(os.environ["LM0"])
    db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")
    db.executemany("INSERT INTO notes(body) VALUES (?)",
                   [(f"{i}: {documents[i % len(documents)][i % 97:][:300]}",) for i in range(rows)])
    db.execute("SELECT lm_token_count('load it')").fetchall()
    db.execute("SELECT arithmetic_percent FROM lm_stats").fetchall()  # the ceilings are measured once
    tokens = "SELECT total(tokens_decoded) FROM lm_stats"
    ((predicted, answers),), _, given = timed(
        lambda: db.execute("SELECT seconds, answer_tokens FROM lm_explain(?, '{\"sample\":32}')", (statement,)))
    before = db.execute(tokens).fetchone()[0]
    _, took, left = timed(lambda: db.execute(statement))
    print(predicted, took, answers, db.execute(tokens).fetchone()[0] - before, given, left)


def main():
    rows, rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 500, int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(f"load {os.getloadavg()[0]:.1f} before, {rounds} rounds")
    print(f"| statement ({rows} rows) | forecast s | reality s | off by | least, greatest | answer tokens | reality | processors |\n|---|---|---|---|---|---|---|---|")
    for name in STATEMENTS:
        runs = []
        for _ in range(rounds):
            ran = subprocess.run([sys.executable, __file__, "--measure", str(rows), name], capture_output=True, text=True, check=True)
            runs.append(list(map(float, ran.stdout.split())))
        runs.sort(key=lambda run: run[0] / run[1])
        errors = [f"{100 * (predicted / took - 1):+.0f}%" for predicted, took, *_ in runs]
        predicted, took, answers, decoded, given, left = runs[len(runs) // 2]
        print(f"| {name} | {predicted:.2f} | {took:.2f} | {errors[len(runs) // 2]} | {errors[0]}, {errors[-1]} | {answers:.0f} | {decoded:.0f} | {given:.2f} / {left:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        measure(STATEMENTS[sys.argv[3]], int(sys.argv[2]))
    else:
        main()
