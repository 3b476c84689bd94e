"""Turns a document into tasks: an instruction and its answer, worded at random."""
import json
import math
import re
from collections import Counter
from dataclasses import dataclass

import wordings
from documents import unwrap

FACETS = ["role", "implemented-in", "interface", "use", "works-with", "uitoolkit", "scope"]
KEYWORDS = 5
STOP_SHARE = 0.05  # of the documents: a word in more of them is no keyword
NOT_PROGRAMS = {"role::shared-lib", "role::devel-lib", "role::documentation", "role::debug-symbols"}


@dataclass
class Task:
    kind: str
    instruction: str
    answer: str


class Statistics:
    """How frequent the sections, the tags and the words are in the training documents."""

    def __init__(self, training):
        self.documents = len(training)
        self.words = Counter(word for d in training for word in {w.lower() for w in words(d["description"])})
        self.sections = Counter(d["section"] for d in training)
        self.tags = Counter(tag for d in training for tag in with_parents(d["tags"]) if tag in wordings.ABOUT_TAG)


statistics = None


def words(text):
    return re.findall(r"[^\W\d_][\w+#]+(?:-\w+)*", text)


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
    if verb == "is":
        return phrase
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


def questions(document, rng, count, asked=None):
    """Yes/no questions, in one of the wordings `asked` or any."""
    out = []
    for _ in range(count):
        positive = rng.random() < 0.5
        found = tag_question(document, rng, positive) if rng.random() < 0.7 else None
        phrase = found[1] if found else section_question(document, rng, positive)
        out.append(Task("yesno", question(phrase, rng, asked and rng.choice(asked)), "yes" if positive else "no"))
    return out


def mention(text, others, rng, positive):
    """Whether the text has a word, which is one of its own or of the text `others`."""
    candidates = list({w for w in words(text if positive else others) if len(w) > 3 and rarity(w) > 0})
    if not positive:
        lower = text.lower()
        candidates = [w for w in candidates if w.lower() not in lower]
    if not candidates:
        return None
    phrase = rng.choice(wordings.MENTIONS).format(term=rng.choice(sorted(candidates)))
    return Task("yesno", question(phrase, rng, subject=rng.choice(wordings.TEXTS)), "yes" if positive else "no")


def search(document, other, rng, positive):
    return Task("yesno", wordings.SEARCH.format(query=query(document if positive else other, rng)), "yes" if positive else "no")


def label_applies(document, rng, positive):
    names = list(statistics.sections) if statistics else list(wordings.ABOUT_SECTION)
    section = document["section"] if positive else rng.choice([n for n in names if n != document["section"]])
    meaning = wordings.ABOUT_SECTION.get(section)
    wording = wordings.APPLIES[bool(meaning) and rng.random() < 0.4]
    return Task("yesno", wording.format(label=section, meaning=meaning and "it " + third_person(rng.choice(meaning))), "yes" if positive else "no")


# --- the other tasks --------------------------------------------------------------------------------------------------


def synopsis(document, rng):
    return Task("synopsis", worded(wordings.SYNOPSIS, rng), document["synopsis"])


def among(choices, instructions, rng):
    """Asks for one of the choices, mostly as lm_classify() does."""
    draw, listed = rng.random(), ", ".join(choices)
    if draw < 0.35:
        return f"{rng.choice(instructions)} Answer with one of: {listed}."
    if draw < 0.6:
        return f"Classify the text as one of {listed}."
    return rng.choice(wordings.SECTION_AMONG).format(choices=listed if rng.random() < 0.5 else ", ".join(choices[:-1]) + " or " + choices[-1])


def section(document, rng):
    if rng.random() < 0.75 or not statistics:
        return Task("section", worded(wordings.SECTION, rng), document["section"])
    names = list(statistics.sections)
    drawn = rng.choices(names, [statistics.sections[n] ** 0.5 for n in names], k=rng.choice((1, 1, 2, 3, 5, 8, 12)))
    choices = sorted({document["section"], *drawn}, key=lambda _: rng.random())
    instruction = among(choices, wordings.SECTION_INSTRUCTION, rng)
    if rng.random() < 0.1:
        instruction += "".join(f"\n- {n}: {rng.choice(wordings.ABOUT_SECTION[n])}" for n in choices if n in wordings.ABOUT_SECTION)
    return Task("section", instruction, document["section"])


def facet(document, rng):
    """Which value of a facet the package has, where it has one only; None where there is no such facet."""
    found = {}
    for tag in document["tags"]:
        found.setdefault(tag.split("::")[0], []).append(tag)
    single = [values[0] for name, values in sorted(found.items()) if name in FACETS and len(values) == 1 and values[0] in wordings.ABOUT_TAG]
    if not single:
        return None
    tag = rng.choice(single)
    name, _, value = tag.partition("::")
    others = [t.partition("::")[2] for t in wordings.ABOUT_TAG if t.startswith(name + "::") and t not in with_parents([tag])]
    choices = rng.sample(others, min(len(others), rng.randint(1, 7))) + [value]
    rng.shuffle(choices)
    return Task("section", among(choices, wordings.FACET_INSTRUCTION[name], rng), value)


