"""Nothing of ours is destroyed at exit(): other threads go on using it while exit() does its work.

    python3 tests/static_objects_test.py LIBRARY.a ...     # exits 1 with a line for each breach

A C++ object with static storage duration and a destructor that does anything has the compiler
register that with __cxa_atexit. Looks for such calls in the object files; <iostream>'s own object,
one a file, only counts its users.
"""
import re
import subprocess
import sys
import tempfile
import pathlib

# "file.cc.o:     file format ..." and "0000 R_X86_64_PLT32  __cxa_atexit-0x4"
FILE = re.compile(r"^(\S.*\.o):\s+file format")
CALL = re.compile(r"^[0-9a-f]+ R_\S*(PLT|PC|CALL|GOT)\S*\s+__cxa_atexit\b")
IOSTREAM = re.compile(r"_ZNSt8ios_base4InitD1Ev")


def breaches(library):
    """Yields the object files of an archive that have something destroyed, and how much."""
    listing = subprocess.run(["objdump", "--reloc", library], check=True, capture_output=True,
                             text=True).stdout
    files = []  # [name, calls, has <iostream>]: names are not unique in an archive
    for line in listing.splitlines():
        match = FILE.match(line)
        if match:
            files.append([match.group(1), 0, False])
        elif CALL.match(line):
            files[-1][1] += 1
        elif IOSTREAM.search(line):
            files[-1][2] = True
    for name, calls, iostream in files:
        if calls > iostream:
            yield name, calls - iostream


def has_breach(source):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.cc"
        path.write_text(source)
        subprocess.run(["c++", "-std=c++20", "-O2", "-fPIC", "-c", str(path), "-o", f"{folder}/x.o"], check=True)
        subprocess.run(["ar", "rc", f"{folder}/x.a", f"{folder}/x.o"], check=True)
        return list(breaches(f"{folder}/x.a")) != []


def main():
    # The test can fail.
    assert has_breach("#include <string>\nstd::string s(100, 'x');\n")
    assert has_breach("#include <iostream>\n#include <string>\n"
                      "const std::string& f() { static const std::string s(100, 'x'); return s; }\n")
    assert not has_breach("#include <iostream>\n#include <string>\n"
                          "const std::string& f() { static auto& s = *new std::string(100, 'x'); return s; }\n")
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = [(library, name, count) for library in sys.argv[1:] for name, count in breaches(library)]
    for library, name, count in found:
        print(f"{library}: {name}: {count} object(s) with static storage duration are destroyed at exit()")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
