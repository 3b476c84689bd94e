#!/usr/bin/python3
"""Writes the held-out documents and their tasks as a SQLite database, to measure a model with.

Each heldout_ table has package, description (the text alone), prompt (with the name in front), system, and expected.
"""
import argparse
import os
import random
import sqlite3

import documents
import tasks
import wordings

LONGEST = 2400  # characters of a description
SYNOPSIS = "Write a one-line summary of this package."
SECTION = "Name the section this package belongs to."
TAGS = "Extract the tags as JSON."
QUESTION = "{Question} Answer yes or no."
KEYWORDS = "List the keywords of the text."
ABOUT = 400  # characters of each of two texts


def rows(document):
    """(table, system, expected) of every task of the document."""
    rng = random.Random(document["package"])
    yield "heldout_sections", SECTION, document["section"]
    yield "heldout_synopsis", SYNOPSIS, document["synopsis"]
    if found := tasks.tags(document):
        yield "heldout_tags", TAGS, tasks.as_json(found)
    pair = [tasks.tag_question(document, rng, positive) for positive in (True, False)]
    if all(pair):
        for (_, phrase), expected in zip(pair, ("yes", "no")):
            yield "heldout_yesno", tasks.question(phrase, rng, QUESTION, "it"), expected
    positive = rng.random() < 0.5
    phrase = tasks.section_question(document, rng, positive)
    yield "heldout_yesno_section", tasks.question(phrase, rng, QUESTION, "it"), "yes" if positive else "no"


def more_rows(document, text, other, rng):
    """(table, system, question behind the text, texts before it, expected) of the less frequent tasks."""
    named = lambda d: f"Package: {d['package']}\n{documents.unwrap(d['description'])}"
    for positive in (True, False):
        if task := tasks.mention(text, other["description"], rng, positive):
            yield "heldout_mentions", task.instruction, "", text, task.answer
    yield "heldout_keywords", KEYWORDS, "", text, ", ".join(tasks.keyword_list(text))
    a, b = rng.sample((document, other), 2)
    asked = wordings.WHICH[0].format(query=document["synopsis"])
    yield "heldout_which", wordings.A_OR_B, asked, f"A: {named(a)[:ABOUT]}\n\nB: {named(b)[:ABOUT]}", "AB"[b is document]
    for positive in (True, False):
        if found := tasks.tag_question(document, rng, positive):
            yield "heldout_if", wordings.YES_OR_NO, tasks.question(found[1], rng, QUESTION, "it"), text, "yes" if positive else "no"
    if task := tasks.facet(document, rng):
        yield "heldout_labels", task.instruction, "", text, task.answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents")
    parser.add_argument("output", help="the database to write")
    options = parser.parse_args()
    training, held_out = documents.load(options.documents)
    tasks.statistics = tasks.Statistics([d for d in training if not d.get("release")])
    if os.path.exists(options.output):
        os.remove(options.output)
    database = sqlite3.connect(options.output)
    database.execute("CREATE TABLE heldout_documents(package TEXT, source TEXT, section TEXT, synopsis TEXT, description TEXT)")
    for table in ("sections", "synopsis", "yesno", "yesno_section", "tags", "mentions", "keywords", "which", "if", "labels"):
        database.execute(f"CREATE TABLE heldout_{table}(package TEXT, description TEXT, prompt TEXT, system TEXT, expected TEXT)")
    for document, other in zip(held_out, held_out[1:] + held_out[:1]):
        text = documents.unwrap(document["description"])[:LONGEST]
        prompt = f"Package: {document['package']}\n{text}"
        database.execute("INSERT INTO heldout_documents VALUES(?,?,?,?,?)", [document[k] for k in ("package", "source", "section", "synopsis")] + [text])
        for table, system, expected in rows(document):
            database.execute(f"INSERT INTO {table} VALUES(?,?,?,?,?)", (document["package"], text, prompt, system, expected))
        for table, system, question, asked, expected in more_rows(document, prompt, other, random.Random("more " + document["package"])):
            whole = asked + "\n\n" + question if question else asked
            database.execute(f"INSERT INTO {table} VALUES(?,?,?,?,?)", (document["package"], whole, whole, system, expected))
    database.commit()
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
        print(table, database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


if __name__ == "__main__":
    main()
