#!/usr/bin/python3
"""A table of how far our logits and a peer engine's are from the exact ones, one line a quantised type (needs python3-numpy and
llama.cpp's gguf package in PYTHONPATH).

    tests/parity/compare_types.py --ours build/release/tests/parity/lm_logits --peer /path/to/peer --ggml libggml-base.so MODEL.gguf

MODEL.gguf has F32 weights with rows of multiples of 256 values. ggml quantises all its matrices to the type and back; the exact
logits are the peer's with what came back, as F32. A line has the rms distances of both runs of the quantised file from them,
relative to the spread of the logits, and of ours as a multiple of the peer's. It fails above 1.2.
"""
import argparse
import ctypes
import pathlib
import random
import subprocess
import sys
import tempfile

import gguf
import numpy as np

TOKENS = 60
TYPES = ["IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0", "Q2_0", "MXFP4",
         "IQ4_XS", "IQ4_NL", "Q6_K", "Q4_K", "Q8_0"]
NUMBERS = {"NVFP4": 40, "Q1_0": 41, "Q2_0": 42}  # which older packages lack


class Ggml:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name in ("ggml_quantize_chunk", "ggml_row_size"):
            getattr(self.lib, name).restype = ctypes.c_size_t

    def quantise(self, number, values):
        """The bytes of a matrix."""
        rows, cols = values.shape
        row_bytes = self.lib.ggml_row_size(ctypes.c_int(number), ctypes.c_int64(cols))
        out = ctypes.create_string_buffer(rows * row_bytes)
        source = np.ascontiguousarray(values, np.float32)
        weights = np.ones(cols, np.float32)  # which the smallest types must have
        pointer = ctypes.POINTER(ctypes.c_float)
        self.lib.ggml_quantize_chunk(ctypes.c_int(number), source.ctypes.data_as(pointer), out, ctypes.c_int64(0),
                                     ctypes.c_int64(rows), ctypes.c_int64(cols), weights.ctypes.data_as(pointer))
        return np.frombuffer(out.raw, np.uint8).reshape(rows, row_bytes)

    def decode(self, name, blocks, cols):
        suffix = name.replace("Q", "q") if name.endswith("_K") else name.lower()
        out = np.empty((blocks.shape[0], cols), np.float32)
        getattr(self.lib, "dequantize_row_" + suffix)(blocks.ctypes.data_as(ctypes.c_void_p),
                                                      out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(out.size))
        return out


def patch(reader, source, matrices, number, out):
    """The file with other matrices: a number for the type, and the bytes of each."""
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        data = matrices.get(tensor.name)
        if data is None:
            writer.add_tensor(tensor.name, np.array(tensor.data, np.float32))
        elif number is None:
            writer.add_tensor(tensor.name, data)
        else:
            writer.add_tensor(tensor.name, data, raw_dtype=gguf.GGMLQuantizationType(number))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--ggml", required=True)
    parser.add_argument("model", type=pathlib.Path)
    args = parser.parse_args()
    ggml, reader = Ggml(args.ggml), gguf.GGUFReader(args.model)
    source = random.Random(1)
    ids = ",".join(str(source.randrange(300)) for _ in range(TOKENS))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def logits(*command):
            out = folder / "out.f32"
            subprocess.run([str(word).replace("OUT", str(out)) for word in command], check=True, capture_output=True)
            return np.fromfile(out, np.float32).reshape(TOKENS, -1).astype(np.float64)

        for name in TYPES:
            number = NUMBERS[name] if name in NUMBERS else gguf.GGMLQuantizationType[name].value
            ggml.lib.ggml_quantize_init(ctypes.c_int(number))
            wide = [tensor for tensor in reader.tensors if len(tensor.shape) > 1]
            blocks = {t.name: ggml.quantise(number, t.data) for t in wide}
            exact = {t.name: ggml.decode(name, blocks[t.name], t.data.shape[1]) for t in wide}
            patch(reader, args.model, blocks, number, folder / "q.gguf")
            patch(reader, args.model, exact, None, folder / "f.gguf")
            truth = logits(args.peer, "logits", folder / "f.gguf", "OUT", ids, "kv=f32", "fa=0")
            ours = logits(args.ours, folder / "q.gguf", "OUT", ids, "kv_type=f32")
            peers = logits(args.peer, "logits", folder / "q.gguf", "OUT", ids, "kv=f32", "fa=0")
            far = [np.sqrt((((run - truth) / truth.std(1, keepdims=True)) ** 2).mean()) for run in (ours, peers)]
            failed += far[0] > 1.2 * far[1]
            print(f"{name:8} ours {far[0]:.1e} peer {far[1]:.1e} ratio {far[0] / far[1]:.2f}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
