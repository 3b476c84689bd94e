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

A line fails beyond --bound rms, with an argmax or a piece that differs, or with a multiple above 1.2. The bound of an
architecture is 5e-5; 2e-3 where it has GELU, as the peer looks that up in a table of 16-bit floats; three times 5e-5 with more than
20 layers, as roundings add up. With experts and GELU rms is a middling position's: where a router's two best lie closer together
than the table's rounding another expert is chosen. A mix that the peer cannot write for a shape is left out.
"""
import pathlib

import numpy as np
import peer
from peer import Refused, run

TOKENS = 200
PIECE = 41
MIXES = {"Q8_0": 7, "Q4_K_M": 15, "MXFP4_MOE": 38}
GELU = {
    *("bert", "bloom", "codeshell", "falcon", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "gemma-embedding", "gpt2", "gptneox"),
    *("grok", "jais", "jina-bert-v2", "jina-bert-v3", "modern-bert", "mpt", "nomic-bert-moe", "phi2", "spark2_5", "starcoder", "starcoder2"),
}


def bound_of(model):
    architecture = peer.key(model, "general.architecture")
    if architecture in GELU:
        return 2e-3
    return 5e-5 if (peer.key(model, f"{architecture}.block_count") or 0) <= 20 else 1.5e-4


def compare(args, model, folder):
    ids = peer.random_ids(args.seed, TOKENS, 0, args.vocab)
    out = pathlib.Path(folder) / "out.f32"

    def ours(path, *more):
        return peer.logits(out, TOKENS, args.ours, path, out, ids, "kv_type=f32", f"context={args.context}", *more)

    def peers(path):
        return peer.logits(out, TOKENS, args.peer, "logits", path, out, ids, "kv=f32", "fa=0", f"n_ctx={args.context or 512}")

    mine, truth = ours(model), peers(model)
    architecture = peer.key(model, "general.architecture")
    spread = truth.std(1, keepdims=True)
    error = np.abs(mine - truth) / spread
    each = np.sqrt((error**2).mean(1))
    rms = np.sqrt((each**2).mean())
    if peer.key(model, f"{architecture}.expert_count") and architecture in GELU:
        rms = np.median(each)
    best = np.sort(truth, 1)[:, -2:] / spread
    wrong = int(((mine.argmax(1) != truth.argmax(1)) & (best[:, 1] - best[:, 0] > 2 * error.max())).sum())
    same = (ours(model, f"chunk={PIECE}") == mine).all()
    places = " ".join(f"{error[i].max():.0e}" for i in (0, TOKENS // 2, TOKENS - 1))
    line = f"rms {rms:.1e} worst {error.max():.1e} at {places} argmax {wrong} pieces {'same' if same else 'DIFFER'}"
    good = rms <= (args.bound or bound_of(model)) and wrong == 0 and same
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
    parser = peer.parser(__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the tokens")
    parser.add_argument("--context", type=int, default=0, help="chooses LongRoPE's factors; 0: the file's, and 512 of the peer")
    parser.add_argument("--bound", type=float, default=0, help="rms; 0: the architecture's")
    parser.add_argument("--no-mixes", dest="mixes", action="store_false")
    peer.table(parser.parse_args(), compare)


if __name__ == "__main__":
    main()
