"""Whatever is registered is on a page: each function and table, each column, setting and option.

A page of sql/reference lists a table's columns and the options of its function in its comments, a line each:

    -- columns
    --   model            the model that was asked
    --   total, done      of the rows
    -- columns of lm_job_rows                    a second table on the same page
    -- options are those of generate(), and
    --   order            "query", "finished"

up to a line `--`, or the end of the comment. Options that many functions take are in the tables of sql/guide.
"""
import pathlib
import re
import sqlite3
import tempfile
import unittest

import harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tables that share another one's page.
PAGE_OF = {"lm_job_rows": "lm_jobs", "lm_job_batches": "lm_batch_submit"}
# A source of options that is no function's, and the page that has them.
OPTIONS_ON = {"job_options": "lm_jobs"}
# A function that has no page of its own, and the page that has it.
NO_PAGE = {"lm_await": "lm_submit", "lm_check_job": "lm_jobs"}
COLUMNS_OF_A_SCHEMA = "lm_extract_each"
NAMES = re.compile(r"--   (\w+(?:, \w+)*),?(?:  |$)")


def sections(text):
    """The names that each `-- columns`, `-- columns of NAME`, `-- options` and `-- keys` of a page lists."""
    found, names = {}, None
    for line in text.splitlines():
        title = re.match(r"-- (columns of \w+|columns|options|keys)\b", line)
        if title:
            names = found.setdefault(title[1], [])
        elif line == "--" or not line.startswith("--"):
            names = None
        elif names is not None:
            listed = NAMES.match(line)
            names.extend(listed[1].split(", ") if listed else [])
    return found


def source(path):
    return (ROOT / path).read_text(encoding="utf-8")


def rows_of(text):
    """What the tables of a page of the guide have in their first column, between backticks."""
    return {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}


def own_options():
    """(file, option) of what functions take beside generate()'s options."""
    for path in sorted((ROOT / "extension").rglob("*.cc")):
        for keys in re.findall(r"OwnOptions::Take(?:OfCall)?\(\w+,\s*\{([^}]*)\}", path.read_text(encoding="utf-8")):
            for key in re.findall(r'"(\w+)"', keys):
                yield path, key


