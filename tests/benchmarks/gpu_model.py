#!/usr/bin/env python3
"""Predicts, without a GPU, what the CUDA backend's kernels and steps take on one: from what the simulator counts
(tests/engine/backend/cuda_on_host, cuda_counts) and what nvcc makes of the kernels (cuda_kernels.py).

    tests/benchmarks/cuda_kernels.py -o build/gpu_model/kernels.tsv
    tests/benchmarks/gpu_model.py --work build/gpu_model [--shapes 1b,8b,30b-a3b] [--types Q8_0,Q4_K,F16,MXFP4] [--gpu H200]
    tests/benchmarks/gpu_model.py --work build/gpu_model --kernel 1b Q8_0 decode1     # the launches of a step
    tests/benchmarks/gpu_model.py --work build/gpu_model --shapes 70b --types Q8_0 --together   # one GPU, and two together

A launch takes as long as the longest of these, and the gap to the launch before:
  dram     bytes of the sectors that it touches, each once, at the memory's rate; but those that it has asked for before it
           waits for the launch before (engine/backend/cuda/kernel_order.cuh), as far as that one leaves the memory idle
  l2       bytes of the sectors that its warps ask for, at the second-level cache's rate
  issue    instructions of warps, four a cycle and multiprocessor (of products of many tokens the share of these that was
           measured): those of the mma loops by their PTX, else OTHERS_A_REQUEST for each access
  tensor   multiplications of the tensor cores, at the share of their peak that mma.sync reaches
  shared   wavefronts of shared memory, one a cycle and multiprocessor
  latency  a thread block's own time (it begins, waits for what it has asked for as often as its warps do, packs its input, and
           ends) times the turns in which the grid runs, while the memory works for the other blocks of the multiprocessor; of
           blocks that copy ahead all of the memory's time, or their waits for copies, behind that
A step is its launches one after the other. The host's part is not in it. Of two GPUs that compute together it is the launches
of one: where it copies what the other one has made these bytes come over NVLink, and where they wait for each other JOIN is added.
"""
import argparse
import collections
import csv
import pathlib
import subprocess
import sys

from cuda_kernels import blocks_of_multiprocessor
from shape_model import SHAPES, TYPES, write

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Datasheets (NVIDIA H100 SXM and H200 SXM: memory, dense bf16 and int8 peaks) and the clock that the bf16 peak stands for: 132
# multiprocessors of 4,096 operations a cycle.
PEAK_16, PEAK_INT8, SMS = 989e12, 1979e12, 132
CLOCK = PEAK_16 / (SMS * 4096)
GPUS = {"H200": 4.8e12, "H100": 3.35e12}
# Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (2024): mma.sync reaches
# about 62% of the peak that wgmma has; latencies of about 479 (memory) and 263 (L2) cycles.
MMA_SYNC = 0.62
LATENCY_DRAM, LATENCY_L2 = 479 / CLOCK, 263 / CLOCK
L2_RATE = 5.5e12  # chipsandcheese.com, "Nvidia's H100", measured on the PCIe card
# What a kernel of a graph takes that does nothing, as CUPTI tells it on an H200 (1.7 to 1.9 us; gpu.md). As is
# commonly found, not measured here: of a launch by itself (2 to 4 us); a block's beginning and end (its index arithmetic, the last
# barrier, what it stores).
GAP_IN_GRAPH, GAP_ALONE, BLOCK_ENDS = 1.8e-6, 3.0e-6, 0.8e-6
# Of kernels that have begun before the one before has ended, which products let nobody do: a stream of 1B took 80 us less where
# some 70 of its kernels did. Half of a block's beginning and end is taken for its end.
GAP_EARLY, BLOCK_ENDS_EARLY = 0.7e-6, BLOCK_ENDS / 2
# NVIDIA H100 and H200 SXM: NVLink 900 GB/s, half of it each way. What it takes until a kernel of one GPU begins when one of
# another has ended, and until the first bytes come, is a guess within what is commonly found.
NVLINK, JOIN, LATENCY_PEER = 450e9, 3.0e-6, 1.0e-6
# Of the issue slots that products of many tokens use, with one thread block on a multiprocessor and with two: measured on an H200.
ISSUE_OF_MANY = (0.47, 0.61)
OTHERS_A_REQUEST = 6  # by reading the small kernels
PACKING_A_SHUFFLE = 30  # instructions of products that pack their input, beside each of their shuffles: likewise
CHUNKS = 16  # of 512 tokens, of a prompt of 8,192

Launch = collections.namedtuple("Launch", "kernel grid launches time limit parts bytes mma idle")


def read_kernels(path):
    with open(path) as file:
        return {row["kernel"]: row for row in csv.DictReader(file, delimiter="\t")}


def read_counts(path):
    """{step: ([rows of launches], [host's numbers])}"""
    steps = {}
    with open(path) as file:
        header = next(file).rstrip("\n").split("\t")
        for line in file:
            fields = line.rstrip("\n").split("\t")
            rows, host = steps.setdefault(fields[0], ([], []))
            if fields[1] == "host":
                host.extend(map(int, fields[2:]))
            else:
                rows.append({k: v if k in ("step", "kernel") else float(v) for k, v in zip(header, fields)})
    return steps


