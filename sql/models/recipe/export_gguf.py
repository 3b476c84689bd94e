#!/usr/bin/python3
"""Writes a checkpoint and its vocabulary as a GGUF file of the llama architecture, Q8_0 or F32."""
import argparse
import os
import struct

import numpy
import sentencepiece
import torch

import wordings
from chat import IM_END
from model import Config

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TENSOR_F32, TENSOR_Q8_0 = 0, 8
NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6
ALIGNMENT = 32

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, kind, value, element=None):
    packers = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
    pack = lambda k, v: text(v) if k == STRING else struct.pack(packers[k], v)
    if kind == ARRAY:
        return text(key) + struct.pack("<IIQ", ARRAY, element, len(value)) + b"".join(pack(element, v) for v in value)
    return text(key) + struct.pack("<I", kind) + pack(kind, value)


def quantized(matrix):
    """Q8_0: blocks of 32 weights, each a half-precision scale and 32 signed bytes."""
    blocks = matrix.reshape(-1, 32)
    scale = numpy.abs(blocks).max(1, keepdims=True) / 127
    inverse = numpy.divide(1, scale, out=numpy.zeros_like(scale), where=scale > 0)
    out = numpy.empty(len(blocks), dtype=[("scale", "<f2"), ("weights", "i1", 32)])
    out["scale"] = scale[:, 0]
    out["weights"] = numpy.rint(blocks * inverse)
    return out.tobytes()


def paired(rows, head_size):
    """Reorders a projection's rows from the training's rotary pairs (i, i + half) to llama's (2i, 2i + 1)."""
    return rows.reshape(-1, 2, head_size // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def tensors(config, weights):
    """Names as llama.cpp has them, with float32 arrays."""
    ones = numpy.ones(config.hidden, numpy.float32)
    yield "token_embd.weight", weights["embedding"]
    yield "output_norm.weight", weights["final_gain"]
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    for i in range(config.layers):
        layer = lambda name: weights[f"layers.{i}.{name}"]
        q, k, v = numpy.split(layer("qkv"), [queries, queries + keys])
        yield f"blk.{i}.attn_norm.weight", ones
        yield f"blk.{i}.attn_q.weight", paired(q, config.head_size)
        yield f"blk.{i}.attn_k.weight", paired(k, config.head_size)
        yield f"blk.{i}.attn_v.weight", v
        yield f"blk.{i}.attn_output.weight", layer("attn_output")
        yield f"blk.{i}.ffn_norm.weight", ones
        yield f"blk.{i}.ffn_gate.weight", layer("gate")
        yield f"blk.{i}.ffn_up.weight", layer("up")
        yield f"blk.{i}.ffn_down.weight", layer("down")


def token_type(pieces, i):
    for test, kind in ((pieces.is_unknown, UNKNOWN), (pieces.is_control, CONTROL), (pieces.is_byte, BYTE), (pieces.is_unused, UNUSED)):
        if test(i):
            return kind
    return NORMAL


def fields(config, pieces, name, file_type):
    count = range(len(pieces))
    yield field("general.architecture", STRING, "llama")
    yield field("general.name", STRING, name)
    yield field("general.description", STRING, "Synopsis, section, yes/no questions and tags of Debian package descriptions")
    # How the words of its tasks begin; engine/model/purpose.h warns where a call has none of them.
    yield field("sqlite_lm.purpose.words", ARRAY, wordings.PURPOSE, STRING)
    yield field("general.file_type", U32, file_type)
    yield field("general.quantization_version", U32, 2)
    yield field("llama.vocab_size", U32, len(pieces))
    yield field("llama.context_length", U32, config.context)
    yield field("llama.embedding_length", U32, config.hidden)
    yield field("llama.block_count", U32, config.layers)
    yield field("llama.feed_forward_length", U32, config.ffn)
    yield field("llama.attention.head_count", U32, config.heads)
    yield field("llama.attention.head_count_kv", U32, config.kv_heads)
    yield field("llama.attention.key_length", U32, config.head_size)
    yield field("llama.attention.value_length", U32, config.head_size)
    yield field("llama.attention.layer_norm_rms_epsilon", F32, config.epsilon)
    yield field("llama.rope.dimension_count", U32, config.head_size)
    yield field("llama.rope.freq_base", F32, config.rope_base)
    yield field("tokenizer.ggml.model", STRING, "llama")
    yield field("tokenizer.ggml.tokens", ARRAY, [pieces.id_to_piece(i) for i in count], STRING)
    yield field("tokenizer.ggml.scores", ARRAY, [pieces.get_score(i) for i in count], F32)
    yield field("tokenizer.ggml.token_type", ARRAY, [token_type(pieces, i) for i in count], I32)
    yield field("tokenizer.ggml.bos_token_id", U32, pieces.bos_id())
    yield field("tokenizer.ggml.eos_token_id", U32, pieces.piece_to_id(IM_END))
    yield field("tokenizer.ggml.eot_token_id", U32, pieces.piece_to_id(IM_END))
    yield field("tokenizer.ggml.unknown_token_id", U32, pieces.unk_id())
    yield field("tokenizer.ggml.padding_token_id", U32, pieces.eos_id())
    yield field("tokenizer.ggml.add_bos_token", BOOL, False)
    yield field("tokenizer.ggml.add_eos_token", BOOL, False)
    yield field("tokenizer.ggml.add_space_prefix", BOOL, False)
    yield field("tokenizer.chat_template", STRING, CHATML)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("vocabulary")
    parser.add_argument("output")
    parser.add_argument("--type", choices=["q8_0", "f32"], default="q8_0")
    options = parser.parse_args()
    checkpoint = torch.load(options.checkpoint, map_location="cpu")
    config = Config(**checkpoint["config"])
    weights = {name: value.float().numpy() for name, value in checkpoint["model"].items()}
    pieces = sentencepiece.SentencePieceProcessor(model_file=options.vocabulary)
    name = os.path.splitext(os.path.basename(options.output))[0]

    header = list(fields(config, pieces, name, 7 if options.type == "q8_0" else 0))
    infos, data, offset = [], [], 0
    for name, array in tensors(config, weights):
        small = array.ndim == 1 or options.type == "f32"
        raw = numpy.ascontiguousarray(array, "<f4").tobytes() if small else quantized(array)
        shape = array.shape[::-1]
        infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, TENSOR_F32 if small else TENSOR_Q8_0, offset))
        raw += bytes(-len(raw) % ALIGNMENT)
        data.append(raw)
        offset += len(raw)
    front = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(header)) + b"".join(header + infos)
    front += bytes(-len(front) % ALIGNMENT)
    with open(options.output + ".new", "wb") as out:
        out.write(front)
        out.writelines(data)
    os.replace(options.output + ".new", options.output)
    print(f"{options.output}: {(len(front) + offset) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
