#!/usr/bin/python3
"""The semantic operators over held-out documents, with the model that ships: how often they are right, how many rows a second,
and how many tokens a row the model reads and writes, each beside the naive way: one prompt for each row, pair or label, one after
the other, with the answer read from text.

  sql/models/recipe/fetch_documents.py work && sql/models/recipe/make_held_out.py work/documents.jsonl work/heldout.db
  tests/benchmarks/operators.py build/release/extension/lm0.so work/heldout.db

The model is the one beside lm0.so. Every form has a connection of its own, and so neither memo nor prefixes of another.
"""
import argparse
import json
import random
import sqlite3
import time

SECTION = "Name the section this package belongs to."
LANGUAGES = {"c": "Is it written in C?", "c++": "Is it written in C++?", "perl": "Is it written in Perl?",
             "python": "Is it written in Python?", "java": "Is it written in Java?", "ruby": "Is it written in Ruby?"}
CANDIDATES = 20  # of a search


class Form:
    """A connection with the documents, on which one way is taken; counts what the model does."""

    def __init__(self, arguments, naive):
        self.db = sqlite3.connect(":memory:")
        self.db.enable_load_extension(True)
        self.db.load_extension(arguments.extension)
        if naive:
            self.db.execute("INSERT INTO temp.lm_settings VALUES ('lookahead', 'off')")
        self.db.execute("SELECT generate('warm')").fetchall()
        self.before, self.start = self.tokens(), time.perf_counter()

    def tokens(self):
        return self.db.execute("SELECT total(tokens_prefilled) + total(tokens_decoded) FROM lm_stats").fetchone()[0]

    def query(self, sql, *values):
        return self.db.execute(sql, values).fetchall()

    def table(self, name, columns, rows):
        self.db.execute(f"CREATE TEMP TABLE {name}({columns})")
        self.db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns.split(',')))})", rows)

    def spent(self):
        return time.perf_counter() - self.start, self.tokens() - self.before


def f1(pairs):
    return 2 * sum(len(e & a) for e, a in pairs) / max(sum(len(e) + len(a) for e, a in pairs), 1)


# Each takes the form, the documents and how many of them the naive way is given; it returns (rows, quality).


def filtered(form, data, naive):
    rows = data["yesno"]
    form.table("t", "id, body, question, prompt", [(i, *row[:2], row[3]) for i, row in enumerate(rows)])
    if naive:
        said = form.query("SELECT generate(prompt, question || ' Answer yes or no.', '{\"max_tokens\":4,\"cache\":false}') LIKE 'yes%' FROM t ORDER BY id")
    else:
        said = form.query("SELECT lm_filter(body, question) FROM t ORDER BY id")
    return len(rows), f"accuracy {sum((row[2] == 'yes') == bool(s) for row, (s,) in zip(rows, said)) / len(rows):.3f}"


def scored(form, data, naive):
    rows, sections = data["sections"], data["section_names"]
    form.table("t", "id, prompt", [(i, row[0]) for i, row in enumerate(rows)])
    if naive:
        said = [max(sections, key=lambda s: form.query("SELECT lm_score(prompt, 'It belongs to the section ' || ? || '.', '{\"cache\":false}') FROM t WHERE id = ?", s, i)[0][0])
                for i in range(len(rows))]
    else:
        said = [max(json.loads(s), key=json.loads(s).get) for (s,) in
                form.query("SELECT lm_classify(prompt, ?, ?, '{\"scores\":true}') FROM t ORDER BY id", json.dumps(sections), SECTION)]
    return len(rows), f"accuracy {sum(row[1] == s for row, s in zip(rows, said)) / len(rows):.3f}"


def several(form, data, naive):
    rows = data["tags"]
    form.table("t", "id, prompt", [(i, row[0]) for i, row in enumerate(rows)])
    expected = [set(json.loads(row[1]).get("implemented_in", [])) & set(LANGUAGES) for row in rows]
    if naive:
        said = [{label for label, question in LANGUAGES.items() if form.query(
            "SELECT generate(prompt, ? || ' Answer yes or no.', '{\"max_tokens\":4,\"cache\":false}') LIKE 'yes%' FROM t WHERE id = ?", question, i)[0][0]}
            for i in range(len(rows))]
    else:
        said = [set(json.loads(s)) for (s,) in form.query("SELECT lm_classify(prompt, ?, NULL, '{\"multi\":true}') FROM t ORDER BY id", json.dumps(LANGUAGES))]
    return len(rows), f"F1 {f1(list(zip(expected, said))):.3f}"