def predict(row, kernels, rate, in_graph, idle):
    """idle: seconds of the launch before in which it leaves the memory alone; None where it lets nobody begin early."""
    made = kernels.get(row["kernel"])
    n = row["launches"]
    grid = row["grid_x"] * row["grid_y"]
    registers = int(made["registers"]) if made else 64
    resident = blocks_of_multiprocessor(registers, row["shared_bytes"], row["threads"])
    requests = row["load_requests"] + row["store_requests"] + row["shared_requests"] + row["shuffles"]
    by_mma = float(made["instructions_per_mma"]) if made and row["mma_instructions"] else 0
    instructions = row["mma_instructions"] * by_mma or OTHERS_A_REQUEST * requests + row["fma"] / 32
    packing = PACKING_A_SHUFFLE * (row["shuffles"] - row["mma_instructions"]) if row["most_copy_waits"] else 0
    of_sms = 4 * min(SMS, grid) * CLOCK * n
    if row["kernel"].startswith("MultiplyMany"):
        of_sms *= ISSUE_OF_MANY[min(resident, grid / SMS) > 1]
    early = row["early_launches"] > 0 and idle is not None
    # Half of a multiprocessor's room may be taken by the launch before.
    ahead = row["early_bytes"] / n * min(1.0, SMS * max(1, resident // 2) / grid) / rate
    dram = row["dram_bytes"] / n / rate - min(ahead, idle or 0.0)
    turns = max(1.0, grid / (SMS * resident))
    first_wait = LATENCY_L2 if row["early_bytes"] else LATENCY_DRAM
    waits = first_wait + (max(1, row["most_load_waits"]) - 1) * LATENCY_L2
    block_ends = BLOCK_ENDS_EARLY if early else BLOCK_ENDS
    gap = GAP_EARLY if early else GAP_IN_GRAPH if in_graph else GAP_ALONE
    copies = turns * row["most_copy_waits"] * LATENCY_DRAM
    parts = {
        "dram": dram,
        "l2": 32 * (row["load_sectors"] + row["store_sectors"]) / n / L2_RATE,
        "issue": (instructions + packing) / of_sms,
        "tensor": (2 * row["mma_int8"] / PEAK_INT8 + 2 * row["mma_16"] / PEAK_16) / n / MMA_SYNC,
        "shared": row["wavefronts"] / n / (SMS * CLOCK),
        "latency": turns * (block_ends + waits) + packing / of_sms + (max(dram, copies) if copies else dram / resident),
    }
    if row["kernel"].startswith("CopyMatrix"):  # half of what it reads and writes
        parts["nvlink"] = row["dram_bytes"] / n / 2 / NVLINK + LATENCY_PEER
    limit = max(parts, key=parts.get)
    time = parts[limit] + gap
    return Launch(row["kernel"], f"{row['grid_x']:.0f}x{row['grid_y']:.0f}", n, time, limit, parts, row["dram_bytes"],
                  2 * (row["mma_int8"] + row["mma_16"]), max(0.0, time - dram))


class Model:
    """The counts of a shape and type, of one layer and of two."""

    def __init__(self, shape, dtype, work, program, kernels, blocks, gpus=1):
        self.shape, self.dtype, self.kernels, self.gpus = SHAPES[shape], dtype, kernels, gpus
        self.counts = {}
        device = "+".join(f"cuda:{i}" for i in range(gpus))
        for layers in (1, 2):
            path = work / f"{shape}-{dtype}-{layers}{'' if gpus == 1 else f'-{gpus}gpus'}.tsv"
            if not path.exists():
                gguf = work / "shape.gguf"
                write(gguf, self.shape, dtype, layers)
                out = subprocess.run([program, gguf, str(blocks), device], check=True, capture_output=True, text=True).stdout
                path.write_text(out)
                gguf.unlink()
            self.counts[layers] = read_counts(path)

    def launches(self, layers, step, rate):
        rows, host = self.counts[layers][step]
        # Each expert's weights lie by themselves, and some thread blocks see some experts: all that are chosen are read.
        of_experts = sum(row["dram_bytes"] for row in rows if "OfExperts" in row["kernel"])
        more = 1.0
        if of_experts and step.startswith("decode"):
            more = max(more, layers * self.chosen_bytes(int(step.removeprefix("decode"))) / of_experts)
        launches, idle = [], 0.0
        for row in rows:
            if "OfExperts" in row["kernel"]:
                row = row | {"dram_bytes": row["dram_bytes"] * more}
            launches.append(predict(row, self.kernels, rate, host[0] > 0, idle))
            idle = None if row["kernel"].startswith("Multiply") else launches[-1].idle
        return launches

    def sum(self, step, rate, value):
        """Of all layers: that of one, and what the second one adds, for each other."""
        one, two = (sum(value(l) for l in self.launches(layers, step, rate)) for layers in (1, 2))
        return one + (self.shape["layers"] - 1) * (two - one)

    def time(self, step, rate):
        return self.sum(step, rate, lambda l: l.launches * l.time) + self.host(step)[5] * JOIN

    def host(self, step):
        """Of all layers: graphs, launches by themselves, waits, copies, kernels, waits of one GPU for another."""
        one, two = (self.counts[layers][step][1] + [0] for layers in (1, 2))  # (older counts have five)
        return [a + (self.shape["layers"] - 1) * (b - a) for a, b in zip(one, two)]

    def distinct_experts(self, tokens):
        """Of a layer, that tokens choose by chance; 1 where there are none to choose."""
        experts, used = self.shape.get("experts", 1), self.shape.get("used", 1)
        return experts * (1 - (1 - used / experts) ** tokens)

    def weights(self, tokens, with_head=True):
        """(parameters that a token is multiplied with, bytes of weights that `tokens` tokens need, each once)"""
        s = self.shape
        q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
        attention = s["hidden"] * (2 * q + 2 * kv)
        expert = 3 * s["hidden"] * s["ffn"]
        head = s["hidden"] * s["vocab"] if with_head else 0
        _, values, size = TYPES[self.dtype]
        active = s["layers"] * (attention + s.get("used", 1) * expert) + head
        return active, (s["layers"] * (attention + self.distinct_experts(tokens) * expert) + head) * size / values

    def chosen_bytes(self, tokens):
        """Weights of the experts that tokens choose by chance, of a layer."""
        _, values, size = TYPES[self.dtype]
        return self.distinct_experts(tokens) * 3 * self.shape["hidden"] * self.shape["ffn"] * size / values

    def kv_bytes(self, tokens):
        s = self.shape
        return tokens * s["layers"] * s["kv_heads"] * s["head"] * 2 * 2


def print_tables(models, gpu):
    rate = GPUS[gpu]
    print(f"| {gpu} | one graph's kernels | decode: tokens/s at 1 | 8 | 32 | 64 rows | share of bandwidth at 1 | 8 | 32 | 64 | "
          "prefill 512, tokens/s | 8,192 | share of bf16's peak at 512 | 8,192 |")
    print("|---" * 14 + "|")
    for name, dtype, model in models:
        speeds, shares = [], []
        for rows in (1, 8, 32, 64):
            time = model.time(f"decode{rows}", rate)
            least = (model.weights(rows)[1] + model.kv_bytes(rows * 1024)) / rate / model.gpus
            speeds.append(f"{rows / time:,.0f}")
            shares.append(f"{least / time:.0%}")
        first, last = (model.time(f"prefill512@{p}", rate) for p in (0, 7680))
        long = sum(first + (last - first) * i / (CHUNKS - 1) for i in range(CHUNKS))
        work = 2 * model.weights(512, with_head=False)[0]
        prefill = [f"{512 / first:,.0f}", f"{512 * CHUNKS / long:,.0f}"]
        peak = PEAK_16 * model.gpus
        peaks = [f"{work * 512 / first / peak:.0%}", f"{work * 512 * CHUNKS / long / peak:.0%}"]
        host = model.host("decode1")
        several = "" if model.gpus == 1 else f", {model.gpus} GPUs, {host[5]:.0f} times one waits for the other"
        print("| " + " | ".join([f"{name} {dtype}{several}", f"{host[4]:.0f} ({host[0]:.0f} graphs, {host[2]:.0f} waits)", *speeds, *shares,
                                 *prefill, *peaks]) + " |")


def print_launches(model, step, rate):
    print("| kernel | grid | launches | us each | limit | dram | l2 | issue | tensor | shared | latency | MB |")
    print("|---" * 12 + "|")
    for l in model.launches(1, step, rate):
        parts = " | ".join(f"{1e6 * l.parts[p]:.1f}" for p in ("dram", "l2", "issue", "tensor", "shared", "latency"))
        print(f"| {l.kernel} | {l.grid} | {l.launches:.0f} | {1e6 * l.time:.1f} | {l.limit} | {parts} | {l.bytes / l.launches / 1e6:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="where kernels.tsv is and counts are kept")
    parser.add_argument("--program", default=ROOT / "build/release/tests/engine/backend/cuda_on_host/cuda_counts")
    parser.add_argument("--shapes", default="1b,8b,30b-a3b")
    parser.add_argument("--types", default="Q8_0,Q4_K,F16,MXFP4")
    parser.add_argument("--gpu", choices=GPUS, default="H200")
    parser.add_argument("--blocks", type=int, default=3, help="thread blocks of a launch that are run")
    parser.add_argument("--kernel", nargs=3, metavar=("SHAPE", "TYPE", "STEP"), help="the launches of a step of one layer")
    parser.add_argument("--together", action="store_true", help="beside one GPU two that compute each layer together")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    kernels = read_kernels(args.work / "kernels.tsv")
    if args.kernel:
        shape, dtype, step = args.kernel
        print_launches(Model(shape, dtype, args.work, args.program, kernels, args.blocks), step, GPUS[args.gpu])
        return 0
    models = [(shape, dtype, Model(shape, dtype, args.work, args.program, kernels, args.blocks, gpus))
              for shape in args.shapes.split(",") for dtype in args.types.split(",") for gpus in ((1, 2) if args.together else (1,))]
    print_tables(models, args.gpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
