#!/usr/bin/env python3
"""Makes the vocabularies and golden ids of the tokenizer tests.

    make_fixtures.py PEER

PEER is the llama.cpp half of tests/parity/tokenizer.py: PEER MODEL.gguf TEXTS IDS. Written beside
this script, strings with C escapes (octal):

    byte_level.vocab      token <type> <name> | merge <left right>
    sentencepiece.vocab   token <type> <name> <score>
    raw.vocab             token <type> <name> | merge <left right>
    golden.tsv            vocabulary  pre  add_space_prefix  p|m  text  ids

The vocabularies are trained here, on a few sentences and on random Unicode, without any split, so
that their merges would cross every border that a family's split draws.
"""
import collections
import os
import struct
import subprocess
import sys
import tempfile
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../parity"))
from tokenizer import TextMaker  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

FAMILIES = ["default", "gpt-2", "starcoder", "falcon", "llama-bpe", "qwen2", "qwen35", "minicpm5",
            "bailingmoe", "seed-coder", "tekken", "gpt-4o", "bloom", "viking", "deepseek-llm",
            "deepseek-coder", "deepseek-v3"]
LATER_FAMILIES = ["ufakzeka", "exaone-moe", "tiny_aya", "youtu", "kimi-k2", "granite-embed-multi-97m", "laguna",
                  "chameleon", "spark2_5", "afmoe"]
LAST_FAMILIES = ["jais-2", "superbpe"]
# Of these llama.cpp reads the expressions without what tells case and marks apart beyond ASCII; ours
# are the models' own (see make_splits.py), and such texts have no line.
OWN_FAMILIES = ["tekken", "gpt-4o", "tiny_aya", "youtu", "kimi-k2"]
RAW_FAMILIES = [("gemma4", "gemma4"), ("gpt2", "sarvam-moe")]

SENTENCES = """The quick brown fox isn't lazy; it's 1,234 miles from home, and they'll say: "Why?"
for (int i = 0; i < 100; ++i) { total += values[i] * 3.1415; }  // don't stop
\tif x == 42:\n\t\treturn "naïve café"\r\n\r\n    SELECT name, price FROM items WHERE id >= 2024;
Über den Wolken, où est la bibliothèque? ¿Dónde está? Привет, мир! Γειά σου Κόσμε 12345 67
你好，世界。今天天气很好！ 日本語のテキストです。 안녕하세요 세계 مرحبا بالعالم ۱۲۳ สวัสดี नमस्ते दुनिया।
HTTPServer camelCase CONSTANT_NAME I'LL WE'VE don’t https://example.com/a/b?c=d&e=f … “quotes” — 5€
e\u0301a\u0300 👩‍👩‍👧‍👦 🦙🦙 ½ Ⅻ ² ٣   spaces   and\u00a0more\u3000wide  \n\n\n tail """

FIXED = ["", " ", "  ", "   ", "\n", "\r\n", "\t\t", "a", " a", "a ", "Hello, world!", "I'm you're HE'S",
         "1234567890", " 12 345 6789", "a\n\n  b", "x   y\t\tz", "\u3000全角　空白", "नमस्ते", "e\u0301",
         "tokenizer tokenizers Xtokenizer", "🦙 llama", "\u1f6dc \U0001f6dc", "<sep> <sep>x <|im_end|>",
         "ø ø", "'s's 'S ’s", "...!!!???", "a1b2c3", "don't'll've"]


def tells_case_or_marks(text):
    return any(unicodedata.category(c) in ("Lu", "Ll", "Lt", "Mn", "Mc", "Me") for c in text if c > "\x7f")


def escape(data):
    return "".join(chr(b) if 0x20 < b < 0x7F and b not in b"\\" else "\\%03o" % b for b in data)


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelling = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in spelling:
            spelling[b] = chr(256 + len(spelling) - len(printable))
    return spelling


