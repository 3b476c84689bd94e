"""Holds the includes of the source tree to the floors of the house.

A folder includes only from its own floor downward; sqlite3 headers stay in extension/, oneDNN's and
CUDA's in their backends, and nothing above the backends is compiled conditionally.

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
TEXT = BASE | {"engine/text"}
MODEL = DEVICES | TEXT | {"engine/grammar", "engine/cache"}
ALLOWED = {
    "engine/base": set(),
    "engine/tensor": BASE,
    "engine/gguf": TENSOR,
    "engine/backend": TENSOR | {"engine/gguf"},
    "engine/backend/reference": DEVICES,
    "engine/backend/cpu": DEVICES,
    "engine/backend/cuda": DEVICES,
    "engine/text": BASE,
    "engine/grammar": BASE,
    "engine/cache": BASE,
    "engine/model": MODEL,
    "engine/model/families": MODEL | {"engine/model"},
    "engine/runtime": MODEL | {"engine/model", "include/lm"},
    "extension": MODEL | {"engine/model", "engine/runtime", "include/lm"},
}
# The registry makes backends of every kind, so it alone sees into their folders.
REGISTRY = "engine/backend/registry.cc"
BACKENDS = {"engine/backend/reference", "engine/backend/cpu", "engine/backend/cuda"}

# header pattern -> the only folders that may include it.
PRIVATE_HEADERS = [
    (re.compile(r"^sqlite3(ext)?\.h$"), {"extension", "include/lm"}),
    (re.compile(r"dnnl"), {"engine/backend/cpu"}),
    (re.compile(r"^(cuda|cublas|cub/|thrust/)"), {"engine/backend/cuda"}),
    (re.compile(r"immintrin|arm_neon"), {"engine/backend/cpu"}),
    (re.compile(r"pcre2"), {"engine/text", "engine/grammar"}),
    # Broken by an allocation that fails: engine/base/hash_map.h.
    (re.compile(r"absl/container/.*(hash|btree)|absl/strings/str_format"), set()),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b(.*)")
HARMLESS = re.compile(r"_H_\s*$|__cplusplus|__GNUC__|__x86_64__|SQLITE_CORE")


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
                "engine/runtime": "#include <sqlite3.h>\n#ifdef LM_CUDA\n",
                "extension": '#include "engine/runtime/engine.h"\n',
                "engine/attic": "\n",
            }.items():
                (root / folder).mkdir(parents=True)
                (root / folder / "x.cc").write_text(text)
            self.assertEqual(len(list(breaches(root))), 6)


if __name__ == "__main__":
    unittest.main()
