"""Installs each package of dist/ as its users do, without a network, and runs SQL there.

    cmake --preset package && cmake --build build/package --target package
    tests/package/packages_test.py build/package/dist

Needs what the routes need: sqlite3, a C++ compiler with libsqlite3-dev, python3-venv, npm. What is not there is skipped,
and said. As root it installs the Debian package, too, and removes it. With LM_BETTER_SQLITE3 or LM_NODE_SQLITE (the
folder of the npm package, a node of 22.13 or newer) these hosts are tried as well.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

DIST = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path("build/package/dist").resolve()
# The model that ships with it names the section of a package of Debian's.
ASK = "SELECT lm_classify('a compiler for the C programming language, with its preprocessor and linker', '[\"devel\",\"games\"]')"
ANSWER = "devel"


def run(*command, cwd=None, **environment):
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=dict(os.environ, **environment))
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stdout}{result.stderr}")
    return result.stdout.strip()


def one(pattern):
    found = list(DIST.glob(pattern))
    assert len(found) == 1, (pattern, found)
    return str(found[0])


class PackagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def require(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest(f"there is no {program}")

    def test_checksums(self):
        lines = (DIST / "SHA256SUMS").read_text().splitlines()
        self.assertEqual({line.split("  ")[1] for line in lines}, {p.name for p in DIST.iterdir()} - {"SHA256SUMS"})
        for line in lines:
            digest, name = line.split("  ")
            self.assertEqual(hashlib.sha256((DIST / name).read_bytes()).hexdigest(), digest, name)

    def test_loadable_tarball(self):
        self.require("sqlite3")
        run("tar", "xzf", one("*-loadable-*.tar.gz"), "-C", self.folder)
        library = next(self.folder.glob("*/lm0.so"))
        self.assertEqual(run("sqlite3", ":memory:", f".load {library.with_suffix('')}", ASK), ANSWER)
        self.assertLess(library.stat().st_size, 12e6)
        self.assertIn("sqlite-lm ask", run(library.with_name("sqlite-lm"), "--help"))
        self.require("readelf")
        symbols = run("readelf", "--dyn-syms", "-W", library)
        defined = re.findall(r"GLOBAL DEFAULT +\d+ (\S+)", symbols)
        self.assertIn("sqlite3_lm_init", defined)
        self.assertEqual([name for name in defined if not re.match(r"(sqlite3_lm_init|lm_\w+)$", name)], [])

    def test_static_tarball(self):
        self.require("g++")
        run("tar", "xzf", one("*-static-*.tar.gz"), "-C", self.folder)
        home = next(self.folder.glob("sqlite-lm-*"))
        program = self.folder / "program.c"
        program.write_text("""
