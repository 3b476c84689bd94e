"""The README's Python and Node snippets do what they say; and so do the demos that run from a shell.

NODE names Node 22.13 or later; CMake runs NodeTest only where it has found one.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

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
