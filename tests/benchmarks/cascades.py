#!/usr/bin/python3
"""Cascades over held-out documents: a small model under a larger one, in lm_classify, lm_if and lm_extract.

  sql/models/recipe/fetch_documents.py work && sql/models/recipe/make_held_out.py work/documents.jsonl work/heldout.db
  tests/benchmarks/cascades.py build/release/extension/lm0.so work/heldout.db SMALL.gguf LARGE.gguf

One half of the rows, drawn by lot, is for lm_calibrate, the other one for what is measured. First the curve: `below` is moved so
that about so many rows are handed on; then what lm_calibrate finds for a wanted agreement, and what that gives on rows that it has
not seen. Answers are those of the functions with `escalate`; shares that were handed on are lm_stats'. Truth is the archive's.
Times are of the processors, each way on a connection of its own, which has no prefixes and answers of another.
"""
import argparse
import json
import random
import sqlite3
import time

SHARES = [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1]
WANTED = [0.9, 0.95, 0.98]
SAMPLES = [200, 10_000]
SECTION = "Name the section this package belongs to."


def tasks(held):
    """Of each: the function, its argument, its own options, and rows of a text and its truth."""
    names = [name for (name,) in held.execute("SELECT DISTINCT section FROM heldout_documents ORDER BY 1")]
    tagged = [(prompt, description, json.loads(expected)) for prompt, description, expected in held.execute("SELECT prompt, description, expected FROM heldout_tags")]
    values = {}
    for *_, tags in tagged:
        for key, found in tags.items():
            values.setdefault(key, set()).update(found)
    roles = sorted(values["role"])
    whole = {key: {"type": "array", "items": {"enum": sorted(values[key])}, "maxItems": 12} for key in values}
    return {
        "section": ("lm_classify", json.dumps(names), {"instruction": SECTION}, held.execute("SELECT prompt, expected FROM heldout_sections").fetchall()),
        "shared library": ("lm_if", "Is it a shared library?", {}, [(description, int("shared-lib" in tags.get("role", []))) for _, description, tags in tagged]),
        "role": ("lm_extract", json.dumps({"type": "object", "properties": {"role": {"type": "array", "items": {"enum": roles}, "minItems": 1, "maxItems": 1}}, "required": ["role"]}), {},
                 [(prompt, json.dumps({"role": tags["role"]}, separators=(",", ":"))) for prompt, _, tags in tagged if len(tags.get("role", [])) == 1]),
        "all tags": ("lm_extract", json.dumps({"type": "object", "properties": whole}), {}, [(prompt, tags) for prompt, _, tags in tagged])}


def score(pairs):
    """Accuracy; of tags F1."""
    if not isinstance(pairs[0][0], dict):
        return sum(truth == answer for truth, answer in pairs) / len(pairs)
    flat = [({(k, v) for k, vs in truth.items() for v in vs}, {(k, v) for k, vs in json.loads(answer).items() for v in vs or []}) for truth, answer in pairs]
    return 2 * sum(len(t & a) for t, a in flat) / max(sum(len(t) + len(a) for t, a in flat), 1)


