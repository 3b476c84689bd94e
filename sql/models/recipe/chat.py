"""The vocabulary and the ChatML conversation, as token ids."""
import sentencepiece

IM_START, IM_END = "<|im_start|>", "<|im_end|>"

MOST_KNOWN = 100_000


class Chat:
    def __init__(self, model_file):
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=model_file)
        self.start, self.end = self.pieces.piece_to_id(IM_START), self.pieces.piece_to_id(IM_END)
        self.first_piece = self.pieces.piece_to_id("<0xFF>") + 1  # the control and the byte tokens stand before
        self.newline = self.pieces.encode("\n")
        self.known = {}

    def __len__(self):
        return len(self.pieces)

    def encode(self, text):
        return self.pieces.encode(text)

    def words(self, text):
        """encode() for what recurs: instructions, answers, roles."""
        if text not in self.known:
            if len(self.known) > MOST_KNOWN:
                self.known.clear()
            self.known[text] = self.encode(text)
        return self.known[text]

    def decode(self, ids):
        return self.pieces.decode(ids)

    def open(self, role):
        """The start of a turn, up to where its text begins."""
        return [self.start] + self.words(role + "\n")

    def close(self):
        """The end of a turn that is not the last."""
        return [self.end] + self.newline

    def prompt(self, system, user):
        ids = self.open("system") + self.encode(system) + self.close() if system else []
        return ids + self.open("user") + self.encode(user) + self.close() + self.open("assistant")
