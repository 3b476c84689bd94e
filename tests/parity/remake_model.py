#!/usr/bin/python3
"""Writes a small GGUF model with random F32 weights, of a family that differs little from one that is at hand (needs python3-numpy).

    tests/parity/remake_model.py exaone --maker /path/to/make_gguf --seed 1 -o exaone.gguf
    tests/parity/remake_model.py --list

Two kinds: the maker's file of another family (`--family NAME --type F32 --seed S -o OUT`, as families_table.py asks it), with another
general.architecture, and keys and tensors that this one does not have taken away; and a test's model (tests/testdata/models), each of
whose tensors has its own values in another order, drawn by seed and name. Frequencies of ropes stay as they are.
"""
import argparse
import pathlib
import re
import struct
import tempfile

import numpy as np

import make_model
import peer

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata/models"
SHUFFLED = ("bailingmoe3", "gemma3n", "jina-bert-v2", "kimi-linear", "laguna", "llama4", "mimo2", "minicpm3", "qwen3vl", "step35")
VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
FLOATS = {0: np.float32, 1: np.float16}


class Reader:
    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 8

    def take(self, code):
        values = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return values

    def text(self):
        (size,) = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, count = self.take("IQ")
            if inner in VALUE_BYTES:
                self.at += count * VALUE_BYTES[inner]
            else:
                for _ in range(count):
                    self.skip(inner)
        else:
            self.at += VALUE_BYTES[kind]

    def raw_value(self):
        begin = self.at
        self.skip(self.take("I")[0])
        return self.data[begin : self.at]


