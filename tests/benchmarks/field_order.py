#!/usr/bin/python3
"""What the order of fields and of rows saves, over real tables, with the model that ships: tokens that are read, not seconds.

  tests/benchmarks/field_order.py build/release/extension/lm0.so ROWS [heldout.db]

For each table: a prompt of all its columns by lm_prompt, in the columns' order and in lm_field_order's; what lm_explain says that
rows share, and what the engine has then computed (lm_stats), with room for everything and with a cache of a few thousand tokens.
Rows are neighbours in their table, in an order drawn by lot. The Debian archive's list and the installed packages are asked of apt and dpkg; heldout.db (sql/models/recipe) has questions about texts.
"""
import json
import random
import sqlite3
import subprocess
import sys

LONGEST = 800  # characters of a field
SMALL = 12_000_000  # bytes of KV


def packages(command, names):
    """Paragraphs of `command`, each a dict of those of its fields that are in `names`."""
    found = []
    for paragraph in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n\n"):
        fields, last = {}, None
        for line in paragraph.split("\n"):
            if line.startswith(" "):
                if last in names:
                    fields[last] = (fields[last] + "\n" + line.strip())[:LONGEST]
            elif ": " in line:
                last, value = line.split(": ", 1)
                if last in names:
                    fields[last] = value[:LONGEST]
        if fields:
            found.append({name: fields.get(name) for name in names})
    return found


def tables(heldout):
    names = ["Package", "Description", "Source", "Section", "Maintainer", "Homepage", "Tag", "Architecture", "Priority"]
    yield "Debian archive", "Is it a game?", packages(["apt-cache", "dumpavail"], names)
    yield "installed packages", "Is it a library?", packages(["dpkg-query", "-s"] + subprocess.run(
        ["dpkg-query", "-Wf", "${Package}:${Architecture}\n"], capture_output=True, text=True, check=True).stdout.split(), names + ["Depends"])
    if heldout is not None:
        yield "questions about texts", "You answer yes or no.", [
            {"question": prompt[len(text):].strip(), "package": package, "text": text}
            for package, text, prompt in sqlite3.connect(heldout).execute(
                "SELECT package, description, prompt FROM heldout_yesno_section UNION ALL SELECT package, description, prompt || system FROM heldout_yesno")]


class Way:
    """A process' own connection, with the rows in a table `t`."""

    def __init__(self, extension, rows, small):
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.enable_load_extension(True)
        self.db.load_extension(extension)
        if small:
            self.db.execute("INSERT INTO temp.lm_settings VALUES ('kv_bytes', ?)", (SMALL,))
        self.db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, fields TEXT)")
        self.db.executemany("INSERT INTO t(fields) VALUES (?)", [(json.dumps(row),) for row in rows])

    def read(self, sql, *values):
        """Tokens computed as prompts."""
        tokens = "SELECT total(tokens_prefilled) FROM lm_stats"
        before = self.db.execute(tokens).fetchone()[0]
        self.db.execute(sql, values).fetchall()
        return int(self.db.execute(tokens).fetchone()[0] - before)


def forms(system, order):
    quoted, prompt = "'" + system.replace("'", "''") + "'", f"lm_prompt('{{{{*}}}}', fields, '{json.dumps(order)}')"
    options = '{"max_tokens":1,"cache":false}'
    query = f"SELECT id, {prompt}, {quoted} FROM t".replace("'", "''")
    return {
        "SELECT": f"SELECT generate({prompt}, {quoted}, '{options}') FROM t",
        "SELECT, sorted": f"SELECT generate(p, {quoted}, '{options}') FROM (SELECT {prompt} AS p FROM t ORDER BY 1)",
        "lm_each": f"SELECT count(value) FROM lm_each((SELECT json_group_array({prompt}) FROM t), {quoted}, '{options}')",
        "lm_query": f"SELECT count(value) FROM lm_query('{query}', '{options}')",
        "lm_run": None,
    }


def measure(extension, rows, system, order, name, small):
    way = Way(extension, rows, small)
    sql = forms(system, order)[name]
    if sql is not None:
        return way.read(sql)
    way.db.execute("INSERT INTO lm_jobs(name, query, system, options) VALUES ('j', ?, ?, '{\"max_tokens\":1,\"cache\":false}')",
                   (f"SELECT id, lm_prompt('{{{{*}}}}', fields, '{json.dumps(order)}') FROM t", system))
    return way.read("SELECT * FROM lm_run('j')")


def main():
    extension, most, heldout = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
    print("| table | order | tokens | shared (lm_explain) | read: room for all | " + " | ".join(forms("", [])) + " |")
    print("|---|---|---|---|---|" + "---|" * len(forms("", [])))
    for name, system, rows in tables(heldout):
        rows = rows[len(rows) // 2:][:most]  # neighbours, as in the whole table
        random.Random(1).shuffle(rows)
        way = Way(extension, rows, small=False)
        given = [field for field in rows[0]]
        query = f"SELECT generate(lm_prompt('{{{{*}}}}', fields), '{system}', '{{\"max_tokens\":1}}') FROM t"
        tokens, shared, ordered, best = way.db.execute("SELECT tokens, tokens_shared, tokens_shared_ordered, field_order FROM lm_explain(?)", (query,)).fetchone()
        del way
        for label, order, share in (("as they come", given, shared), (", ".join(json.loads(best)), json.loads(best), ordered)):
            room = measure(extension, rows, system, order, "SELECT", small=False)
            read = [measure(extension, rows, system, order, form, small=True) for form in forms("", [])]
            print(f"| {name} ({len(rows)}) | {label} | {tokens:,} | {share:,} ({100 * share / tokens:.0f}%) | {room:,} | " + " | ".join(f"{r:,}" for r in read) + " |", flush=True)


if __name__ == "__main__":
    main()
