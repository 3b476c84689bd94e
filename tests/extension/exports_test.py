"""lm0.so shows sqlite3_lm_init and the C API, and nothing else; it cannot be unloaded."""
import pathlib
import re
import subprocess
import unittest

import harness

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class ExportsTest(unittest.TestCase):
    def test_only_the_entry_points_are_visible(self):
        header = (ROOT / "include" / "lm" / "lm.h").read_text()
        wanted = {"sqlite3_lm_init", *re.findall(r"^LM_API .*?\b(lm_\w+)\(", header, re.MULTILINE)}
        self.assertGreater(len(wanted), 5)
        listing = subprocess.run(["nm", "-D", "--defined-only", harness.LM0], check=True, capture_output=True, text=True)
        self.assertEqual({line.split()[-1] for line in listing.stdout.splitlines()}, wanted)

    def test_sqlite_comes_from_the_host(self):
        listing = subprocess.run(["nm", "-D", "--undefined-only", harness.LM0], check=True, capture_output=True, text=True)
        self.assertEqual([line for line in listing.stdout.splitlines() if "sqlite3_" in line], [])

    def test_it_stays_where_it_is(self):
        listing = subprocess.run(["readelf", "-d", harness.LM0], check=True, capture_output=True, text=True)
        self.assertIn("NODELETE", listing.stdout)

    def test_no_thread_local_is_ours(self):
        """A thread's first use of one ends the process where memory is short: thread_slot.h."""
        listing = subprocess.run(["readelf", "-sW", harness.LM0], check=True, capture_output=True, text=True)
        if "'.symtab'" not in listing.stdout:
            self.skipTest("its symbols were stripped")
        self.assertEqual([line for line in listing.stdout.splitlines() if " TLS " in line and "N2lm" in line], [])


if __name__ == "__main__":
    unittest.main()