def train(symbols, merges, longest):
    """Byte-pair encoding over a list of strings; the pairs merged, best first."""
    pairs = []
    for _ in range(merges):
        counts = collections.Counter(
            (a, b) for a, b in zip(symbols, symbols[1:]) if len(a + b) <= longest)
        pair, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if count < 2:
            break
        pairs.append(pair)
        merged, i = [], 0
        while i < len(symbols):
            if tuple(symbols[i:i + 2]) == pair:
                merged.append(symbols[i] + symbols[i + 1])
                i += 2
            else:
                merged.append(symbols[i])
                i += 1
        symbols = merged
    return pairs


def gguf(path, model, pre, tokens, merges, prefix):
    """A vocabulary-only GGUF of the llama architecture."""
    def string(text):
        data = text.encode()
        return struct.pack("<Q", len(data)) + data

    pairs = []

    def add(key, kind, payload):
        pairs.append(string(key) + struct.pack("<I", kind) + payload)

    def add_array(key, kind, payloads):
        add(key, 9, struct.pack("<IQ", kind, len(payloads)) + b"".join(payloads))

    add("general.architecture", 8, string("llama"))
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", 32),
                       ("feed_forward_length", 32), ("attention.head_count", 1)):
        add("llama." + key, 4, struct.pack("<I", value))
    add("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))
    add("tokenizer.ggml.model", 8, string(model))
    add("tokenizer.ggml.pre", 8, string(pre))
    add_array("tokenizer.ggml.tokens", 8, [string(name) for _, name, _ in tokens])
    add_array("tokenizer.ggml.token_type", 5, [struct.pack("<i", kind) for kind, _, _ in tokens])
    add_array("tokenizer.ggml.scores", 6, [struct.pack("<f", score) for _, _, score in tokens])
    if merges:
        add_array("tokenizer.ggml.merges", 8, [string(" ".join(pair)) for pair in merges])
    for key in ("bos_token_id", "eos_token_id"):
        add("tokenizer.ggml." + key, 4, struct.pack("<I", 0))
    add("tokenizer.ggml.add_space_prefix", 7, struct.pack("<?", prefix))
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs))


