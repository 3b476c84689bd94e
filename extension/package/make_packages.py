"""Makes what people install of a self-contained lm0.so and sqlite-lm: tarballs, a Debian package, wheels, npm packages, checksums.

    make_packages.py --version 0.1.0 --library lm0.so --program sqlite-lm --static liblm.a --strip strip --machine x86_64 --out dist

Of an lm0.so with CUDA inside (--cuda) it makes what is installed beside them: a tarball, and a wheel whose lm0.so sqlite_lm then loads.
What it writes depends on nothing but its input: the same bytes each time. (extension/package/CMakeLists.txt calls it.)
"""
import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SUMMARY = "Local language models inside SQLite: SELECT generate(prompt)"
# cmake's name of a machine -> Debian's, npm's
MACHINES = {"x86_64": ("amd64", "x64"), "aarch64": ("arm64", "arm64")}
# What every Linux of today has: glibc and the C++ runtime.
PROVIDED = re.compile(r"^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux[-\w]*\.so\.\d)$")
MADE = 499162500  # seconds since 1970, of each file in a package
GLIBCXX = (3, 4, 30)  # of gcc 12
GLIBC = (2, 34)  # the wheel's tag says so, and pip takes it at its word


def fail(text):
    sys.exit(f"make_packages.py: {text}")


def check_library(path, readelf):
    """It loads wherever there is a glibc as old as GLIBC says. What it needs, and the newest of glibc."""
    dynamic = subprocess.run([readelf, "-dW", path], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    strange = [name for name in needed if not PROVIDED.match(name)]
    if strange:
        fail(f"{path} needs {', '.join(strange)}; configure with -DLM_SELF_CONTAINED=ON")
    symbols = subprocess.run([readelf, "--dyn-syms", "-W", path], check=True, capture_output=True, text=True).stdout
    newest = max(tuple(map(int, v.split("."))) for v in re.findall(r"@GLIBC_([\d.]+)", symbols))
    newest_runtime = max(tuple(map(int, v.split("."))) for v in re.findall(r"@GLIBCXX_([\d.]+)", symbols) or ["0"])
    if newest_runtime > GLIBCXX:
        fail(f"{path} needs GLIBCXX_{'.'.join(map(str, newest_runtime))}, newer than {'.'.join(map(str, GLIBCXX))}")
    if newest > GLIBC:
        fail(f"{path} needs glibc {'.'.join(map(str, newest))}, newer than {'.'.join(map(str, GLIBC))}")
    return needed, newest


def mode_of(name):
    return 0o755 if name.endswith((".so", "/sqlite-lm")) or name == "sqlite-lm" else 0o644


def pages():
    """The README and what it leads to of sql/, by their names in the tree."""
    return {str(path.relative_to(ROOT)): path.read_bytes()
            for pattern in ("LICENSE", "README.md", "sql/*.md", "sql/guide/*.md", "sql/reference/*.sql", "sql/demo/*.svg", "sql/demo/documents.csv")
            for path in sorted(ROOT.glob(pattern))}


class Files:
    """Contents of a package by their names in it."""

    def __init__(self):
        self.contents = {}

    def add(self, name, content):
        self.contents[name] = content if isinstance(content, bytes) else content.encode()
        return self

    def add_all(self, prefix, paths):
        for path in paths:
            self.add(prefix + path.name, path.read_bytes())
        return self

    def add_pages(self):
        self.contents.update(pages())
        return self

    def tar(self, path, prefix):
        with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            with tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar:
                for name, content in sorted(self.contents.items()):
                    info = tarfile.TarInfo(prefix + name)
                    info.size, info.mode, info.mtime = len(content), mode_of(name), MADE
                    tar.addfile(info, io.BytesIO(content))

    def wheel(self, folder, name, version, tag, metadata, entry_points=""):
        info = f"{name}-{version}.dist-info/"
        self.add(info + "METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
                 f"License: MIT\n{metadata}")
        self.add(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: sqlite-lm\n"
                 f"Root-Is-Purelib: {'true' if tag.endswith('any') else 'false'}\nTag: {tag}\n")
        self.add(info + "LICENSE", (ROOT / "LICENSE").read_bytes())
        if entry_points:
            self.add(info + "entry_points.txt", entry_points)
        record = []
        for path, content in sorted(self.contents.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")
        self.add(info + "RECORD", "".join(record) + f"{info}RECORD,,\n")
        with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(self.contents.items(), key=lambda item: (info in item[0], item[0])):
                entry = zipfile.ZipInfo(path, (1985, 10, 26, 8, 15, 0))
                entry.external_attr = (stat.S_IFREG | mode_of(path)) << 16  # pip makes programs of regular files only
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)


def said_by(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


def template(path, **values):
    text = path.read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def make_debian_package(out, version, machine, library, program, model, newest, emulator):
    architecture = MACHINES[machine][0]
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch)
        home, path = tree / "usr/lib/sqlite-lm", tree / f"usr/lib/{machine}-linux-gnu"
        documents = tree / "usr/share/doc/sqlite-lm"
        manual, completion = tree / "usr/share/man/man1", tree / "usr/share/bash-completion/completions"
        for folder in (home, path, documents, manual, completion, tree / "usr/bin", tree / "DEBIAN"):
            folder.mkdir(parents=True)
        (home / "lm0.so").write_bytes(library)
        (home / "sqlite-lm").write_bytes(program)
        (tree / "usr/bin/sqlite-lm").symlink_to("../lib/sqlite-lm/sqlite-lm")
        (home / "sqlite-lm").chmod(0o755)
        (manual / "sqlite-lm.1.gz").write_bytes(gzip.compress(said_by(*emulator, home / "sqlite-lm", "man"), mtime=0))
        (completion / "sqlite-lm").write_bytes(said_by(*emulator, home / "sqlite-lm", "completion", "bash"))
        shutil.copy(model, home)
        (path / "lm0.so").symlink_to("../sqlite-lm/lm0.so")  # so that `.load lm0` finds it
        for name, content in pages().items():
            (documents / name).parent.mkdir(parents=True, exist_ok=True)
            (documents / name).write_bytes(content)
        (documents / "LICENSE").unlink()  # Debian's place for it is `copyright`
        (documents / "copyright").write_text(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n"
            "Copyright: 2026 The sqlite-lm authors\nLicense: Expat\n"
            + "".join(f" {line.strip() or '.'}\n" for line in (ROOT / "LICENSE").read_text().splitlines()[4:]))
        size = sum(f.stat().st_size for f in tree.rglob("*") if f.is_file() and not f.is_symlink()) // 1024
        (tree / "DEBIAN/control").write_text(
            f"Package: sqlite-lm\nVersion: {version}\nArchitecture: {architecture}\n"
            "Maintainer: The sqlite-lm authors <sqlite-lm@localhost>\nSection: database\nPriority: optional\n"
            f"Installed-Size: {size}\nDepends: libc6 (>= {'.'.join(map(str, newest))}), libgcc-s1, libstdc++6 (>= 12)\n"
            f"Suggests: sqlite3\nDescription: {SUMMARY}\n"
            " A loadable extension for SQLite with an inference engine of its own. In the shell: .load lm0\n")
        for file in (tree, *tree.rglob("*")):
            if not file.is_symlink():
                file.chmod(0o755 if file.is_dir() else mode_of(file.name))
        (completion / "sqlite-lm").chmod(0o644)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", "-Zxz", tree,
                        out / f"sqlite-lm_{version}_{architecture}.deb"], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"SOURCE_DATE_EPOCH": str(MADE)})


