#!/usr/bin/env python3
"""Writes splits.tsv: where the pieces of texts end, by the expressions that the models' own tokenizer.json or
tokenization code have, as python3-regex reads them. Of families that llama.cpp splits otherwise (make_fixtures.py,
OWN_FAMILIES).

    splits.tsv    pre  text (C escapes, octal)  bytes of each piece
"""
import os
import random
import sys
import unicodedata

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from make_fixtures import FIXED, SENTENCES, escape  # noqa: E402

UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def words(end, outside=""):
    upper, lower, before = f"[{UPPER}{outside}]", f"[{LOWER}{outside}]", r"[^\r\n\p{L}\p{N}]?"
    return f"{before}{upper}*{lower}+{end}|{before}{upper}+{lower}*{end}"


GPT4O = words(CONTRACTION) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
# One after the other, each on what the one before has left in one piece.
FAMILIES = {
    "tekken": [words("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES],
    "gpt-4o": [GPT4O],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
              words(CONTRACTION) + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES],
    "kimi-k2": [r"[\p{Han}]+|" + words(CONTRACTION, r"&&[^\p{Han}]")
                + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
}

LANGUAGES = """नमस्ते हिंदी कहानी दिल्ली, क्या हाल है? ক্লাসিক বাংলা লেখা। தமிழ் மொழி ఆంధ్ర ಕನ್ನಡ മലയാളം ગુજરાતી ਪੰਜਾਬੀ
สวัสดีครับ ภาษาไทย ລາວ ភាសាខ្មែរ မြန်မာ བོད་ སිංහල
بِسْمِ اللَّهِ الرَّحْمَٰنِ الرَّحِيمِ שָׁלוֹם עולם ܫܠܡܐ
re\u0301ussi Re\u0301ussite VIE\u0323\u0302T Nam Tie\u0302\u0301ng A\u20dd's МоскваСити ИваныЧ ΑθήναΝέα ÉcoleÉlève straßeÜber
DŽ Džungla ǅ ʰaʷ ªº 々〇漢字かな 〡〢 ㊗️ 한국어 e\u0301's İstanbul ıSPARTA l\u2019e\u0301te\u0301 don't WE'LL I'Mx
2500px 12345th 1234567 x1234y 12,345.67890 ١٢٣٤٥
fooBar HTTPServer iOS17 ABCdef аБВгд"""

# Without what regex and the tokenizers' own library read differently beside \b: numbers that are no digits, joiners.
ALPHABETS = ["abcXYZ", "éÉàÀßΑαΒβИиЖжǅʰªº", "\u0301\u0302\u0323\u20dd\u0e31\u093f\u094d\u064e", "नमसहक", "สวดภาษ", "بسمله",
             "漢字々中", "かなカナ", "한국어", "0123٣", " \t\n\r\u00a0\u3000", "'’.,;!?/-_()$€<>", "sStTdDmMlLrRvVeE", "🦙👩"]


def random_text(chance):
    text = ""
    for _ in range(chance.randrange(1, 12)):
        alphabet = chance.choice(ALPHABETS)
        text += "".join(chance.choice(alphabet) for _ in range(chance.randrange(1, 5)))
    return text


def split(pre, text):
    pieces = [text]
    for expression in FAMILIES[pre]:
        pattern, parts = regex.compile("(?V1)" + expression), []
        for piece in pieces:
            at = 0
            for match in pattern.finditer(piece):
                parts += [piece[at:match.start()], match.group()]
                at = match.end()
            parts.append(piece[at:])
        pieces = [part for part in parts if part]
    return pieces


def main():
    chance = random.Random(8)
    texts = [text for text in FIXED if "\U0001f6dc" not in text] + SENTENCES.split("\n") + LANGUAGES.split("\n") + [random_text(chance) for _ in range(150)]
    unassigned = {c for text in texts for c in text if unicodedata.category(c) == "Cn"}
    assert not unassigned, unassigned
    with open(os.path.join(HERE, "splits.tsv"), "w") as file:
        for pre in FAMILIES:
            for text in texts:
                sizes = " ".join(str(len(piece.encode())) for piece in split(pre, text))
                file.write(f"{pre}\t{escape(text.encode())}\t{sizes}\n")


if __name__ == "__main__":
    main()
