"""The README's Python, Node and shell snippets answer what they say; and so do the demos that run from a shell.

NODE names Node 22.13 or later; CMake runs NodeTest only where it has found one.
"""
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import harness

ROOT = harness.MODELS.parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Snippet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "LM_MODEL": str(ROOT / "sql" / "models" / "debian-notes.gguf")}

    def snippet(self, language, comment):
        """README's block of that language that ends in a comment, on the library under test; and that comment, the answer."""
        blocks = [block.rpartition("\n") for block in re.findall(rf"```{language}\n(.*?)\n```", README, re.DOTALL)]
        found = [(text, last.removeprefix(f"{comment} ")) for text, _, last in blocks if last.startswith(f"{comment} ")]
        self.assertEqual(len(found), 1, f"{language} snippets with an answer in README.md")
        text, answer = found[0]
        return text.replace("build/release/extension/lm0", harness.LM0.removesuffix(".so")), answer

    def run_here(self, *command):
        return subprocess.run(command, cwd=self.folder, env=self.environment, text=True, capture_output=True, timeout=100)


class ShellAndPythonTest(Snippet):
    def test_the_first_answer(self):
        """What the README begins with runs, on the model that ships, and gives what it shows."""
        block = re.search(r"```sql\n.*?```\n", README, re.DOTALL)[0]
        self.assertGreater(block.count("\n-->"), 2)
        (self.folder / "first.md").write_text(block)
        ran = self.run_here(sys.executable, ROOT / "tests/sql/run_tests.py", "--extension", harness.LM0,
                            "--model", ROOT / "sql/models/debian-notes.gguf", "first.md")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stdout)

    def test_pictures_are_small_and_whole(self):
        pictures = re.findall(r"!\[[^]]*\]\((sql/demo/[^)]+\.svg)\)", README)
        self.assertGreater(len(pictures), 0)
        for picture in pictures:
            self.assertLess((ROOT / picture).stat().st_size, 60_000)
            texts = self.texts(ROOT / picture)
            self.assertGreater(len(texts), 10, picture)
            # What it was drawn on is nobody's business.
            self.assertEqual([text for text in texts if re.search(r"(^|[\s'\"])/\w+/", text)], [], picture)

    def test_what_is_typed_answers_what_is_shown(self):
        """README's command for the program: its answer there and in the picture, which begins with it, is what the same call gives."""
        typed, answer = self.snippet("sh", "#")
        text, system = re.fullmatch(r"sqlite-lm ask '([^']+)' --system '([^']+)'", typed).groups()
        connection = harness.connect()
        self.addCleanup(connection.close)
        model = json.dumps({"model": self.environment["LM_MODEL"]})
        self.assertEqual(harness.value(connection, "SELECT generate(?, ?, ?)", text, system, model), answer)
        drawn = self.texts(ROOT / "sql/demo/recording.svg")
        shown = "".join(drawn[:drawn.index(answer)]) if answer in drawn else drawn
        self.assertEqual(shown, f"$ {typed}")
        self.assertIn(f'"{typed}" \\\n', (ROOT / "sql/demo/pictures.sh").read_text())
        self.assertIn(f"\n{typed}\n", (ROOT / "sql/guide/program.md").read_text(encoding="utf-8"))

    @harness.needs_shell
    def test_what_the_demo_ends_with_can_be_typed(self):
        said = re.search(r"\n(echo \"The table is .*)", (ROOT / "sql/demo/run.sh").read_text(), re.DOTALL)[1]
        _, command = subprocess.run(["bash", "-c", said], text=True, capture_output=True, check=True, cwd=ROOT, env={
            **self.environment, "database": str(self.folder / "notes.db"), "extension": harness.LM0.removesuffix(".so")}).stdout.splitlines()
        ran = self.run_here("bash", "-c", command)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, self.snippet("sh", "#")[1] + "\n", ""), command)

    def test_a_terminal_is_drawn(self):
        """record.py draws what a command shows, when it does."""
        try:
            for end in pty.openpty():
                os.close(end)
        except OSError:
            self.skipTest("there are no terminals here")
        command = "printf 'one\\ntwo <\\r'; sleep 0.5; printf 'tree\\033[K\\n'"
        for more, shown in ((["--seconds", "4"], ["one", "two <", "tree"]), (["--still"], ["one", "tree"])):
            ran = self.run_here(sys.executable, ROOT / "sql/demo/record.py", "--out", "drawn.svg", *more, command)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            self.assertEqual(self.texts("drawn.svg")[1:], shown)
        # Ctrl-C, and a line that is longer than a row.
        ran = self.run_here(sys.executable, ROOT / "sql/demo/record.py", "--out", "drawn.svg", "--seconds", "6", "--columns", "30",
                            "echo long, longer, longest; echo once; sleep 1000 ^C0.5")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(self.texts("drawn.svg"), ["$ echo long, longer, longest; ", "echo once; sleep 1000", "long, longer, longest", "once", "^C"])
        ran = self.run_here(sys.executable, ROOT / "sql/demo/record.py", "--out", "failed.svg", "false")
        self.assertEqual((ran.returncode, (self.folder / "failed.svg").exists()), (1, False))

    def texts(self, path):
        return [text.text for text in xml.etree.ElementTree.parse(self.folder / path).iter("{http://www.w3.org/2000/svg}text")]

    def test_python(self):
        text, answer = self.snippet("python", "#")
        (self.folder / "snippet.py").write_text(text)
        ran = self.run_here(sys.executable, "snippet.py")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, answer + "\n", ""))

    @harness.needs_shell
    def test_overnight(self):
        ran = subprocess.run(["bash", ROOT / "sql" / "demo" / "overnight.sh", "48", "1"], text=True, capture_output=True,
                             timeout=100, env={**self.environment, "PYTHON": sys.executable, "LM0": harness.LM0, "LM_DEMO_FOLDER": str(self.folder)})
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertRegex(ran.stdout, r"killed: \d+ of 48 summaries are there, integrity ok")
        self.assertRegex(ran.stdout, r"summaries 100% █+ 48/48  ")

    @harness.needs_shell
    def test_summarize(self):
        ran = subprocess.run(["sqlite3", "-bail", ":memory:", f".load {harness.LM0}", ".read sql/demo/summarize.sql"], text=True,
                             capture_output=True, timeout=100, env=self.environment, cwd=ROOT)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        # Both texts were read whole, in several parts.
        self.assertEqual(re.findall(r"│ (\d)  │ [2-9] +│ \d+ +│ 1     │", ran.stdout), ["1", "2"], ran.stdout)


class NodeTest(Snippet):
    def test_node(self):
        text, answer = self.snippet("js", "//")
        (self.folder / "snippet.js").write_text(text)
        ran = self.run_here(os.environ["NODE"], "--no-warnings", "snippet.js")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, answer + "\n", ""))


if __name__ == "__main__":
    unittest.main()
