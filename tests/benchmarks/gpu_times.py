#!/usr/bin/env python3
"""Tables what kernel_times wrote down: of the launches that came most often (a decoding step's graph, say), how long each kernel
took; of steps, how long a graph took and what passed between two.

    tests/benchmarks/gpu_times.py TIMES.tsv [--kernels N]     # of the launches of N kernels

A kernel that began early is told from then on, also while it waited: with LM_CUDA_SERIAL=1 none does.
"""
import argparse
import collections
import statistics

from cuda_kernels import short


def read(path):
    """[(what, begin ns, end ns, call, graph, grid, name)] by beginning, and how many were lost."""
    rows, lost = [], 0
    with open(path) as file:
        for line in file:
            f = line.rstrip("\n").split("\t")
            if f[0] == "lost":
                lost += int(f[1])
            else:
                rows.append((f[0], int(f[1]), int(f[2]), int(f[3]), int(f[4]), f[5], f[9]))
    return sorted(rows, key=lambda r: r[1]), lost


def us(values):
    return statistics.median(values) / 1000


def steps(rows):
    """Of graphs that follow each other: what passes from the end of one to the end of the next, by the step that is in the middle."""
    launched = [r for r in rows if r[0] == "graph"]
    if not launched:
        print("there is no graph")
        return
    times = [r[2] - r[1] for r in launched]
    print(f"{len(launched)} graphs, median {us(times):.1f} us")
    pairs = [(b[2] - a[2], a, b) for a, b in zip(launched, launched[1:]) if a[4] == b[4]]
    if not pairs:
        return
    gaps = [b[1] - a[2] for _, a, b in pairs]
    print(f"between two of the same {us(gaps):.1f} us; one of these:")
    _, a, b = sorted(pairs, key=lambda pair: pair[0])[len(pairs) // 2]
    for what, begin, end, _, _, _, name in rows:
        if a[2] - 100_000 <= begin <= b[2] + 20_000 and what != "graph":
            print(f"  {(begin - a[2]) / 1000:9.1f} {(end - begin) / 1000:8.1f} us  {what} {name}")
    print(f"  {(b[1] - a[2]) / 1000:9.1f} {(b[2] - b[1]) / 1000:8.1f} us  graph")


def kernels(rows, wanted):
    calls = collections.defaultdict(list)
    for row in rows:
        calls[row[3]].append(row)
    alike = collections.defaultdict(list)
    for launched in calls.values():
        if wanted is None or len(launched) == wanted:
            alike[tuple((r[5], r[6]) for r in launched)].append(launched)
    if not alike:
        print("there is no such launch")
        return
    same = max(alike.values(), key=lambda all: (len(all), sum(c[-1][2] - c[0][1] for c in all)))
    names = {}
    table = collections.defaultdict(list)  # (kernel, grid) -> a median for each of a launch
    for i, row in enumerate(same[0]):
        name = names.setdefault(row[6], short(row[6]))
        table[name, row[5]].append(us([c[i][2] - c[i][1] for c in same]))
    total = sum(map(sum, table.values()))
    print(f"{len(same)} launches of {len(same[0])} kernels: {us([c[-1][2] - c[0][1] for c in same]):.1f} us, of which kernels {total:.1f}")
    for (name, grid), times in sorted(table.items(), key=lambda item: -sum(item[1])):
        print(f"  {sum(times):8.1f} us {100 * sum(times) / total:5.1f}%  {len(times):4} x {statistics.median(times):7.2f} us  {grid:>10}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times")
    parser.add_argument("--kernels", type=int)
    args = parser.parse_args()
    rows, lost = read(args.times)
    if lost:
        print(f"{lost} records were lost")
    if not rows:
        print("nothing was written down")
    elif any(row[0] == "graph" for row in rows):
        steps(rows)
    else:
        kernels(rows, args.kernels)


if __name__ == "__main__":
    main()
