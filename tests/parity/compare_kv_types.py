#!/usr/bin/python3
"""What a smaller KV cache costs: a model's predictions with kv_type int8 against those with f16 (needs python3-numpy).

    tests/parity/compare_kv_types.py --lm0 build/release/extension/lm0 --logits build/release/tests/parity/lm_logits \\
        --model MODEL.gguf TEXT [--chunks 40] [--tokens 512]

The measure is that of llama.cpp's perplexity tool: TEXT is cut into chunks of --tokens tokens, and of each chunk the second
half is judged, where the context is long. Reported: the perplexity of both; the Kullback-Leibler divergence of the int8
distribution from the f16 one (mean, 99th percentile, greatest); how often both have the same best token.
"""
import argparse
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

import numpy as np


def tokenize(lm0, model, text):
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(lm0)
    db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('default', ?)", (model,))
    return json.loads(db.execute("SELECT lm_tokenize(?)", (text,)).fetchone()[0])


def log_probabilities(args, tokens, kv_type, folder):
    out = pathlib.Path(folder) / "logits.f32"
    command = [args.logits, args.model, out, ",".join(map(str, tokens)), f"kv_type={kv_type}"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    logits = np.fromfile(out, np.float32).reshape(len(tokens), -1)[len(tokens) // 2 : -1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--lm0", "--logits", "--model"):
        parser.add_argument(name, required=True)
    parser.add_argument("--kv-type", default="int8")
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("text")
    args = parser.parse_args()
    ids = tokenize(args.lm0, args.model, pathlib.Path(args.text).read_text())
    chunks = [ids[i : i + args.tokens] for i in range(0, len(ids) - args.tokens + 1, args.tokens)][: args.chunks]
    if not chunks:
        sys.exit(f"{args.text} has {len(ids)} tokens, a chunk {args.tokens}")
    divergence, same, losses = [], [], {"f16": [], args.kv_type: []}
    with tempfile.TemporaryDirectory() as folder:
        for tokens in chunks:
            base, other = (log_probabilities(args, tokens, kind, folder) for kind in losses)
            divergence.append((np.exp(base) * (base - other)).sum(axis=1))
            same.append(base.argmax(axis=1) == other.argmax(axis=1))
            next_tokens = np.array(tokens[len(tokens) // 2 + 1 :])
            for kind, log_p in (("f16", base), (args.kv_type, other)):
                losses[kind].append(-log_p[np.arange(len(next_tokens)), next_tokens])
    divergence, same = np.concatenate(divergence), np.concatenate(same)
    perplexity = {kind: float(np.exp(np.concatenate(values).mean())) for kind, values in losses.items()}
    print(f"{len(divergence)} predictions in {len(chunks)} chunks of {args.tokens} tokens")
    print("perplexity " + ", ".join(f"{kind} {value:.4f}" for kind, value in perplexity.items())
          + f" ({100 * (perplexity[args.kv_type] / perplexity['f16'] - 1):+.3f}%)")
    print(f"KL divergence: mean {divergence.mean():.2e}, 99% {np.quantile(divergence, 0.99):.2e}, greatest {divergence.max():.2e}")
    print(f"same best token: {100 * same.mean():.2f}%")


if __name__ == "__main__":
    main()
