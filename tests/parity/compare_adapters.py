#!/usr/bin/python3
"""A table of models under random adapters (LoRA) beside a peer engine and beside the sums in the weights, one line a GGUF file (needs python3-numpy).

    tests/parity/compare_adapters.py --ours build/release/tests/parity/lm_logits --writer build/release/tests/parity/random_adapter \\
        --peer /path/to/peer MODEL.gguf [MODEL.gguf ...]

The files have F32 weights. The peer is a program with one verb (llama.cpp's library behind forty lines of C++ has it):
    logits MODEL OUT.f32 id,id,... kv=f32 fa=0 n_ctx=N lora=PATH:SCALE[,PATH:SCALE]     one F32 row of the vocabulary a token

Two adapters of ranks 4 and 7 are used together, at scales of 0.7 and -0.4. A line has, with errors relative to the spread (standard
deviation) of the logits of a position, over 200 positions of random tokens:
    changes  how far the adapters move the logits
    peer     rms and worst distance from the peer's logits
    merged   likewise from ours of the file whose weights have both sums
    pieces   whether the prompt in five pieces gives the bits of it in one

A line fails beyond compare_families.py's bound of the architecture, or where the pieces differ.
"""
import pathlib

import numpy as np
import peer
from compare_families import PIECE, TOKENS, bound_of
from peer import run

ADAPTERS = (("rank=4", "alpha=8", "seed=1", 0.7), ("rank=7", "alpha=0", "seed=2", -0.4))


def compare(args, model, folder):
    ids = peer.random_ids(args.seed, TOKENS, 0, args.vocab)
    folder = pathlib.Path(folder)
    out, merged = folder / "out.f32", model
    used = []
    for number, (*shape, scale) in enumerate(ADAPTERS):
        file, before, merged = folder / f"{number}.gguf", merged, folder / f"merged{number}.gguf"
        run(args.writer, before, file, *shape, f"merged={merged}", f"scale={scale}")
        used.append(f"{file}:{scale}")
    lora = "lora=" + ",".join(used)

    def ours(path, *more):
        return peer.logits(out, TOKENS, args.ours, path, out, ids, "kv_type=f32", *more)

    mine = ours(model, lora)
    truth = peer.logits(out, TOKENS, args.peer, "logits", model, out, ids, "kv=f32", "fa=0", "n_ctx=512", lora)
    spread = truth.std(1, keepdims=True)

    def distance(other):
        error = np.abs(mine - other) / spread
        return np.sqrt((error**2).mean()), error.max()

    changes, (rms, worst), (merged_rms, merged_worst) = distance(ours(model))[0], distance(truth), distance(ours(merged))
    same = (ours(model, lora, f"chunk={PIECE}") == mine).all()
    bound = bound_of(model)
    good = max(rms, merged_rms) <= bound and changes > 100 * bound and same
    line = f"changes {changes:.2f} peer {rms:.1e} {worst:.1e} merged {merged_rms:.1e} {merged_worst:.1e}"
    return good, f"{line} pieces {'same' if same else 'DIFFER'}"


def main():
    parser = peer.parser(__doc__)
    parser.add_argument("--writer", required=True, help="random_adapter")
    parser.add_argument("--seed", type=int, default=1, help="of the tokens")
    peer.table(parser.parse_args(), compare)


if __name__ == "__main__":
    main()
