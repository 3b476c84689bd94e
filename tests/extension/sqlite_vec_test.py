"""lm_embed beside sqlite-vec: the page sql/reference/sqlite_vec.sql, and what its index finds against all vectors compared.

The library is SQLITE_VEC, or comes from its npm package; where there is neither npm nor a network the tests are skipped.
"""
import math
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import harness

ROOT = harness.MODELS.parents[2]
PACKAGE = {"x86_64": "sqlite-vec-linux-x64", "aarch64": "sqlite-vec-linux-arm64"}.get(platform.machine())
VERSION = "0.1.9"


def fetch(folder):
    """The library, by npm into the folder; raises SkipTest with the reason where that cannot be."""
    npm = shutil.which("npm")
    if npm is None or PACKAGE is None:
        raise unittest.SkipTest("there is no npm" if npm is None else f"sqlite-vec has no npm package for {platform.machine()}")
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [npm, "install", f"{PACKAGE}@{VERSION}", "--prefix", folder, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund",
               "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=10000"]
    try:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        raise unittest.SkipTest("npm did not get sqlite-vec in 30 seconds") from None
    library = pathlib.Path(folder) / "node_modules" / PACKAGE / "vec0.so"
    if not library.is_file():
        raise unittest.SkipTest(f"npm has not got sqlite-vec: {ran.stderr.strip().splitlines()[:1]}")
    return str(library)


class SqliteVecTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.library = os.environ.get("SQLITE_VEC") or fetch(cls.folder.name)

    def test_the_page(self):
        ran = subprocess.run(
            [sys.executable, ROOT / "tests/sql/run_tests.py", "--extension", harness.LM0, "--also", self.library,
             "--model", ROOT / "sql/models/debian-notes.gguf", ROOT / "sql/reference/sqlite_vec.sql"], capture_output=True, text=True, timeout=100)
        self.assertEqual((ran.returncode, ran.stdout), (0, "passed\n"), ran.stdout + ran.stderr)

    def test_the_index_finds_what_a_comparison_of_all_finds(self):
        connection = harness.connect()
        self.addCleanup(connection.close)
        connection.load_extension(self.library)
        words = "rain snow wind soup bread bicycle chain cellar train harbour music letter".split()
        texts = [f"{a} and {b}" for a in words for b in words]
        connection.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT)")
        connection.executemany("INSERT INTO notes VALUES (?, ?)", enumerate(texts))
        connection.execute("CREATE VIRTUAL TABLE vectors USING vec0(id INTEGER PRIMARY KEY, vector float[64] distance_metric=cosine)")
        connection.execute("INSERT INTO vectors(id, vector) SELECT id, lm_embed(body) FROM notes")
        # The rows were embedded together, not one by one.
        foreseen = "SELECT foreseen FROM lm_stats WHERE phase = 'decode'"
        self.assertGreater(harness.value(connection, foreseen), len(texts) // 2)

        def vector(blob):
            return struct.unpack(f"<{len(blob) // 4}f", blob)

        stored = {key: vector(blob) for key, blob in connection.execute("SELECT id, vector FROM vectors")}
        self.assertEqual(stored, {key: vector(blob) for key, blob in connection.execute("SELECT id, lm_embed(body) FROM notes")})
        for question in ("rain and rain", "a letter from the harbour"):
            asked = vector(harness.value(connection, "SELECT lm_embed(?)", question))
            distance = {key: 1 - math.fsum(a * b for a, b in zip(asked, own)) for key, own in stored.items()}
            found = connection.execute("SELECT id, distance FROM vectors WHERE vector MATCH lm_embed(?) AND k = 10 ORDER BY distance",
                                       (question,)).fetchall()
            best = sorted(distance.values())[:10]
            for (key, given), wanted in zip(found, best, strict=True):
                self.assertAlmostEqual(given, distance[key], delta=1e-5)
                self.assertAlmostEqual(given, wanted, delta=1e-5)


if __name__ == "__main__":
    unittest.main()
