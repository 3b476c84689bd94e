"""Writes a llama model that is small as a file and slow to run: random Q8_0 weights, a token a byte.

    write_slow_model("slow.gguf")      # 16,384 tokens of context, 6 layers, 24 MB
    write_slow_model("slow.gguf", layers=1, encoder=True)     # each token sees those behind it too
"""
import functools
import random
import struct

STRING, ARRAY, BOOL, UINT32, INT32, FLOAT32 = 8, 9, 7, 4, 5, 6
F32, Q8_0 = 0, 8
HIDDEN, HEADS, KV_HEADS, FFN, CONTEXT = 512, 8, 2, 2048, 16384


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    formats = {UINT32: "<I", FLOAT32: "<f"}
    data = string(value) if kind == STRING else struct.pack(formats[kind], value)
    return string(key) + struct.pack("<I", kind) + data


def array(key, kind, values):
    data = b"".join(string(v) if kind == STRING else struct.pack("<i", v) for v in values)
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + data


def byte_characters():
    """GPT-2's way of writing each byte as a printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


@functools.lru_cache
def weights(values):
    """Q8_0 blocks: a scale of 1/512 and 32 random bytes, from a megabyte of them again and again."""
    blocks = values // 32
    source = random.Random(1).randbytes(32 * 4096)
    scale = struct.pack("<e", 1 / 512)
    pattern = b"".join(scale + source[32 * i:32 * i + 32] for i in range(4096))
    return (pattern * (blocks // 4096 + 1))[:34 * blocks]


END = 257  # the token that ends a text


def write_slow_model(path, layers=6, encoder=False):
    tokens = byte_characters() + ["he", "<|endoftext|>"]
    assert tokens[END] == tokens[-1]
    metadata = [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, "slow"),
        pair("llama.context_length", UINT32, CONTEXT),
        pair("llama.embedding_length", UINT32, HIDDEN),
        pair("llama.block_count", UINT32, layers),
        pair("llama.feed_forward_length", UINT32, FFN),
        pair("llama.attention.head_count", UINT32, HEADS),
        pair("llama.attention.head_count_kv", UINT32, KV_HEADS),
        pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        pair("llama.rope.dimension_count", UINT32, HIDDEN // HEADS),
        pair("llama.rope.freq_base", FLOAT32, 10000.0),
        pair("llama.vocab_size", UINT32, len(tokens)),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", INT32, [1] * (len(tokens) - 1) + [3]),
        array("tokenizer.ggml.merges", STRING, ["h e"]),
        pair("tokenizer.ggml.eos_token_id", UINT32, len(tokens) - 1),
    ]
    if encoder:
        metadata.append(string("llama.attention.causal") + struct.pack("<IB", BOOL, 0))
    kv = HIDDEN // HEADS * KV_HEADS
    tensors = [("token_embd.weight", Q8_0, (HIDDEN, len(tokens))), ("output_norm.weight", F32, (HIDDEN,))]
    for layer in range(layers):
        tensors += [(f"blk.{layer}.{name}.weight", kind, shape) for name, kind, shape in (
            ("attn_norm", F32, (HIDDEN,)), ("attn_q", Q8_0, (HIDDEN, HIDDEN)), ("attn_k", Q8_0, (HIDDEN, kv)),
            ("attn_v", Q8_0, (HIDDEN, kv)), ("attn_output", Q8_0, (HIDDEN, HIDDEN)), ("ffn_norm", F32, (HIDDEN,)),
            ("ffn_gate", Q8_0, (HIDDEN, FFN)), ("ffn_up", Q8_0, (HIDDEN, FFN)), ("ffn_down", Q8_0, (FFN, HIDDEN)))]
    directory, data, offset = [], [], 0
    for name, kind, shape in tensors:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        content = weights(count) if kind == Q8_0 else struct.pack("<f", 1.0) * count
        directory += [string(name), struct.pack(f"<I{len(shape)}Q", len(shape), *shape), struct.pack("<IQ", kind, offset)]
        data += [content, bytes(-len(content) % 32)]
        offset += len(content) + len(data[-1])
    header = b"".join([b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata)), *metadata, *directory])
    with open(path, "wb") as out:
        out.writelines([header, bytes(-len(header) % 32), *data])
