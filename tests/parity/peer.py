"""What the comparisons of models have in common: their arguments, both programs, and a GGUF file's keys."""
import argparse
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np


class Refused(Exception):
    """A program's last word."""


def parser(doc):
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ours", required=True, help="lm_logits, lm_embeddings")
    made.add_argument("--peer", required=True)
    made.add_argument("--vocab", type=int, default=300, help="tokens are drawn below this number")
    made.add_argument("models", nargs="+", type=pathlib.Path)
    return made


def table(args, compare):
    """Prints a line a model and leaves: compare(args, model, folder) gives whether it is good, and the line."""
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


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused((done.stderr.strip().splitlines() or ["no message"])[-1])


def logits(out, rows, *command):
    """The (rows, vocabulary) that the command writes to the file `out`."""
    run(*command)
    return np.fromfile(out, np.float32).reshape(rows, -1).astype(np.float64)


def random_ids(seed, count, low, high):
    draw = random.Random(seed)
    return ",".join(str(draw.randrange(low, high)) for _ in range(count))


def key(path, name):
    """An integer or text of the header, found by the key's name; None where there is none."""
    with open(path, "rb") as file:
        head = file.read(1 << 20)
    found = re.search(re.escape(name.encode()) + rb"(?:\x04\x00\x00\x00(....)|\x08\x00\x00\x00(........))", head, re.DOTALL)
    if not found:
        return None
    if found.group(1):
        return struct.unpack("<I", found.group(1))[0]
    return head[found.end() : found.end() + struct.unpack("<Q", found.group(2))[0]].decode()