#include <lm/lm.h>
#include <lm/sqlite.h>
#include <stdio.h>
int main(int argc, char** argv) {
  sqlite3* db;
  sqlite3_stmt* statement;
  sqlite3_auto_extension((void (*)(void))sqlite3_lm_init);
  if (sqlite3_open(":memory:", &db) || sqlite3_prepare_v2(db, argv[1], -1, &statement, 0)) return 1;
  if (sqlite3_step(statement) != SQLITE_ROW) return printf("%s\\n", sqlite3_errmsg(db)), 2;
  printf("%s\\n", (const char*)sqlite3_column_text(statement, 0));
  return argc - 2;
}
""")
        run("gcc", "-c", "-I", home / "include", program, "-o", self.folder / "program.o")
        run("g++", self.folder / "program.o", "-L", home / "lib", "-llm", "-lsqlite3", "-ldl", "-lpthread",
            "-o", self.folder / "program")
        self.assertEqual(run(self.folder / "program", ASK, LM_MODEL=str(home / "debian-notes.gguf")), ANSWER)

    def test_debian_package(self):
        self.require("dpkg-deb", "sqlite3")
        package = one("*.deb")
        self.assertIn("Depends: libc6 (>= 2.", run("dpkg-deb", "--info", package))
        if os.geteuid() != 0 or subprocess.run(["dpkg", "-s", "sqlite-lm"], capture_output=True).returncode == 0:
            self.skipTest("only root installs it, and only where it is not installed")
        run("dpkg", "-i", package)
        self.addCleanup(run, "dpkg", "--purge", "sqlite-lm")
        self.assertEqual(run("sqlite3", ":memory:", ".load lm0", ASK, cwd="/"), ANSWER)
        self.assertIn("one that ships", run("sqlite-lm", "doctor", cwd="/"))
        self.assertIn("SQLITE-LM", run("zcat", "/usr/share/man/man1/sqlite-lm.1.gz"))

    def test_python_wheel(self):
        if subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], capture_output=True).returncode != 0:
            self.skipTest("there is no venv")
        python = self.folder / "venv/bin/python"
        run(python, "-m", "pip", "install", "--no-index", "--find-links", DIST, "sqlite-lm", cwd=self.folder)
        script = ("import sqlite3, sqlite_lm, sys; c = sqlite3.connect(':memory:'); sqlite_lm.load(c); "
                  "assert sqlite_lm.loadable_path().endswith('/lm0'); open(sqlite_lm.model_path()).close(); "
                  "print(c.execute(sys.argv[1]).fetchone()[0])")
        self.assertEqual(run(python, "-c", script, ASK, cwd=self.folder), ANSWER)
        self.assertIn("one that ships", run(self.folder / "venv/bin/sqlite-lm", "doctor", cwd=self.folder))
        # No more than that one load is allowed.
        script += "\ntry: c.load_extension('lm0')\nexcept sqlite3.OperationalError as e: print(e)"
        self.assertIn("not authorized", run(python, "-c", script, ASK, cwd=self.folder))
        script = "import sqlite_lm\ntry: sqlite_lm.load(object())\nexcept RuntimeError as e: print(e)"
        self.assertIn("without loadable extensions", run(python, "-c", script, cwd=self.folder))

    def test_plugins_say_what_they_are(self):
        for name, group in (("datasette_sqlite_lm", "datasette"), ("sqlite_utils_sqlite_lm", "sqlite_utils")):
            run(sys.executable, "-m", "zipfile", "-e", one(f"{name}-*.whl"), self.folder)
            entry = next(self.folder.glob(f"{name}-*.dist-info/entry_points.txt")).read_text()
            self.assertEqual(entry, f"[{group}]\nsqlite_lm = {name}\n")
            compile((self.folder / f"{name}.py").read_text(), name, "exec")

    def npm_project(self):
        self.require("npm", "node")
        (self.folder / "package.json").write_text(json.dumps({"name": "user", "private": True}))
        packages = [str(p) for p in DIST.glob("*.tgz")]
        run("npm", "install", "--offline", "--no-audit", "--no-fund", *packages, cwd=self.folder)

    def test_npm_packages(self):
        self.npm_project()
        path = run("node", "-p", "require('sqlite-lm').getLoadablePath()", cwd=self.folder)
        self.assertTrue(pathlib.Path(path).samefile(next(self.folder.glob("node_modules/sqlite-lm-linux-*/lm0.so"))))
        module = "import sqliteLm, { load, getLoadablePath } from 'sqlite-lm'; console.log(typeof load, sqliteLm.load === load)"
        self.assertEqual(run("node", "--input-type=module", "-e", module, cwd=self.folder), "function true")
        shutil.rmtree(pathlib.Path(path).parent)
        script = "try { require('sqlite-lm').getLoadablePath() } catch (error) { console.log(error.message) }"
        self.assertIn("is not installed: it is an optional dependency", run("node", "-e", script, cwd=self.folder))
        script = "Object.defineProperty(process, 'platform', {value: 'aix'}); " + script
        self.assertIn("has no prebuilt extension for aix-", run("node", "-e", script, cwd=self.folder))

    def test_better_sqlite3(self):
        folder = os.environ.get("LM_BETTER_SQLITE3") or self.skipTest("LM_BETTER_SQLITE3 names no better-sqlite3")
        self.npm_project()
        script = (f"const db = new (require({json.dumps(folder)}))(':memory:'); require('sqlite-lm').load(db); "
                  f"console.log(db.prepare({json.dumps(ASK)}).pluck().get())")
        self.assertEqual(run("node", "-e", script, cwd=self.folder), ANSWER)

    def test_node_sqlite(self):
        node = os.environ.get("LM_NODE_SQLITE") or self.skipTest("LM_NODE_SQLITE names no node with node:sqlite")
        self.npm_project()
        script = ("const { DatabaseSync } = require('node:sqlite'); const db = new DatabaseSync(':memory:', {allowExtension: true}); "
                  f"require('sqlite-lm').load(db); console.log(Object.values(db.prepare({json.dumps(ASK)}).get())[0])")
        self.assertEqual(run(node, "-e", script, cwd=self.folder), ANSWER)


if __name__ == "__main__":
    unittest.main()