def extracted(form, data, naive):
    rows, schema = data["tags"], json.dumps(data["tag_schema"])
    form.table("t", "id, prompt", [(i, row[0]) for i, row in enumerate(rows)])
    keys = list(data["tag_schema"]["properties"])
    if naive:
        said = []
        for i in range(len(rows)):
            try:
                said.append(json.loads(form.query("SELECT generate(prompt, 'Extract the tags as JSON.', '{\"max_tokens\":120,\"cache\":false}') FROM t WHERE id = ?", i)[0][0]))
            except ValueError:
                said.append({})
        said = [{k: json.dumps(v) for k, v in s.items()} for s in said]
    else:
        form.db.execute(f"CREATE VIRTUAL TABLE temp.tagged USING lm_extract_each('{schema}')")
        found = form.query("WITH asked AS MATERIALIZED (SELECT id, prompt, lm_extract(prompt, ?) FROM t) "
                           f"SELECT {', '.join(keys)} FROM asked, tagged(asked.prompt) ORDER BY id", schema)
        said = [dict(zip(keys, row)) for row in found]
    pairs = [({(k, v) for k, vs in json.loads(row[1]).items() for v in vs}, {(k, v) for k, vs in s.items() for v in json.loads(vs or "[]") or []})
             for row, s in zip(rows, said)]
    return len(rows), f"F1 {f1(pairs):.3f}"


def searches(data, number):
    draw = random.Random(7)
    for document in data["documents"][:number]:
        others = draw.sample([d for d in data["documents"] if d[0] != document[0]], CANDIDATES - 1)
        texts = [d[2][:600] for d in others]
        place = draw.randrange(CANDIDATES)
        texts.insert(place, document[2][:600])
        yield document[1], texts, place


def ranked(method):
    def run(form, data, naive):
        found = reciprocal = 0
        number = len(data["documents"]) // CANDIDATES if method != "pairwise" else max(len(data["documents"]) // 200, 2)
        for query, texts, place in searches(data, number):
            if naive:
                form.db.execute("DROP TABLE IF EXISTS c")
                form.table("c", "key, value", list(enumerate(texts)))
                said = form.query("SELECT key FROM c ORDER BY generate(value, 'Is it what this search looks for: ' || ? || '? Answer yes or no.', '{\"max_tokens\":4,\"cache\":false}') LIKE 'yes%' DESC, key", query)
            elif method == "similarity":
                said = form.query("SELECT key FROM json_each(?) ORDER BY lm_similarity(value, ?) DESC", json.dumps(texts), query)
            else:
                said = form.query("SELECT key FROM lm_rank(?, ?, NULL, ?) ORDER BY rank", query, json.dumps(texts), json.dumps({"method": method}))
            rank = 1 + [key for (key,) in said].index(place)
            found, reciprocal = found + (rank == 1), reciprocal + 1 / rank
        return number * CANDIDATES, f"first {found / number:.2f}, mean reciprocal rank {reciprocal / number:.2f}"
    return run


def grouped(form, data, naive):
    documents = data["documents"]
    form.table("t", "id, body, source", [(i, d[2], d[3]) for i, d in enumerate(documents)])
    if naive:
        pairs = {(i, j) for i in range(len(documents)) for j in range(i)
                 if form.query("SELECT lm_if('First: ' || a.body || char(10, 10) || 'Second: ' || b.body, 'Do both describe the same thing?', '{\"cache\":false}') FROM t AS a, t AS b WHERE a.id = ? AND b.id = ?", i, j)[0][0]}
        rows = len(documents) * (len(documents) - 1) // 2
    else:
        group = dict(form.query("SELECT id, same_as FROM lm_distinct('SELECT id, body FROM t')"))
        pairs = {(i, j) for i in group for j in range(i) if group[i] == group[j]}
        rows = len(documents)
    true = {(i, j) for i in range(len(documents)) for j in range(i) if documents[i][3] == documents[j][3]}
    both = len(pairs & true)
    return rows, f"pairs of one source: precision {both / max(len(pairs), 1):.2f}, recall {both / max(len(true), 1):.2f}"


