#!/usr/bin/python3
"""Draws what lm_bench has measured (needs python3-matplotlib).

    lm_bench MODEL.gguf --only b1,b2,b4,b8,b16,b32,b64,lengths,scaling --json > figures.json
    tests/benchmarks/plots.py figures.json OUT.svg --title "135M Q8_0, 2 threads"

Four panels: what a token costs against the length of the context, with the KV cache and with everything computed again; prefill
against length; decoding against the rows in a batch, with the shares of the ceilings; rows that share a prompt against their number.
"""
import argparse
import json

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "lm", "svg.fonttype": "none"})  # the same figures give the same, small file
import matplotlib.pyplot as plt


def label(axes, title, x, y, at):
    """`at`: the values of x, which get a tick each."""
    axes.minorticks_off()
    axes.set_xticks(at, [f"{value:,}" for value in at], fontsize=8)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, alpha=0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures")
    parser.add_argument("out")
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    with open(args.figures) as file:
        figures = json.load(file)
    plot, ((cost, prefill), (batch, rows)) = plt.subplots(2, 2, figsize=(9, 6.5))
    plot.suptitle(args.title)

    lengths = [row["tokens"] for row in figures["lengths"]]
    cost.loglog(lengths, [row["decode_ms_a_token"] for row in figures["lengths"]], "o-", label="with the KV cache")
    cost.loglog(lengths, [row["recomputed_ms_a_token"] for row in figures["lengths"]], "s--", label="computed again")
    cost.legend(fontsize=8)
    label(cost, "The next token", "tokens of context", "ms", lengths)
    prefill.semilogx(lengths, [row["prefill_tokens_s"] for row in figures["lengths"]], "o-")
    prefill.set_ylim(0, 1.1 * max(row["prefill_tokens_s"] for row in figures["lengths"]))
    label(prefill, "Prefill", "tokens of prompt", "tokens/s", lengths)

    sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if f"b{n}" in figures]
    batch.semilogx(sizes, [figures[f"b{n}"] for n in sizes], "o-", base=2)
    label(batch, "Decoding, 128 tokens of context each", "rows in the batch", "tokens/s", sizes)
    shares = batch.twinx()
    for index, (name, style) in enumerate((("arithmetic", "^:"), ("bandwidth", "v:"))):
        shares.plot(sizes, [100 * figures["shares"][f"b{n}"][index] for n in sizes], style, color="gray", label=f"share of {name}")
    shares.set_ylim(0, 100)
    shares.set_ylabel("% of the ceiling")
    shares.legend(fontsize=8)

    counts = [row["rows"] for row in figures["scaling"]]
    rows.semilogx(counts, [row["rows_s"] for row in figures["scaling"]], "o-", base=2)
    label(rows, "Rows of 400 shared tokens, 40 own, 16 out", "rows", "rows/s", counts)
    plot.tight_layout()
    plot.savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
