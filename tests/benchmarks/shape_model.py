#!/usr/bin/env python3
"""Writes a GGUF model in the shape of a release: of a few layers and nearly all zeros (a sparse file), for gpu_model.py, or whole
and of random weights within seconds, to be timed.

    tests/benchmarks/shape_model.py 8b Q4_K --layers 2 -o shape.gguf
    tests/benchmarks/shape_model.py 8b Q8_0 --random -o 8b-Q8_0.gguf      # needs numpy
"""
import argparse
import random
import struct

TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
         "Q6_K": (14, 256, 210), "MXFP4": (39, 32, 17)}
# Of the releases' config.json: Llama-3.2-1B, Llama-3.1-8B and 70B, Qwen3-30B-A3B.
SHAPES = {
    "1b": dict(architecture="llama", layers=16, hidden=2048, heads=32, kv_heads=8, head=64, ffn=8192, vocab=128256, tied=True),
    "8b": dict(architecture="llama", layers=32, hidden=4096, heads=32, kv_heads=8, head=128, ffn=14336, vocab=128256, tied=False),
    "70b": dict(architecture="llama", layers=80, hidden=8192, heads=64, kv_heads=8, head=128, ffn=28672, vocab=128256, tied=False),
    "30b-a3b": dict(architecture="qwen3moe", layers=48, hidden=2048, heads=32, kv_heads=4, head=128, ffn=768, vocab=151936, tied=False,
                    experts=128, used=8),
}
ALIGNMENT = 32
RANDOM_BLOCKS_BYTES = 64 << 20  # that are drawn; matrices repeat them
DEVIATION = 0.02  # of random weights
ROWS_WITH_NUMBERS = 64  # of the embedding, where there are experts: what routes tokens must differ (F32: its packing is not counted on)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, value):
    front = text(name)
    if isinstance(value, str):
        return front + struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return front + struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return front + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return front + struct.pack("<If", 6, value)
    kind, one = {str: (8, text), float: (6, lambda x: struct.pack("<f", x)), int: (5, lambda x: struct.pack("<i", x))}[type(value[0])]
    return front + struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(one, value))


def random_blocks(kind):
    """Whole blocks of the type, about RANDOM_BLOCKS_BYTES, of weights that deviate by about DEVIATION."""
    import numpy
    draw = numpy.random.default_rng(1)
    _, values, size = TYPES[kind]
    count = RANDOM_BLOCKS_BYTES // size
    if kind in ("F32", "F16"):
        return draw.normal(0, DEVIATION, count).astype({"F32": "<f4", "F16": "<f2"}[kind]).tobytes()
    blocks = draw.integers(0, 256, (count, size), dtype=numpy.uint8)

    def scale(value):
        return numpy.frombuffer(numpy.float16(value).tobytes(), numpy.uint8)
    if kind == "Q8_0":
        blocks[:, :2] = scale(DEVIATION / 74)
    elif kind == "Q4_0":
        blocks[:, :2] = scale(DEVIATION / 4.6)
    elif kind == "Q4_K":  # scales and minima of 6 bits; minima as large as half of the codes' range
        blocks[:, :2], blocks[:, 2:4] = scale(DEVIATION / 4.6 / 32), scale(DEVIATION / 4.6 / 32 * 7.5)
    elif kind == "Q6_K":  # signed scales of a byte behind the codes
        blocks[:, 208:] = scale(DEVIATION / 18.5 / 74)
    elif kind == "MXFP4":
        blocks[:, 0] = 127 - 8  # 2^-8: codes up to 6, doubled
    return blocks.tobytes()


