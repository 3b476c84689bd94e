#!/usr/bin/python3
"""Classification and extraction over held-out documents, with and without a constraint: validity, accuracy, and what the
constraint costs.

  sql/models/recipe/fetch_documents.py work && sql/models/recipe/make_held_out.py work/documents.jsonl work/heldout.db
  tests/benchmarks/structured_output.py build/release/extension/lm0.so work/heldout.db

The model is the one that ships beside lm0.so. Each form answers all rows in one lm_each; times are medians, and the memory of
earlier runs (prefix cache, memo) is another connection's.
"""
import argparse
import collections
import json
import pathlib
import sqlite3
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "extension"))
from schema_checker import Invalid, check  # noqa: E402

SECTION = "Name the section this package belongs to."
TAGS = "Extract the tags as JSON."


class Task:
    """A question about every document, the options that constrain its answers, and how one is judged."""

    def __init__(self, name, rows, system, schema, constraint, max_tokens):
        self.name, self.rows, self.system, self.schema, self.constraint, self.max_tokens = name, rows, system, schema, constraint, max_tokens

    def run(self, arguments, constrained):
        database = sqlite3.connect(":memory:")
        database.enable_load_extension(True)
        database.load_extension(arguments.extension)
        options = {"max_tokens": self.max_tokens, **(self.constraint if constrained else {})}
        database.execute("SELECT generate('warm', ?, ?)", (self.system, json.dumps(options))).fetchall()
        prompts = json.dumps([prompt for prompt, _ in self.rows])
        start = time.perf_counter()
        rows = database.execute("SELECT value, tokens_in, tokens_out FROM lm_each(?, ?, ?) ORDER BY key",
                                (prompts, self.system, json.dumps(options))).fetchall()
        seconds = time.perf_counter() - start
        database.close()
        return seconds, rows

    def valid(self, text):
        try:
            check(json.loads(text) if self.name == "tags" else text, self.schema)
            return True
        except (Invalid, ValueError, TypeError):
            return False

    def score(self, answers):
        """Accuracy; of tags the micro F1."""
        if self.name != "tags":
            return sum(answer == expected for answer, (_, expected) in zip(answers, self.rows)) / len(self.rows)
        pairs = [(tags(expected), tags(answer)) for answer, (_, expected) in zip(answers, self.rows)]
        return 2 * sum(len(e & a) for e, a in pairs) / sum(len(e) + len(a) for e, a in pairs)


def tags(text):
    try:
        return {(key, value) for key, values in json.loads(text).items() for value in values or []}
    except (ValueError, AttributeError, TypeError):
        return set()


def tasks(database, rows):
    sections = [name for (name,) in database.execute("SELECT DISTINCT section FROM heldout_documents ORDER BY 1")]
    labelled = database.execute("SELECT prompt, expected FROM heldout_sections LIMIT ?", (rows,)).fetchall()
    yield Task("sections", labelled, SECTION, {"enum": sections}, {"choices": sections}, 8)
    tagged = database.execute("SELECT prompt, expected FROM heldout_tags LIMIT ?", (rows,)).fetchall()
    values = collections.defaultdict(set)
    for (expected,) in database.execute("SELECT expected FROM heldout_tags"):
        for key, found in json.loads(expected).items():
            values[key].update(found)
    order = ["role", "implemented_in", "interface", "use", "works_with", "uitoolkit", "scope"]
    schema = {"type": "object", "additionalProperties": False, "properties": {
        key: {"type": "array", "items": {"enum": sorted(values[key])}, "minItems": 1, "maxItems": 12} for key in order}}
    yield Task("tags", tagged, TAGS, schema, {"schema": schema}, 120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extension")
    parser.add_argument("heldout")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| task | constraint | rows | valid | score | rows/s | tokens out/s | tokens out |\n|---|---|---|---|---|---|---|---|")
    for task in tasks(sqlite3.connect(arguments.heldout), arguments.rows):
        times, last = collections.defaultdict(list), {}
        for _ in range(arguments.repeats):
            for constrained in (False, True):
                seconds, last[constrained] = task.run(arguments, constrained)
                times[constrained].append(seconds)
        for constrained in (False, True):
            rows, seconds = last[constrained], statistics.median(times[constrained])
            answers = [value for value, _, _ in rows]
            out = sum(row[2] for row in rows)
            print(f"| {task.name} | {'yes' if constrained else 'no'} | {len(rows)} | {sum(map(task.valid, answers)) / len(rows):.1%} "
                  f"| {task.score(answers):.3f} | {len(rows) / seconds:.1f} | {out / seconds:.0f} | {out} |")
        cost = 1 - statistics.median(times[False]) / statistics.median(times[True])
        print(f"| {task.name} | cost in rows/s | | | | {cost:+.1%} | | |", flush=True)


if __name__ == "__main__":
    main()
