#!/usr/bin/python3
"""Makes a model with random weights one whose answers can be guessed (needs python3-numpy), to see what guesses save.

    tests/parity/guessable_model.py IN.gguf OUT.gguf --scale 0.1            # F32, F16 and Q8_0 tensors

What each layer adds to the residual stream is multiplied by the scale: the smaller it is, the more the next token follows from the last
one alone (where the head is not the embedding: else each token follows itself). So a file's layer for multi-token prediction, whose first half
of eh_proj becomes the identity, guesses it, more or less often; and so does a model of fewer of those layers.
"""
import argparse
import pathlib
import re

import numpy as np

import make_model
import remake_model

LAST_PRODUCT = re.compile(r"(attn_output|ffn_down|ffn_down_exps|ffn_down_shexp|ssm_out|shortconv\.out_proj)\.weight$")
Q8_0 = np.dtype([("scale", "<f2"), ("codes", "i1", 32)])
FORMATS = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 8: Q8_0}


class Tensor:
    def __init__(self, name, shape, kind, data):
        self.name, self.shape, self.kind, self.data = name, shape, kind, data

    def multiply(self, scale):
        values = self.data["scale"] if self.kind == 8 else self.data
        values[:] = (values.astype(np.float32) * scale).astype(values.dtype)

    def values(self):
        if self.kind != 8:
            return self.data.astype(np.float32).reshape(self.shape)
        return (self.data["codes"] * self.data["scale"].astype(np.float32)[:, None]).reshape(self.shape)

    def set(self, values):
        if self.kind != 8:
            self.data[:] = values.ravel().astype(self.data.dtype)
            return
        blocks = values.reshape(-1, 32)
        scale = (np.abs(blocks).max(1) / 127).astype(np.float16)
        self.data["scale"] = scale
        safe = np.where(scale == 0, 1, scale).astype(np.float32)
        self.data["codes"] = np.rint(blocks / safe[:, None]).clip(-127, 127)


def tensors_of(data):
    """The tensors of a file's bytes, as views of them."""
    reader = remake_model.Reader.__new__(remake_model.Reader)
    reader.data, reader.at = data, 8
    num_tensors, num_keys = reader.take("QQ")
    for _ in range(num_keys):
        reader.text()
        reader.raw_value()
    entries = []
    for _ in range(num_tensors):
        name, (dims,) = reader.text(), reader.take("I")
        shape = reader.take(f"{dims}Q")[::-1]
        entries.append((name, shape, *reader.take("IQ")))
    begin = -(-reader.at // make_model.ALIGNMENT) * make_model.ALIGNMENT
    for name, shape, kind, offset in entries:
        count = int(np.prod(shape)) // (32 if kind == 8 else 1)
        yield Tensor(name, shape, kind, np.frombuffer(data, FORMATS[kind], count, begin + offset))


def make_guessable(data, scale, mtp_noise):
    tensors = list(tensors_of(data))
    output_norm = next(tensor for tensor in tensors if tensor.name == "output_norm.weight")
    for tensor in tensors:
        if LAST_PRODUCT.search(tensor.name):
            tensor.multiply(scale)
        elif tensor.name.endswith("nextn.eh_proj.weight"):
            joined = mtp_noise * tensor.values()
            joined[:, : tensor.shape[0]] += np.eye(tensor.shape[0], dtype=np.float32)
            tensor.set(joined)
        elif tensor.name.endswith("nextn.enorm.weight"):
            tensor.set(np.ones(tensor.shape, np.float32))
        elif tensor.name.endswith("nextn.shared_head_norm.weight"):
            tensor.set(output_norm.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--mtp-noise", type=float, default=0.1, help="how much of eh_proj stays")
    args = parser.parse_args()
    data = bytearray(args.model.read_bytes())
    make_guessable(data, args.scale, args.mtp_noise)
    args.out.write_bytes(data)


if __name__ == "__main__":
    main()