def write(path, shape, dtype, layers, random_weights=False):
    s = shape
    q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
    moe = "experts" in s
    a = s["architecture"]
    keys = {"general.architecture": a, "general.name": "shape", f"{a}.block_count": layers, f"{a}.context_length": 16384,
            f"{a}.embedding_length": s["hidden"], f"{a}.feed_forward_length": s["ffn"], f"{a}.attention.head_count": s["heads"],
            f"{a}.attention.head_count_kv": s["kv_heads"], f"{a}.attention.key_length": s["head"],
            f"{a}.attention.value_length": s["head"], f"{a}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{a}.rope.dimension_count": s["head"], f"{a}.rope.freq_base": 500000.0,
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    if moe:
        keys |= {f"{a}.expert_count": s["experts"], f"{a}.expert_used_count": s["used"],
                 f"{a}.expert_feed_forward_length": s["ffn"]}
    front = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    keys["tokenizer.ggml.tokens"] = front + [f"t{i}" for i in range(s["vocab"] - len(front))]
    keys["tokenizer.ggml.scores"] = [0.0] * s["vocab"]
    keys["tokenizer.ggml.token_type"] = [2, 3, 3] + [6] * 256 + [1] * (s["vocab"] - len(front))

    tensors = []  # name, type, dimensions, the fastest first
    def add(name, *dims, kind=dtype):
        tensors.append((name + ".weight", kind, dims))
    add("token_embd", s["hidden"], s["vocab"], kind="F32" if moe else dtype)
    if not s["tied"]:
        add("output", s["hidden"], s["vocab"])
    add("output_norm", s["hidden"], kind="F32")
    for i in range(layers):
        p = f"blk.{i}."
        add(p + "attn_norm", s["hidden"], kind="F32")
        add(p + "attn_q", s["hidden"], q)
        add(p + "attn_k", s["hidden"], kv)
        add(p + "attn_v", s["hidden"], kv)
        add(p + "attn_output", q, s["hidden"])
        add(p + "ffn_norm", s["hidden"], kind="F32")
        if moe:
            add(p + "attn_q_norm", s["head"], kind="F32")
            add(p + "attn_k_norm", s["head"], kind="F32")
            add(p + "ffn_gate_inp", s["hidden"], s["experts"], kind="F32")
            for name, dims in (("gate", (s["hidden"], s["ffn"])), ("up", (s["hidden"], s["ffn"])), ("down", (s["ffn"], s["hidden"]))):
                add(f"{p}ffn_{name}_exps", *dims, s["experts"])
        else:
            add(p + "ffn_gate", s["hidden"], s["ffn"])
            add(p + "ffn_up", s["hidden"], s["ffn"])
            add(p + "ffn_down", s["ffn"], s["hidden"])

    draw = random.Random(1)
    blocks = {kind: random_blocks(kind) for kind in {t[1] for t in tensors}} if random_weights else {}
    head, at, filled = b"", 0, []
    for name, kind, dims in tensors:
        number, values, size = TYPES[kind]
        count = 1
        for d in dims:
            count *= d
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", number, at)
        if "norm" in name:
            filled.append((at, struct.pack(f"<{count}f", *[1.0] * count)))
        elif "gate_inp" in name:
            filled.append((at, struct.pack(f"<{count}f", *(draw.gauss(0, 1) for _ in range(count)))))
        elif "token_embd" in name and kind == "F32" and not random_weights:
            n = ROWS_WITH_NUMBERS * dims[0]
            filled.append((at, struct.pack(f"<{n}f", *(draw.gauss(0, 1) for _ in range(n)))))
        elif random_weights:
            left = count // values * size
            for start in range(0, left, len(blocks[kind])):
                filled.append((at + start, memoryview(blocks[kind])[:left - start]))
        at += -(-(count // values * size) // ALIGNMENT) * ALIGNMENT
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(key(k, v) for k, v in keys.items()) + head
    head += bytes(-len(head) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head)
        for place, data in filled:
            file.seek(len(head) + place)
            file.write(data)
        file.truncate(len(head) + at)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=[t for t in TYPES if t != "F32"])
    parser.add_argument("--layers", type=int, help="default: 2, or all of --random")
    parser.add_argument("--random", action="store_true", help="random weights")
    parser.add_argument("-o", "--out", required=True)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    write(args.out, shape, args.type, args.layers or (shape["layers"] if args.random else 2), args.random)


if __name__ == "__main__":
    main()