def read(path, seed):
    """A make_model.Model of the file, whose keys are bytes as they are in it."""
    reader = Reader(path)
    num_tensors, num_keys = reader.take("QQ")
    keys = [(reader.text(), reader.raw_value()) for _ in range(num_keys)]
    model = make_model.Model(peer.key(path, "general.architecture"), seed)
    model.keys = [pair for pair in keys if pair[0] != "general.alignment"]
    entries = []
    for _ in range(num_tensors):
        name, (dims,) = reader.text(), reader.take("I")
        shape = reader.take(f"{dims}Q")[::-1]
        kind, offset = reader.take("IQ")
        entries.append((name, shape, FLOATS[kind], offset))
    begin = -(-reader.at // make_model.ALIGNMENT) * make_model.ALIGNMENT
    for name, shape, kind, offset in entries:
        values = np.frombuffer(reader.data, kind, np.prod(shape), begin + offset).reshape(shape)
        model.tensors.append((name, values.astype(np.float32)))
    return model


def shuffle(model):
    for i, (name, values) in enumerate(model.tensors):
        if not name.startswith("rope"):
            model.tensors[i] = (name, model.draw(name).permutation(values.ravel()).reshape(values.shape))


def rename(model, architecture, without_keys=(), without_tensors="$^"):
    old, model.architecture = model.architecture + ".", architecture
    named = [(f"{architecture}.{name[len(old):]}" if name.startswith(old) else name, value) for name, value in model.keys]
    left_out = {f"{architecture}.{name}" for name in without_keys}
    model.keys = [(name, architecture if name == "general.architecture" else value) for name, value in named if name not in left_out]
    model.tensors = [(name, values) for name, values in model.tensors if not re.search(without_tensors, name)]


def arwkv7(model):
    rename(model, "arwkv7", ["attention.layer_norm_epsilon"], r"channel_mix|token_embd_norm|norm(_2)?\.bias$")
    model.tensors = [(name.replace("attn_norm_2", "ffn_norm"), values) for name, values in model.tensors]
    model.own(attention__layer_norm_rms_epsilon=4e-3, token_shift_count=1)
    hidden, ffn = 128, 192
    for i in range(3):
        for name, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            model.add(f"blk.{i}.ffn_{name}.weight", rows, cols)


def jina_bert_v3(model):
    rename(model, "jina-bert-v3", without_tensors="position_embd")
    model.own(rope__freq_base=1000.0)


def with_sections(architecture, *sections):
    def change(model):
        rename(model, architecture)
        model.own(rope__dimension_sections=list(sections))

    return change


def with_temperature(architecture):
    def change(model):
        rename(model, architecture)
        model.own(attention__temperature_scale=0.3, attention__temperature_length=32)

    return change


def chatglm(model):
    rename(model, "chatglm", without_tensors=r"post_\w+_norm")


def hy_v3(model):
    rename(model, "hy_v3", ["leading_dense_block_count", "expert_shared_count"])
    model.own(expert_shared_feed_forward_length=64)
    model.tensors = [(name.replace("exp_probs_b.bias", "exp_probs_b"), values) for name, values in model.tensors]


def deci(model):
    """Of six layers the second and fifth have no attention, the fourth nothing; widths and heads differ."""
    heads, kv_heads = (6, 0, 6, 0, 0, 6), (3, 0, 1, 0, 0, 2)
    width = dict(model.tensors)["blk.0.ffn_up.weight"].shape[0]
    widths = (width, width, width // 3, 0, width // 3 * 2, width)
    rename(model, "deci", ["attention.head_count", "attention.head_count_kv", "feed_forward_length"])
    model.own(attention__head_count=list(heads), attention__head_count_kv=list(kv_heads), feed_forward_length=list(widths))
    cut = []
    for name, values in model.tensors:
        block = re.match(r"blk\.(\d+)\.(attn|ffn)_(\w+)\.weight$", name)
        if block is None:
            cut.append((name, values))
            continue
        i, part, what = int(block[1]), block[2], block[3]
        if (part == "attn" and heads[i] == 0) or (part == "ffn" and widths[i] == 0):
            continue
        if what in ("k", "v"):
            values = values[: kv_heads[i] * values.shape[0] // 3]
        if part == "ffn" and what != "norm":
            values = values[:, : widths[i]] if what == "down" else values[: widths[i]]
        cut.append((name, values))
    model.tensors = cut


def renamed(architecture, without_keys=()):
    return lambda model: rename(model, architecture, without_keys)


MIXTURE = ["dots1", "--set", "qk_norm=None", "moe=shared", "kv_heads=3"]
ROUTER = ("expert_gating_func", "expert_weights_norm")
# name -> the maker's family and options, and what is changed. (llama.cpp v0.5.0 does not read qwen2vl's epsilon, and has 0.)
CHANGED = {
    "arwkv7": (["rwkv7"], arwkv7),
    "bailingmoe": (MIXTURE + ["lead=0", "n_rot=32"], renamed("bailingmoe", ("expert_gating_func", "leading_dense_block_count"))),
    "chatglm": (["glm4", "--set", "fused_qkv=True", "head_dim=None"], chatglm),
    "deci": (["llama", "--set", "layers=6", "ffn=192"], deci),
    "deepseek": (MIXTURE + ["head_dim=None"], renamed("deepseek", ROUTER)),
    "exaone": (["llama-rope"], renamed("exaone")),
    "glm4-sections": (["glm4"], with_sections("glm4", 3, 2, 2, 1)),
    "hy_v3": (["dots1", "--set", "shared_ffn=64"], hy_v3),
    "glm4moe-sections": (["glm4moe"], with_sections("glm4moe", 2, 3, 2, 1)),
    "jina-bert-v3": (["bert-xlmr"], jina_bert_v3),
    "maincoder": (["qwen3"], renamed("maincoder")),
    "mistral-large-3": (["deepseek2-groups"], with_temperature("deepseek2")),
    "mistral4": (["deepseek2-groups"], with_temperature("mistral4")),
    "orion": (["stablelm", "--set", "qkv_bias=False", "n_rot=None"], renamed("orion")),
    "pangu-embedded": (["qwen2", "--set", "o_bias=True"], renamed("pangu-embedded")),
    "qwen2vl": (["qwen2", "--eps", "1e-9"], with_sections("qwen2vl", 2, 3, 3, 0)),
    "qwen3vlmoe": (["qwen3moe"], with_sections("qwen3vlmoe", 6, 5, 5, 0)),
    "starcoder": (["gpt2", "--set", "kv_heads=1", "--pre", "starcoder"], renamed("starcoder")),
    "xverse": (["llama-spm", "--set", "head_dim=None"], renamed("xverse")),
}
NAMES = sorted([*SHUFFLED, *CHANGED])


def remake(name, maker, seed, out):
    if name in SHUFFLED:
        model = read(TESTDATA / f"{name}-f32.gguf", seed)
        shuffle(model)
    else:
        (family, *options), change = CHANGED[name]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "made.gguf"
            peer.run(maker, "--family", family, *options, "--type", "F32", "--seed", seed, "-o", path)
            model = read(path, seed)
        change(model)
    model.write(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--list", action="store_true", help="name the families and stop")
    parser.add_argument("--maker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    if args.list:
        print("\n".join(NAMES))
        return
    if not args.name or not args.out or not (args.maker or args.name in SHUFFLED):
        parser.error("a name, --out and, but for tests' models, --maker are needed")
    remake(args.name, args.maker, args.seed, args.out)


if __name__ == "__main__":
    main()
