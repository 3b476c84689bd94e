#!/usr/bin/python3
"""Fetches Debian's package index and writes one JSON document per distinct description.

The system's own package lists are not touched: apt is told to keep its state below the work folder.
Each line of the output has package, source, section, tags, synopsis and description, where the description
is the long one with Debian's leading spaces and '.' paragraphs undone and its line breaks kept; and release, which is
empty for the system's own. What other releases say (from the same mirror) follows behind, to train on.
"""
import argparse
import json
import os
import re
import subprocess


OTHER_RELEASES = ["trixie", "sid", "bullseye"]
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def apt(folder, *arguments, sources=()):
    state = ["-o", "Acquire::Languages=en", "-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache", *sources]
    return subprocess.run(["apt-get", *state, *arguments], check=True, capture_output=True, text=True).stdout


def index_files(folder, kind, sources):
    listed = apt(folder, "indextargets", "--format", "$(CREATED_BY)\t$(FILENAME)", sources=sources).splitlines()
    return sorted(name for created_by, name in (line.split("\t", 1) for line in listed) if created_by == kind)


def sources_of(folder, release):
    """apt's options for a release from the system's own mirror; none for the system's."""
    os.makedirs(f"{folder}/lists/partial", exist_ok=True)
    os.makedirs(f"{folder}/cache", exist_ok=True)
    if not release:
        return []
    listed = apt(folder, "indextargets", "--format", "$(ORIGIN)\t$(CREATED_BY)\t$(REPO_URI)").splitlines()
    mirror = next(uri for origin, kind, uri in (line.split("\t", 2) for line in listed) if (origin, kind) == ("Debian", "Packages"))
    path = f"{folder}/{release}.list"
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"deb [signed-by={KEYS}] {mirror} {release} main\n")
    return ["-o", f"Dir::Etc::sourcelist={path}", "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "APT::Get::List-Cleanup=false"]


def paragraphs(path):
    """The records of a Debian control file as dictionaries; continuation lines keep their line breaks."""
    text = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", path], check=True, capture_output=True).stdout.decode()
    for block in text.split("\n\n"):
        record, key = {}, None
        for line in block.split("\n"):
            if line[:1] in (" ", "\t"):
                record[key] += "\n" + line
            elif ":" in line:
                key, value = line.split(":", 1)
                record[key] = value.strip()
        if record:
            yield record


def plain(lines):
    """Undoes the formatting of a long description: one leading space, and ' .' for an empty line."""
    return "\n".join("" if line.strip() == "." else line[1:].rstrip() for line in lines).strip("\n")


def documents(folder, release, seen):
    """Those of a release that are not in `seen`, which they are added to."""
    sources, descriptions = sources_of(folder, release), {}
    apt(folder, "update", sources=sources)
    for path in index_files(folder, "Translations", sources):
        for record in paragraphs(path):
            synopsis, *long = record.get("Description-en", "").split("\n")
            if long:
                descriptions[record["Package"], record["Description-md5"]] = synopsis.strip(), plain(long)
    for path in index_files(folder, "Packages", sources):
        for record in paragraphs(path):
            found = descriptions.get((record["Package"], record.get("Description-md5")))
            if not found or not found[1] or found in seen:
                continue
            seen.add(found)
            yield {
                "package": record["Package"],
                "source": record.get("Source", record["Package"]).split(" ")[0],
                "section": record["Section"].split("/")[-1],
                "tags": re.split(r",\s*", record["Tag"]) if "Tag" in record else [],
                "synopsis": found[0],
                "description": found[1],
                "release": release,
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", help="folder for the indexes and documents.jsonl")
    folder = os.path.abspath(parser.parse_args().work)
    os.makedirs(f"{folder}/lists/partial", exist_ok=True)
    os.makedirs(f"{folder}/cache", exist_ok=True)
    count, seen = 0, set()
    with open(f"{folder}/documents.jsonl", "w", encoding="utf-8") as out:
        for release in ["", *OTHER_RELEASES]:
            for document in documents(folder, release, seen):
                out.write(json.dumps(document, ensure_ascii=False) + "\n")
                count += 1
    print(f"{count} documents")


if __name__ == "__main__":
    main()
