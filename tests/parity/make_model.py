#!/usr/bin/python3
"""Writes a small GGUF model with random F32 weights, of a family that few tools make one of (needs python3-numpy).

    tests/parity/make_model.py plamo2 --seed 1 -o plamo2.gguf

Keys, tensors and vocabulary are those that llama.cpp's converter writes for the family; shapes and distributions are chosen so
that what is left out or done twice shows: norms and biases are not what does nothing, the epsilon is felt, a layer of each kind
comes twice. The same name, seed and family give the same file.
"""
import argparse
import struct
import zlib

import numpy as np

ALIGNMENT = 32
WORDS = "the rain in may falls on a small house; 東京の雨は静かに降る。 Größe naïve 12345 😀".split(" ")


class Model:
    def __init__(self, architecture, seed):
        self.architecture, self.seed, self.keys, self.tensors = architecture, seed, [], []
        self.key("general.architecture", architecture)
        self.key("general.name", f"random-{architecture}")

    def key(self, name, value):
        self.keys.append((name, value))

    def own(self, **values):
        """Keys of the architecture, with __ for the dots."""
        for name, value in values.items():
            self.key(f"{self.architecture}.{name.replace('__', '.')}", value)

    def draw(self, name):
        return np.random.Generator(np.random.PCG64([self.seed, zlib.crc32(name.encode())]))

    def add(self, name, *shape, values=None, gain=1.0):
        """A matrix whose products are about as large as what goes in, or `values` of a generator and a shape."""
        draw = self.draw(name)
        made = draw.standard_normal(shape) * gain / shape[-1] ** 0.5 if values is None else values(draw, shape)
        self.tensors.append((name, made.astype(np.float32)))

    def norm(self, name, *shape, bias=False, suffix=".weight"):
        self.add(name + suffix, *shape, values=lambda draw, shape: 1 + 0.1 * draw.standard_normal(shape))
        if bias:
            self.add(name + ".bias", *shape, values=near(0.1))

    def write(self, path):
        front = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.keys))
        front += b"".join(text(name) + value_bytes(value) for name, value in self.keys)
        at = 0
        for name, values in self.tensors:
            front += text(name) + struct.pack("<I", values.ndim) + struct.pack(f"<{values.ndim}Q", *reversed(values.shape))
            front += struct.pack("<IQ", 0, at)
            at += -(-values.nbytes // ALIGNMENT) * ALIGNMENT
        with open(path, "wb") as file:
            file.write(front + bytes(-len(front) % ALIGNMENT))
            for _, values in self.tensors:
                file.write(values.tobytes() + bytes(-values.nbytes % ALIGNMENT))


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value):
    if isinstance(value, bytes):
        return value  # as a file has it
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    kind, code = (8, None) if isinstance(value[0], str) else (6, "f") if isinstance(value[0], float) else (5, "i")
    body = b"".join(map(text, value)) if code is None else struct.pack(f"<{len(value)}{code}", *value)
    return struct.pack("<IIQ", 9, kind, len(value)) + body


def near(deviation, mean=0.0):
    return lambda draw, shape: mean + deviation * draw.standard_normal(shape)


def between(low, high):
    return lambda draw, shape: draw.uniform(low, high, shape)


def plamo2_vocabulary(model):
    tokens = [f"<|plamo:{name}|>" for name in ("unk", "bos", "eos", "pad")] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [2, 3, 3, 3] + [6] * 256
    pieces = sorted({word[i : i + size] for word in WORDS for i in range(len(word)) for size in (1, 2, 3, 5) if i + size <= len(word)})
    pieces += [" ", " the", "\n"]
    draw = model.draw("vocabulary")
    scores = [0.0] * len(tokens) + [float(score) for score in -draw.uniform(3, 14, len(pieces))]
    model.key("tokenizer.ggml.model", "plamo2")
    model.key("tokenizer.ggml.pre", "default")
    model.key("tokenizer.ggml.tokens", tokens + pieces)
    model.key("tokenizer.ggml.scores", scores)
    model.key("tokenizer.ggml.token_type", types + [1] * len(pieces))
    for role, token in (("unknown", 0), ("bos", 1), ("eos", 2), ("padding", 3)):
        model.key(f"tokenizer.ggml.{role}_token_id", token)
    return len(tokens) + len(pieces)


