"""Turns a document into tasks: an instruction and its answer, worded at random."""
import json
import random
from collections import Counter
from dataclasses import dataclass

import wordings
from documents import unwrap

FACETS = ["role", "implemented-in", "interface", "use", "works-with", "uitoolkit", "scope"]
NOT_PROGRAMS = {"role::shared-lib", "role::devel-lib", "role::documentation", "role::debug-symbols"}


@dataclass
class Task:
    kind: str
    instruction: str
    answer: str


class Statistics:
    """How frequent the sections and the tags are in the training documents."""

    def __init__(self, training):
        self.sections = Counter(d["section"] for d in training)
        self.tags = Counter(tag for d in training for tag in with_parents(d["tags"]) if tag in wordings.ABOUT_TAG)


statistics = None


def with_parents(tags):
    """works-with::image:raster implies works-with::image, and X11 programs are graphical."""
    tags = set(tags)
    for tag in list(tags):
        facet, _, value = tag.partition("::")
        if ":" in value:
            tags.add(facet + "::" + value.split(":")[0])
    if "interface::x11" in tags:
        tags.add("interface::graphical")
    return tags


def tags(document):
    """The tags as {facet: [values]} in a fixed order."""
    found = {facet: [] for facet in FACETS}
    for tag in sorted(document["tags"]):
        facet, _, value = tag.partition("::")
        if facet in found:
            found[facet].append(value)
    return {facet.replace("-", "_"): values for facet, values in found.items() if values}


def as_json(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def worded(wordings_of_task, rng):
    """One of the wordings; half of the time one of the first, which are the usual ones."""
    return rng.choice(wordings_of_task[:6] if rng.random() < 0.5 else wordings_of_task)


# --- yes/no questions -------------------------------------------------------------------------------------------------


def third_person(phrase):
    verb, _, rest = phrase.partition(" ")
    verb = "has" if verb == "have" else verb + ("es" if verb.endswith(("ch", "sh", "s")) else "s")
    return f"{verb} {rest}"


def question(phrase, rng, wording=None, subject=None):
    """Words "is written in C" or "use GTK" as an instruction."""
    subject = subject or rng.choice(wordings.SUBJECTS)
    if phrase.startswith("is "):
        asked, clause = f"is {subject} {phrase[3:]}?", f"{subject} {phrase}"
    else:
        asked, clause = f"does {subject} {phrase}?", f"{subject} {third_person(phrase)}"
    capital = lambda text: text[0].upper() + text[1:]
    return (wording or worded(wordings.QUESTION, rng)).format(
        question=asked, Question=capital(asked), clause=clause, statement=clause + ".", Statement=capital(clause) + "."
    )


def unlike(document):
    """Tags that the document surely lacks: of a facet that it is tagged in, or that no library has."""
    own = with_parents(document["tags"])
    facets = {tag.split("::")[0] for tag in own}
    if own & NOT_PROGRAMS and "role::program" not in own:
        facets |= {"interface", "use"}
    return [t for t in wordings.ABOUT_TAG if t not in own and t.split("::")[0] in facets]


def tag_question(document, rng, positive):
    own = [tag for tag in with_parents(document["tags"]) if tag in wordings.ABOUT_TAG]
    candidates = sorted(own) if positive else unlike(document)
    if not candidates or not own:
        return None
    power = -0.3 if positive else 0.7
    weights = [max(statistics.tags[tag], 1) ** power for tag in candidates] if statistics else None
    tag = rng.choices(candidates, weights)[0]
    return tag, rng.choice(wordings.ABOUT_TAG[tag])


def section_question(document, rng, positive):
    section = document["section"]
    names = list(statistics.sections) if statistics else list(wordings.ABOUT_SECTION)
    if not positive:
        others = [name for name in names if name != section]
        section = rng.choices(others, [statistics.sections[n] ** 0.7 if statistics else 1 for n in others])[0]
    phrases = wordings.ABOUT_SECTION.get(section)
    if not phrases or rng.random() < 0.4:
        phrases = [phrase.format(section=section) for phrase in wordings.BELONGS]
    return rng.choice(phrases)


def questions(document, rng, count):
    out = []
    for _ in range(count):
        positive = rng.random() < 0.5
        found = tag_question(document, rng, positive) if rng.random() < 0.7 else None
        phrase = found[1] if found else section_question(document, rng, positive)
        out.append(Task("yesno", question(phrase, rng), "yes" if positive else "no"))
    return out


# --- the other tasks --------------------------------------------------------------------------------------------------


def synopsis(document, rng):
    return Task("synopsis", worded(wordings.SYNOPSIS, rng), document["synopsis"])


def section(document, rng):
    if rng.random() < 0.8 or not statistics:
        return Task("section", worded(wordings.SECTION, rng), document["section"])
    names = list(statistics.sections)
    drawn = rng.choices(names, [statistics.sections[n] ** 0.5 for n in names], k=rng.randint(1, 9))
    choices = sorted({document["section"], *drawn}, key=lambda _: rng.random())
    joined = ", ".join(choices) if rng.random() < 0.6 else ", ".join(choices[:-1]) + " or " + choices[-1]
    return Task("section", rng.choice(wordings.SECTION_AMONG).format(choices=joined), document["section"])


def json_tags(document, rng):
    found = tags(document)
    if not found:
        return None
    if rng.random() < 0.7:
        return Task("tags", worded(wordings.TAGS, rng), as_json(found))
    keys = [f.replace("-", "_") for f in FACETS if f.replace("-", "_") in found or rng.random() < 0.2]
    keys = rng.sample(keys, rng.randint(1, min(4, len(keys))))
    joined = ", ".join(keys) if len(keys) < 2 or rng.random() < 0.4 else ", ".join(keys[:-1]) + " and " + keys[-1]
    return Task("tags", rng.choice(wordings.TAGS_NAMED).format(keys=joined), as_json({k: found.get(k, []) for k in keys}))


def one_task(document, rng):
    draw = rng.random()
    if draw < 0.4:
        return synopsis(document, rng)
    if draw < 0.63:
        return section(document, rng)
    if draw < 0.72 and (task := json_tags(document, rng)):
        return task
    return questions(document, rng, 1)[0]


# --- the text of a package --------------------------------------------------------------------------------------------

NAMED = ["Package: {name}\n{text}"] * 4 + ["{name}: {text}"] * 2 + ["{name}\n{text}", "{name}\n\n{text}", "package name: {name}\n{text}", "{name} - {text}"]


def package_text(document, rng, hides_synopsis, brief=False):
    """The user's text: the description, mostly unwrapped, mostly with the name of the package."""
    draw = rng.random() * (0.5 if brief else 1)
    description = document["description"]
    text = unwrap(description) if rng.random() < 0.75 else description
    if not hides_synopsis and draw < 0.2:
        text = document["synopsis"]
    elif not hides_synopsis and draw < 0.32:
        text = document["synopsis"] + rng.choice(["\n", "\n\n", ". "]) + text
    if rng.random() < 0.7:
        text = rng.choice(NAMED).format(name=document["package"], text=text)
    return text
