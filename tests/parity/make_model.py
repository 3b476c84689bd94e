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
        self.tensors.append((name, made if made.dtype == np.int32 else made.astype(np.float32)))

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
            front += struct.pack("<IQ", 26 if values.dtype == np.int32 else 0, at)
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


def rwkv6qwen2(model):
    hidden, layers, head_dim, kv_heads, ffn, mix, decay = 64, 3, 16, 2, 96, 8, 16
    vocab = rwkv_vocabulary(model)
    model.own(context_length=32768, embedding_length=hidden, block_count=layers, attention__layer_norm_rms_epsilon=4e-3,
              wkv__head_size=head_dim, time_mix_extra_dim=mix, time_decay_extra_dim=decay, token_shift_count=1,
              feed_forward_length=ffn, attention__head_count=0, attention__head_count_kv=kv_heads)
    model.add("token_embd.weight", vocab, hidden, values=near(0.3))
    model.norm("output_norm", hidden)
    model.add("output.weight", vocab, hidden)
    for i in range(layers):
        p = f"blk.{i}."
        model.norm(p + "attn_norm", hidden)
        model.norm(p + "ffn_norm", hidden)
        t = p + "time_mix_"
        model.add(t + "w1.weight", 5 * mix, hidden)
        model.add(t + "w2.weight", 5, hidden, mix, gain=0.5)
        model.add(t + "lerp_x.weight", hidden, values=between(0, 1))
        model.add(t + "lerp_fused.weight", 5, 1, 1, hidden, values=between(0, 1))
        model.add(t + "decay.weight", hidden, values=between(-6, 1))
        model.add(t + "decay_w1.weight", decay, hidden)
        model.add(t + "decay_w2.weight", hidden, decay, gain=0.5)
        for name, rows in (("key", kv_heads * head_dim), ("value", kv_heads * head_dim), ("receptance", hidden)):
            model.add(t + name + ".weight", rows, hidden, gain=2)
            model.add(t + name + ".bias", rows, values=near(0.3))
        for name in ("gate", "output"):
            model.add(t + name + ".weight", hidden, hidden, gain=2)
        for name, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            model.add(p + f"ffn_{name}.weight", rows, cols)


def deepseek4(model):
    hidden, heads, head_dim, rope, q_rank, groups, o_rank = 32, 4, 32, 16, 32, 2, 32
    # Enough heads of the index that no two of its scores are 0, and so the same.
    index_heads, index_dim, experts, used, ffn, streams, hashed = 10, 64, 4, 2, 32, 4, 2
    ratios = [0, 4, 128, 4, 128]
    layers = len(ratios)
    vocab = rwkv_vocabulary(model)
    model.own(vocab_size=vocab, context_length=512, embedding_length=hidden, block_count=layers, feed_forward_length=ffn,
              attention__head_count=heads, attention__head_count_kv=1, attention__key_length=head_dim, attention__value_length=head_dim,
              attention__layer_norm_rms_epsilon=4e-3, attention__q_lora_rank=q_rank, attention__sliding_window=8,
              attention__output_group_count=groups, attention__output_lora_rank=o_rank, attention__compress_ratios=ratios,
              attention__compress_rope_freq_base=4000.0, attention__indexer__head_count=index_heads,
              attention__indexer__key_length=index_dim, attention__indexer__top_k=3, rope__dimension_count=rope,
              rope__freq_base=1000.0, rope__scaling__type="yarn", rope__scaling__factor=8.0,
              rope__scaling__original_context_length=64, hyper_connection__count=streams,
              hyper_connection__sinkhorn_iterations=3, hyper_connection__epsilon=0.01, hash_layer_count=hashed,
              expert_count=experts, expert_used_count=used, expert_feed_forward_length=ffn, expert_shared_count=1,
              expert_weights_scale=1.5, expert_weights_norm=True, expert_gating_func=4,
              swiglu_clamp_exp=[0.5 + 0.1 * i for i in range(layers)], swiglu_clamp_shexp=[0.9 - 0.1 * i for i in range(layers)])
    model.add("token_embd.weight", vocab, hidden, values=near(0.5))
    model.norm("output_norm", hidden)
    model.add("output.weight", vocab, hidden)

    def hyper(name, scales, numbers):
        model.add(name + "_fn.weight", numbers, streams * hidden)
        model.add(name + "_base.weight", numbers, values=near(0.5))
        model.add(name + "_scale.weight", scales, values=near(0.2, 1.0))

    def pooled(p, name, every, columns, norm):
        for part in ("kv", "gate"):
            model.add(f"{p}{name}_compressor_{part}.weight", columns, hidden, gain=1.5)
        model.add(f"{p}{name}_compressor_ape.weight", every, columns, values=near(0.7))
        model.norm(f"{p}{name}_compressor_norm", norm)

    hyper("output_hc", 1, streams)
    for i, every in enumerate(ratios):
        p = f"blk.{i}."
        model.norm(p + "attn_norm", hidden)
        model.add(p + "attn_sinks.weight", heads, values=near(1))
        model.add(p + "attn_q_a.weight", q_rank, hidden)
        model.norm(p + "attn_q_a_norm", q_rank)
        model.add(p + "attn_q_b.weight", heads * head_dim, q_rank)
        model.add(p + "attn_kv.weight", head_dim, hidden)
        model.add(p + "attn_kv_a_norm.weight", head_dim, values=near(0.2, 1.5))
        model.add(p + "attn_output_a.weight", groups * o_rank, heads * head_dim // groups)
        model.add(p + "attn_output_b.weight", hidden, groups * o_rank)
        hyper(p + "hc_attn", 3, (2 + streams) * streams)
        hyper(p + "hc_ffn", 3, (2 + streams) * streams)
        if every:
            pooled(p, "attn", every, (2 if every == 4 else 1) * head_dim, head_dim)
        if every == 4:
            pooled(p, "indexer", every, 2 * index_dim, index_dim)
            model.add(p + "indexer.proj.weight", index_heads, hidden)
            model.add(p + "indexer.attn_q_b.weight", index_heads * index_dim, q_rank)
        model.norm(p + "ffn_norm", hidden)
        model.add(p + "ffn_gate_inp.weight", experts, hidden, gain=2)
        if i < hashed:
            choose = lambda draw, shape: np.argsort(draw.random((shape[0], experts)), 1)[:, : shape[1]].astype(np.int32)
            model.add(p + "ffn_gate_tid2eid.weight", vocab, used, values=choose)
        else:
            model.add(p + "exp_probs_b.bias", experts, values=near(0.2))
        for name, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            model.add(p + f"ffn_{name}_exps.weight", experts, rows, cols, gain=1.5)
            model.add(p + f"ffn_{name}_shexp.weight", rows, cols, gain=1.5)


FAMILIES = {"deepseek4": deepseek4, "plamo2": plamo2, "rwkv6": rwkv6, "rwkv6qwen2": rwkv6qwen2}


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
