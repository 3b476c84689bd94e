"""Installs each package of dist/ as its users do, without a network, and runs SQL there.

    cmake --preset package && cmake --build build/package --target package
    tests/package/packages_test.py build/package/dist

Needs what the routes need: sqlite3, a C++ compiler with libsqlite3-dev, python3-venv, npm. What is not there is skipped,
and said. As root it installs the Debian package, too, and removes it. With LM_BETTER_SQLITE3 or LM_NODE_SQLITE (the
folder of the npm package, a node of 22.13 or newer) these hosts are tried as well. The plugins run in Datasette, sqlite-utils and
LLM where this Python has them; LM_PLUGIN_HOSTS is a PYTHONPATH to where else they are. With LM_DATASETTE_PICTURE=FILE.png and
a Chromium, Datasette's page is looked at as well.

Packages for another machine (the preset aarch64) are tried under qemu-user, in the programs of LM_PACKAGE_ROOT: a folder into
which that machine's sqlite3, python3 and python3-pip are unpacked (debootstrap --foreign, or dpkg-deb -x of each and of what it needs).
"""
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import socket
import sqlite3
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import routes

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


MACHINE = re.search(r"linux-(\w+)\.tar", one("*-loadable-*.tar.gz")).group(1)
NATIVE = MACHINE == platform.machine()
ROOT = os.environ.get("LM_PACKAGE_ROOT", "/")
EMULATOR = [] if NATIVE else [f"qemu-{MACHINE}-static", "-L", ROOT]
TOOLS = "" if NATIVE else f"{MACHINE}-linux-gnu-"  # before the names of compilers and binutils


class PackagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def require(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest(f"there is no {program}")

    def require_native(self):
        if not NATIVE:
            self.skipTest(f"this machine is no {MACHINE}")

    def installed(self, program):
        """The command of a program that users of the packages' machine have."""
        if NATIVE:
            self.require(program)
            return [program]
        self.require(*EMULATOR[:1])
        path = pathlib.Path(ROOT, "usr/bin", program)
        if ROOT == "/" or not path.exists():
            self.skipTest(f"LM_PACKAGE_ROOT has no {program} of {MACHINE}")
        return [*EMULATOR, path]

    def first_value(self, extension, sql):
        return run(*self.installed("sqlite3"), ":memory:", f".load {extension}", sql)

    def test_checksums(self):
        lines = (DIST / "SHA256SUMS").read_text().splitlines()
        self.assertEqual({line.split("  ")[1] for line in lines}, {p.name for p in DIST.iterdir()} - {"SHA256SUMS"})
        for line in lines:
            digest, name = line.split("  ")
            self.assertEqual(hashlib.sha256((DIST / name).read_bytes()).hexdigest(), digest, name)

    def test_loadable_tarball(self):
        run("tar", "xzf", one("*-loadable-*.tar.gz"), "-C", self.folder)
        library = next(self.folder.glob("*/lm0.so"))
        self.assertEqual(self.first_value(library.with_suffix(""), ASK), ANSWER)
        self.assertLess(library.stat().st_size, 12e6)
        program = [*EMULATOR, library.with_name("sqlite-lm")]
        self.assertIn("sqlite-lm ask", run(*program, "--help"))
        text, system = "skyplot draws maps of the stars for a place and a time.", "Write a one-line summary."
        answer = run(*program, "ask", text, "--system", system)
        self.assertEqual(answer, self.first_value(library.with_suffix(""), f"SELECT generate('{text}', '{system}')"))
        self.require(TOOLS + "readelf")
        symbols = run(TOOLS + "readelf", "--dyn-syms", "-W", library)
        defined = re.findall(r"GLOBAL DEFAULT +\d+ (\S+)", symbols)
        self.assertIn("sqlite3_lm_init", defined)
        self.assertEqual([name for name in defined if not re.match(r"(sqlite3_lm_init|lm_\w+)$", name)], [])

    def test_static_tarball(self):
        self.require(TOOLS + "g++", *EMULATOR[:1])
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
        run(TOOLS + "gcc", "-c", "-I", home / "include", program, "-o", self.folder / "program.o")
        run(TOOLS + "g++", self.folder / "program.o", "-L", home / "lib", "-llm", "-lsqlite3", "-ldl", "-lpthread",
            "-o", self.folder / "program")
        self.assertEqual(run(*EMULATOR, self.folder / "program", ASK, LM_MODEL=str(home / "debian-notes.gguf")), ANSWER)

    def test_debian_package(self):
        self.require("dpkg-deb")
        package = one("*.deb")
        self.assertIn("Depends: libc6 (>= 2.", run("dpkg-deb", "--info", package))
        self.assertTrue(run("dpkg-deb", "--contents", package).startswith("drwxr-xr-x"))  # else `-x` to / would lock it
        run("dpkg-deb", "-x", package, self.folder)
        self.assertIn("SQLITE-LM", run("zcat", self.folder / "usr/share/man/man1/sqlite-lm.1.gz"))
        self.require_native()
        self.require("sqlite3")
        if os.geteuid() != 0 or subprocess.run(["dpkg", "-s", "sqlite-lm"], capture_output=True).returncode == 0:
            self.skipTest("only root installs it, and only where it is not installed")
        run("dpkg", "-i", package)
        self.addCleanup(run, "dpkg", "--purge", "sqlite-lm")
        self.assertEqual(run("sqlite3", ":memory:", ".load lm0", ASK, cwd="/"), ANSWER)
        self.assertIn("one that ships", run("sqlite-lm", "doctor", cwd="/"))

    def test_python_wheel(self):
        run(sys.executable, "-m", "zipfile", "-e", one(f"sqlite_lm-*_{MACHINE}.whl"), self.folder / "unpacked")
        self.assertEqual(self.first_value(self.folder / "unpacked/sqlite_lm/lm0", ASK), ANSWER)
        python, program = self.wheel_installed()
        script = ("import sqlite3, sqlite_lm, sys; c = sqlite3.connect(':memory:'); sqlite_lm.load(c); "
                  "assert sqlite_lm.loadable_path().endswith('/lm0'); open(sqlite_lm.model_path()).close(); "
                  "print(c.execute(sys.argv[1]).fetchone()[0])")
        self.assertEqual(python("-c", script, ASK), ANSWER)
        self.assertIn("one that ships", run(*program, "doctor", cwd=self.folder))
        # No more than that one load is allowed.
        script += "\ntry: c.load_extension('lm0')\nexcept sqlite3.OperationalError as e: print(e)"
        self.assertIn("not authorized", python("-c", script, ASK))
        script = "import sqlite_lm\ntry: sqlite_lm.load(object())\nexcept RuntimeError as e: print(e)"
        self.assertIn("without loadable extensions", python("-c", script))

    def wheel_installed(self):
        """By pip: what runs Python with it, and the command sqlite-lm that it brings."""
        install = ["-m", "pip", "install", "--no-index", "--find-links", DIST, "sqlite-lm"]
        if NATIVE:
            if subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], capture_output=True).returncode != 0:
                self.skipTest("there is no venv")
            command, program, environment = [self.folder / "venv/bin/python"], [self.folder / "venv/bin/sqlite-lm"], {}
        else:  # whose programs cannot start each other here: neither venv, nor the wheel's script
            home = self.folder / "installed"
            install += ["--target", home]
            command, program, environment = self.installed("python3"), [*EMULATOR, home / "sqlite_lm/sqlite-lm"], {"PYTHONPATH": str(home)}
        run(*command, *install, cwd=self.folder)
        return lambda *arguments: run(*command, *arguments, cwd=self.folder, **environment), program

    def test_the_guides_commands(self):
        """What needs neither apt nor a network of them; routes.py runs all."""
        self.require_native()
        self.require("sqlite3")
        commands = routes.commands_of_the_guide()
        for name in ("tarball", "wheel"):
            here = self.folder / name
            shutil.copytree(DIST, here)
            script = re.sub(r"(?m)^apt .*$", "", commands["first"] + commands[name])
            printed = run("bash", "-e", "-c", script, cwd=here)
            self.assertTrue(printed.endswith(commands[""].strip()), printed)

    def test_plugins_say_what_they_are(self):
        for name, group in (("datasette_sqlite_lm", "datasette"), ("sqlite_utils_sqlite_lm", "sqlite_utils"), ("llm_sqlite_lm", "llm")):
            run(sys.executable, "-m", "zipfile", "-e", one(f"{name}-*.whl"), self.folder)
            entry = next(self.folder.glob(f"{name}-*.dist-info/entry_points.txt")).read_text()
            self.assertEqual(entry, f"[{group}]\nsqlite_lm = {name}\n")
            compile((self.folder / f"{name}.py").read_text(), name, "exec")

    def python_with(self, host):
        """A Python that has the wheels and the plugin's host, and its environment."""
        self.require_native()
        python = self.folder / "venv/bin/python"
        environment = {"PYTHONPATH": os.environ.get("LM_PLUGIN_HOSTS", ""), "LLM_USER_PATH": str(self.folder / "llm")}
        if subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", self.folder / "venv"], capture_output=True).returncode != 0:
            self.skipTest("there is no venv")
        if subprocess.run([python, "-c", f"import {host}"], capture_output=True, env={**os.environ, **environment}).returncode != 0:
            self.skipTest(f"there is no {host} (LM_PLUGIN_HOSTS)")
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--find-links", DIST, "sqlite-lm", f"{host.replace('_', '-')}-sqlite-lm", cwd=self.folder)
        return python, environment

    def notes(self):
        path = self.folder / "notes.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE packages(name TEXT, description TEXT)")
            connection.executemany("INSERT INTO packages VALUES (?, ?)", [
                ("chessmaze", "A puzzle game in which the walls of a maze are chess pieces. It comes with two hundred levels and an editor."),
                ("libtidepool2", "This library predicts the tides of a harbour. This package contains the shared library that programs need at run time."),
                ("skyplot", "skyplot draws maps of the stars for a place and a time. The maps can be printed or saved as PNG and SVG.")])
        connection.close()
        return path

    def test_sqlite_utils(self):
        python, environment = self.python_with("sqlite_utils")
        self.assertEqual(json.loads(run(python, "-m", "sqlite_utils", "query", self.notes(), f"{ASK} AS kind", **environment)), [{"kind": ANSWER}])
        script = "import sqlite_utils; print(sqlite_utils.Database(memory=True).query('SELECT lm_version() AS v').__next__()['v'])"
        self.assertRegex(run(python, "-c", script, **environment), r"^\d+\.\d+")

    def test_datasette(self):
        python, environment = self.python_with("datasette")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = open(self.folder / "log", "w+")
        self.addCleanup(log.close)
        server = subprocess.Popen([python, "-m", "datasette", "serve", self.notes(), "--port", str(port), "--setting", "sql_time_limit_ms", "60000"],
                                  env={**os.environ, **environment}, stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        sql = ("SELECT name, lm_classify(description, '[\"games\",\"libs\",\"science\"]', 'Name the section this package belongs to.') AS section, "
               "generate(description, 'Write a one-line summary.') AS summary FROM packages")
        rows = json.loads(self.page(f"http://127.0.0.1:{port}/notes.json", {"sql": sql, "_shape": "array"}, server))
        self.assertEqual([row["section"] for row in rows][:2], ["games", "libs"])
        self.assertTrue(all(len(row["summary"]) > 3 for row in rows), rows)
        text = self.page(f"http://127.0.0.1:{port}/notes", {"sql": sql}, server)
        for row in rows:
            self.assertIn(f">{row['summary']}<", text)
        picture = os.environ.get("LM_DATASETTE_PICTURE")
        if picture:
            # As the browser draws it, scripts and all; its text is what the JSON has.
            browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder / 'browser'}", "--window-size=1000,640"]
            address = f"http://127.0.0.1:{port}/notes?{urllib.parse.urlencode({'sql': sql})}"
            seen = run(*browser, "--dump-dom", address)
            self.assertTrue(all(row["summary"] in seen for row in rows))
            run(*browser, "--hide-scrollbars", f"--screenshot={pathlib.Path(picture).resolve()}", address)

    def page(self, address, arguments, server):
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"{address}?{urllib.parse.urlencode(arguments)}", timeout=100) as answer:
                    return answer.read().decode()
            except urllib.error.HTTPError as error:
                raise AssertionError(error.read().decode()) from error
            except urllib.error.URLError:
                self.assertIsNone(server.poll(), (self.folder / "log").read_text())
                time.sleep(0.1)
        raise AssertionError("Datasette does not answer")

    def test_llm(self):
        python, environment = self.python_with("llm")

        def llm(*words, **more):
            return run(python, "-m", "llm", *words, cwd=self.folder, **environment, **more)

        self.assertIn("sqlite-lm", llm("models"))
        text, system = "skyplot draws maps of the stars for a place and a time.", "Write a one-line summary of this package."
        answer = llm("-m", "sqlite-lm", text, "-s", system)
        script = "import sqlite3, sqlite_lm, sys; c = sqlite3.connect(':memory:'); sqlite_lm.load(c); print(c.execute('SELECT generate(?, ?)', sys.argv[1:]).fetchone()[0])"
        self.assertEqual(answer, run(python, "-c", script, text, system, cwd=self.folder))
        self.assertEqual(llm("-m", "sqlite-lm", text, "-s", system, "--no-stream"), answer)
        cut = llm("-m", "sqlite-lm", text, "-s", system, "-o", "max_tokens", "2")
        self.assertTrue(answer.startswith(cut) and len(cut) < len(answer), (answer, cut))
        judged = llm("-m", "sqlite-lm", text, "-s", "Is this a game?", "-o", "more", '{"choices":["yes","no"]}')
        self.assertIn(judged, ("yes", "no"))
        # The conversation goes on: its turns are part of the prompt.
        logged = json.loads(llm("logs", "-n", "1", "--json"))[0]
        self.assertEqual((logged["model"], logged["response"]), ("sqlite-lm", judged))
        self.assertIn(llm("-c", "Is it about astronomy? Answer yes or no.", "-o", "more", '{"choices":["yes","no"]}'), ("yes", "no"))
        conversations = {row["conversation_id"] for row in json.loads(llm("logs", "-n", "2", "--json"))}
        self.assertEqual(len(conversations), 1)
        # Pieces come as they are made.
        stream = "import llm, sys; print(len(list(llm.get_model('sqlite-lm').prompt(sys.argv[1], system=sys.argv[2]))))"
        self.assertGreater(int(run(python, "-c", stream, text, system, cwd=self.folder, **environment)), 3)
        # What is wrong is said in our words; and what the model is not for.
        with self.assertRaisesRegex(AssertionError, "no-such.gguf"):
            llm("-m", "sqlite-lm", text, "-o", "model", "no-such.gguf")
        with self.assertRaisesRegex(AssertionError, "temperature must be >= 0, got -1"):
            llm("-m", "sqlite-lm", text, "-o", "temperature", "-1")
        ran = subprocess.run([python, "-m", "llm", "-m", "sqlite-lm", "What is SQLite?"], capture_output=True, text=True, cwd=self.folder,
                             env={**os.environ, **environment})
        self.assertIn("was made for one thing", ran.stderr)

    def npm_project(self):
        self.require_native()
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

    def test_npm_chooses_by_machine(self):
        self.require("node")
        for package in DIST.glob("*.tgz"):
            name = re.match(r"(.+)-\d", package.name).group(1)
            (self.folder / "node_modules" / name).mkdir(parents=True)
            run("tar", "xzf", package, "--strip-components=1", "-C", self.folder / "node_modules" / name)
        cpu = {"x86_64": "x64", "aarch64": "arm64"}[MACHINE]
        script = f"Object.defineProperty(process, 'arch', {{value: '{cpu}'}}); console.log(require('sqlite-lm').getLoadablePath())"
        path = pathlib.Path(run("node", "-e", script, cwd=self.folder))
        run("tar", "xzf", one("*-loadable-*.tar.gz"), "-C", self.folder)
        self.assertEqual(path.read_bytes(), next(self.folder.glob("*/lm0.so")).read_bytes())

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
