"""Models of a hub: downloaded once, whatever breaks on the way, and held to what the hub says of them.

LM_KILLS makes it longer than CI has time for:
    LM_KILLS=250 LM0=... LM_MODEL=... python3 tests/extension/hub_test.py HubTest.test_processes_that_are_killed
"""
import ctypes
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from hub_server import Hub

KILLS = int(os.environ.get("LM_KILLS", "4"))
MODEL = pathlib.Path(harness.MODEL).read_bytes()
INSERT = "INSERT INTO temp.lm_models(name, path) VALUES ('tiny', ?)"
PATH = "hf:org/tiny:Q8_0"
CHILD = """
import os, signal, sys, harness
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in hosts that are not Python
connection = harness.connect()
try:
    connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('tiny', ?)", (sys.argv[1],))
    print(harness.value(connection, "SELECT typeof(generate('Hello', NULL, '{\\"model\\":\\"tiny\\",\\"max_tokens\\":2}'))"))
except Exception as error:
    print(error)
"""


class HubTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name)
        self.file = self.cache / "hf" / "org" / "tiny" / "tiny-Q8_0.gguf"

    def hub(self, files=None):
        hub = Hub(files or {"README.md": b"x", "tiny-Q4_0.gguf": b"no model", "tiny-Q8_0.gguf": MODEL})
        hub.__enter__()
        self.addCleanup(hub.__exit__)
        os.environ.update(HF_ENDPOINT=hub.endpoint + "/", LM_CACHE=str(self.cache), HF_TOKEN="hf_secret")
        return hub

    def connect(self):
        connection = harness.connect()
        self.addCleanup(connection.close)
        return connection

    def fails(self, connection, pattern, path=PATH):
        with self.assertRaisesRegex(Exception, pattern):
            connection.execute(INSERT, (path,))

    def child(self, path=PATH, preexec=None, **variables):
        return subprocess.Popen([sys.executable, "-c", CHILD, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec,
                                env={**os.environ, **variables, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})

    def said(self, child):
        out, error = child.communicate(timeout=60)
        self.assertEqual((child.returncode, error), (0, ""))
        return out.strip()

    def test_cut_five_times(self):
        hub = self.hub()
        hub.cuts = [len(MODEL) // 7] * 5
        db = self.connect()
        db.execute(INSERT, (PATH,))
        self.assertEqual(self.file.read_bytes(), MODEL)
        self.assertEqual(sorted(path.name for path in self.file.parent.iterdir()), ["tiny-Q8_0.gguf", "tiny-Q8_0.gguf.lock"])
        self.assertEqual(hub.served, len(MODEL))  # each byte once
        asked = [headers for host, path, headers in hub.requests if host == "cdn"]
        self.assertEqual(len(asked), 6)
        self.assertEqual({headers.get("If-Range") for headers in asked[1:]}, {'"version-1"'})
        # The token is the hub's alone.
        self.assertEqual({(host, headers.get("Authorization")) for host, _, headers in hub.requests}, {("hub", "Bearer hf_secret"), ("cdn", None)})
        self.assertEqual(db.execute("SELECT name, path FROM temp.lm_models WHERE name = 'tiny'").fetchall(), [("tiny", PATH)])
        self.assertEqual(harness.value(db, "SELECT typeof(generate('Hello', NULL, '{\"model\":\"tiny\",\"max_tokens\":2}'))"), "text")
        self.assertEqual(db.execute("SELECT source, path, bytes, total, state, error FROM lm_downloads ORDER BY rowid DESC LIMIT 1").fetchall(),
                         [(PATH, str(self.file), len(MODEL), len(MODEL), "done", None)])
        # There it is, for everybody and without a network.
        before = len(hub.requests)
        self.connect().execute(INSERT, ("hf:org/tiny:q8_0",))
        self.assertEqual(self.said(self.child(LM_NETWORK="off")), "text")
        self.assertEqual(len(hub.requests), before)
        db.execute("UPDATE temp.lm_models SET options = '{\"threads\":1}' WHERE name = 'tiny'")

    def test_cut_where_the_host_marks_versions_weakly(self):
        hub = self.hub()
        hub.etag = 'W/"version-1"'
        hub.cuts = [len(MODEL) // 4] * 3
        self.connect().execute(INSERT, (PATH,))
        self.assertEqual(self.file.read_bytes(), MODEL)
        self.assertEqual(hub.served, len(MODEL))  # each byte once

    def test_a_cache_that_cannot_be_written_has_what_it_has(self):
        hub = self.hub()
        self.connect().execute(INSERT, (PATH,))
        (self.file.parent / "tiny-Q8_0.gguf.lock").unlink()
        self.file.parent.chmod(0o555)
        self.addCleanup(self.file.parent.chmod, 0o755)
        read_only = lambda: ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # root keeps no CAP_DAC_OVERRIDE
        before = hub.served
        self.assertEqual(self.said(self.child("hf:org/tiny", preexec=read_only)), "text")
        self.assertEqual(hub.served, before)
        said = self.said(self.child("hf:org/tiny:Q4_0", preexec=read_only))
        self.assertRegex(said, "making '.*tiny-Q4_0.gguf.lock': Permission denied; another way to have it: hf download")

    def test_cut_where_nobody_said_how_long_it_is(self):
        hub = self.hub()
        hub.lengths = False  # the end of the connection is that of the file
        hub.cuts = [len(MODEL) // 4] * 3
        db = self.connect()
        db.execute(INSERT, (PATH,))
        self.assertEqual(self.file.read_bytes(), MODEL)
        self.assertEqual(hub.served, len(MODEL))  # each byte once
        self.assertEqual(len([host for host, _, _ in hub.requests if host == "cdn"]), 4)
        # What is shorter than the hub said is not asked for again and again.
        hub = self.hub()
        hub.lengths = False
        hub.sizes["tiny-Q8_0.gguf"] += 5
        self.file.unlink()
        self.fails(self.connect(), f"ended after {len(MODEL)} bytes, the hub said {len(MODEL) + 5}")
        self.assertEqual(len([host for host, _, _ in hub.requests if host == "cdn"]), 2)

    def test_what_came_is_not_what_the_hub_said(self):
        hub = self.hub()
        hub.digests["tiny-Q8_0.gguf"] = "0" * 64
        self.fails(self.connect(), "what came has SHA-256 [0-9a-f]{64}, the hub said 0{64}; it is removed")
        self.assertEqual([path.name for path in self.file.parent.iterdir()], ["tiny-Q8_0.gguf.lock"])
        for size, pattern in ((len(MODEL) + 5, f"ended after {len(MODEL)} bytes, the hub said {len(MODEL) + 5}"), (1000, "more came than the 1000 bytes")):
            hub = self.hub()
            hub.sizes["tiny-Q8_0.gguf"] = size
            self.fails(self.connect(), pattern)
        self.assertFalse(self.file.exists())

    def test_parts_of_two_versions_are_never_mixed(self):
        names, folder = [f"tiny-F32-{i:05}-of-00003.gguf" for i in (1, 2, 3)], self.file.parent
        old, new = ({name: os.urandom(5000) for name in names} for _ in range(2))

        def fetched(files, *lost, same=True):
            for name in lost:
                (folder / name).unlink()
            hub = self.hub(files)
            self.fails(self.connect(), "tiny-F32-00001-of-00003.gguf", "hf:org/tiny:f32")  # all are there, and no model
            self.assertEqual({name: (folder / name).read_bytes() for name in names} == files, same)
            return hub.served

        self.assertEqual(fetched(old), 15000)
        self.assertEqual(fetched(old, names[1]), 5000)  # the others are what the hub says
        self.assertEqual(fetched(new, names[1]), 15000)  # they are not any more
        # Where nothing says what a file is, it is read once.
        for name in names:
            (folder / f"{name}.lock").write_bytes(b"")
        self.assertEqual(fetched(new, names[1]), 5000)
        # So it is where it was written to; and what is noted is not looked at again.
        first = folder / names[0]
        noted = first.stat().st_mtime_ns
        first.write_bytes(old[names[0]])
        os.utime(first, ns=(noted, noted))
        self.assertEqual(fetched(new, names[2], same=False), 5000)
        os.utime(first, ns=(noted + 1, noted + 1))
        self.assertEqual(fetched(new, names[2]), 10000)

    def test_without_a_network_what_is_there_is_used(self):
        hub = self.hub()
        self.connect().execute(INSERT, (PATH,))
        hub.digests["tiny-Q8_0.gguf"] = "0" * 64
        self.assertEqual(self.said(self.child("hf:org/tiny", LM_NETWORK="off")), "text")
        hub.__exit__()
        self.assertEqual(self.said(self.child("hf:org/tiny")), "text")

    def test_a_list_without_digests_and_a_host_without_ranges(self):
        hub = self.hub()
        hub.listed, hub.ranges = False, False
        hub.cuts = [0, len(MODEL) // 2]
        self.connect().execute(INSERT, (PATH,))
        self.assertEqual(self.file.read_bytes(), MODEL)

    def test_two_processes_at_a_time(self):
        hub = self.hub()
        hub.delay = 0.02
        children = [self.child() for _ in range(2)]
        self.assertEqual([self.said(child) for child in children], ["text", "text"])
        self.assertEqual(hub.served, len(MODEL))

    def test_interrupt_and_go_on(self):
        hub = self.hub()
        hub.delay = 0.15
        db = self.connect()
        threading.Timer(1.0, db.interrupt).start()
        began = time.monotonic()
        self.fails(db, "interrupted")
        self.assertLess(time.monotonic() - began, 20)
        part = self.file.with_name("tiny-Q8_0.gguf.part")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not part.stat().st_size:
            time.sleep(0.02)
        self.assertGreater(part.stat().st_size, 0)
        hub.delay = 0
        db.execute(INSERT, (PATH,))
        self.assertEqual(self.file.read_bytes(), MODEL)
        self.assertGreater(harness.value(db, "SELECT resumed FROM lm_downloads ORDER BY rowid DESC LIMIT 1"), 0)

    def test_processes_that_are_killed(self):
        hub = self.hub()
        began = time.monotonic()
        self.assertEqual(self.said(self.child()), "text")
        took = time.monotonic() - began
        self.file.unlink()
        hub.delay = took / (len(MODEL) // 4096)  # twice as long, with the download in half of it
        part, kept, whole = self.file.with_name("tiny-Q8_0.gguf.part"), 0, 0
        for _ in range(KILLS):
            child = self.child()
            time.sleep(random.uniform(0, 2.5 * took))
            child.kill()
            child.communicate()
            if self.file.exists():
                whole += 1
                self.assertEqual(self.file.read_bytes(), MODEL)
                self.file.unlink()
            elif part.exists():
                kept += part.stat().st_size > 0
                self.assertTrue(MODEL.startswith(part.read_bytes()))
        hub.delay = 0
        self.assertEqual(self.said(self.child()), "text")
        self.assertEqual(self.file.read_bytes(), MODEL)
        print(f"{KILLS} kills: after {kept} a part was there to go on from, after {whole} the file", file=sys.stderr)

    def test_a_full_disk(self):
        self.hub()
        full = self.child(preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(MODEL) // 2, len(MODEL) // 2)))
        self.assertRegex(self.said(full), "writing '.*tiny-Q8_0.gguf.part': File too large .what is there of it stays")
        self.assertEqual(self.said(self.child()), "text")
        self.assertEqual(self.file.read_bytes(), MODEL)

    def test_what_nobody_asked_for_has_an_end(self):
        hub = self.hub()
        for hub.endless, code in (("list", 200), ("refusal", 403)):
            self.fails(self.connect(), f"HTTP {code} with 167[0-9]{{5}} bytes and more, of which 16777216 are read at most")
        self.assertFalse(self.file.exists())

    def test_errors_are_explained(self):
        hub = self.hub()
        db = self.connect()
        for code, pattern in ((401, "HTTP 401: Access to model org/tiny is restricted.*HF_TOKEN"), (403, "HTTP 403.*terms are accepted"), (404, "no such model")):
            hub.code = code
            self.fails(db, pattern)
        hub.code = 200
        self.fails(db, "org/tiny has no 'Q6_K'; it has tiny-Q4_0, tiny-Q8_0", "hf:org/tiny:Q6_K")
        self.fails(db, "several files of org/tiny fit 'tiny'", "hf:org/tiny:tiny")
        self.fails(db, "must be hf:owner/name", "hf:org")
        self.fails(db, "must be hf:owner/name", "hf:org/../x")
        self.fails(db, "must be hf:owner/name", "hf:org/tiny:../../x.gguf")
        with self.assertRaisesRegex(Exception, "an address needs a name"):
            db.execute("SELECT generate('x', NULL, '{\"model\":\"hf:org/tiny\"}')").fetchall()
        db.execute("INSERT INTO temp.lm_settings VALUES ('network', 'off')")
        self.fails(db, r"network 'off'; another way to have it: hf download org/tiny --revision main --include '\*Q8_0\*' --local-dir '.*/hf/org/tiny'")
        self.assertIn("LM_NETWORK=off; another way to have it: hf download", self.said(self.child(LM_NETWORK="off")))
        self.assertIn("'localhost' is none of the hosts that LM_HOSTS allows", self.said(self.child(LM_HOSTS="127.0.0.1")))

    def test_what_guesses_for_a_model_is_none_itself(self):
        self.hub({"tiny-Q8_0.gguf": MODEL, "tiny-F16.gguf": b"w", **{f"{kind}-tiny-Q8_0.gguf": b"x" for kind in ("mtp", "eagle3", "dflash", "dspark")}})
        self.connect().execute(INSERT, ("hf:org/tiny",))
        self.connect().execute(INSERT, ("hf:org/tiny:Q8_0",))
        self.assertEqual(self.file.read_bytes(), MODEL)

    def test_of_several_that_are_recommended_one_is_to_be_named(self):
        self.hub({"a-Q4_K_M.gguf": b"x", "b-Q4_K_M.gguf": b"y", "a-Q8_0.gguf": b"z"})
        self.fails(self.connect(), "several files of org/tiny could be meant: name one, as in hf:org/tiny:file.gguf; it has a-Q4_K_M, a-Q8_0, b-Q4_K_M", "hf:org/tiny")

    def test_what_is_downloaded_can_be_looked_into(self):
        self.hub()
        db = self.connect()
        look = lambda reference: db.execute("SELECT family, problem FROM lm_inspect(?)", (reference,)).fetchall()

        def fails(reference, pattern):
            with self.assertRaisesRegex(Exception, pattern):
                look(reference)
        missing = f"lm_inspect: '{PATH}' is not downloaded yet: INSERT INTO temp.lm_models\\(name, path\\) VALUES \\('default', '{PATH}'\\) does that"
        fails(PATH, missing)
        fails("hf:org", "must be hf:owner/name")
        db.execute(INSERT, (PATH,))
        for reference in (PATH, "hf:org/tiny:q8_0", "hf:org/tiny", "tiny", str(self.file), harness.value(db, "SELECT path FROM temp.lm_models WHERE name = 'tiny'")):
            self.assertEqual(look(reference), [("llama", None)], reference)
        self.assertEqual(look("default"), [("llama", None)])  # $LM_MODEL
        db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('far', 'http://127.0.0.1:1/v1')")
        for reference in ("far", "http://127.0.0.1:1/v1"):
            fails(reference, f"lm_inspect: '{reference}' is on the network, and has no file here to look into")
        # A name goes before what else it may be.
        db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('hf:a/b', ?)", (harness.MODEL,))
        self.assertEqual(look("hf:a/b"), [("llama", None)])
        db.execute("INSERT INTO temp.lm_settings VALUES ('model', 'hf:a/b')")
        # As a setting an address is refused when it is written.
        for address in ("hf:org/other", "http://127.0.0.1:1/v1"):
            with self.assertRaisesRegex(Exception, f"lm_settings: '{address}': an address needs a name: .* VALUES \\('default', '{address}'\\)"):
                db.execute("INSERT INTO temp.lm_settings VALUES ('model', ?)", (address,))

    def test_the_recommended_one_and_split_ones(self):
        hub = self.hub({"tiny-F16.gguf": b"x", "tiny-Q8_0.gguf": MODEL, "mmproj-Q8_0.gguf": b"y"})
        self.connect().execute(INSERT, ("hf:org/tiny",))
        self.assertEqual(self.file.read_bytes(), MODEL)
        parts = {f"F32/tiny-{i:05}-of-00003.gguf": os.urandom(5000) for i in (1, 2, 3)}
        self.hub({"other-Q4_0.gguf": b"x", **parts})
        self.fails(self.connect(), "tiny-00001-of-00003.gguf", "hf:org/tiny:f32")  # all are there, and no model
        for name, part in parts.items():
            self.assertEqual((self.cache / "hf" / "org" / "tiny" / name).read_bytes(), part)



if __name__ == "__main__":
    unittest.main()
