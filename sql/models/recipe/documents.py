"""Reads documents.jsonl and splits it: the sources whose name hashes low are held out for good."""
import hashlib
import json
import re

HELD_OUT_PERCENT = 3


def source_family(source):
    """The source name without version digits, so that gcc-11 and gcc-12 fall on the same side."""
    return re.sub(r"[-.]?\d[\d.]*$", "", source) or source


def is_held_out(source):
    digest = hashlib.sha256(source_family(source).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def load(path):
    """Returns (training documents, held-out documents): of the system's own release, and no description is in both.

    Another release may have a held-out package under another source or in other words: what shares a name, a synopsis
    or a description with a held-out document is not trained on.
    """
    with open(path, encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    held_out, seen = [], set()
    for document in documents:
        if is_held_out(document["source"]) and document["description"] not in seen and not document.get("release"):
            seen.add(document["description"])
            held_out.append(document)
    names = {d["package"] for d in held_out}
    plain = lambda text: " ".join(text.split())
    texts = {plain(d["description"]) for d in held_out} | {plain(d["synopsis"]) for d in held_out}
    known = lambda d: d["package"] in names or plain(d["description"]) in texts or plain(d["synopsis"]) in texts
    training = [d for d in documents if not is_held_out(d["source"]) and d["description"] not in seen and not (d.get("release") and known(d))]
    return training, held_out


def unwrap(description):
    """Joins the wrapped lines of each paragraph; indented lines (lists) stay lines of their own."""
    out = []
    for line in description.split("\n"):
        if out and out[-1] and line and not line[0].isspace() and not out[-1][0].isspace():
            out[-1] += " " + line
        else:
            out.append(line)
    return "\n".join(out)
