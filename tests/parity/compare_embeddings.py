#!/usr/bin/python3
"""Compares our embeddings, through SQL, with a peer engine's on the same GGUF files.

    tests/parity/compare_embeddings.py --lm0 build/release/extension/lm0 --peer /path/to/peer MODEL.gguf [MODEL.gguf ...]

The peer is a program with a verb (llama.cpp's library behind twenty lines of C++ has it):
    embed MODEL OUT.f32 mean|last id,id,...     one F32 vector: the pooled hidden states, not normalised

Prints, for each model and pooling, the smallest cosine over the texts and the largest difference of two numbers, in units of the
vectors' rms. Float weights: both engines differ by rounding alone, cosine >= 0.99999. Quantised ones: both round activations to 8
bits, each in its way (compare_logits.py derives how far that goes): cosine >= 0.998.
"""
import argparse
import array
import math
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

TEXTS = ["rain", "a new bicycle", "The quick brown fox jumps over the lazy dog. " * 3, "été à Paris, 東京, 1234567890", "x " * 150]
FLOATS = ("f32", "f16", "bf16")


def floats(data):
    return array.array("f", data)


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm0", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(args.lm0)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        out = str(pathlib.Path(folder) / "out.f32")
        for model in args.models:
            bound = 0.99999 if pathlib.Path(model).stem.endswith(FLOATS) else 0.998
            for pooling in ("mean", "last"):
                smallest, worst = 1.0, 0.0
                for text in TEXTS:
                    ids = db.execute("SELECT lm_tokenize(?, json_object('model', ?))", (text, model)).fetchone()[0]
                    sql = "SELECT lm_embed(?, json_object('model', ?, 'pooling', ?, 'normalize', json('false')))"
                    ours = floats(db.execute(sql, (text, model, pooling)).fetchone()[0])
                    subprocess.run([args.peer, "embed", model, out, pooling, ids.strip("[]")], check=True)
                    theirs = floats(pathlib.Path(out).read_bytes())
                    rms = math.sqrt(sum(x * x for x in theirs) / len(theirs))
                    smallest = min(smallest, cosine(ours, theirs))
                    worst = max(worst, max(abs(a - b) for a, b in zip(ours, theirs)) / rms)
                good = smallest >= bound
                failed |= not good
                print(f"{pathlib.Path(model).name} {pooling}: cosine >= {smallest:.7f}, difference <= {worst:.5f} rms"
                      f"{'' if good else '  FAILED'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
