#!/usr/bin/python3
"""Scores answers to the held-out tasks: accuracy, ROUGE-L, and F1 of tags.

  evaluate.py checkpoint CHECKPOINT VOCABULARY HELDOUT.db    answers greedily with torch and scores
  evaluate.py answers METRIC FILE.tsv                        scores lines of expected <tab> prediction
  evaluate.py answers METRIC FILE.db TABLE                   scores the columns expected and prediction of a table
  evaluate.py baselines DOCUMENTS HELDOUT.db                 majority, naive Bayes, first sentence
METRIC is accuracy, rouge, tags or keywords.
"""
import argparse
import json
import math
import random
import re
import sqlite3
from collections import Counter, defaultdict

TASKS = {  # table: (metric, longest answer in tokens)
    "heldout_sections": ("accuracy", 8),
    "heldout_yesno": ("accuracy", 3),
    "heldout_yesno_section": ("accuracy", 3),
    "heldout_synopsis": ("rouge", 48),
    "heldout_tags": ("tags", 120),
    "heldout_if": ("accuracy", 3),
    "heldout_mentions": ("accuracy", 3),
    "heldout_which": ("accuracy", 3),
    "heldout_labels": ("accuracy", 8),
    "heldout_keywords": ("keywords", 60),
}


def words(text):
    return re.findall(r"[a-z0-9]+", text.lower())


def rouge_l(expected, prediction):
    """The F-measure of the longest common subsequence of words."""
    a, b = words(expected), words(prediction)
    if not a or not b:
        return float(a == b)
    row = [0] * (len(b) + 1)
    for word in a:
        previous = row[:]
        for j, other in enumerate(b, 1):
            row[j] = previous[j - 1] + 1 if word == other else max(previous[j], row[j - 1])
    return 2 * row[-1] / (len(a) + len(b))


def tag_set(text):
    try:
        found = json.loads(text)
        return {(key, value) for key, values in found.items() for value in values}
    except (ValueError, AttributeError, TypeError):
        return set()


def score(metric, pairs):
    """pairs are (expected, prediction); returns a dictionary of measures."""
    pairs = [(str(e), str(p)) for e, p in pairs]
    exact = sum(e.strip().lower() == p.strip().lower() for e, p in pairs) / len(pairs)
    if metric == "accuracy":
        return {"rows": len(pairs), "accuracy": round(exact, 4)}
    if metric == "rouge":
        return {"rows": len(pairs), "rouge_l": round(sum(rouge_l(e, p) for e, p in pairs) / len(pairs), 4), "exact": round(exact, 4)}
    items = tag_set if metric == "tags" else lambda text: {word.strip().lower() for word in text.split(",")}
    sets = [(items(e), items(p)) for e, p in pairs]
    common, named = sum(len(e & p) for e, p in sets), sum(len(e) + len(p) for e, p in sets)
    return {"rows": len(pairs), "f1": round(2 * common / max(named, 1), 4), "exact": round(exact, 4)}


def answer_with_checkpoint(options):
    import torch

    import generate
    from chat import Chat

    if options.threads:
        torch.set_num_threads(options.threads)
    model, chat = generate.load(options.checkpoint).to(options.device), Chat(options.vocabulary)
    batch, kind = (64, torch.bfloat16) if options.device == "cpu" else (512, torch.float32)
    database = sqlite3.connect(options.heldout)
    for table, (metric, limit) in TASKS.items():
        if options.table and table not in options.table:
            continue
        rows = database.execute(f"SELECT system, prompt, description, expected FROM {table}").fetchall()
        rows = random.Random(1).sample(rows, min(options.rows or len(rows), len(rows)))
        for label, column in (("with the name", 1), ("description alone", 2)):
            if all(row[1] == row[2] for row in rows) and column == 2 or options.named and column == 2:
                continue
            asked = [(options.system or row[0], row[column]) for row in rows]
            predictions = generate.answers(model, chat, asked, limit, batch, kind)
            print(table, label, score(metric, [(row[3], p) for row, p in zip(rows, predictions)]), flush=True)
            for row, prediction in list(zip(rows, predictions))[: options.show]:
                print("   ", row[0][:60], "|", row[3], "|", prediction)


def pairs_of(options):
    if options.table:
        return sqlite3.connect(options.file).execute(f'SELECT expected, prediction FROM "{options.table}"').fetchall()
    with open(options.file, encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")[:2]) for line in lines]


def naive_bayes(training, texts):
    """Sections from the words, with add-0.1 smoothing."""
    sections, counts = Counter(), defaultdict(Counter)
    for section, text in training:
        sections[section] += 1
        counts[section].update(words(text))
    vocabulary = len(set().union(*counts.values()))
    totals = {s: sum(c.values()) + 0.1 * vocabulary for s, c in counts.items()}
    value = lambda s, ws: math.log(sections[s]) + sum(math.log((counts[s][w] + 0.1) / totals[s]) for w in ws)
    return [max(sections, key=lambda s: value(s, ws)) for ws in map(words, texts)]


def baselines(options):
    import documents

    training, _ = documents.load(options.documents)
    database = sqlite3.connect(options.heldout)
    rows = database.execute("SELECT expected, prompt, description FROM heldout_sections").fetchall()
    majority = Counter(d["section"] for d in training).most_common(1)[0][0]
    print("section, majority", score("accuracy", [(row[0], majority) for row in rows]))
    for label, column, text in (
        ("with the name", 1, lambda d: d["package"] + " " + d["description"]),
        ("description alone", 2, lambda d: d["description"]),
    ):
        predictions = naive_bayes([(d["section"], text(d)) for d in training], [row[column].removeprefix("Package: ") for row in rows])
        print("section, naive Bayes", label, score("accuracy", [(row[0], p) for row, p in zip(rows, predictions)]))
    rows = database.execute("SELECT expected, description FROM heldout_synopsis").fetchall()
    first = [re.split(r"(?<=[.!?])\s|\n", text)[0] for _, text in rows]
    print("synopsis, first sentence", score("rouge", [(row[0], p) for row, p in zip(rows, first)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("checkpoint")
    command.add_argument("checkpoint")
    command.add_argument("vocabulary")
    command.add_argument("heldout")
    command.add_argument("--rows", type=int, help="a fixed sample of so many rows of each table")
    command.add_argument("--table", action="append", help="only this table")
    command.add_argument("--system", help="another wording of the system prompt")
    command.add_argument("--show", type=int, default=0, help="print so many answers")
    command.add_argument("--threads", type=int)
    command.add_argument("--device", default="cpu")
    command.add_argument("--named", action="store_true", help="only texts with the name in front")
    command.set_defaults(run=answer_with_checkpoint)
    command = commands.add_parser("answers")
    command.add_argument("metric", choices=["accuracy", "rouge", "tags", "keywords"])
    command.add_argument("file")
    command.add_argument("table", nargs="?")
    command.set_defaults(run=lambda options: print(score(options.metric, pairs_of(options))))
    command = commands.add_parser("baselines")
    command.add_argument("documents")
    command.add_argument("heldout")
    command.set_defaults(run=baselines)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
