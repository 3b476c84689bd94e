"""Holds the includes of the source tree to the floors of the house.

A folder includes only from its own floor downward; sqlite3 headers stay in extension/host/, oneDNN's and
CUDA's in their backends, and nothing above the backends is compiled conditionally. What files of a folder
have for themselves differs in its names, for they are compiled many at a time (engine/base/precompile.cmake).

    python3 tests/floors_test.py          # from anywhere; exits 1 with a line for each breach
"""
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> the folders that it may include from, besides itself.
BASE = {"engine/base"}
TENSOR = BASE | {"engine/tensor"}
DEVICES = TENSOR | {"engine/gguf", "engine/backend"}
TEXT = BASE | {"engine/text", "engine/text/template", "engine/text/chat"}
GRAMMAR = {"engine/grammar", "engine/grammar/schema"}
MODEL = DEVICES | TEXT | GRAMMAR | {"engine/cache", "engine/hf"}
ENGINE = MODEL | {"engine/model", "engine/runtime", "engine/remote", "engine/convert"}
BATCH = ENGINE | {"extension/host", "extension/connection", "extension/binding"}
ALLOWED = {
    "engine/base": set(),
    "engine/tensor": BASE,
    "engine/gguf": TENSOR,
    "engine/hf": TENSOR | {"engine/gguf"},
    "engine/backend": TENSOR | {"engine/gguf"},
    "engine/backend/reference": DEVICES,
    "engine/backend/cpu": DEVICES,
    "engine/backend/cuda": DEVICES,
    "engine/backend/tensor_parallel": DEVICES,
    "engine/text": BASE,
    "engine/text/template": BASE | {"engine/text"},
    "engine/text/chat": TEXT,
    "engine/grammar": BASE,
    "engine/grammar/schema": BASE | GRAMMAR,
    "engine/cache": BASE,
    "engine/model": MODEL,
    "engine/model/families": MODEL | {"engine/model"},
    "engine/convert": MODEL | {"engine/model"},
    "engine/runtime": MODEL | {"engine/model", "include/lm"},
    "engine/remote": TEXT | GRAMMAR | {"engine/model", "engine/runtime"},
    # The rooms of the SQL side, from the lowest up; entry.cc, at the door, sees all.
    "extension/host": BASE,
    "extension/memo": ENGINE | {"extension/host"},
    "extension/connection": ENGINE | {"extension/host", "extension/memo"},
    "extension/binding": ENGINE | {"extension/host", "extension/connection"},
    "extension/batch": BATCH,
    "extension/questions": BATCH | {"extension/batch"},
    "extension/jobs": BATCH | {"extension/batch"},
    "extension/batch_files": BATCH | {"extension/batch", "extension/jobs"},
    "extension/functions": BATCH | {"extension/batch", "extension/questions", "include/lm"},
    "extension/tables": BATCH | {"extension/batch", "extension/questions", "extension/memo", "extension/jobs", "extension/batch_files"},
    "extension": BATCH | {"extension/functions", "extension/tables", "include/lm"},
    # The program sees the extension as a host does; host/ is how one speaks to SQLite here.
    "extension/cli": BASE | {"extension/host", "include/lm"},
}
# The registry makes backends of every kind, so it alone sees into their folders.
REGISTRY = "engine/backend/registry.cc"
BACKENDS = {"engine/backend/reference", "engine/backend/cpu", "engine/backend/cuda", "engine/backend/tensor_parallel"}

# header pattern -> the only folders that may include it.
PRIVATE_HEADERS = [
    (re.compile(r"^sqlite3(ext)?\.h$"), {"extension/host", "include/lm"}),
    (re.compile(r"dnnl"), {"engine/backend/cpu"}),
    (re.compile(r"^(cuda|cublas|cub/|thrust/)"), {"engine/backend/cuda"}),
    (re.compile(r"immintrin|arm_neon"), {"engine/backend/cpu"}),
    (re.compile(r"^curl/"), {"engine/remote"}),
    (re.compile(r"pcre2"), {"engine/text", "engine/grammar"}),
    (re.compile(r"nlohmann"), {"engine/base"}),
    # Broken by an allocation that fails: engine/base/hash_map.h.
    (re.compile(r"absl/container/.*(hash|btree)|absl/strings/str_format"), set()),
    (re.compile(r"^variant$"), {"engine/base"}),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b(.*)")
HARMLESS = re.compile(r"_H_\s*$|__cplusplus|__GNUC__|__x86_64__")

# The table that a program gets which links SQLite: a routine that it lacks would be a null pointer.
TABLE = "extension/host/host_linked.cc"
ROUTINE = re.compile(r"\bsqlite3_(\w+)\b(?=\s*\()|&sqlite3_(\w+)\b")
# Not in the table: the table itself, our own, and what host.h finds.
NO_ROUTINES = {"api", "lm_init", "is_interrupted", "progress_handler"}


# What a file has for itself, each definition's name; equal aliases do no harm.
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.DOTALL | re.MULTILINE)
OWN = re.compile(r"^(?!using |template|return |//)(?:(?:struct|class|enum class|enum) (\w+)[^;\n]*\{|[\w:<][^=(\n]*?\b(k[A-Z]\w*)[^(\n]*?(?:= |\{)|"
                 r"[\w:<][^=(\n]*?\b(\w+)\()", re.MULTILINE)