class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "sql/reference").glob("*.sql")}
        cls.functions_page = (ROOT / "sql/guide/functions.md").read_text(encoding="utf-8")
        plain = sqlite3.connect(":memory:")
        cls.connection = harness.connect()
        cls.addClassCleanup(plain.close)
        cls.addClassCleanup(cls.connection.close)
        cls.functions, cls.modules = ({name for (name,) in cls.connection.execute(sql)} - {name for (name,) in plain.execute(sql)}
                                      for sql in ("SELECT name FROM pragma_function_list", "SELECT name FROM pragma_module_list"))
        cls.modules = {name for name in cls.modules if name.startswith("lm_")}

    def page(self, name):
        return self.pages[PAGE_OF.get(name, name)]

    def assertListed(self, wanted, listed, where):
        self.assertEqual(sorted(set(wanted) - set(listed)), [], f"on no line of {where}")

    def test_every_function_and_table_has_a_page_and_a_line(self):
        self.assertGreater(len(self.functions | self.modules), 60)
        for name in sorted(self.functions | self.modules):
            page = NO_PAGE.get(name) or PAGE_OF.get(name, name)
            self.assertIn(page, self.pages, name)
            self.assertRegex(self.pages[page], rf"(?m)^--.*\b{name}\b", name)
            if name != "lm_check_job":
                self.assertRegex(self.functions_page, rf"`(temp\.)?{name}\b[^`]*`\]\(\.\./reference/{page}\.sql\)|USING {name}\(", name)

    def test_every_column_has_a_line(self):
        checked = 0
        with tempfile.TemporaryDirectory() as folder:
            connection = harness.connect(f"{folder}/jobs.db")
            # What the first use makes.
            connection.execute("INSERT INTO lm_jobs(name, query) VALUES ('a', 'SELECT 1, 2')")
            connection.execute("SELECT * FROM lm_batch_poll('a')").fetchall()
            for table in sorted(self.modules - {COLUMNS_OF_A_SCHEMA} | {"lm_job_batches"}):
                schema = connection.execute(f"SELECT name, hidden FROM pragma_table_xinfo('{table}')").fetchall()
                # Of a table function what is hidden is its arguments, which its first line has.
                is_function = re.search(rf"^-- {table}\(.*?->", self.page(table).replace("\n--", ""), re.MULTILINE)
                columns = [name for name, hidden in schema if not (hidden and is_function)]
                lists = sections(self.page(table))
                listed = lists.get(f"columns of {table}", lists.get("columns", []))
                self.assertListed(columns, listed, f"{PAGE_OF.get(table, table)}.sql")
                self.assertListed(listed, columns, f"the columns of {table}")
                for name, hidden in schema:
                    if hidden and is_function:
                        self.assertRegex(is_function[0], rf"\b{name.removeprefix('given_')}\b", table)
                checked += len(columns)
            connection.close()
        self.assertGreater(checked, 230)

    def test_lines_that_list_a_tables_columns_list_them_all(self):
        lines = re.findall(r"(?m)^\| \[`(\w+)\(.*?\| table: `([^`…]*)`", self.functions_page)
        self.assertGreater(len(lines), 8)
        for table, columns in lines:
            visible = self.connection.execute(f"SELECT group_concat(name, ', ') FROM pragma_table_info('{table}')")
            self.assertEqual(columns, *visible.fetchone(), table)

    def test_every_setting_has_a_line(self):
        keys = [key for (key,) in self.connection.execute("SELECT key FROM temp.lm_settings")]
        self.assertGreater(len(keys), 20)
        self.assertListed(keys, sections(self.page("lm_settings"))["keys"], "lm_settings.sql")
        tables, rest = source("sql/guide/settings.md").split("\n## Defaults of calls\n")
        defaults_of_calls = re.findall(r"`(\w+)`", rest.split("\n## ")[0])
        self.assertListed(keys, rows_of(tables) | set(defaults_of_calls), "settings.md")

    def test_every_option_that_many_functions_take_has_a_line(self):
        table = re.search(r"constexpr Key kKeys\[\] = \{\n(.*?)^\};", source("engine/runtime/parse_generation_options.cc"), re.DOTALL | re.MULTILINE)[1]
        keys = re.findall(r'^    \{"(\w+)",', table, re.MULTILINE)
        self.assertGreater(len(keys), 30)
        self.assertListed(keys, rows_of(source("sql/guide/options.md")), "options.md")

    def test_every_option_of_a_model_has_a_line(self):
        reader = source("engine/model/model_options.cc").split("ParseModelOptions(")[1]
        keys = re.findall(r'if \(key == "(\w+)"\)', reader) + [key for path, key in own_options() if path.name == "model_names.cc"]
        self.assertGreater(len(keys), 12)
        self.assertListed(keys, rows_of(source("sql/guide/settings.md").split("\n## Options of a model\n")[1]), "settings.md")
        keys = re.findall(r'reader\.[A-Z]\w+\("(\w+)"', source("engine/remote/remote_options.cc"))
        self.assertGreater(len(keys), 12)
        self.assertListed(keys, rows_of(source("sql/guide/remote.md")), "remote.md")

    def test_every_option_of_one_function_is_on_its_page(self):
        checked = 0
        for path, key in own_options():
            if path.name == "model_names.cc":
                continue
            table = OPTIONS_ON.get(path.stem, f"lm_{path.stem.removesuffix('_table')}")
            named = {table} if path.stem in OPTIONS_ON or path.parent.name == "tables" else set(re.findall(r'"(\w+)"', path.read_text())) & self.functions
            listed = {option for name in named for option in sections(self.page(name)).get("options", [])}
            self.assertIn(key, listed, f"{path.name}: on none of the pages {sorted(named)}")
            checked += 1
        self.assertGreater(checked, 50)
        self.assertEqual(sections(self.page("lm_filter"))["options"], sections(self.page("lm_if"))["options"])
        # And what the error for an option in a wrong place promises.
        names = source("extension/connection/unknown_option.cc")
        several = dict(re.findall(r'constexpr char (\w+)\[\] = "([^"]+)"', names))
        for key, quoted, constant in re.findall(r'\{"(\w+)", (?:"([^"]+)"|(k\w+))\}', names):
            for name in re.findall(r"lm_\w+", quoted or several[constant]):
                self.assertIn(key, sections(self.page(name)).get("options", []), name)

    def test_what_is_not_on_a_page_is_seen(self):
        page = "-- lm_x(a)  ->  b, c\n--\n-- columns, a row for each\n--   b, c   two\n-- of it:\n--   d      and\n--          more\n--\n--   e  no\n-- options are, and\n--   f\nSELECT 1;\n--   g  no\n"
        self.assertEqual(sections(page), {"columns": ["b", "c", "d"], "options": ["f"]})
        with self.assertRaisesRegex(AssertionError, r"(?s)'c'.*on no line of x"):
            self.assertListed(["b", "c"], ["b"], "x")


if __name__ == "__main__":
    unittest.main()
