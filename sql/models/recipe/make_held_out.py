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

LONGEST = 2400  # characters of a description
SYNOPSIS = "Write a one-line summary of this package."
SECTION = "Name the section this package belongs to."
TAGS = "Extract the tags as JSON."
QUESTION = "{Question} Answer yes or no."


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents")
    parser.add_argument("output", help="the database to write")
    options = parser.parse_args()
    training, held_out = documents.load(options.documents)
    tasks.statistics = tasks.Statistics(training)
    if os.path.exists(options.output):
        os.remove(options.output)
    database = sqlite3.connect(options.output)
    database.execute("CREATE TABLE heldout_documents(package TEXT, source TEXT, section TEXT, synopsis TEXT, description TEXT)")
    for table in ("sections", "synopsis", "yesno", "yesno_section", "tags"):
        database.execute(f"CREATE TABLE heldout_{table}(package TEXT, description TEXT, prompt TEXT, system TEXT, expected TEXT)")
    for document in held_out:
        text = documents.unwrap(document["description"])[:LONGEST]
        prompt = f"Package: {document['package']}\n{text}"
        database.execute("INSERT INTO heldout_documents VALUES(?,?,?,?,?)", [document[k] for k in ("package", "source", "section", "synopsis")] + [text])
        for table, system, expected in rows(document):
            database.execute(f"INSERT INTO {table} VALUES(?,?,?,?,?)", (document["package"], text, prompt, system, expected))
    database.commit()
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
        print(table, database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


if __name__ == "__main__":
    main()
