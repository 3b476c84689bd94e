#!/usr/bin/env python3
"""Writes block_golden.bin: quantised blocks and the floats that ggml decodes them to.

    make_block_golden.py LIBGGML_BASE_SO [OUT]

LIBGGML_BASE_SO is llama.cpp's libggml-base.so, called through ctypes (the committed file came from
the x86-64 Linux one in release 3.22.1 of node-llama-cpp). A record a type, without gaps,
little-endian:

    char name[8]      padded with zeros
    uint32 values, uint32 block_bytes
    block_bytes bytes of blocks, then `values` F32

The first half of the blocks of each type are Gaussian values that ggml quantised; the second half
are random bytes under finite scales (subnormal, zero and negative ones among them), so that every
field takes every value.

It also prints the digests of block_format_test.cc: what ggml decodes of CODED's types in so many
blocks of a generator's bytes that every entry of every codebook is among them.
"""
import ctypes
import random
import struct
import sys

# name, values a block, bytes a block, offsets of the block's F16 scales
TYPES = [
    ("Q4_0", 32, 18, [0]), ("Q4_1", 32, 20, [0, 2]), ("Q5_0", 32, 22, [0]),
    ("Q5_1", 32, 24, [0, 2]), ("Q8_0", 32, 34, [0]), ("Q2_K", 256, 84, [80, 82]),
    ("Q3_K", 256, 110, [108]), ("Q4_K", 256, 144, [0, 2]), ("Q5_K", 256, 176, [0, 2]),
    ("Q6_K", 256, 210, [208]), ("IQ4_NL", 32, 18, [0]), ("IQ4_XS", 256, 136, [0]),
]
# And the types of codes; IQ1_M has no F16 scale in one piece, NVFP4 none.
CODED = [
    ("NVFP4", 64, 36, []), ("IQ3_XXS", 256, 98, [0]), ("IQ3_S", 256, 110, [0]),
    ("IQ2_XXS", 256, 66, [0]), ("IQ2_XS", 256, 74, [0]), ("IQ2_S", 256, 82, [0]),
    ("IQ1_S", 256, 50, [0]), ("IQ1_M", 256, 56, []), ("TQ1_0", 256, 54, [52]),
    ("TQ2_0", 256, 66, [64]), ("Q1_0", 128, 18, [0]), ("Q2_0", 64, 18, [0]),
]
DIGEST_BLOCKS = 4096
SCALES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff]


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    out_path = sys.argv[2] if len(sys.argv) > 2 else "block_golden.bin"
    rng = random.Random(20)

    def scale():
        half = rng.choice(SCALES) if rng.random() < 0.3 else rng.randrange(0x10000)
        return half if half & 0x7c00 != 0x7c00 else half & 0x83ff

    def decode(function, blocks, values):
        out = (ctypes.c_float * values)()
        getattr(ggml, function)(blocks, out, ctypes.c_int64(values))
        return bytes(out)

    def weights(name, values):  # which the smallest types must have
        return (ctypes.c_float * values)(*([1.0] * values)) if name[:3] in ("IQ1", "IQ2") else None

    for kind in (16, 17, 18, 19, 21, 22, 29):  # the codebooks' search
        ggml.ggml_quantize_init(ctypes.c_int(kind))
    with open(out_path, "wb") as f:
        def record(name, values, blocks, floats):
            f.write(struct.pack("<8sII", name.encode(), values, len(blocks)) + blocks + floats)

        def block_record(name, block_values, block_bytes, scales):
            half = 4 if block_values < 256 else 2
            values = half * block_values
            source = (ctypes.c_float * values)(*(rng.gauss(0, 0.05) for _ in range(values)))
            suffix = name.replace("Q", "q") if name.endswith("_K") else name.lower()
            quantised = ctypes.create_string_buffer(half * block_bytes)
            getattr(ggml, "quantize_" + suffix)(source, quantised, ctypes.c_int64(1),
                                                ctypes.c_int64(values),
                                                weights(name, values))
            noise = bytearray(rng.randbytes(half * block_bytes))
            for block in range(half):
                for offset in scales:
                    struct.pack_into("<H", noise, block * block_bytes + offset, scale())
                if name == "MXFP4":  # its scale is a byte, of which the greatest are not finite
                    noise[block * block_bytes] = (0, 1, 252, rng.randrange(253))[block]
                if name == "IQ1_M" and noise[block * block_bytes + 55] & 0x70 == 0x70:
                    noise[block * block_bytes + 55] ^= 0x40
            blocks = quantised.raw + bytes(noise)
            record(name, 2 * values, blocks, decode("dequantize_row_" + suffix, blocks, 2 * values))

        for type_of_blocks in TYPES:
            block_record(*type_of_blocks)
        for name, function in [("F16", "ggml_fp16_to_fp32_row"), ("BF16", "ggml_bf16_to_fp32_row")]:
            mask = 0x7c00 if name == "F16" else 0x7f80
            words = [h if h & mask != mask else h & 0x83ff for h in
                     (rng.randrange(0x10000) for _ in range(256))]
            blocks = struct.pack("<256H", *words)
            record(name, 256, blocks, decode(function, blocks, 256))
        block_record("MXFP4", 32, 17, [])
        for type_of_blocks in CODED:
            block_record(*type_of_blocks)

    for name, values, block_bytes, scales in CODED:
        state = 1
        blocks = bytearray()
        for _ in range(DIGEST_BLOCKS * block_bytes):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            blocks.append(state >> 56)
        for at in range(0, len(blocks), block_bytes):
            for offset in scales:
                struct.pack_into("<H", blocks, at + offset, 0x3c00)
            if name == "IQ1_M":
                blocks[at + 55] = 0x30 | blocks[at + 55] & 15
        floats = decode("dequantize_row_" + name.lower(), bytes(blocks), DIGEST_BLOCKS * values)
        digest = 0xcbf29ce484222325
        for word in struct.unpack(f"<{DIGEST_BLOCKS * values}I", floats):
            digest = (digest ^ word) * 0x100000001b3 % 2**64
        print(f"{{DType::k{name}, {digest:#018x}}},")


main()