def matched(form, data, naive):
    documents = data["documents"][:len(data["documents"]) // 5]
    form.table("l", "id, body", [(i, d[1]) for i, d in enumerate(documents)])
    form.table("r", "id, body", [(i, d[2][:600]) for i, d in enumerate(documents)])
    said = form.query("SELECT left_id, right_id, probability FROM lm_match('SELECT id, body FROM l', 'SELECT id, body FROM r', 'Is the first a summary of the second?', ?)",
                      json.dumps({"candidates": 0 if naive else 5, "threshold": 0}))
    best = {}
    for left, right, probability in said:
        best[left] = max(best.get(left, (-1, -1)), (probability, right))
    held = len({left for left, right, _ in said if left == right})
    right = sum(left == match[1] for left, match in best.items())
    return len(documents), f"true one asked about {held / len(documents):.2f}, and the most probable {right / len(documents):.2f}"


def named(form, data, naive):
    rows = data["sections"]
    form.table("t", "section, prompt", [(section, prompt[:300]) for prompt, section in rows])
    names = json.dumps(data["section_names"])
    clusters = "(SELECT section, prompt, row_number() OVER (PARTITION BY section) AS n, count(*) OVER (PARTITION BY section) AS c FROM t)"
    if naive:
        said = form.query(f"SELECT section, label FROM (SELECT section, label, row_number() OVER (PARTITION BY section ORDER BY count(*) DESC) AS place FROM "
                          f"(SELECT section, generate(prompt, ?, '{{\"max_tokens\":6,\"cache\":false}}') AS label FROM {clusters} WHERE n <= 8 AND c >= 8) GROUP BY section, label) WHERE place = 1", SECTION)
    else:
        said = form.query(f"SELECT section, lm_cluster_label(prompt, ?) FROM {clusters} WHERE n <= 8 AND c >= 8 GROUP BY section", json.dumps({"instruction": SECTION, "choices": json.loads(names)}))
    return 8 * len(said), f"section named {sum(s == label for s, label in said)} of {len(said)}"


def read(arguments, rows):
    held = sqlite3.connect(arguments.heldout)
    tags = held.execute("SELECT prompt, expected FROM heldout_tags LIMIT ?", (rows,)).fetchall()
    values = {}
    for (expected,) in held.execute("SELECT expected FROM heldout_tags"):
        for key, found in json.loads(expected).items():
            values.setdefault(key, set()).update(found)
    schema = {"type": "object", "properties": {key: {"type": "array", "items": {"enum": sorted(values[key])}, "maxItems": 12} for key in values}}
    return {
        "documents": held.execute("SELECT package, synopsis, description, source FROM heldout_documents ORDER BY rowid LIMIT ?", (rows,)).fetchall(),
        "yesno": held.execute("SELECT description, replace(system, ' Answer yes or no.', ''), expected, prompt FROM heldout_yesno LIMIT ?", (rows,)).fetchall(),
        "sections": held.execute("SELECT prompt, expected FROM heldout_sections LIMIT ?", (rows,)).fetchall(),
        "section_names": [name for (name,) in held.execute("SELECT DISTINCT section FROM heldout_documents ORDER BY 1")],
        "tags": tags, "tag_schema": schema}


OPERATORS = {"lm_filter": (filtered, 200), "lm_classify, scores": (scored, 20), "lm_classify, multi": (several, 100), "lm_extract_each": (extracted, 100),
             "lm_rank": (ranked("pointwise"), 200), "lm_rank, pairwise": (ranked("pairwise"), 1000), "lm_similarity": (ranked("similarity"), 200),
             "lm_distinct": (grouped, 30), "lm_match": (matched, 150), "lm_cluster_label": (named, 1000)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extension")
    parser.add_argument("heldout")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--only", action="append", choices=sorted(OPERATORS))
    arguments = parser.parse_args()
    print("| operator | way | rows | quality | rows/s | tokens a row |\n|---|---|---|---|---|---|")
    for name, (run, naive_rows) in OPERATORS.items():
        if arguments.only and name not in arguments.only:
            continue
        for naive in (False, True):
            rows = min(arguments.rows, naive_rows) if naive else arguments.rows
            if rows == 0:
                continue
            form = Form(arguments, naive)
            done, quality = run(form, read(arguments, rows), naive)
            seconds, tokens = form.spent()
            print(f"| `{name}` | {'naive' if naive else 'operator'} | {done:,} | {quality} | {done / seconds:.1f} | {tokens / done:.0f} |", flush=True)


if __name__ == "__main__":
    main()
