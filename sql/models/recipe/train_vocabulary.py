#!/usr/bin/python3
"""Trains the vocabulary: 8,192 SentencePiece BPE pieces with byte fallback, on the training documents only."""
import argparse
import random

import sentencepiece

import documents
import tasks
import wordings
from chat import IM_END, IM_START

PIECES = 8192


def sentences(training):
    rng = random.Random(1)
    for document in training:
        yield f"Package: {document['package']}"
        yield document["synopsis"]
        yield from document["description"].split("\n")
        if rng.random() < 0.3:
            yield document["section"]
            for turn in tasks.questions(document, rng, 3):
                yield turn.instruction
            if tags := tasks.tags(document):
                yield tasks.as_json(tags)
    for name in ("SYNOPSIS", "SECTION", "TAGS", "GENERIC_SYSTEM"):
        yield from getattr(wordings, name) * 20
    yield from ["system", "user", "assistant", "yes", "no"] * 200


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", help="documents.jsonl")
    parser.add_argument("output", help="the SentencePiece model to write")
    options = parser.parse_args()
    training, _ = documents.load(options.documents)
    with open(options.output, "wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=filter(None, sentences(training)),
            model_writer=out,
            model_type="bpe",
            vocab_size=PIECES,
            byte_fallback=True,
            split_digits=True,
            character_coverage=0.9998,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            control_symbols=[IM_START, IM_END],
            input_sentence_size=0,
            num_threads=2,
            minloglevel=1,
        )


if __name__ == "__main__":
    main()