def rarity(word):
    """0 for a word that many texts have."""
    found = statistics.words[word.lower()]
    return math.log(statistics.documents / max(found, 2)) if found < STOP_SHARE * statistics.documents else 0


def keyword_list(text):
    """The words that are frequent in the text and rare elsewhere, in the order of the text."""
    counts, first = Counter(), {}
    for word in words(text.removeprefix("Package: ")):
        counts[word.lower()] += 1
        first.setdefault(word.lower(), word)
    value = {w: min(n, 3) * rarity(w) for w, n in counts.items()}
    best = set(sorted((w for w in counts if value[w] > 0), key=lambda w: -value[w])[:KEYWORDS])
    return [first[w] for w in first if w in best]


def keywords(text, rng):
    found = keyword_list(text)
    return Task("keywords", worded(wordings.KEYWORDS, rng), ", ".join(found)) if len(found) > 2 else None


def query(document, rng):
    """What somebody would look for who wants this package."""
    if rng.random() < 0.6:
        return document["synopsis"]
    found = keyword_list(document["synopsis"] + "\n" + document["description"])
    return " ".join(rng.sample(found, min(len(found), rng.randint(1, 3)))) or document["synopsis"]


def which(a, b, rng):
    """Of two documents, which is asked for; None where nothing tells them apart."""
    answer = rng.choice("AB")
    meant, other = (a, b) if answer == "A" else (b, a)
    if rng.random() < 0.6:
        return Task("which", rng.choice(wordings.WHICH).format(query=query(meant, rng)), answer)
    lacks = set(unlike(other))
    phrases = [p for tag in sorted(with_parents(meant["tags"])) if tag in lacks for p in wordings.ABOUT_TAG[tag]]
    if meant["section"] != other["section"]:
        phrases += [p.format(section=meant["section"]) for p in wordings.ABOUT_SECTION.get(meant["section"], []) * 2 + wordings.BELONGS]
    if not phrases:
        return None
    return Task("which", rng.choice(wordings.WHICH_IS).format(clause=third_person(rng.choice(phrases))), answer)


def fields(document, rng, named):
    """A JSON object of what stands in the text or is to be judged by it, as lm_extract() asks for it."""
    known = {"section": document["section"], **tags(document)}
    if named:
        known[rng.choice(("name", "package"))] = document["package"]
    keys = rng.sample(sorted(known), rng.randint(1, min(3, len(known))))
    joined = ", ".join(keys[:-1]) + " and " + keys[-1] if len(keys) > 1 else keys[0]
    return Task("tags", rng.choice(wordings.FIELDS).format(keys=joined), as_json({k: known[k] for k in keys}))


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


def other_task(document, text, other, rng):
    """A task of the less frequent kinds about the text, which is shown with the package's name if it begins with it."""
    draw, positive = rng.random(), rng.random() < 0.5
    if draw < 0.3:
        return mention(text, other["description"], rng, positive)
    if draw < 0.5:
        return keywords(text, rng)
    if draw < 0.65:
        return search(document, other, rng, positive)
    if draw < 0.75:
        return label_applies(document, rng, positive)
    if draw < 0.92:
        return facet(document, rng)
    return fields(document, rng, text.startswith("Package: "))


def one_task(document, text, other, rng):
    draw = rng.random()
    if draw < 0.38:
        return synopsis(document, rng)
    if draw < 0.6:
        return section(document, rng)
    if draw < 0.72 and (task := json_tags(document, rng)):
        return task
    if draw > 0.9 and (task := other_task(document, text, other, rng)):
        return task
    return questions(document, rng, 1)[0]


# --- the text of a package --------------------------------------------------------------------------------------------

THINNED_SHARE = 0.25
NAMED = ["Package: {name}\n{text}"] * 4 + ["{name}: {text}"] * 2 + ["{name}\n{text}", "{name}\n\n{text}", "package name: {name}\n{text}", "{name} - {text}"]


def thinned(text, rng):
    """Without some of its sentences and lines, so that few texts are learnt by heart."""
    parts = re.findall(r".+?(?:[.!?]\s+|\n+|$)", text, re.S)
    return "".join(part for part in parts if rng.random() < 0.8).strip() or text


def package_text(document, rng, hides_synopsis, brief=False):
    """The user's text: the description, mostly unwrapped, mostly with the name of the package."""
    draw = rng.random() * (0.5 if brief else 1)
    description = document["description"]
    text = unwrap(description) if rng.random() < 0.75 else description
    if rng.random() < THINNED_SHARE:
        text = thinned(text, rng)
    if not hides_synopsis and draw < 0.2:
        text = document["synopsis"]
    elif not hides_synopsis and draw < 0.32:
        text = document["synopsis"] + rng.choice(["\n", "\n\n", ". "]) + text
    if rng.random() < 0.7:
        text = rng.choice(NAMED).format(name=document["package"], text=text)
    return text
