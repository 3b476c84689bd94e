"""The README's Python and Node snippets do what they say; and so do the demos that run from a shell.

NODE names Node 22.13 or later; CMake runs NodeTest only where it has found one.
"""
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


class Snippet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "LM_MODEL": str(ROOT / "sql" / "models" / "debian-notes.gguf")}

    def snippet(self, language):
        found = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
        self.assertEqual(len(found), 1, f"{language} snippets in README.md")
        path = "build/release/extension/lm0"
        self.assertIn(path, found[0])
        return found[0].replace(path, harness.LM0.removesuffix(".so"))

    def run_here(self, *command):
        return subprocess.run(command, cwd=self.folder, env=self.environment, text=True, capture_output=True, timeout=100)


class ShellAndPythonTest(Snippet):
    def test_the_first_answer(self):
        """What the README begins with runs, on the model that ships, and gives what it shows."""
        block = re.search(r"```sql\n.*?```\n", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
        self.assertGreater(block.count("\n-->"), 3)
        (self.folder / "first.md").write_text(block)
        ran = self.run_here(sys.executable, ROOT / "tests/sql/run_tests.py", "--extension", harness.LM0,
                            "--model", ROOT / "sql/models/debian-notes.gguf", "first.md")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stdout)

    def test_pictures_are_small_and_whole(self):
        pictures = re.findall(r"!\[[^]]*\]\((sql/demo/[^)]+\.svg)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
        self.assertGreater(len(pictures), 0)
        for picture in pictures:
            self.assertLess((ROOT / picture).stat().st_size, 60_000)
            texts = self.texts(ROOT / picture)
            self.assertGreater(len(texts), 10, picture)
            # What it was drawn on is nobody's business.
            self.assertEqual([text for text in texts if re.search(r"(^|[\s'\"])/\w+/", text)], [], picture)

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
        (self.folder / "snippet.py").write_text(self.snippet("python"))
        ran = self.run_here(sys.executable, "snippet.py")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertRegex(ran.stdout, r"\w+ \w+")

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
        (self.folder / "snippet.js").write_text(self.snippet("js"))
        ran = self.run_here(os.environ["NODE"], "--no-warnings", "snippet.js")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertRegex(ran.stdout, r"\w+ \w+")


if __name__ == "__main__":
    unittest.main()
