#!/usr/bin/python3
"""How soon a process that begins has its first token, from where, and at what memory.

    opens.py --lm0 build/release/extension/lm0.so [--peer PEER_BENCH] [--opens 20] [--packs DIR] [--drop-caches] MODEL.gguf

Each open is a process of its own: load_extension, the model set, SELECT generate() of one token. Seconds are from before
load_extension to after that row; `peak` is the process's greatest resident memory. In turns: the file in the page cache, the
same from packed weights (`pack_cache`), and, where --drop-caches may (root), both from a cold cache. Then two processes have
the model open at once: what each holds alone and its share of all that is shared (Pss), with packed weights and without. The
peer is a program as compare_peers.py wants it; its load and first token do not include its own start.
"""
import argparse
import os
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time


def open_model(arguments):
    """In the child: prints seconds and MiB, then waits for its standard input to end."""
    begin = time.perf_counter()
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.load_extension(arguments.lm0)
    run = connection.execute
    if arguments.packs:
        run("INSERT INTO temp.lm_settings VALUES ('pack_cache', ?)", [arguments.packs])
    run("INSERT INTO temp.lm_settings VALUES ('model', ?)", [arguments.model])
    run("SELECT generate('Hello', NULL, '{\"max_tokens\":1}')").fetchone()
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds} {peak}", flush=True)
    sys.stdin.read()


def start(arguments, packs):
    command = [sys.executable, os.path.abspath(__file__), "--lm0", arguments.lm0, "--child", arguments.model]
    return subprocess.Popen(command + (["--packs", packs] if packs else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(arguments, packs):
    child = start(arguments, packs)
    line = child.stdout.readline()
    child.communicate("")
    if child.returncode != 0:
        sys.exit(f"an open ended with {child.returncode}")
    return [float(word) for word in line.split()]


def measure_peer(arguments):
    done = subprocess.run([arguments.peer, "bench", arguments.model, str(os.cpu_count()), "only=load", "reps=1"],
                          capture_output=True, text=True, check=True)
    return [float(re.search(r"first-token ([\d.]+)s", done.stdout)[1]), float("nan")]


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("1")


def memory_of(pid):
    """(held alone, proportional share) of a process, MiB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = dict(re.findall(r"^(\w+): +(\d+) kB", file.read(), re.MULTILINE))
    return (int(fields["Private_Clean"]) + int(fields["Private_Dirty"])) / 1024, int(fields["Pss"]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm0", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--opens", type=int, default=20)
    parser.add_argument("--packs")
    parser.add_argument("--drop-caches", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("model")
    arguments = parser.parse_args()
    if arguments.child:
        return open_model(arguments)

    with tempfile.TemporaryDirectory() as own:
        packs = arguments.packs or own
        measure(arguments, packs)  # leaves the packed weights
        ways = {"file": lambda: measure(arguments, None), "packed": lambda: measure(arguments, packs)}
        if arguments.peer:
            ways["peer"] = lambda: measure_peer(arguments)
        cold = {f"{name}, cold": lambda way=way: (drop_caches(), way())[1] for name, way in ways.items()}
        found = {name: [] for name in ways}
        for way in ways.values():
            way()  # what it reads is in the cache
        turns = [ways] + ([cold] if arguments.drop_caches else [])
        for turn in turns:
            for _ in range(arguments.opens):
                for name, way in turn.items():
                    found.setdefault(name, []).append(way())
        print(f"{os.path.basename(arguments.model)}, {os.path.getsize(arguments.model) / 2**20:.0f} MiB, {arguments.opens} opens each\n")
        print("| | first token, s: median | least | most | peak, MiB |\n|---|---|---|---|---|")
        for name, values in found.items():
            seconds = [value[0] for value in values]
            peak = max(value[1] for value in values)
            print(f"| {name} | {statistics.median(seconds):.3f} | {min(seconds):.3f} | {max(seconds):.3f} | {peak:.0f} |")
        print("\n| two processes at once, MiB | held alone | share of all |\n|---|---|---|")
        for name, folder in (("own weights", None), ("packed", packs)):
            children = [start(arguments, folder) for _ in range(2)]
            for child in children:
                child.stdout.readline()
            held = [memory_of(child.pid) for child in children]
            for child in children:
                child.communicate("")
            print(f"| {name} | {held[0][0]:.0f} and {held[1][0]:.0f} | {held[0][1]:.0f} and {held[1][1]:.0f} |")
    return None


if __name__ == "__main__":
    main()
