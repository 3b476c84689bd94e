#!/usr/bin/python3
"""Measures the 64 rows of lm_bench's rows64 through SQL: lm_each in lm0.so, beside the engine alone and beside sqlite-ai.

    rows_through_sql.py --lm0 build/release/extension/lm0.so --bench build/release/tests/benchmarks/lm_bench MODEL.gguf
                        [--peer ai.so] [--rounds 3] [--threads 2]

64 rows, 400 shared tokens (system prompt and template), 40 of their own, 16 greedy out. The texts are random words, cut so that
they have these lengths in the model's own tokens. Each round has a cold prefix cache. The peer (sqlite-ai) gets the same texts,
row after row, in one statement; it runs once. Prints a markdown table.
"""
import argparse
import json
import pathlib
import random
import sqlite3
import statistics
import subprocess
import sys
import time

ROWS, SHARED, OWN, OUT = 64, 400, 40, 16


def connect(extension):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.load_extension(extension)
    return connection


def open_ours(arguments):
    connection = connect(arguments.lm0)
    connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('bench', ?)", (arguments.model,))
    for key, value in (("model", "bench"), ("threads", arguments.threads), ("max_tokens", OUT)):
        connection.execute("INSERT OR REPLACE INTO temp.lm_settings(key, value) VALUES (?, ?)", (key, value))
    return connection


def use_cold_cache(connection, name):
    connection.execute("INSERT OR REPLACE INTO temp.lm_settings(key, value) VALUES ('salt', ?)", (name,))


def words(source, characters):
    text = " ".join("".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 7))) for _ in range(characters))
    return text[:characters]


def cut(text, tokens, count):
    """The longest beginning of `text` for which count(beginning) <= tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= tokens else (low, middle - 1)
    return text[:low]


def make_rows(connection):
    """(system prompt, prompts): SHARED tokens before a row's own begin, SHARED + OWN at its end."""
    source = random.Random(7)

    def ask(prompt, system, max_tokens):
        """(tokens_in, tokens_cached)"""
        options = json.dumps({"max_tokens": max_tokens})
        sql = "SELECT error, tokens_in, tokens_cached FROM lm_each(json_array(?), ?, ?)"
        error, *tokens = connection.execute(sql, (prompt, system, options)).fetchone()
        if error is not None:
            sys.exit(f"lm_each: {error}")
        return tokens

    # What the template puts behind a row is the row's own: it is what two rows that differ at once do not share.
    text = words(source, 8000)
    sample = text[:400]
    ask("x", sample, 1)
    tail = ask("", sample, 0)[0] - ask("y", sample, 1)[1]
    system = cut(text, SHARED + tail, lambda beginning: ask("", beginning, 0)[0])
    prompts = [cut(words(source, 800), SHARED + OWN, lambda beginning: ask(beginning, system, 0)[0]) for _ in range(ROWS)]
    return system, prompts


def run_ours(connection, system, prompts):
    begin = time.monotonic()
    rows = connection.execute("SELECT error, tokens_in, tokens_out, tokens_cached FROM lm_each(?, ?)",
                              (json.dumps(prompts), system)).fetchall()
    seconds = time.monotonic() - begin
    errors = [row[0] for row in rows if row[0] is not None]
    if errors or len(rows) != ROWS:
        sys.exit(f"lm_each: {len(rows)} rows, {errors[:1]}")
    return ROWS / seconds, [sum(row[column] for row in rows) / ROWS for column in (1, 2, 3)]


def run_engine(arguments):
    command = [arguments.bench, arguments.model, "--threads", str(arguments.threads), "--reps", "1", "--only", "rows64", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["rows64"]


def run_peer(arguments, system, prompts):
    connection = connect(arguments.peer)
    connection.execute("SELECT llm_model_load(?, 'gpu_layers=0')", (arguments.model,)).fetchall()
    connection.execute("SELECT llm_context_create_textgen(?)", (
        f"n_ctx=640,n_batch=640,n_threads={arguments.threads},n_threads_batch={arguments.threads},n_predict={OUT}",)).fetchall()
    connection.execute("SELECT llm_sampler_create()").fetchall()
    connection.execute("SELECT llm_sampler_init_greedy()").fetchall()
    begin = time.monotonic()
    connection.execute("SELECT llm_text_generate(? || ' ' || value) FROM json_each(?)", (system, json.dumps(prompts))).fetchall()
    return ROWS / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--lm0", required=True)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    connection = open_ours(arguments)
    system, prompts = make_rows(connection)
    ours, engine = [], []
    for turn in range(arguments.rounds):
        use_cold_cache(connection, f"round {turn}")
        rate, (tokens_in, tokens_out, cached) = run_ours(connection, system, prompts)
        ours.append(rate)
        engine.append(run_engine(arguments))
    through_sql, alone = statistics.median(ours), statistics.median(engine)
    print(f"{pathlib.Path(arguments.model).stem}: {ROWS} rows of {tokens_in:.0f} tokens ({cached:.0f} of them cached), {tokens_out:.1f} out\n")
    print("| | rows/s | |\n|---|---|---|")
    print(f"| engine alone (lm_bench rows64) | {alone:.2f} | |")
    print(f"| lm_each | {through_sql:.2f} | {100 * through_sql / alone:.0f}% of the engine alone |")
    if arguments.peer:
        connection.close()
        peer = run_peer(arguments, system, prompts)
        print(f"| sqlite-ai | {peer:.2f} | lm_each is {through_sql / peer:.1f} times as fast |")


if __name__ == "__main__":
    main()
