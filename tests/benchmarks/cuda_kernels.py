#!/usr/bin/env python3
"""Tables what nvcc makes of engine/backend/cuda's kernels: registers, spills, shared memory, how many thread blocks fit a
multiprocessor, and instructions beside each `mma` of the loop that has most of them. Exits 1 where a kernel spills.

    tests/benchmarks/cuda_kernels.py [--arch sm_90] [--only multiply_packed,sampling] [-o kernels.tsv]
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Of a multiprocessor, compute capability 9.0 (CUDA C++ Programming Guide, "Compute Capabilities").
REGISTERS, SHARED, WARPS, BLOCKS, REGISTER_UNIT = 65536, 228 << 10, 64, 32, 256
RESERVED_SHARED = 1 << 10  # of each block
FLAGS = ["-std=c++17", "-O3", "-DNDEBUG", "-fmad=false", "--expt-relaxed-constexpr", f"-I{ROOT}"]  # enable_cuda.cmake's
COLUMNS = ["file", "kernel", "registers", "spill_bytes", "stack_bytes", "shared_bytes", "most_threads", "instructions_per_mma"]


def blocks_of_multiprocessor(registers, shared_bytes, threads):
    """Thread blocks that are resident at once; shared_bytes: static and dynamic."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    return min(BLOCKS, WARPS // warps, REGISTERS // (of_warp * warps), SHARED // (shared_bytes + RESERVED_SHARED))


def short(mangled):
    """_ZN2lm4cuda20AttentionTilesKernelILi4EEEv... -> AttentionTilesKernel<4>, as the simulator names it."""
    name = subprocess.run(["c++filt", mangled], capture_output=True, text=True).stdout.strip()
    for part in ("void ", "(anonymous namespace)::", "(lm::DType)", "lm::cuda::", "lm::"):
        name = name.replace(part, "")
    name = re.sub(r"\((int|bool)\)", "", name).split("(")[0]
    if "PackInput" in name or "Pack16Input" in name or "DeltaRule" in name:
        name = name.replace("<0>", "<false>").replace("<1>", "<true>")
    return name


def instructions_per_mma(ptx):
    """Of PTX: the loop (between a label and a branch back to it) with the most mma.sync, the shortest of them."""
    labels, lines, best = {}, ptx.splitlines(), None
    counts, mmas = [0], [0]  # before each line
    for line in lines:
        code = line.strip()
        is_code = code.endswith(";") and not code.startswith(".")
        counts.append(counts[-1] + is_code)
        mmas.append(mmas[-1] + ("mma.sync" in code))
    for i, line in enumerate(lines):
        label = re.match(r"(\$L\w+):", line.strip())
        if label:
            labels[label[1]] = i
        branch = re.search(r"bra(?:\.uni)?\s+(\$L\w+)", line)
        if branch and branch[1] in labels:
            begin = labels[branch[1]]
            found = (mmas[i + 1] - mmas[begin], -(counts[i + 1] - counts[begin]))
            best = max(best or found, found)
    return -best[1] / best[0] if best and best[0] else 0


def compile_one(path, arch):
    rows = []
    nvcc = pathlib.Path(os.environ.get("NVCC", "nvcc"))  # ptxas is beside it
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = pathlib.Path(folder) / "a.ptx", pathlib.Path(folder) / "a.cubin"
        subprocess.run([nvcc, *FLAGS, f"-arch={arch}", "-ptx", str(path), "-o", str(ptx)], check=True)
        said = subprocess.run([nvcc.with_name("ptxas"), "-v", f"-arch={arch}", "--fmad=false", str(ptx), "-o", str(cubin)], check=True,
                              capture_output=True, text=True).stderr
        text = ptx.read_text()
    bodies = {m[1]: m for m in re.finditer(r"\.entry (\w+)\(.*?\n}\n", text, re.S)}
    for part in said.split("Compiling entry function '")[1:]:
        mangled = part.split("'")[0]
        def number(pattern):
            found = re.search(pattern, part)
            return int(found[1]) if found else 0
        body = bodies[mangled][0]
        threads = re.search(r"\.maxntid (\d+)", body)
        rows.append([path.name, short(mangled), number(r"Used (\d+) registers"),
                     number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"), number(r"(\d+) bytes stack frame"),
                     number(r"(\d+) bytes smem"), int(threads[1]) if threads else 0, round(instructions_per_mma(body), 1)])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", help="names of files, without .cu, with commas between")
    parser.add_argument("-o", "--out", default="-")
    args = parser.parse_args()
    files = sorted((ROOT / "engine/backend/cuda").glob("*.cu"))
    if args.only:
        files = [f for f in files if f.stem in args.only.split(",")]
    rows = [row for f in files for row in compile_one(f, args.arch)]
    out = sys.stdout if args.out == "-" else open(args.out, "w")
    print("\t".join(COLUMNS), file=out)
    for row in rows:
        print("\t".join(map(str, row)), file=out)
    spilling = [row for row in rows if row[3] > 0]
    for row in spilling:
        print(f"{row[1]} ({row[0]}) spills {row[3]} bytes of registers", file=sys.stderr)
    return 1 if spilling or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
