#!/usr/bin/python3
"""Seconds that each way of annotating a table in SQL takes, and whether all give the same bytes.

    batch_forms.py --lm0 build/release/extension/lm0.so [--rows 500] [--max-tokens 32] [--rounds 3] [FORM...]

The rows are the demo's: the descriptions of this machine's Debian packages (dpkg-query), with the instruction "Write a one-line
summary of this package." and the model that ships. Each run is a process of its own with a new database: nothing is remembered,
and nothing is cached but the weights. The median of the rounds is reported, each relative to lm_each. Prints a markdown table.
"""
import argparse
import hashlib
import json
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

SYSTEM = "Write a one-line summary of this package."
UPDATE = "UPDATE documents SET summary = generate(text, :system, :options)"
SUMMARIZE = "UPDATE documents SET summary = lm_summarize(text, json_set(:options, '$.instruction', :system))"
FORMS = {
    "UPDATE, lookahead off": ["INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')", UPDATE],
    "SELECT, lookahead off": ["INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')",
                              "CREATE TEMP TABLE out AS SELECT id, generate(text, :system, :options) AS value FROM documents"],
    "UPDATE": [UPDATE],
    "UPDATE, lm_summarize, lookahead off": ["INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')", SUMMARIZE],
    "UPDATE, lm_summarize": [SUMMARIZE],
    "SELECT": ["CREATE TEMP TABLE out AS SELECT id, generate(text, :system, :options) AS value FROM documents"],
    "lm_prefetch, then UPDATE": ["SELECT lm_prefetch(text, :system, :options) FROM documents", UPDATE],
    "lm_map": ["CREATE TEMP TABLE out AS SELECT id, lm_map(text, :system, :options) "
               "OVER (ROWS BETWEEN CURRENT ROW AND 255 FOLLOWING) AS value FROM documents"],
    "lm_map, 63 FOLLOWING": ["CREATE TEMP TABLE out AS SELECT id, lm_map(text, :system, :options) "
                             "OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING) AS value FROM documents"],
    "lm_submit, lm_await": ["CREATE TEMP TABLE out AS WITH asked AS MATERIALIZED (SELECT id, lm_submit(text, :system, :options) "
                            "AS ticket FROM documents) SELECT id, lm_await(ticket) AS value FROM asked"],
    "lm_each": ["CREATE TEMP TABLE out AS SELECT key + 1 AS id, value FROM lm_each((SELECT json_group_array(text) FROM documents), "
                ":system, :options)"],
    "lm_run": ["INSERT INTO lm_jobs(name, query, target, options) VALUES ('bench', format('SELECT id, text, %Q FROM documents', :system), "
               "'UPDATE documents SET summary = :value WHERE id = :id', :options)", "SELECT * FROM lm_run('bench')"],
    "lm_query": ["CREATE TEMP TABLE out AS SELECT id, value FROM lm_query('SELECT id, text, ''' || :system || ''' FROM documents', :options)"],
}
BASELINE = "lm_each"
# Tokens prefilled, tokens that decode steps made, decode steps. An answer's first token comes with its prompt.
COUNTERS = """SELECT p.tokens_prefilled, d.tokens_decoded - d.requests, coalesce((d.tokens_decoded - d.requests) / d.batch_occupancy, 0)
              FROM lm_stats AS p JOIN lm_stats AS d USING (model) WHERE p.phase = 'prefill' AND d.phase = 'decode'"""


def packages(rows):
    """(package, description without its first line), as sql/demo/run.sh reads them."""
    listing = subprocess.run(["dpkg-query", "-W", "-f", "@package@${Package}\\t${Description}\\n"], check=True,
                             capture_output=True, text=True).stdout
    found = []
    for record in listing.split("@package@")[1:]:
        package, _, description = record.partition("\t")
        lines = [line[1:] if line.startswith(" ") else line for line in description.split("\n")[1:]]
        text = "\n".join("" if line == "." else line for line in lines).strip("\n")
        if len(text) > 40:
            found.append((package, f"Package: {package}\n{text}"))
    return found[:rows]


def run_once(arguments, form):
    """In a process of its own: seconds, and the digest of all answers."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(str(pathlib.Path(folder) / "bench.db"), isolation_level=None)
        connection.enable_load_extension(True)
        connection.load_extension(arguments.lm0)
        connection.execute("CREATE TABLE documents(id INTEGER PRIMARY KEY, package TEXT, text TEXT, summary TEXT)")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO documents(package, text) VALUES (?, ?)", packages(arguments.rows))
        connection.execute("COMMIT")
        connection.execute("SELECT generate('warm up', NULL, '{\"max_tokens\":2}')").fetchall()
        values = {"system": SYSTEM, "options": json.dumps({"max_tokens": arguments.max_tokens})}
        before = connection.execute(COUNTERS).fetchone()
        begun = time.monotonic()
        for sql in FORMS[form]:
            connection.execute(sql, values).fetchall()
        seconds = time.monotonic() - begun
        made = connection.execute("SELECT count(*) FROM sqlite_temp_master WHERE name = 'out'").fetchone()[0]
        answers = connection.execute("SELECT value FROM out ORDER BY id" if made else "SELECT summary FROM documents ORDER BY id").fetchall()
        prefilled, decoded, steps = (now - then for now, then in zip(connection.execute(COUNTERS).fetchone(), before))
    digest = hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:12]
    print(json.dumps({"seconds": seconds, "rows": len(answers), "answered": sum(a is not None for a, in answers),
                      "prefilled": prefilled, "together": decoded / steps, "steps": round(steps), "digest": digest}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm0", required=True)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", choices=FORMS, help=argparse.SUPPRESS)
    parser.add_argument("forms", nargs="*", metavar="FORM", help="default: all of " + "; ".join(FORMS))
    arguments = parser.parse_args()
    if arguments.once:
        return run_once(arguments, arguments.once)
    forms = arguments.forms or list(FORMS)
    for form in forms:
        if form not in FORMS:
            parser.error(f"no such form: {form}")
    if BASELINE not in forms:
        forms.append(BASELINE)
    results = {form: [] for form in forms}
    for _ in range(arguments.rounds):  # in turn, so that a slow minute is everybody's
        for form in forms:
            command = [sys.executable, __file__, "--lm0", arguments.lm0, "--rows", str(arguments.rows),
                       "--max-tokens", str(arguments.max_tokens), "--once", form]
            results[form].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    baseline = statistics.median(r["seconds"] for r in results[BASELINE])
    print("| form | seconds | rows/s | beside lm_each | decode steps | rows in one | tokens prefilled | answers |\n|---|---|---|---|---|---|---|---|")
    for form, runs in results.items():
        seconds = statistics.median(r["seconds"] for r in runs)
        steps = statistics.median(r["steps"] for r in runs)
        print(f"| {form} | {seconds:.2f} | {runs[0]['rows'] / seconds:.1f} | {seconds / baseline:.2f} | {steps:.0f} "
              f"| {runs[0]['together']:.1f} | {runs[0]['prefilled']} | {' '.join(sorted({r['digest'] for r in runs}))} |")
    digests = {r["digest"] for runs in results.values() for r in runs}
    answered = {r["answered"] for runs in results.values() for r in runs}
    print(f"\n{runs[0]['rows']} rows, {min(answered)} answered; " + ("all answers are the same bytes." if len(digests) == 1 else
                                                                     "THE ANSWERS DIFFER."))
    return len(digests) != 1


if __name__ == "__main__":
    sys.exit(main())