def wheel_tag(machine):
    return f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def make_wheels(out, version, machine, library, program, model):
    python = HERE / "python"
    metadata = (f"Summary: {SUMMARY}\nRequires-Python: >=3.8\nProvides-Extra: cuda\n"
                f"Requires-Dist: sqlite-lm-cuda=={version}; extra == 'cuda'\n"
                "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text())
    wheel = Files().add("sqlite_lm/lm0.so", library).add("sqlite_lm/sqlite-lm", program).add_all("sqlite_lm/", [model, python / "sqlite_lm/py.typed", python / "sqlite_lm/__main__.py"])
    wheel.add("sqlite_lm/__init__.py", template(python / "sqlite_lm/__init__.py", VERSION=version))
    wheel.wheel(out, "sqlite_lm", version, wheel_tag(machine), metadata,
                "[console_scripts]\nsqlite-lm = sqlite_lm.__main__:main\n")
    for name, host, at_least in (("datasette_sqlite_lm", "datasette", ""), ("sqlite_utils_sqlite_lm", "sqlite-utils", ">=3.35"),
                                 ("llm_sqlite_lm", "llm", ">=0.13")):
        module = host.replace("-", "_")
        plugin = Files().add(f"{name}.py", (python / f"{name}.py").read_bytes())
        plugin.wheel(out, name, version, "py3-none-any",
                     f"Summary: sqlite-lm in {host}\nRequires-Python: >=3.8\n"
                     f"Requires-Dist: sqlite-lm=={version}\nRequires-Dist: {host}{at_least}\n",
                     f"[{module}]\nsqlite_lm = {name}\n")


def make_cuda_packages(out, version, machine, library, model):
    Files().add("lm0.so", library).add_all("", [model]).add_pages().tar(
        out / f"sqlite-lm-cuda-{version}-loadable-linux-{machine}.tar.gz", f"sqlite-lm-cuda-{version}/")
    wheel = Files().add("sqlite_lm_cuda/lm0.so", library).add_all("sqlite_lm_cuda/", [model])
    wheel.add_all("sqlite_lm_cuda/", [HERE / "python/sqlite_lm_cuda/__init__.py"])
    wheel.wheel(out, "sqlite_lm_cuda", version, wheel_tag(machine),
                f"Summary: sqlite-lm with CUDA inside\nRequires-Python: >=3.8\nRequires-Dist: sqlite-lm=={version}\n")


def make_npm_packages(out, version, machine, library, model):
    platforms = [f"linux-{cpu}" for _, cpu in MACHINES.values()]
    here = f"linux-{MACHINES[machine][1]}"
    common = {"version": version, "description": SUMMARY, "license": "MIT", "keywords": ["sqlite", "llm", "extension"]}
    main = Files().add_all("", [HERE / "npm/index.mjs", HERE / "npm/index.d.ts"]).add_pages()
    main.add("index.cjs", template(HERE / "npm/index.cjs", PLATFORMS='", "'.join(platforms)))
    main.add("package.json", json.dumps({
        "name": "sqlite-lm", **common, "main": "index.cjs", "types": "index.d.ts",
        "exports": {".": {"types": "./index.d.ts", "import": "./index.mjs", "require": "./index.cjs"}},
        "optionalDependencies": {f"sqlite-lm-{name}": version for name in platforms}}, indent=2))
    main.tar(out / f"sqlite-lm-{version}.tgz", "package/")
    binary = Files().add("lm0.so", library).add_all("", [ROOT / "LICENSE", model])
    binary.add("package.json", json.dumps({
        "name": f"sqlite-lm-{here}", **common, "os": ["linux"], "cpu": [MACHINES[machine][1]], "libc": ["glibc"],
        "exports": {"./lm0.so": "./lm0.so", "./package.json": "./package.json"}}, indent=2))
    binary.tar(out / f"sqlite-lm-{here}-{version}.tgz", "package/")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--static", required=True, type=pathlib.Path)
    parser.add_argument("--strip", default="strip")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--machine", default="x86_64", choices=MACHINES)
    parser.add_argument("--emulator", default="", help="what runs a program of that machine here, if that takes something")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    version, machine, out = arguments.version, arguments.machine, arguments.out
    model = ROOT / "sql/models/debian-notes.gguf"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        binaries = []
        for path in (arguments.library, arguments.program):
            stripped = pathlib.Path(scratch) / path.name
            subprocess.run([arguments.strip, "--strip-unneeded", "-o", stripped, path], check=True)
            binaries.append((stripped.read_bytes(), *check_library(stripped, arguments.readelf)))
    (library, needed, newest), (program, _, program_newest) = binaries
    newest = max(newest, program_newest)
    if arguments.cuda:
        make_cuda_packages(out, version, machine, library, model)
    else:
        Files().add("lm0.so", library).add("sqlite-lm", program).add_all("", [model]).add_pages().tar(
            out / f"sqlite-lm-{version}-loadable-linux-{machine}.tar.gz", f"sqlite-lm-{version}/")
        static = Files().add_all("", [model]).add_pages().add_all("lib/", [arguments.static])
        static.add_all("include/lm/", sorted((ROOT / "include/lm").glob("*.h")))
        static.tar(out / f"sqlite-lm-{version}-static-linux-{machine}.tar.gz", f"sqlite-lm-{version}/")
        make_debian_package(out, version, machine, library, program, model, newest, shlex.split(arguments.emulator))
        make_wheels(out, version, machine, library, program, model)
        make_npm_packages(out, version, machine, library, model)
    packages = sorted(out.iterdir())
    (out / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in packages))
    print(f"lm0.so: {len(library) / 1e6:.1f} MB, glibc {'.'.join(map(str, newest))} or newer, needs {', '.join(needed)}")
    for package in packages:
        print(f"{package.stat().st_size / 1e6:8.2f} MB  {package}")


if __name__ == "__main__":
    main()