# Compiled alone, or for one of several machines.
ALONE = re.compile(r"engine/backend/cpu/(kernels|peak_loops)|extension/host/host_")


def folder_of(path):
    return str(path.parent)


def breaches(root):
    """Yields 'file:line: what is wrong' for each breach below root."""
    for top in ("engine", "extension"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in {".h", ".cc", ".c", ".cu", ".cuh"}:
                continue
            name = path.relative_to(root)
            folder = folder_of(name)
            if folder not in ALLOWED:
                yield f"{name}: folder '{folder}' has no floor; give it one in tests/floors_test.py"
                continue
            allowed = ALLOWED[folder] | {folder}
            if str(name) == REGISTRY:
                allowed |= BACKENDS
            for number, line in enumerate(path.read_text().splitlines(), 1):
                conditional = CONDITIONAL.match(line)
                if conditional and "backend/" not in folder and not HARMLESS.search(line):
                    yield f"{name}:{number}: conditional compilation: {line.strip()}"
                match = INCLUDE.match(line)
                if not match:
                    continue
                header = match.group(1)
                for pattern, homes in PRIVATE_HEADERS:
                    if pattern.search(header) and folder not in homes:
                        yield f"{name}:{number}: {header} belongs to {sorted(homes)}"
                target = "include/" + header if header.startswith("lm/") else header
                if not target.startswith(("engine/", "extension/", "include/")):
                    continue
                if folder_of(pathlib.PurePosixPath(target)) not in allowed:
                    yield f"{name}:{number}: {folder} must not include {header}"


def names_twice(root):
    """Yields 'name: files' for what several files of a folder have for themselves."""
    homes = {}
    for top in ("engine", "extension"):
        for path in sorted((root / top).rglob("*.cc")):
            name = path.relative_to(root)
            if ALONE.match(str(name)):
                continue
            for own in UNNAMED.findall(path.read_text()):
                for found in OWN.findall(own):
                    homes.setdefault((folder_of(name), "".join(found)), set()).add(name.name)
    for (folder, name), files in sorted(homes.items()):
        if len(files) > 1:
            yield f"{folder}: {name} in {', '.join(sorted(files))}"


def routines_missing(root):
    """The routines of SQLite that extension/ calls and that TABLE does not set."""
    called = set()
    for path in (root / "extension").rglob("*"):
        if path.suffix in {".h", ".cc"} and str(path.relative_to(root)) != TABLE:
            called |= {a or b for a, b in ROUTINE.findall(path.read_text())}
    table = (root / TABLE).read_text()
    there = set(re.findall(r"SET\((\w+)\)", table)) | set(re.findall(r"= sqlite3_(\w+);", table))
    return sorted(called - there - NO_ROUTINES)


class FloorsTest(unittest.TestCase):
    def test_the_tree_keeps_its_floors(self):
        self.assertEqual(list(breaches(ROOT)), [])

    def test_breaches_are_seen(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for folder, text in {
                "engine/base": '#include "engine/tensor/tensor.h"\n',
                "engine/cache": '#include "engine/backend/backend.h"\n',
                "engine/text": '#include "absl/container/flat_hash_map.h"\n',
                "engine/grammar": "#include <variant>\n",
                "engine/runtime": "#include <sqlite3.h>\n#ifdef LM_CUDA\n",
                "extension/host": '#include "extension/batch/look_ahead.h"\n',
                "extension/batch": '#include "engine/runtime/engine.h"\n',
                "engine/attic": "\n",
            }.items():
                (root / folder).mkdir(parents=True)
                (root / folder / "x.cc").write_text(text)
            self.assertEqual(len(list(breaches(root))), 8)

    def test_names_of_a_files_own_differ(self):
        self.assertEqual(list(names_twice(ROOT)), [])

    def test_a_name_of_two_files_is_seen(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "engine/base").mkdir(parents=True)
            for file, text in {"a": "constexpr int kMost = 1;\nint F(int x) {\n  return G(x);\n}\nusing A = int;\nstruct S {};\n",
                               "b": "constexpr int kMost[] = {1};\nabsl::Status F(\n    int x);\nusing A = int;\nclass S : public T {};\n",
                               "c": "int H() { return F(kMost); }\n"}.items():
                (root / f"engine/base/{file}.cc").write_text(f"namespace {{\n\n{text}\n}}  // namespace\n")
            self.assertEqual([line.split()[1] for line in names_twice(root)], ["F", "S", "kMost"])

    def test_a_linked_sqlite_has_every_routine(self):
        self.assertEqual(routines_missing(ROOT), [])

    def test_a_missing_routine_is_seen(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / TABLE).parent.mkdir(parents=True)
            (root / TABLE).write_text("SET(step);\nroutines.interruptx = sqlite3_interrupt;\n")
            (root / "extension/x.cc").write_text(
                "sqlite3_step(s); sqlite3_interrupt(db); sqlite3_reset(s); f(&sqlite3_free);\n")
            self.assertEqual(routines_missing(root), ["free", "reset"])


if __name__ == "__main__":
    unittest.main()
