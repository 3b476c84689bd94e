#!/usr/bin/env python3
"""Compares our tokenizer's ids with llama.cpp's, on its own cases and on random Unicode.

    tokenizer.py VOCABULARIES OURS THEIRS [--strings 5000] [--seed 1] [--only NAME]

VOCABULARIES is a folder with llama.cpp's ggml-vocab-*.gguf files (its models/), beside each, where
there are any, its cases (.gguf.inp) and their ids (.gguf.out). OURS is the program of
tests/parity/tokenizer_dump.cc, THEIRS one with the same arguments and files that is linked to
libllama and calls llama_tokenize with add_special = false and parse_special = true for markup. For
each vocabulary there are three rounds: the cases, random texts as plain text, and random texts with
special tokens in them as markup; a vocabulary that our program refuses is reported with its reason.

Plain texts that spell a control token are left out of the comparison by ids where llama.cpp makes
the control token of them (its SentencePiece merges can): ours never does, and those are counted.
"""
import argparse
import glob
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

CASE_SEPARATOR = b"\n__ggml_vocab_test__\n"


def read_metadata(path):
    """The metadata of a GGUF file as a dictionary, strings as bytes."""
    data = open(path, "rb").read()
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
               12: "d"}
    pos = 0

    def take(fmt):
        nonlocal pos
        values = struct.unpack_from("<" + fmt, data, pos)
        pos += struct.calcsize("<" + fmt)
        return values

    def string():
        nonlocal pos
        (size,) = take("Q")
        pos += size
        return data[pos - size:pos]

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            element, count = take("IQ")
            if element == 8:
                return [string() for _ in range(count)]
            return list(take("%d%s" % (count, formats[element])))
        return take(formats[kind])[0]

    _, _, _, pairs = take("4sIQQ")
    metadata = {}
    for _ in range(pairs):
        key = string().decode()
        metadata[key] = value(take("I")[0])
    return metadata


