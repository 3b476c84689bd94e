"""lm_settings' pack_cache: packed weights that the next process maps; whatever becomes of them, answers stay what they are."""
import fcntl
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness

KILLS = int(os.environ.get("LM_KILLS", "4"))

ASK = "SELECT group_concat(hex(generate(v, NULL, '{\"max_tokens\":8}'))) FROM (SELECT 'one' AS v UNION ALL SELECT 'and two')"
STATE = "SELECT pack_cache FROM lm_models WHERE name = 'm'"
# A process that answers each line of its input, with what the cache was to it.
OTHER = f"""
import sys
import harness
connection = harness.connect()
connection.execute("INSERT INTO temp.lm_settings VALUES ('pack_cache', ?), ('model', 'm')", sys.argv[1:2])
connection.execute("INSERT INTO temp.lm_models VALUES ('m', ?)", sys.argv[2:3])
connection.execute("INSERT INTO temp.lm_settings VALUES ('memo_bytes', 0)")
for line in sys.stdin:
    try:
        print(harness.value(connection, {ASK!r}), harness.value(connection, {STATE!r}), sep="|", flush=True)
    except Exception as error:
        print("error", error, sep="|", flush=True)
    connection.execute("DELETE FROM temp.lm_memo")
"""


class PackCacheTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "packs"
        self.model = self.folder / "model.gguf"
        shutil.copy(harness.MODEL, self.model)
        self.answer = self.ask(self.start(cache=self.folder / "first"))[0]
        self.assertGreater(len(self.answer), 8)

    def start(self, cache=None, model=None, script=OTHER):
        process = subprocess.Popen([sys.executable, "-c", script, str(cache or self.cache), str(model or self.model)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        return process

    def ask(self, process):
        """The answers, and what the cache was."""
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline().rstrip("\n").split("|", 1)

    def pack(self):
        packs = list(self.cache.glob("*.pack"))
        self.assertEqual(len(packs), 1, packs)
        return packs[0]

    def packed(self):
        """The file, which nobody has mapped: who has is waited for by those who write to it."""
        process = self.start()
        self.assertEqual(self.ask(process), [self.answer, "written"])
        process.stdin.close()
        process.wait()
        return self.pack()

    def mapped(self):
        """'mapped', or 'read' on file systems without leases."""
        self.assertEqual(self.ask(self.start()), [self.answer, "written"])
        process = self.start()
        answer, state = self.ask(process)
        self.assertEqual(answer, self.answer)
        self.assertIn(state, ("mapped", "read"))
        return process, state

    def test_the_first_process_writes_and_the_next_ones_share(self):
        process, state = self.mapped()
        self.assertEqual(self.ask(self.start()), [self.answer, state])
        pack = self.pack()
        self.assertEqual(pack.stat().st_mode & 0o777, 0o444)
        self.assertEqual([path.name for path in self.cache.iterdir()], [pack.name])
        if state == "mapped":
            self.assertIn(str(pack), pathlib.Path(f"/proc/{process.pid}/maps").read_text())

    def test_without_a_cache_nothing_is_said(self):
        connection = harness.connect()
        self.addCleanup(connection.close)
        connection.execute("INSERT INTO temp.lm_models VALUES ('m', ?)", (str(self.model),))
        connection.execute("SELECT generate('x', NULL, '{\"model\":\"m\",\"max_tokens\":1}')").fetchone()
        self.assertIsNone(harness.value(connection, STATE))
        self.assertIsNone(harness.value(connection, "SELECT value FROM lm_settings WHERE key = 'pack_cache'"))

    def test_what_is_cut_or_written_over_while_it_is_mapped_changes_no_answer(self):
        for damage in (lambda file: file.truncate(100), lambda file: file.write(bytes(100_000))):
            shutil.rmtree(self.cache, ignore_errors=True)
            process, state = self.mapped()
            pack = self.pack()
            pack.chmod(0o644)

            def change():
                with open(pack, "r+b") as file:  # waits for the process to let go
                    damage(file)

            other = threading.Thread(target=change)
            other.start()
            while other.is_alive():
                self.assertEqual(self.ask(process), [self.answer, state])
            self.assertEqual(self.ask(process), [self.answer, state])
            # The next one finds no directory, and packs the model again.
            self.assertEqual(self.ask(self.start()), [self.answer, "written"])

    def test_a_model_that_nobody_asks_lets_go_too(self):
        process, state = self.mapped()
        pack = self.pack()
        pack.chmod(0o644)
        began = time.monotonic()
        with open(pack, "r+b") as file:
            file.truncate(0)
        self.assertLess(time.monotonic() - began, 20)  # far from /proc/sys/fs/lease-break-time
        self.assertEqual(self.ask(process), [self.answer, state])

    def test_what_is_not_promised_to_stay_is_read(self):
        pack = self.packed()
        pack.chmod(0o644)
        with open(pack, "r+b"):  # no lease of what somebody may write to
            self.assertEqual(self.ask(self.start()), [self.answer, "read"])

    def test_damage_is_found_before_the_first_answer(self):
        pack = self.packed()
        pack.chmod(0o644)
        middle = pack.stat().st_size // 2
        with open(pack, "r+b") as file:
            file.seek(middle)
            byte = file.read(1)
            file.seek(middle)
            file.write(bytes([byte[0] ^ 1]))
        process = self.start()
        answer, said = self.ask(process)
        self.assertEqual(answer, "error")
        self.assertIn("packed weights", said)
        self.assertIn("are damaged", said)
        self.assertEqual(list(self.cache.glob("*.pack")), [])
        self.assertEqual(self.ask(process), [self.answer, "written"])  # loaded anew
        self.assertIn(self.ask(self.start())[1], ("mapped", "read"))

    def test_damage_fails_no_row_of_a_job(self):
        pack = self.packed()
        pack.chmod(0o644)
        with open(pack, "r+b") as file:
            file.seek(pack.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        db = harness.connect(str(self.folder / "notes.db"))
        self.addCleanup(db.close)
        db.execute("INSERT INTO temp.lm_settings VALUES ('pack_cache', ?), ('model', 'm')", (str(self.cache),))
        db.execute("INSERT INTO temp.lm_models VALUES ('m', ?)", (str(self.model),))
        db.execute("INSERT INTO lm_jobs(name, query, options) VALUES ('j', 'SELECT value, ''note '' || value FROM json_each(''[1,2,3,4,5,6,7,8,9]'')', "
                   "'{\"max_tokens\":2}')")
        with self.assertRaisesRegex(Exception, "job 'j' stopped: the packed weights '.*' are damaged.*lm_run\\(\\) goes on with them"):
            db.execute("SELECT * FROM lm_run('j')").fetchall()
        states = "SELECT state, error, attempts, count(*) FROM lm_job_rows GROUP BY 1, 2, 3"
        self.assertEqual(db.execute(states).fetchall(), [("waiting", None, 0, 9)])
        self.assertRegex(harness.value(db, "SELECT status FROM lm_jobs"), "^stopped: the packed weights '.*' are damaged")
        db.execute("SELECT * FROM lm_run('j')").fetchall()
        self.assertEqual(db.execute(states).fetchall(), [("done", None, 1, 9)])

    def test_another_file_says_that_its_directory_is_as_large_as_a_disk(self):
        self.cache.mkdir()
        other = self.cache / "other.pack"
        with open(other, "wb") as file:
            file.write(b"lm.pack1" + (64).to_bytes(8, "little") + ((1 << 40) - 64).to_bytes(8, "little"))
            file.truncate(1 << 40)
        script = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        process = self.start(script=script + OTHER)
        self.assertEqual(self.ask(process), [self.answer, "written"])
        self.assertTrue(other.exists())

    def test_a_damaged_directory_is_no_file(self):
        pack = self.packed()
        for cut in (-1, 40, 0):
            whole = pack.read_bytes()
            pack.unlink()
            pack.write_bytes(whole[:cut])
            self.assertEqual(self.ask(self.start()), [self.answer, "written"], cut)
            self.assertEqual(pack.read_bytes(), whole)

    def test_another_state_of_the_model_takes_the_place(self):
        old = self.packed()
        os.utime(self.model, ns=(1, 1))
        self.assertEqual(self.ask(self.start()), [self.answer, "written"])
        self.assertNotEqual(self.pack(), old)
        other = harness.MODELS / "llama-spm-untied-f32.gguf"
        changed = self.ask(self.start(model=other))
        self.assertEqual(changed[1], "written")
        self.assertNotEqual(changed[0], self.answer)
        self.assertEqual(len(list(self.cache.glob("*.pack"))), 2)

    def test_two_write_at_once(self):
        processes = [self.start() for _ in range(4)]
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.stdout.readline().rstrip("\n").split("|", 1) for process in processes]
        self.assertEqual({answer for answer, _ in said}, {self.answer})
        states = [state for _, state in said]
        self.assertEqual(states.count("written"), 1, states)
        self.assertLessEqual(set(states), {"written", "mapped", "read"})
        self.pack()

    def test_who_finds_a_writer_waits_for_what_it_writes(self):
        pack = self.packed()
        finished = self.folder / "finished"
        pack.rename(finished)
        with open(f"{pack}.part", "wb") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            process = self.start()
            process.stdin.write("\n")
            process.stdin.flush()
            time.sleep(1.5)  # until it is there; it waits for two seconds
            finished.rename(pack)
            os.unlink(f"{pack}.part")
        answer, state = process.stdout.readline().rstrip("\n").split("|", 1)
        self.assertEqual(answer, self.answer)
        self.assertIn(state, ("mapped", "read"))
        self.assertEqual(list(self.cache.iterdir()), [pack])

    def test_who_waits_for_a_writer_in_vain_packs_for_itself(self):
        pack = self.packed()
        pack.unlink()
        with open(f"{pack}.part", "wb") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            answer, state = self.ask(self.start())
            self.assertEqual(answer, self.answer)
            self.assertRegex(state, r"is being written by another process$")

    def test_what_a_killed_writer_left_is_written_over(self):
        pack = self.packed()
        pack.rename(f"{pack}.part")
        os.chmod(f"{pack}.part", 0o600)
        self.assertEqual(self.ask(self.start()), [self.answer, "written"])
        self.assertEqual(list(self.cache.iterdir()), [pack])

    def test_writers_that_are_killed_at_any_moment(self):
        shutil.copy(harness.MODELS.parents[2] / "sql" / "models" / "debian-notes.gguf", self.model)
        began = time.monotonic()
        expected, state = self.ask(self.start(cache=self.folder / "unbroken"))
        took = time.monotonic() - began
        self.assertEqual(state, "written")
        states = []
        for _ in range(KILLS):
            writer = self.start()
            writer.stdin.write("\n")
            writer.stdin.flush()
            time.sleep(random.uniform(0, took))
            writer.kill()
            writer.wait()
            answer, state = self.ask(self.start())
            self.assertEqual(answer, expected)
            self.assertIn(state, ("written", "mapped", "read"))
            states.append(state)
            shutil.rmtree(self.cache, ignore_errors=True)
        print(f"{KILLS} kills: the next process's packs were {states.count('written')} times written, else mapped", file=sys.stderr)

    def test_a_file_that_may_not_grow_is_no_reason_not_to_answer(self):
        script = ("import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in hosts that are not Python\n"
                  "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n")
        answer, state = self.ask(self.start(script=script + OTHER))
        self.assertEqual(answer, self.answer)
        self.assertRegex(state, r"^writing '.*\.pack\.part': File too large$")
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_a_folder_that_cannot_be_is_no_reason_not_to_answer(self):
        file = self.folder / "file"
        file.write_text("")
        answer, state = self.ask(self.start(cache=file / "packs"))
        self.assertEqual(answer, self.answer)
        self.assertIn("making", state)

    def test_settings(self):
        connection = harness.connect()
        self.addCleanup(connection.close)
        connection.execute("INSERT INTO temp.lm_settings VALUES ('pack_cache', '/tmp/packs')")
        self.assertEqual(harness.value(connection, "SELECT value FROM lm_settings WHERE key = 'pack_cache'"), "/tmp/packs")
        with self.assertRaisesRegex(Exception, "pack_cache must be a text that is not empty, got 3"):
            connection.execute("INSERT INTO temp.lm_settings VALUES ('pack_cache', 3)")
        with self.assertRaisesRegex(Exception, "pack_cache must be a string, got 3"):
            connection.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('m', ?, '{\"pack_cache\":3}')", (str(self.model),))


if __name__ == "__main__":
    unittest.main()
