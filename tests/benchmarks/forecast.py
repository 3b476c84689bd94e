"""lm_explain's forecast after a sample of 32 rows, beside what the statement then takes.

    LM0=build/release/extension/lm0.so LM_MODEL=sql/models/debian-notes.gguf python3 tests/benchmarks/forecast.py [rows]

Each statement has a process of its own, so that nothing is remembered or cached but what the sample leaves there. On a
machine that does something else meanwhile a forecast is worth what that leaves alone: run it on a quiet one.
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


def measure(statement, rows):
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
    tokens = "SELECT sum(tokens_decoded) FROM lm_stats"
    predicted, answers = db.execute("SELECT seconds, answer_tokens FROM lm_explain(?, '{\"sample\":32}')", (statement,)).fetchone()
    before = db.execute(tokens).fetchone()[0]
    began = time.monotonic()
    db.execute(statement).fetchall()
    took = time.monotonic() - began
    print(predicted, took, answers, db.execute(tokens).fetchone()[0] - before)


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    print(f"| statement ({rows} rows) | forecast s | reality s | off by | answer tokens | reality |\n|---|---|---|---|---|---|")
    for name in STATEMENTS:
        ran = subprocess.run([sys.executable, __file__, str(rows), name], capture_output=True, text=True, check=True)
        predicted, took, answers, decoded = map(float, ran.stdout.split())
        print(f"| {name} | {predicted:.2f} | {took:.2f} | {100 * (predicted / took - 1):+.0f}% | {answers:.0f} | {decoded:.0f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(STATEMENTS[sys.argv[2]], int(sys.argv[1]))
    else:
        main()
