#!/usr/bin/python3
"""Seconds that ten ways of asking a model from plain SQL take, with look-ahead and without, beside lm_each.

    idioms.py --lm0 build/release/extension/lm0.so [--model smol.gguf] [--rows 500] [--max-tokens 16] [--rounds 3] [IDIOM...]

The rows are short notes that differ in their numbers. Each run is a process of its own with a new database in memory; runs
alternate, and medians are reported: compare ratios, on a machine that does other work, too. lm_each asks the same calls of
generate() over all rows, without a filter. Prints a markdown table.
"""
import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import time

G = "generate({}, 'Say it shorter.', :options)"
IDIOMS = {
    "filter, then generate": [f"SELECT id, {G.format('body')} FROM notes WHERE lm_score(body, 'It rains.') >= 0"],
    "chunks join": [f"SELECT id, {G.format('c.chunk')} FROM notes, lm_chunks(body, 200) AS c"],
    "classify, then group": ["SELECT k, count(*) FROM (SELECT lm_classify(body, '[\"rain\",\"sun\",\"snow\"]') AS k FROM notes) GROUP BY k"],
    "upsert": [f"INSERT INTO notes(id, body) SELECT id, body FROM notes WHERE true ON CONFLICT(id) DO UPDATE SET y = {G.format('excluded.body')}"],
    "CREATE TABLE AS": [f"CREATE TABLE made AS SELECT id, {G.format('body')} AS y FROM notes"],
    "view": [f"CREATE TEMP VIEW short AS SELECT id, {G.format('body').replace(':options', '{options}')} AS y FROM notes", "SELECT * FROM short"],
    "window": [f"SELECT id, row_number() OVER (PARTITION BY kind ORDER BY id), {G.format('body')} FROM notes"],
    "correlated subquery": [f"SELECT id, (SELECT {G.format('t.tag')} FROM tags AS t WHERE t.note = notes.id) FROM notes"],
    "executemany, after lm_prefetch": ["SELECT lm_prefetch(body, 'Say it shorter.', :options) FROM notes", "each"],
    "executemany": ["each"],
    "UPDATE": [f"UPDATE notes SET y = {G.format('body')}"],
}
BASELINE = "lm_each"


def run_once(arguments, idiom, lookahead):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.load_extension(arguments.lm0)
    run = connection.execute
    if arguments.model:
        run("INSERT INTO temp.lm_settings VALUES ('model', ?)", (arguments.model,))
    run("INSERT INTO temp.lm_settings VALUES ('lookahead', ?)", (lookahead,))
    run("CREATE TABLE notes(id INTEGER PRIMARY KEY, kind TEXT, body TEXT, y TEXT)")
    run("CREATE TABLE tags(note INTEGER PRIMARY KEY, tag TEXT)")
    for i in range(1, arguments.rows + 1):
        run("INSERT INTO notes(kind, body) VALUES (?, ?)", ("abc"[i % 3], f"Note {i}: a tool for {7 * i % 101} kinds of weather, in town number {i * i % 997}."))
        run("INSERT INTO tags VALUES (?, ?)", (i, f"town number {i}"))
    run("SELECT generate('warm up', NULL, '{\"max_tokens\":2}')").fetchall()
    options = json.dumps({"max_tokens": arguments.max_tokens})
    before = run("SELECT requests, foreseen FROM lm_stats WHERE phase = 'decode'").fetchone()
    begun = time.monotonic()
    if idiom == BASELINE:
        run("SELECT value FROM lm_each((SELECT json_group_array(body) FROM notes), 'Say it shorter.', ?)", (options,)).fetchall()
    for sql in IDIOMS.get(idiom, []):
        if sql == "each":
            run("BEGIN")
            connection.executemany(f"UPDATE notes SET y = {G.format('body').replace(':options', '?')} WHERE id = ?",
                                   [(options, i) for i in range(1, arguments.rows + 1)])
            run("COMMIT")
        elif ":options" in sql:
            run(sql, {"options": options}).fetchall()
        else:
            run(sql.replace("{options}", "'" + options + "'")).fetchall()
    seconds = time.monotonic() - begun
    asked, known = (now - then for now, then in zip(run("SELECT requests, foreseen FROM lm_stats WHERE phase = 'decode'").fetchone(), before))
    print(json.dumps({"seconds": seconds, "asked": asked, "foreseen": known}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm0", required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("idioms", nargs="*", metavar="IDIOM", help="default: all of " + "; ".join(IDIOMS))
    arguments = parser.parse_args()
    if arguments.once:
        return run_once(arguments, *arguments.once)
    idioms = arguments.idioms or list(IDIOMS)
    results = {(idiom, lookahead): [] for idiom in [BASELINE, *idioms] for lookahead in ("off", "on")}
    del results[BASELINE, "off"]
    for _ in range(arguments.rounds):  # in turn, so that a slow minute is everybody's
        for idiom, lookahead in results:
            command = [sys.executable, __file__, "--lm0", arguments.lm0, "--model", arguments.model, "--rows", str(arguments.rows),
                       "--max-tokens", str(arguments.max_tokens), "--once", idiom, lookahead]
            results[idiom, lookahead].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    seconds = {key: statistics.median(r["seconds"] for r in runs) for key, runs in results.items()}
    baseline = seconds[BASELINE, "on"]
    print(f"lm_each, {arguments.rows} rows: {baseline:.2f} s\n")
    print("| idiom | calls | foreseen | seconds, off | seconds, on | on beside off | on beside lm_each |\n|---|---|---|---|---|---|---|")
    for idiom in idioms:
        off, on = seconds[idiom, "off"], seconds[idiom, "on"]
        last = results[idiom, "on"][-1]
        print(f"| {idiom} | {last['asked']} | {last['foreseen']} | {off:.2f} | {on:.2f} | {on / off:.2f} | {on / baseline:.2f} |")


if __name__ == "__main__":
    sys.exit(main())
