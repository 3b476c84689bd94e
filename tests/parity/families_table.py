#!/usr/bin/python3
"""The table of all families, a line each, beside a peer engine (needs python3-numpy): README.md's, made by one command.

    tests/parity/families_table.py --programs build/release/tests/parity --peer /path/to/peer --maker /path/to/make_gguf [NAME ...]

The maker is a program with two uses; make_model.py and remake_model.py beside this one are asked for the names that it lacks:
    MAKER --list                                   names the families, one a line
    MAKER --family NAME --type F32 --seed S -o OUT writes a small model with random weights
Without names, all that either lists are compared, each with the weights of two seeds; models that pool by compare_embeddings.py,
the others by compare_families.py, whose pages say what the numbers mean and when a line fails.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import compare_embeddings
import compare_families
import peer
import remake_model

HERE = pathlib.Path(__file__).parent
OWN = {"deepseek4", "plamo2", "rwkv6", "rwkv6qwen2"}
# Shapes of releases, with fewer layers, tokens and experts: heads, ropes, groups and widths are theirs.
SMALL = ["--vocab", "512"]
RELEASES = {
    "bge-m3": ["--layers", "2", "--ctx", "512"],
    "bge-small": ["--layers", "3"],
    "embeddinggemma-300m": ["--layers", "6"],
    "gemma3-1b": ["--layers", "6"],
    "gemma3-270m": ["--layers", "6"],
    "gpt-oss-20b": ["--layers", "2", "--set", "experts=8"],
    "granite-4-h-350m": ["--layers", "11"],
    "lfm2-350m": ["--layers", "6"],
    "nomic-embed-1.5": ["--layers", "3"],
    "qwen3-0.6b": ["--layers", "3"],
    "qwen3-30b-a3b": ["--layers", "2", "--set", "experts=32"],
    "qwen3.5-0.8b": ["--layers", "4"],
}


def names_of(maker):
    listed = subprocess.run([maker, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[0] for line in listed if line.strip() and "shape of a release" not in line]
    return names + [name for name in sorted(OWN.union(remake_model.NAMES, RELEASES)) if name not in names]


def make(args, name, seed, out):
    if name in OWN:
        peer.run(HERE / "make_model.py", name, "--seed", seed, "-o", out)
    elif name in remake_model.NAMES:
        remake_model.remake(name, args.maker, seed, out)
    else:
        smaller = SMALL + RELEASES[name] if name in RELEASES else []
        peer.run(args.maker, "--family", name, *smaller, "--type", "F32", "--seed", seed, "-o", out)


def compare(args, name, seed, folder):
    model = pathlib.Path(folder) / f"{name}.gguf"
    try:
        make(args, name, seed, model)
        architecture = peer.key(model, "general.architecture")
        own = dict(peer=args.peer, vocab=300, seed=1)
        if peer.key(model, f"{architecture}.pooling_type") is not None:
            options = argparse.Namespace(ours=args.programs / "lm_embeddings", texts=24, longest=100, bound=5e-3, quantised=True, **own)
            return compare_embeddings.compare(options, model, folder)
        options = argparse.Namespace(ours=args.programs / "lm_logits", context=0, bound=0, mixes=True, **own)
        return compare_families.compare(options, model, folder)
    except peer.Refused as refusal:
        return False, f"refused: {refusal}"
    finally:
        model.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=pathlib.Path, help="the folder of lm_logits and lm_embeddings")
    parser.add_argument("--peer", required=True)
    parser.add_argument("--maker", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or names_of(args.maker):
            for seed in (1, 2):
                good, line = compare(args, name, seed, folder)
                failed += not good
                print(f"{name:20} {seed} {re.sub(' +', ' ', line)}{'' if good else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
