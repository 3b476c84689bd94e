"""A process that opens and closes databases again and again keeps neither memory nor files of them.

    LM_CYCLES=1000 LM0=build/release/extension/lm0.so LM_MODEL=tests/testdata/models/llama-q8_0.gguf python3 tests/extension/lifetime_test.py

prints what it holds on the way; by default, in CI, it is 60 cycles of each kind."""
import gc
import os
import pathlib
import shutil
import sqlite3
import tempfile
import unittest

import harness

CYCLES = int(os.environ.get("LM_CYCLES", "60"))
WARM = 20  # cycles after which everything that stays is there
ANSWER = "SELECT generate('rain', NULL, '{\"max_tokens\":2}')"


def resident_kib():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def open_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def threads():
    return len(os.listdir("/proc/self/task"))


@unittest.skipIf("LD_PRELOAD" in os.environ, "a sanitizer keeps what is freed")
class LifetimeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def repeat(self, cycle):
        """Nothing grows while `cycle` runs, but for what an allocator keeps in pieces."""
        for n in range(WARM):
            cycle(n)
        before, files, fewest = resident_kib(), open_files(), threads()
        for n in range(WARM, WARM + CYCLES):
            cycle(n)
            if CYCLES >= 500 and n % (CYCLES // 5) == 0:
                print(f"{self._testMethodName}: after {n} cycles {resident_kib()} KiB, {open_files()} files, {threads()} threads", flush=True)
        self.assertEqual(open_files(), files)
        self.assertLess(threads(), fewest + 5)  # one may be about to end
        # A cycle that kept a page of its own would be far above it in 1,000.
        self.assertLess(resident_kib() - before, 2048)

    def test_connections_that_load_a_model_and_close(self):
        def cycle(n):
            connection = harness.connect(f"{self.folder}/{n % 5}.db")
            harness.value(connection, ANSWER)
            connection.close()

        self.repeat(cycle)

    def test_connections_while_another_keeps_the_engine(self):
        keeper = harness.connect()
        harness.value(keeper, ANSWER)
        expected = harness.value(keeper, ANSWER)

        def cycle(n):
            connection = harness.connect(f"{self.folder}/{n % 5}.db")  # new ones would leave answers and prefixes, within their bounds
            self.assertEqual(harness.value(connection, ANSWER), expected)
            connection.close()

        self.repeat(cycle)
        keeper.close()

    def test_two_copies_of_the_library_in_one_process(self):
        copy = pathlib.Path(self.folder) / "other" / "lm0.so"
        copy.parent.mkdir()
        shutil.copyfile(harness.LM0, copy)
        first, second, both = harness.connect(), sqlite3.connect(":memory:", isolation_level=None), harness.connect()
        for connection in (second, both):
            connection.enable_load_extension(True)
            connection.load_extension(str(copy))
        expected = [harness.value(first, f"SELECT generate('note {n}', NULL, '{{\"max_tokens\":3}}')") for n in range(8)]
        for connection in (second, both, first):
            self.assertEqual([harness.value(connection, f"SELECT generate('note {n}', NULL, '{{\"max_tokens\":3}}')") for n in range(8)], expected)
            rows = connection.execute("SELECT value FROM lm_each('[\"note 0\", \"note 1\"]', NULL, '{\"max_tokens\":3}')").fetchall()
            self.assertEqual([value for value, in rows], expected[:2])
        for connection in (first, second, both):
            connection.close()

    def test_databases_that_are_attached_and_detached(self):
        connection = harness.connect()
        harness.value(connection, ANSWER)

        def cycle(n):
            connection.execute("ATTACH ? AS other", (f"{self.folder}/{n % 5}.db",))
            connection.execute("CREATE TABLE IF NOT EXISTS other.t(body)")
            connection.execute(f"INSERT INTO other.t {ANSWER}")
            harness.value(connection, "SELECT count(*) FROM (SELECT generate(body, NULL, '{\"max_tokens\":2}') FROM other.t LIMIT 3)")
            connection.execute("DETACH other")

        self.repeat(cycle)
        connection.close()

    def test_a_memo_file_that_is_set_and_let_go(self):
        def cycle(n):
            connection = harness.connect()
            connection.execute("INSERT INTO temp.lm_settings VALUES ('memo', ?)", (f"{self.folder}/memo.db",))
            harness.value(connection, ANSWER)
            connection.close()

        self.repeat(cycle)


if __name__ == "__main__":
    unittest.main()
