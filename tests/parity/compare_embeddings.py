#!/usr/bin/python3
"""A table of how far our embeddings (or a reranker's scores) are from a peer engine's, one line a GGUF file (needs python3-numpy).

    tests/parity/compare_embeddings.py --ours build/release/tests/parity/lm_embeddings --peer /path/to/peer MODEL.gguf [MODEL.gguf ...]

The peer is a program with two verbs (llama.cpp's library behind forty lines of C++ has both):
    embed MODEL OUT.f32 id,id,... kv=f32 fa=0     one F32 vector, pooled as the file says, not normalised
    quant IN OUT FTYPE                            the weights in a quantised type, by llama.cpp's number of it

Random texts of 1 token to the context (at most --longest), of all lengths between: --texts 500 --longest 2000 takes minutes for a
model of a release's size. A line has:
    cosine  the least between a vector of ours and the peer's
    worst   the largest difference of two numbers, in units of the vectors' rms (of scores: as they are)
    alone   whether each text alone gives the bytes that it has among the others
    Q8_0    the mean cosine of our run of the quantised file to the peer's F32 vectors, and the peer's own of the same file

A line fails below a cosine of 0.99999, with a score that is further away than --bound, with bytes that differ, or with a quantised
cosine whose distance from 1 is more than one and a half times the peer's.

Where a router's last expert and the next one are closer together than a rounding, another one is chosen, and the vector is another one.
A text below the bound is such a tie if the peer itself gives our vector (within the bound) once every weight is moved by a rounding: by
at most that of a 16-bit float where there is GELU, which the peer looks up in a table of such floats, else by 2^-20 of it. "ties" says
of how many texts that is so, and "cosine" the least of the others.
"""
import pathlib
import random

import numpy as np

import peer
import remake_model
from compare_families import GELU

BOUND = 0.99999
MOVES = 16


def cosines(a, b):
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def is_tie(model, folder, vector, peers_vector):
    """Whether peers_vector(another file) is `vector` for weights that are the model's but for roundings."""
    architecture = peer.key(model, "general.architecture")
    if not peer.key(model, f"{architecture}.expert_count"):
        return False
    size = 2.0**-11 if architecture in GELU else 2.0**-20
    moved = pathlib.Path(folder) / "moved.gguf"
    for seed in range(MOVES):
        made = remake_model.read(model, seed)
        made.tensors = [(name, values * (1 + made.draw(name).uniform(-size, size, values.shape))) for name, values in made.tensors]
        made.tensors = [(name, values.astype(np.float32)) for name, values in made.tensors]
        made.write(moved)
        if cosines(vector[None], peers_vector(moved)[None])[0] >= BOUND:
            return True
    return False


def compare(args, model, folder):
    source = random.Random(args.seed)
    lengths = [1, 2, args.longest] + [int(args.longest ** source.random()) for _ in range(args.texts - 3)]
    texts = [",".join(str(source.randrange(5, args.vocab)) for _ in range(n)) for n in lengths]
    out, listed = pathlib.Path(folder) / "out.f32", pathlib.Path(folder) / "texts"
    listed.write_text(";".join(texts))

    def vectors(*command):
        peer.run(*command)
        return np.fromfile(out, np.float32).astype(np.float64)

    def ours(path, *more):
        return vectors(args.ours, path, out, f"@{listed}", f"kv_type={args.kv_type}", *more).reshape(len(texts), -1)

    def peers_vector(path, text):
        return vectors(args.peer, "embed", path, out, text, "kv=f32", "fa=0")

    def peers(path):
        return np.stack([peers_vector(path, text) for text in texts])

    mine, truth = ours(model), peers(model)
    if truth.shape[1] < 8:  # scores
        worst = np.abs(mine - truth).max()
        good, line = worst <= args.bound, f"scores      worst {worst:.1e}"
    else:
        each = cosines(mine, truth)
        ties = [i for i in np.flatnonzero(each < BOUND) if is_tie(model, folder, mine[i], lambda path, i=i: peers_vector(path, texts[i]))]
        least = np.delete(each, ties).min()
        worst = (np.abs(mine - truth) / np.sqrt((truth**2).mean(1, keepdims=True))).max()
        good, line = least >= BOUND, f"cosine {least:.8f} worst {worst:.1e}" + (f" ties {len(ties)}" if ties else "")
    same = (ours(model, "alone=1") == mine).all()
    good &= bool(same)
    line += f" alone {'same' if same else 'DIFFERS'}"
    if args.quantised and truth.shape[1] >= 8:
        quantised = pathlib.Path(folder) / "q8_0.gguf"
        peer.run(args.peer, "quant", model, quantised, 7)
        ours_q, peers_q = (cosines(v, truth).mean() for v in (ours(quantised), peers(quantised)))
        good &= 1 - ours_q <= 1.5 * (1 - peers_q) + 1e-6
        line += f" Q8_0 {ours_q:.6f} (peer {peers_q:.6f})"
    return good, line


def main():
    parser = peer.parser(__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the tokens")
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--longest", type=int, default=120, help="tokens of a text")
    parser.add_argument("--bound", type=float, default=5e-3, help="of scores")
    parser.add_argument("--kv-type", default="f32", help="of ours: f32, or auto, which is int16 on CPUs")
    parser.add_argument("--no-quantised", dest="quantised", action="store_false")
    peer.table(parser.parse_args(), compare)


if __name__ == "__main__":
    main()
