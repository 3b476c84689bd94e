#!/usr/bin/python3
"""Compares our logits with a peer engine's over the same GGUF files (needs python3-numpy).

    tests/parity/compare_logits.py --ours build/release/tests/parity/lm_logits --peer /path/to/peer MODEL.gguf [MODEL.gguf ...]

The peer is a program with two verbs (llama.cpp's library behind forty lines of C++ has both):
    logits MODEL OUT.f32 id,id,...     one F32 row of the vocabulary a token
    quant IN OUT 0                     the same weights as F32

Errors are relative to the spread (standard deviation) of the peer's logits; "rms" is their root mean square, "worst" the
largest. What is compared with what, and the bound:

- F32: the same file; worst <= 1e-3. Both sides round differently, nothing else. (llama.cpp's CPU attention sums values in F16
  for fewer than 64 queries at once, and for head sizes that are no multiple of 32: avoid both.)
- F16, BF16: our run of the file with the peer's run of the same weights expanded to F32; worst <= 1e-3. (On the file itself
  the peer also rounds the activations to 16 bits, and we do not.)
- Quantised: the same file. Both sides round activations to 8 bits, at a scale of their own for 32 values (ours, and the peer's
  for types of 32) or 256 (the peer's for K-quants). A value is off by a uniform error of at most half a step, step = max / 127, so by
  step / sqrt(12) rms. The largest of 256 normal values is about 2.9 rms: 0.0066 of the rms value, on each side, for the three
  products of a layer (and the head) that read normed values or averages of them. SwiGLU's output is a product of two such
  values, whose largest of 256 is about 5.7 rms: 0.013. Independent errors of the size of the signal they ride on add up to
  rms <= sqrt(2 (layers (3 * 0.0066^2 + 0.013^2) + 0.0066^2)), taken 1.5 times because softmax sharpens an error of its scores;
  of the 10^4 to 10^5 logits compared the worst lies within 6 rms.

An arg-max may differ only where the peer's two best logits lie closer together than twice the worst error allowed.
"""
import math
import pathlib
import re
import sys
import tempfile

import numpy as np
import peer

FLOAT_BOUND = 1e-3
ROUNDING, ROUNDING_OF_SWIGLU = 0.0066, 0.013


def main():
    parser = peer.parser(__doc__)
    parser.add_argument("--tokens", type=int, default=200, help="length of the random prompt")
    parser.add_argument("--option", action="append", default=[], help="passed on to ours, e.g. device=reference")
    args = parser.parse_args()
    failures = 0
    for model in args.models:
        ids = peer.random_ids(7, args.tokens, 3, args.vocab)
        name = model.name
        is_float = re.search("f32|f16", name.lower())
        with tempfile.TemporaryDirectory() as folder:
            out, expanded = pathlib.Path(folder) / "logits.f32", pathlib.Path(folder) / "expanded.gguf"
            peer_model = model
            if is_float and "f32" not in name.lower():
                peer.run(args.peer, "quant", model, expanded, "0")
                peer_model = expanded
            theirs = peer.logits(out, args.tokens, args.peer, "logits", peer_model, out, ids)
            ours = peer.logits(out, args.tokens, args.ours, model, out, ids, "kv_type=f16", *args.option)
        error = np.abs(ours - theirs) / theirs.std(axis=1, keepdims=True)
        rms, worst = math.sqrt((error**2).mean()), error.max()
        layers = peer.key(model, ".block_count")
        rms_bound = 1.5 * math.sqrt(2 * (layers * (3 * ROUNDING**2 + ROUNDING_OF_SWIGLU**2) + ROUNDING**2))
        worst_bound = FLOAT_BOUND if is_float else 6 * rms_bound

        best = np.sort(theirs, axis=1)[:, -2:]
        gap = (best[:, 1] - best[:, 0]) / theirs.std(axis=1)
        differs = ours.argmax(axis=1) != theirs.argmax(axis=1)
        misses = int((differs & (gap > 2 * worst_bound)).sum())
        widest = gap[differs].max() if differs.any() else 0.0

        ok = worst <= worst_bound and misses == 0 and (is_float or rms <= rms_bound)
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name:28} rms {rms:.1e} worst {worst:.1e} (bound {worst_bound:.1e})  arg-max: "
              f"{args.tokens - int(differs.sum())}/{args.tokens} equal, widest gap of a difference {widest:.1e}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
