"""Runs SQL files against lm0.so and holds the results to what their comments expect.

    tests/sql/run_tests.py --extension build/release/extension/lm0.so FILE...

A file is plain SQL, so it also runs in the sqlite3 shell. Comments that follow a statement say what
it does; one that nothing follows must merely succeed.

    SELECT lm_token_count('');        a statement ends with its line
    --> 1                             a row: the values, joined by '|'; NULL for NULL, X'00' for a BLOB
    --~ ^\\d+$                         a row that matches a regular expression
    --0                               there are no rows
    --! unknown option 'temprature'   it fails, with an error that matches
    --@ open memory                   closes the connection and opens another one: memory, file NAME
                                      or readonly NAME (in the folder $TMP)
    --@ env NAME=VALUE                sets an environment variable; without a value, removes it

Of a page in Markdown (.md) the blocks that begin with ```sql run, in the top folder of this repository, and `<!--@ open file NAME -->` and the like between them. `.import --csv FILE TABLE`, with a FILE of this repository, does
there what it does in the sqlite3 shell; other dot commands are the shell's own affair. A heading that quotes an error, ### `no such … found`,
is held to be what we say: by an error (--!) of a block below it, or else by the texts of the sources.

Where rows are expected, all of them are, in order. A newline in a value reads \\n. These are replaced
in the whole file: $MODEL, a small model of tests/testdata/models (LM_MODEL is set to it);
$MODELS, that folder; $TMP, an empty folder for the file.
"""
import argparse
import csv
import os
import pathlib
import re
import sqlite3
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "testdata" / "models"
EXPECTATION = re.compile(r"^--(>|~|!|0|@)(.*)$")


def connect(extensions, name, uri=False):
    connection = sqlite3.connect(name, isolation_level=None, uri=uri)
    if not hasattr(connection, "enable_load_extension"):
        sys.exit(f"{sys.executable}: its sqlite3 module was built without load_extension (Debian's python3 has it)")
    connection.enable_load_extension(True)
    for extension in extensions:
        connection.load_extension(str(extension))
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def shown(value):
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return "X'" + value.hex().upper() + "'"
    return str(value).replace("\n", "\\n")


def texts_of_sources():
    """All of the C++ sources, adjacent string literals joined and their quotes as they are said."""
    files = (path for folder in ("engine", "extension") for path in sorted((ROOT / folder).rglob("*")))
    sources = (path.read_text() for path in files if path.suffix in {".cc", ".h"})
    return "\n".join(re.sub(r'"\s*\n\s*"', "", source).replace('\\"', '"') for source in sources)


class Script:
    """One file: its statements run in order; failures are collected."""

    def __init__(self, path, extensions, tmp):
        self.path, self.extensions, self.tmp = path, extensions, tmp
        self.failures = []
        self.quoted = None  # the error of the last heading, until it has been met
        self.connection = connect(extensions, ":memory:")

    def substituted(self, text):
        for name, value in (("$MODELS", MODELS), ("$MODEL", os.environ["LM_MODEL"]), ("$TMP", self.tmp)):
            text = text.replace(name, str(value))
        return text

    def lines(self):
        """Numbered; of Markdown what is SQL, and headings."""
        numbered = enumerate(self.substituted(self.path.read_text()).splitlines(), 1)
        if self.path.suffix != ".md":
            return numbered
        kept, fence = [], ""
        for number, line in numbered:
            if line.startswith("```"):
                fence = "" if fence else line[3:] or "text"
            elif fence == "sql" or (not fence and line.startswith("### `")):
                kept.append((number, line))
            elif not fence and line.startswith("<!--@ "):
                kept.append((number, line[2:].removesuffix("-->").rstrip()))
        return kept

    def run(self):
        statement, expected, start = "", [], 0
        for number, line in self.lines():
            if self.path.suffix == ".md" and re.match(r"###|\.", line) and (not statement or sqlite3.complete_statement(statement)):
                self.check(statement, expected, start)
                statement, expected = "", []
                self.command(line)
                continue
            marker = EXPECTATION.match(line)
            complete = sqlite3.complete_statement(statement)
            if marker and marker[1] == "@":
                self.check(statement, expected, start)
                statement, expected = "", []
                self.direct(marker[2].split())
            elif marker and (complete or not statement.strip()):
                expected.append((marker[1], marker[2][1:]))
            else:
                if complete:
                    self.check(statement, expected, start)
                    statement, expected = "", []
                if not statement and (not line.strip() or line.startswith("--")):
                    continue
                start = start if statement else number
                statement += line + "\n"
        self.check(statement, expected, start)
        self.end_quote()
        self.connection.close()
        return self.failures

    def command(self, line):
        if line.startswith("###"):
            self.end_quote()
            self.quoted = re.search("`(.*)`", line)[1]
        elif line.startswith(".import"):
            _, _, path, table = line.split()
            with open(ROOT / path, newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))
            self.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def end_quote(self):
        if self.quoted is not None:
            said = texts_of_sources()
            missing = [part for part in self.quoted.split("…") if part.strip() and part not in said]
            if missing:
                self.failures.append(f"{self.path}: no block raises `{self.quoted}`, and no source says {missing}")
        self.quoted = None

    def direct(self, words):
        if words[0] == "env":
            name, _, value = words[1].partition("=")
            os.environ.pop(name, None)
            if value:
                os.environ[name] = value
            return
        self.connection.close()
        if words[1] == "memory":
            self.connection = connect(self.extensions, ":memory:")
        else:
            mode = "ro" if words[1] == "readonly" else "rwc"
            self.connection = connect(self.extensions, f"file:{self.tmp}/{words[2]}?mode={mode}", uri=True)

    def check(self, statement, expected, line):
        if not statement.strip():
            return
        try:
            rows = ["|".join(map(shown, row)) for row in self.connection.execute(statement)]
            error = None
        except sqlite3.Error as raised:
            rows, error = [], str(raised)
        if self.quoted is not None and error is not None:
            if re.search(".*?".join(map(re.escape, self.quoted.split("…"))), error, re.DOTALL):
                self.quoted = None
        if any(kind == "!" for kind, _ in expected):
            good = error is not None and re.search(expected[0][1], error)
        else:
            wanted = [e for e in expected if e[0] != "0"]
            good = error is None and (not expected or len(rows) == len(wanted) and all(
                row == text if kind == ">" else re.search(text, row)
                for row, (kind, text) in zip(rows, wanted)))
        if not good:
            wanted = "\n".join(f"    --{kind} {text}" for kind, text in expected) or "    (success)"
            got = f"    error: {error}" if error else "\n".join(f"    {row}" for row in rows) or "    (no rows)"
            self.failures.append(f"{self.path}:{line}: {statement.strip()}\n  wanted\n{wanted}\n  got\n{got}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extension", required=True, type=pathlib.Path)
    parser.add_argument("--also", action="append", default=[], type=pathlib.Path, help="another extension to load")
    parser.add_argument("--model", default=MODELS / "llama-q8_0.gguf", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    failures = []
    extensions, model, files = [file.resolve() for file in (args.extension, *args.also)], args.model.resolve(), [file.resolve() for file in args.files]
    for path in files:
        os.environ["LM_MODEL"] = str(model)
        if path.suffix == ".md":
            os.chdir(ROOT)
        with tempfile.TemporaryDirectory() as tmp:
            failures += Script(path, extensions, tmp).run()
    print("\n\n".join(failures) or "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