def plamo2(model):
    hidden, layers, heads, kv_heads, head_dim, ffn = 64, 4, 4, 2, 32, 96
    spaces, space_dim, state, rank = 6, 16, 16, 64  # llama.cpp derives the last: at least 64
    inner = spaces * space_dim
    mixes = [i % 2 == 1 for i in range(layers)]  # attention
    # The converter writes 0 heads of queries for the others, which llama.cpp v0.5.0 does not run: in its first layer's case it turns
    # pairs for ever.
    vocab = plamo2_vocabulary(model)
    model.own(vocab_size=vocab, context_length=512, embedding_length=hidden, block_count=layers, feed_forward_length=ffn,
              attention__head_count=[heads] * layers, attention__head_count_kv=[kv_heads if mix else 0 for mix in mixes],
              attention__key_length=head_dim, attention__value_length=head_dim, attention__layer_norm_rms_epsilon=4e-3,
              rope__freq_base=10000.0, ssm__state_size=state, ssm__conv_kernel=4, ssm__time_step_rank=spaces, ssm__inner_size=inner,
              ssm__group_count=0)
    model.add("token_embd.weight", vocab, hidden, values=near(0.3))
    model.norm("output_norm", hidden)
    for i, mix in enumerate(mixes):
        p = f"blk.{i}."
        model.norm(p + "attn_norm", hidden)
        if mix:
            model.add(p + "attn_qkv.weight", (heads + 2 * kv_heads) * head_dim, hidden, gain=1.5)
            for name, count in (("q", heads), ("k", kv_heads)):
                model.add(p + f"attn_{name}_norm.weight", count, head_dim, values=near(0.2, 1.5))
            model.add(p + "attn_output.weight", hidden, heads * head_dim)
        else:
            model.add(p + "ssm_in.weight", 2 * inner, hidden, gain=2)
            model.add(p + "ssm_conv1d.weight", inner, 4, values=near(0.5))
            model.add(p + "ssm_x.weight", rank + 2 * state, inner, gain=2)
            model.add(p + "ssm_dt.weight", spaces, rank)
            model.add(p + "ssm_dt.bias", spaces, values=between(-4, 0))
            model.add(p + "ssm_a", spaces, values=lambda draw, shape: -np.exp(draw.uniform(-2, 2, shape)))
            model.add(p + "ssm_d", spaces, values=near(0.3))
            for name, size in (("dt", rank), ("b", state), ("c", state)):
                model.norm(p + f"ssm_{name}_norm", size, suffix="")
            model.add(p + "ssm_out.weight", hidden, inner)
        model.norm(p + "post_attention_norm", hidden, suffix="")
        model.norm(p + "ffn_norm", hidden)
        model.add(p + "ffn_up.weight", 2 * ffn, hidden)
        model.add(p + "ffn_down.weight", hidden, ffn)
        model.norm(p + "post_ffw_norm", hidden, suffix="")


def rwkv_vocabulary(model):
    tokens = ["<s>"] + [chr(byte) if 32 < byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in range(256)]
    tokens += sorted({word for word in WORDS if word.isascii() and len(word) > 1}) + [" the", "ra", "rai"]
    model.key("tokenizer.ggml.model", "rwkv")
    model.key("tokenizer.ggml.tokens", tokens + [f"token {i}" for i in range(len(tokens), 320)])
    model.key("tokenizer.ggml.token_type", [3] + [1] * 319)
    for role in ("bos", "eos", "eot"):
        model.key(f"tokenizer.ggml.{role}_token_id", 0)
    return 320


def rwkv6(model):
    hidden, layers, head_dim, ffn, mix, decay = 64, 3, 32, 96, 8, 16
    vocab = rwkv_vocabulary(model)
    model.own(context_length=1048576, embedding_length=hidden, block_count=layers, attention__layer_norm_epsilon=4e-3,
              rescale_every_n_layers=2, wkv__head_size=head_dim, time_mix_extra_dim=mix, time_decay_extra_dim=decay,
              feed_forward_length=ffn, attention__head_count=0)
    model.add("token_embd.weight", vocab, hidden, values=near(0.3))
    model.norm("token_embd_norm", hidden, bias=True)
    model.norm("output_norm", hidden, bias=True)
    model.add("output.weight", vocab, hidden)
    for i in range(layers):
        p = f"blk.{i}."
        model.norm(p + "attn_norm", hidden, bias=True)
        model.norm(p + "attn_norm_2", hidden, bias=True)
        t = p + "time_mix_"
        model.add(t + "w1.weight", 5 * mix, hidden)
        model.add(t + "w2.weight", 5, hidden, mix, gain=0.5)
        model.add(t + "lerp_x.weight", hidden, values=between(0, 1))
        model.add(t + "lerp_fused.weight", 5, 1, 1, hidden, values=between(0, 1))
        model.add(t + "first.weight", hidden // head_dim, head_dim, values=near(0.5))
        model.add(t + "decay.weight", hidden, values=between(-6, 1))
        model.add(t + "decay_w1.weight", decay, hidden)
        model.add(t + "decay_w2.weight", hidden, decay, gain=0.5)
        for name in ("key", "value", "receptance", "gate", "output"):
            model.add(t + name + ".weight", hidden, hidden)
        model.norm(t + "ln", hidden, bias=True)
        c = p + "channel_mix_"
        model.add(c + "lerp_k.weight", hidden, values=between(0, 1))
        model.add(c + "lerp_r.weight", hidden, values=between(0, 1))
        model.add(c + "key.weight", ffn, hidden)
        model.add(c + "value.weight", hidden, ffn)
        model.add(c + "receptance.weight", hidden, hidden)


FAMILIES = {"plamo2": plamo2, "rwkv6": rwkv6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--out", required=True)
    args = parser.parse_args()
    model = Model(args.family, args.seed)
    FAMILIES[args.family](model)
    model.write(args.out)


if __name__ == "__main__":
    main()
