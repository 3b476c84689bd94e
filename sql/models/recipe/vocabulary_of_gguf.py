#!/usr/bin/python3
"""Takes the vocabulary out of a GGUF file of ours, as the SentencePiece model that it was: a later model keeps its tokens."""
import argparse
import struct

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BPE = 2


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        (value,) = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(count)]
        return self.number(FORMATS[kind])


def metadata(path):
    with open(path, "rb") as file:
        reader = Reader(file.read())
    if reader.number("I") != struct.unpack("<I", b"GGUF")[0] or reader.number("I") != 3:
        raise SystemExit(f"{path} is no GGUF file of version 3")
    _, count = reader.number("Q"), reader.number("Q")
    return {reader.text(): reader.value(reader.number("I")) for _ in range(count)}


# --- the fields of a protobuf message -------------------------------------------------------------------------------------


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def whole(field, value):
    return varint(field << 3) + varint(value)


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def block(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def model(fields):
    tokenizer = [fields["tokenizer.ggml." + name] for name in ("tokens", "scores", "token_type")]
    pieces = b"".join(block(1, block(1, token.encode()) + real(2, score) + whole(3, kind)) for token, score, kind in zip(*tokenizer))
    trainer = whole(3, BPE) + whole(4, len(tokenizer[0])) + whole(35, 1)  # byte fallback
    normalizer = block(1, b"identity") + whole(3, 0) + whole(4, 0) + whole(5, 1)  # no space in front, none removed, spaces as U+2581
    return pieces + block(2, trainer) + block(3, normalizer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("output", help="the SentencePiece model to write")
    options = parser.parse_args()
    with open(options.output, "wb") as out:
        out.write(model(metadata(options.gguf)))


if __name__ == "__main__":
    main()
