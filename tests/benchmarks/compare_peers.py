#!/usr/bin/env python3
"""Measures lm_bench and a peer's benchmark side by side and prints medians and ratios as a markdown table.

    compare_peers.py --ours build/release/tests/benchmarks/lm_bench --peer PEER_BENCH [--rounds 3] [--threads 2]
                     [--only load,pp512,tg128,b32,rows64] [--raw FILE.json] MODEL.gguf ...

The two take turns, round after round on each model, so that a machine whose speed drifts drifts for both. The peer is a
program that answers

    PEER_BENCH bench MODEL THREADS only=load,pp,tg,batch,rows reps=N

with one line of `name value` fields parted by ` | `: "load 0.13s first-token 0.20s", "pp512 401.0", "tg128 78.0",
"tg@b32 243.0", "rows64 14.50s (4.41 rows/s, ...)"; its environment is this program's. Figures of seconds and MiB are
better when they are small: their ratios are the peer's over ours, so that a ratio above 1 is always in our favour.

A run during which other programs (or the host of a virtual machine) took more than 4% of the processors' time is done again, up
to --retries times; the table says how much they took in the runs that count.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys

PEER_GROUPS = {"load": "load", "pp512": "pp", "tg128": "tg", "rows64": "rows"}
UNITS = {"load_s": "s", "first_token_s": "s", "rss_mib": "MiB", "rows64": "rows/s"}
NAMES = ["load_s", "first_token_s", "rss_mib", "pp512", "tg128", *(f"b{2 ** i}" for i in range(7)), "rows64"]


MOST_FOREIGN = 0.04


def processor_seconds():
    """(busy or stolen, all) seconds of all processors since they started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, idle, iowait, irq, softirq, steal = (int(word) for word in file.readline().split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return busy / os.sysconf("SC_CLK_TCK"), (busy + idle + iowait) / os.sysconf("SC_CLK_TCK")


class Runner:
    """Runs commands, again where others disturbed them."""

    def __init__(self, retries):
        self.retries = retries
        self.foreign = []  # share of the processors that others took, of each run that counts

    def run(self, command):
        """The command's output; a failure ends the program with what it said."""
        for attempt in range(self.retries + 1):
            busy, every = processor_seconds()
            own = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy, every = (after - before for after, before in zip(processor_seconds(), (busy, every)))
            ours = used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime
            foreign = max(0.0, busy - ours) / every
            if foreign <= MOST_FOREIGN or attempt == self.retries:
                self.foreign.append(foreign)
                return done.stdout
            print(f"others took {100 * foreign:.0f}% of the processors: {command[0]} runs again", file=sys.stderr)
        return None


def measure_ours(runner, binary, model, threads, only, reps):
    figures = json.loads(runner.run([binary, model, "--threads", str(threads), "--reps", str(reps), "--only", ",".join(only), "--json"]))
    return {name: figures[name] for name in NAMES if name in figures}, figures["ceilings"], figures.get("shares", {})


def parse_peer(line):
    """The figures of the peer's line, by our names."""
    patterns = {
        "load_s": r"\bload ([\d.]+)s", "first_token_s": r"\bfirst-token ([\d.]+)s", "rss_mib": r"\brss=(\d+)",
        "pp512": r"\bpp512 ([\d.]+)", "tg128": r"\btg128 ([\d.]+)", "rows64": r"\brows64 [\d.]+s \(([\d.]+) rows/s",
    }
    found = {name: re.search(pattern, line) for name, pattern in patterns.items()}
    figures = {name: float(match.group(1)) for name, match in found.items() if match}
    figures.update({f"b{rows}": float(rate) for rows, rate in re.findall(r"\btg@b(\d+) ([\d.]+)", line)})
    return figures


def measure_peer(runner, binary, model, threads, only, reps):
    groups = {PEER_GROUPS.get(name, "batch") for name in only}
    return parse_peer(runner.run([binary, "bench", model, str(threads), "only=" + ",".join(sorted(groups)), f"reps={reps}"]))


def medians(rounds):
    names = [name for name in NAMES if any(name in figures for figures in rounds)]
    return {name: statistics.median(figures[name] for figures in rounds if name in figures) for name in names}


def number(value):
    return f"{value:.3f}" if value < 2 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def print_table(model, ours, peer, shares):
    print(f"\n**{pathlib.Path(model).stem}**\n")
    print("| | ours | peer | ratio | of arithmetic | of bandwidth |\n|---|---|---|---|---|---|")
    for name in NAMES:
        if name not in ours:
            continue
        unit = UNITS.get(name, "tokens/s")
        theirs, ratio = "-", "-"
        if name in peer:
            theirs = number(peer[name])
            ratio = f"{peer[name] / ours[name] if unit in ('s', 'MiB') else ours[name] / peer[name]:.2f}"
        share = [f"{100 * part:.0f}%" for part in shares.get(name, [])] or ["", ""]
        print(f"| {name}, {unit} | {number(ours[name])} | {theirs} | {ratio} | {share[0]} | {share[1]} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ours", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=1, help="runs of each figure within a round; a round keeps their median")
    parser.add_argument("--only", default="load,pp512,tg128,b8,b16,b32,rows64")
    parser.add_argument("--retries", type=int, default=2)
    parser.add_argument("--raw", help="a file for every round's figures, as JSON")
    arguments = parser.parse_args()
    only = arguments.only.split(",")

    raw = {}
    for model in arguments.models:
        runner = Runner(arguments.retries)
        ours, peer, ceilings, shares = [], [], [], []
        for _ in range(arguments.rounds):
            figures, ceiling, share = measure_ours(runner, arguments.ours, model, arguments.threads, only, arguments.reps)
            ours.append(figures)
            ceilings.append(ceiling)
            shares.append(share)
            peer.append(measure_peer(runner, arguments.peer, model, arguments.threads, only, arguments.reps))
        raw[model] = {"ours": ours, "peer": peer, "ceilings": ceilings, "shares": shares}
        middle = {name: [statistics.median(share[name][part] for share in shares) for part in (0, 1)] for name in shares[0]}
        print_table(model, medians(ours), medians(peer), middle)
        print("\nceilings: " + ", ".join(f"{name} {statistics.median(c[name] for c in ceilings):.0f}" for name in ceilings[0])
              + f"; others took at most {100 * max(runner.foreign):.0f}% of the processors")
    if arguments.raw:
        pathlib.Path(arguments.raw).write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
