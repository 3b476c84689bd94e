#!/usr/bin/python3
"""A table of how far our logits are from a peer engine's, one line a GGUF file (needs python3-numpy).

    tests/parity/compare_families.py --ours build/release/tests/parity/lm_logits --peer /path/to/peer MODEL.gguf [MODEL.gguf ...]

The files have F32 weights. The peer is a program with two verbs (llama.cpp's library behind forty lines of C++ has both):
    logits MODEL OUT.f32 id,id,... kv=f32 fa=0 n_ctx=N     one F32 row of the vocabulary a token
    quant IN OUT FTYPE                                     the weights in a quantised mix, by llama.cpp's number of it

A line has, with errors relative to the spread (standard deviation) of the peer's logits of a position:
    rms, worst   over the 200 positions of random tokens (more than the windows and original contexts of small models)
    at           the worst at the first, at the middle and at the last position
    argmax       of how many positions it differs though the peer's two best logits lie farther apart than twice the worst error
    pieces       whether the prompt in five pieces gives the bits of it in one
    Q8_0 ...     the rms distance of our run of the quantised file from the peer's F32 logits, as a multiple of its own

A line fails beyond --bound rms (1e-5 for families with SiLU; those with GELU are within 2e-3, as the peer looks it up in a
table of 16-bit floats), with an argmax or a piece that differs, or with a multiple above 1.2. A mix that the peer cannot write
for a shape is left out.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np

TOKENS = 200
PIECE = 41
MIXES = {"Q8_0": 7, "Q4_K_M": 15, "MXFP4_MOE": 38}


class Refused(Exception):
    """A program's last word."""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused((done.stderr.strip().splitlines() or ["no message"])[-1])


def compare(args, model, folder):
    source = random.Random(args.seed)
    ids = ",".join(str(source.randrange(args.vocab)) for _ in range(TOKENS))
    out = pathlib.Path(folder) / "out.f32"

    def logits(*command):
        run(*command)
        return np.fromfile(out, np.float32).reshape(TOKENS, -1).astype(np.float64)

    def ours(path, *more):
        return logits(args.ours, path, out, ids, "kv_type=f32", f"context={args.context}", *more)

    def peers(path):
        return logits(args.peer, "logits", path, out, ids, "kv=f32", "fa=0", f"n_ctx={args.context or 512}")

    mine, truth = ours(model), peers(model)
    spread = truth.std(1, keepdims=True)
    error = np.abs(mine - truth) / spread
    rms = np.sqrt((error**2).mean())
    best = np.sort(truth, 1)[:, -2:] / spread
    wrong = int(((mine.argmax(1) != truth.argmax(1)) & (best[:, 1] - best[:, 0] > 2 * error.max())).sum())
    same = (ours(model, f"chunk={PIECE}") == mine).all()
    places = " ".join(f"{error[i].max():.0e}" for i in (0, TOKENS // 2, TOKENS - 1))
    line = f"rms {rms:.1e} worst {error.max():.1e} at {places} argmax {wrong} pieces {'same' if same else 'DIFFER'}"
    good = rms <= args.bound and wrong == 0 and same
    for name, ftype in MIXES.items() if args.mixes else ():
        mix = pathlib.Path(folder) / "mix.gguf"
        try:
            run(args.peer, "quant", model, mix, ftype)
        except Refused:
            continue
        distance, peers_distance = (np.sqrt((((logits_of(mix) - truth) / spread) ** 2).mean()) for logits_of in (ours, peers))
        good &= distance <= 1.2 * peers_distance
        line += f" {name} {distance / peers_distance:.2f}"
    return good, line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--seed", type=int, default=1, help="of the tokens")
    parser.add_argument("--vocab", type=int, default=300, help="tokens are drawn below this number")
    parser.add_argument("--context", type=int, default=0, help="chooses LongRoPE's factors; 0: the file's, and 512 of the peer")
    parser.add_argument("--bound", type=float, default=2e-3)
    parser.add_argument("--no-mixes", dest="mixes", action="store_false")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            try:
                good, line = compare(args, model, folder)
            except Refused as refusal:
                good, line = False, f"refused: {refusal}"
            failed += not good
            print(f"{model.stem:24} {line}{'' if good else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