def main():
    peer = sys.argv[1]
    maker = TextMaker(2, [])
    corpus = SENTENCES * 6 + "".join(maker.text(False) for _ in range(250))

    spelling = byte_alphabet()
    pairs = train([spelling[b] for b in corpus.encode()], 900, 16)
    specials = [(CONTROL, "<|endoftext|>", 0.0), (CONTROL, "<|im_start|>", 0.0),
                (CONTROL, "<|im_end|>", 0.0), (USER_DEFINED, "<sep>", 0.0),
                (USER_DEFINED, "   ", 0.0), (USER_DEFINED, "  \n", 0.0), (USER_DEFINED, "ø", 0.0)]
    byte_names = [c for c in spelling.values() if c != "ø"]
    byte_level = specials + [(NORMAL, c, 0.0) for c in byte_names]
    byte_level += [(NORMAL, a + b, 0.0) for a, b in pairs if a + b != "ø"]
    # A whole piece that no merges make.
    byte_level.append((NORMAL, "Ġtokenizer", 0.0))
    byte_level = list({name: (kind, name, score) for kind, name, score in byte_level}.values())

    escaped = corpus.replace(" ", "▁")
    characters = sorted(set(SENTENCES.replace(" ", "▁")))
    pieces = train(list(escaped), 700, 12)
    sentencepiece = [(UNKNOWN, "<unk>", 0.0), (CONTROL, "<s>", 0.0), (CONTROL, "</s>", 0.0),
                     (CONTROL, "<|im_start|>", 0.0), (CONTROL, "<|im_end|>", 0.0),
                     (USER_DEFINED, "<sep>", 0.0), (USER_DEFINED, "  ", 0.0)]
    sentencepiece += [(BYTE, "<0x%02X>" % b, 0.0) for b in range(256)]
    # Scores with ties, as trained ones have.
    sentencepiece += [(NORMAL, a + b, -float(i // 3)) for i, (a, b) in enumerate(pieces)]
    sentencepiece += [(NORMAL, c, -1000.0) for c in characters]
    sentencepiece = list({name: (kind, name, score)
                          for kind, name, score in sentencepiece}.values())

    breaks = [("\n", "\n"), ("\n\n", "\n")]
    raw_pairs = [pair for pair in pieces if "\n" not in pair[0] + pair[1]] + breaks
    raw = [(CONTROL, "<pad>", 0.0), (CONTROL, "<eos>", 0.0), (CONTROL, "<bos>", 0.0), (CONTROL, "<|im_start|>", 0.0),
           (CONTROL, "<|im_end|>", 0.0), (USER_DEFINED, "<sep>", 0.0), (USER_DEFINED, "  ", 0.0)]
    raw += [(BYTE, "<0x%02X>" % b, 0.0) for b in range(256)]
    raw += [(NORMAL, c, 0.0) for c in characters] + [(NORMAL, a + b, 0.0) for a, b in raw_pairs]
    raw.append((NORMAL, "\n" * 5, 0.0))  # that no merges make
    raw = list({name: (kind, name, score) for kind, name, score in raw}.values())

    def write(name, vocabulary, pairs):
        names = {name for _, name, _ in vocabulary}
        pairs = [(a, b) for a, b in pairs if a in names and b in names and a + b in names]
        with open(os.path.join(HERE, name), "w") as file:
            for kind, name, _ in vocabulary:
                file.write("token %d %s\n" % (kind, escape(name.encode())))
            for pair in pairs:
                file.write("merge %s\n" % escape(" ".join(pair).encode()))
        return pairs

    pairs = write("byte_level.vocab", byte_level, pairs)
    raw_pairs = write("raw.vocab", raw, raw_pairs)
    with open(os.path.join(HERE, "sentencepiece.vocab"), "w") as file:
        for kind, name, score in sentencepiece:
            file.write("token %d %s %g\n" % (kind, escape(name.encode()), score))

    maker = TextMaker(3, ["<|im_start|>", "<|im_end|>", "<sep>", "  \n", "   ", "<s>"])
    cases = [("gpt2", pre, False) for pre in FAMILIES]
    cases += [("llama", "default", True), ("llama", "default", False)]
    cases += [("gpt2", pre, False) for pre in LATER_FAMILIES] + [(model, pre, False) for model, pre in RAW_FAMILIES]
    cases += [("gpt2", pre, False) for pre in LAST_FAMILIES]
    with open(os.path.join(HERE, "golden.tsv"), "w") as file, tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "model.gguf")
        for model, pre, prefix in cases:
            is_raw = (model, pre) in RAW_FAMILIES
            tokens = raw if is_raw else byte_level if model == "gpt2" else sentencepiece
            gguf(path, model, pre, tokens, raw_pairs if is_raw else pairs if model == "gpt2" else [], prefix)
            records = [("p", text) for text in FIXED]
            records += [("p", maker.text(False)) for _ in range(20)]
            records += [("m", maker.text(True)) for _ in range(8)]
            with open(os.path.join(tmp, "texts"), "wb") as texts:
                for kind, text in records:
                    data = text.encode()
                    texts.write(kind.encode() + struct.pack("<I", len(data)) + data)
            subprocess.run([peer, path, os.path.join(tmp, "texts"), os.path.join(tmp, "ids")],
                           check=True)
            for (kind, text), ids in zip(records, open(os.path.join(tmp, "ids"))):
                if pre in OWN_FAMILIES and tells_case_or_marks(text):
                    continue
                file.write("\t".join([model, pre, "1" if prefix else "0", kind,
                                      escape(text.encode()), ids.strip()]) + "\n")


if __name__ == "__main__":
    main()