class TextMaker:
    """Random texts: runs of one kind of character each, of every kind there is."""

    def __init__(self, seed, special_names):
        self.random = random.Random(seed)
        self.special_names = special_names
        self.by_category = {}
        for code in range(0x110000):
            if not 0xD800 <= code < 0xE000:
                self.by_category.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
        self.words = ("the of and to in is that it was for on with he she I'm don't we'll you've "
                      "THEY'RE It's o'clock naïve Ünïcödé résumé int main() return foo_bar "
                      "camelCase HTTPServer 3.14 1,000,000 x=42; a+b C++ user@example.com "
                      "https://a.b/c?d=e&f").split()
        self.kinds = [self.word, self.digits, self.punctuation, self.space, self.space,
                      self.accented, self.cjk, self.kana, self.hangul, self.arabic, self.indic,
                      self.emoji, self.combining, self.category, self.category, self.any,
                      self.repeated, self.contraction, self.ascii]

    def some(self, characters, most):
        return "".join(self.random.choice(characters)
                       for _ in range(self.random.randint(1, most)))

    def between(self, *ranges):
        first, last = self.random.choice(ranges)
        return chr(self.random.randint(first, last))

    def run(self, most, *ranges):
        return "".join(self.between(*ranges) for _ in range(self.random.randint(1, most)))

    def word(self):
        word = self.random.choice(self.words)
        return self.random.choice(["", " "]) + self.random.choice(
            [word, word.upper(), word.capitalize()])

    def digits(self):
        return self.random.choice(["", " "]) + self.some("0123456789", 9)

    def punctuation(self):
        return self.some("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 6)

    def space(self):
        return self.some([" ", " ", " ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2009",
                          "\u2028", "\u0085", "\v", "\f", "\r", "\u180e", "\u200b"], 5)

    def accented(self):
        return self.run(6, (0xC0, 0x24F), (0x370, 0x52F), (0x1E00, 0x1FFF))

    def cjk(self):
        return self.run(6, (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x3000, 0x303F), (0xFF00, 0xFFEF),
                        (0x20000, 0x2A6DF), (0x31350, 0x323AF), (0x2EBF0, 0x2EE5D))

    def kana(self):
        return self.run(6, (0x3040, 0x30FF))

    def hangul(self):
        return self.run(6, (0xAC00, 0xD7FF), (0x1100, 0x11FF))

    def arabic(self):
        return self.run(8, (0x590, 0x6FF), (0x660, 0x669))

    def indic(self):
        return self.run(8, (0x900, 0xDFF), (0xE00, 0xE7F), (0x1780, 0x17FF))

    def emoji(self):
        return self.random.choice(["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "😀", "❤️", "🦙", "🫨", "1️⃣"])

    def combining(self):
        return self.some("aeiouAEIOUnç", 3) + self.run(4, (0x300, 0x36F), (0x20D0, 0x20F0))

    def category(self):
        return self.some(self.by_category[self.random.choice(sorted(self.by_category))], 3)

    def any(self):
        while True:
            code = self.random.randint(0, 0x10FFFF)
            if not 0xD800 <= code < 0xE000 and code != 0:
                return chr(code)

    def repeated(self):
        return self.random.choice(" \n\ta1.=-é你") * self.random.randint(2, 40)

    def contraction(self):
        return self.random.choice(["'", "’"]) + self.random.choice(
            ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "M", "LL", "D", "ſ", "x"])

    def ascii(self):
        return self.some([chr(c) for c in range(1, 128)], 8)

    def text(self, specials):
        parts = []
        for _ in range(self.random.randint(1, 12)):
            if specials and self.special_names and self.random.random() < 0.3:
                parts.append(self.random.choice(self.special_names))
            else:
                parts.append(self.random.choice(self.kinds)())
        return "".join(parts).replace("\0", " ")


def dump(program, model, records):
    """The ids that `program` gives to the records, one list each, or its message."""
    with tempfile.TemporaryDirectory() as folder:
        texts, ids = os.path.join(folder, "texts"), os.path.join(folder, "ids")
        with open(texts, "wb") as file:
            for kind, text in records:
                file.write(kind + struct.pack("<I", len(text)) + text)
        result = subprocess.run([program, model, texts, ids], capture_output=True, text=True)
        if result.returncode != 0:
            return result.stderr.strip() or "exit status %d" % result.returncode
        return [[int(i) for i in line.split()] for line in open(ids)]


def compare(label, model, records, args, controls):
    ours, theirs = dump(args.ours, model, records), dump(args.theirs, model, records)
    if isinstance(ours, str) or isinstance(theirs, str):
        print("  %s: ours: %s; theirs: %s" % (label, ours if isinstance(ours, str) else "fine",
                                              theirs if isinstance(theirs, str) else "fine"))
        return 1
    different = forbidden = 0
    for (kind, text), mine, other in zip(records, ours, theirs):
        if kind == b"p" and controls.intersection(mine):
            print("  CONTROL TOKEN from plain text %r: %s" % (text, mine))
            different += 1
        if mine == other:
            continue
        if kind == b"p" and controls.intersection(other):
            forbidden += 1
            continue
        different += 1
        if different <= args.show:
            print("  %s %r\n    ours   %s\n    theirs %s" % (label, text.decode(), mine, other))
    note = ", %d not compared (theirs makes control tokens)" % forbidden if forbidden else ""
    print("  %s: %d texts, %d tokens, %d different%s" %
          (label, len(records), sum(map(len, ours)), different, note))
    return different


def check(model, args):
    name = os.path.basename(model)[len("ggml-vocab-"):-len(".gguf")]
    print(name)
    refusal = dump(args.ours, model, [])
    if isinstance(refusal, str):
        print("  not covered: " + refusal)
        return 0
    metadata = read_metadata(model)
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    controls = {i for i, kind in enumerate(types) if kind in (2, 3)}
    if metadata["tokenizer.ggml.model"] in (b"bert", b"t5"):  # what they know of no text is that
        controls.discard(metadata.get("tokenizer.ggml.unknown_token_id", 100))
    specials = [tokens[i].decode() for i, kind in enumerate(types) if kind in (2, 3, 4)]

    different = 0
    if os.path.exists(model + ".inp"):
        cases = open(model + ".inp", "rb").read().split(CASE_SEPARATOR)
        wanted = [[int(i) for i in line.split()] for line in open(model + ".out")]
        if not cases[-1].strip():
            cases.pop()
        got = dump(args.ours, model, [(b"p", case) for case in cases])
        wrong = [(c, g, w) for c, g, w in zip(cases, got, wanted) if g != w]
        for case, mine, other in wrong[:args.show]:
            print("  case %r\n    ours   %s\n    wanted %s" % (case, mine, other))
        print("  cases: %d (%d expected), %d different" % (len(cases), len(wanted), len(wrong)))
        different += len(wrong) + (len(cases) != len(wanted))
    maker = TextMaker(args.seed, specials)
    plain = [(b"p", maker.text(False).encode()) for _ in range(args.strings)]
    plain += [(b"p", name.encode()) for name in specials]
    plain += [(b"p", maker.text(True).encode()) for _ in range(args.strings // 5)]
    markup = [(b"m", maker.text(True).encode()) for _ in range(args.strings // 2)]
    different += compare("plain", model, plain, args, controls)
    different += compare("markup", model, markup, args, controls)
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabularies")
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--strings", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=5)
    args = parser.parse_args()
    different = 0
    for model in sorted(glob.glob(os.path.join(args.vocabularies, "ggml-vocab-*.gguf"))):
        if args.only in model:
            different += check(model, args)
    print("%d different in all" % different)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