class Task:
    def __init__(self, arguments, function, argument, options, rows):
        self.made_of = arguments, function, argument, options, rows
        self.function, self.argument = function, argument
        self.instruction = options.get("instruction")
        self.db = sqlite3.connect(":memory:")
        self.db.enable_load_extension(True)
        self.db.load_extension(arguments.extension)
        self.db.executemany("INSERT INTO temp.lm_models(name, path) VALUES (?, ?)", [("small", arguments.small), ("large", arguments.large)])
        rows = random.Random(17).sample(rows, len(rows))
        half = len(rows) // 2
        self.db.execute("CREATE TABLE seen(id INTEGER PRIMARY KEY, body)")
        self.db.execute("CREATE TABLE unseen(id INTEGER PRIMARY KEY, body)")
        self.db.executemany("INSERT INTO seen(body) VALUES (?)", [row[:1] for row in rows[:half]])
        self.db.executemany("INSERT INTO unseen(body) VALUES (?)", [row[:1] for row in rows[half:]])
        self.truth = [row[1] for row in rows[half:]]

    def answers(self, **options):
        """Of the unseen rows, in order."""
        call = [self.argument, json.dumps(options)] if self.function != "lm_classify" else [self.argument, self.instruction, json.dumps(options)]
        return [answer for (answer,) in self.db.execute(f"SELECT {self.function}(body, {', '.join('?' * len(call))}) FROM unseen ORDER BY id", call)]

    def handed_on(self):
        return self.db.execute("SELECT DISTINCT cascaded, escalated FROM lm_stats WHERE model = 'small' AND cascaded IS NOT NULL").fetchone() or (0, 0)

    def cascade(self, below):
        before = self.handed_on()
        answers = self.answers(model="small", escalate={"model": "large", "below": below})
        after = self.handed_on()
        return answers, (after[1] - before[1]) / (after[0] - before[0])

    def milliseconds(self, **options):
        """Of the processors, a row."""
        fresh = Task(*self.made_of)
        fresh.db.execute("SELECT generate('warm', NULL, '{\"model\":\"small\",\"max_tokens\":1}'), generate('warm', NULL, '{\"model\":\"large\",\"max_tokens\":1}')").fetchall()
        start = time.process_time()
        fresh.answers(**options)
        return 1000 * (time.process_time() - start) / len(self.truth)

    def calibrate(self, table, **options):
        if self.instruction:
            options["instruction"] = self.instruction
        options = json.dumps({"model": "small", "escalate": {"model": "large"}, **options})
        return self.db.execute("SELECT below, agreement, agreement_low, escalated FROM lm_calibrate(?, ?, ?, ?)",
                               (f"SELECT id, body FROM {table}", self.function, self.argument, options)).fetchall()


def report(name, task):
    small, large = task.answers(model="small"), task.answers(model="large")
    quality = "F1" if isinstance(task.truth[0], dict) else "accuracy"
    count = len(task.truth)

    def measure(below):
        answers, escalated = task.cascade(below)
        agreement = sum(a == b for a, b in zip(answers, large)) / count
        return escalated, agreement, score(list(zip(task.truth, answers)))

    print(f"\n`{task.function}`, {name}: {count:,} rows; {quality} of the small model {score(list(zip(task.truth, small))):.3f}, of the large one {score(list(zip(task.truth, large))):.3f}\n")
    print(f"| below | handed on | agrees with the large model | {quality} |\n|---|---|---|---|")
    curve = task.calibrate("unseen", curve=True, sample=10_000)
    for share in SHARES:
        below = next((row[0] for row in curve if row[3] >= share), curve[-1][0])
        escalated, agreement, quality_then = measure(below)
        print(f"| {below:.4g} | {escalated:.1%} | {agreement:.1%} | {quality_then:.3f} |", flush=True)
    print(f"\n| wanted | sample | below | agreement there (at least), handed on | other rows: agreement | handed on | {quality} | ms a row |\n|---|---|---|---|---|---|---|---|")
    print(f"| small alone | | | | | | | {task.milliseconds(model='small'):.1f} |\n| large alone | | | | | | | {task.milliseconds(model='large'):.1f} |", flush=True)
    for wanted in WANTED:
        for sample in SAMPLES:
            (below, there, least, expected), = task.calibrate("seen", agreement=wanted, sample=sample)
            escalated, agreement, quality_then = measure(below)
            spent = task.milliseconds(model="small", escalate={"model": "large", "below": below})
            asked = min(sample, task.db.execute("SELECT count(*) FROM seen").fetchone()[0])
            print(f"| {wanted:.0%} | {asked:,} | {below:.4g} | {there:.1%} ({least:.1%}), {expected:.1%} | {agreement:.1%} | {escalated:.1%} | {quality_then:.3f} | {spent:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extension")
    parser.add_argument("heldout")
    parser.add_argument("small")
    parser.add_argument("large")
    parser.add_argument("--only", action="append")
    arguments = parser.parse_args()
    for name, task in tasks(sqlite3.connect(arguments.heldout)).items():
        if not arguments.only or name in arguments.only:
            report(name, Task(arguments, *task))


if __name__ == "__main__":
    main()
