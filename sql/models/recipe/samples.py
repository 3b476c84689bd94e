"""Training samples: one document followed by several questions about it.

Most of a sample's tokens are the description, so each sample asks more than once: after the common trunk stand
branches that see the trunk and themselves but not each other, as if each were the end of a conversation of its own.
"""
import random

import tasks
import wordings

TRUNK = 0
TEXT_LIMITS, LIMIT_SHARES = (128, 220, 900), (0.45, 0.35, 0.2)
BRIEF = 32  # tokens of a text when one question is all that is asked: many more questions fit in a batch
COPY_SHARE = 0.03  # of the samples are random tokens twice: a short way to learn to look back and copy
WEIGHT = {"yesno": 3.0, "section": 2.0, "synopsis": 1.0, "tags": 0.7, "keywords": 0.3, "which": 3.0}  # of each token of an answer
KINDS = ["text", *WEIGHT]
TEXT_WEIGHT, TEXT_SHARE = 0.5, 0.4  # of the description's own tokens, and how many of them are predicted


class Sample:
    def __init__(self):
        self.ids, self.positions, self.branches, self.weights, self.kinds = [], [], [], [], []
        self.trunk_length = 0

    def add(self, ids, branch=TRUNK, weight=0.0, kind="text"):
        """Adds tokens; weight is that of predicting each, or a list."""
        first = self.trunk_length if branch == TRUNK or branch not in self.branches[-1:] else self.positions[-1] + 1
        self.ids += ids
        self.positions += range(first, first + len(ids))
        self.branches += [branch] * len(ids)
        self.weights += weight if isinstance(weight, list) else [weight] * len(ids)
        self.kinds += [KINDS.index(kind)] * len(ids)
        if branch == TRUNK:
            self.trunk_length += len(ids)

    def add_text(self, ids, rng):
        self.add(ids, weight=[TEXT_WEIGHT * (rng.random() < TEXT_SHARE) for _ in ids])

    def add_answer(self, task, chat, branch=TRUNK):
        self.add(chat.words(task.answer) + [chat.end], branch, WEIGHT[task.kind], task.kind)

    def __len__(self):
        return len(self.ids)


def truncated(ids, rng):
    return ids[: rng.choices(TEXT_LIMITS, LIMIT_SHARES)[0]]


def copy_exercise(chat, rng):
    out = Sample()
    span = [rng.randrange(chat.first_piece, len(chat)) for _ in range(rng.randint(8, 40))]
    out.add(span)
    out.add(span, weight=TEXT_WEIGHT)
    return out


def several_tasks(document, text, other, rng, hides_synopsis):
    """The questions asked at the end of one document."""
    out = [tasks.section(document, rng)] + tasks.questions(document, rng, 2)
    if hides_synopsis:
        out.append(tasks.synopsis(document, rng))
    if rng.random() < 0.5:
        out.append(tasks.json_tags(document, rng))
    if rng.random() < 0.7:
        out.append(tasks.other_task(document, text, other, rng))
    rng.shuffle(out)
    return [task for task in out if task]


def one_question(document, other, chat, rng):
    """A yes/no question as the system message and the beginning of the text: the question first is the harder way."""
    out = Sample()
    task = tasks.questions(document, rng, 1)[0] if rng.random() < 0.85 else tasks.section(document, rng)
    out.add(chat.open("system") + chat.words(task.instruction) + chat.close() + chat.open("user"))
    out.add_text(chat.encode(tasks.package_text(document, rng, False, brief=True)[: 8 * BRIEF])[:BRIEF], rng)
    out.add(chat.close() + chat.open("assistant"))
    out.add_answer(task, chat)
    return out


def task_first(document, other, chat, rng):
    """One task, named before the text, and some more in later turns."""
    out = Sample()
    hides_synopsis = rng.random() < 0.75
    text = truncated(chat.encode(tasks.package_text(document, rng, hides_synopsis)), rng)
    task = tasks.one_task(document, chat.decode(text), other, rng)
    while task.kind == "synopsis" and not hides_synopsis:
        task = tasks.one_task(document, chat.decode(text), other, rng)
    if rng.random() < 0.85:
        out.add(chat.open("system") + chat.words(task.instruction) + chat.close() + chat.open("user"))
    else:
        if rng.random() < 0.3:
            out.add(chat.open("system") + chat.words(rng.choice(wordings.GENERIC_SYSTEM)) + chat.close())
        out.add(chat.open("user") + chat.words(task.instruction + rng.choice(["\n\n", "\n\n", "\n"])))
    out.add_text(text, rng)
    out.add(chat.close() + chat.open("assistant"))
    out.add_answer(task, chat)
    follow_up = tasks.questions(document, rng, rng.randint(1, 2))
    if task.kind != "section" and rng.random() < 0.5:
        follow_up.append(tasks.section(document, rng))
    if hides_synopsis and task.kind != "synopsis" and rng.random() < 0.7:
        follow_up.append(tasks.synopsis(document, rng))
    for branch, task in enumerate(follow_up, TRUNK + 1):
        out.add(chat.newline + chat.open("user") + chat.words(task.instruction) + chat.close() + chat.open("assistant"), branch)
        out.add_answer(task, chat, branch)
    return out


def text_first(document, other, chat, rng):
    """The text, then each task in a branch."""
    out = Sample()
    draw = rng.random()
    judged = draw < 0.25  # as lm_if() and lm_score() ask
    if draw < 0.6:
        out.add(chat.open("system") + chat.words(wordings.YES_OR_NO if judged else rng.choice(wordings.GENERIC_SYSTEM)) + chat.close())
    out.add(chat.open("user"))
    hides_synopsis = not judged and rng.random() < 0.8
    text = truncated(chat.encode(tasks.package_text(document, rng, hides_synopsis)), rng)
    out.add_text(text, rng)
    if judged:
        asked = tasks.questions(document, rng, 4, wordings.TRUTH)
        if (task := tasks.other_task(document, chat.decode(text), other, rng)) and task.kind == "yesno":
            asked.append(task)
    else:
        asked = several_tasks(document, chat.decode(text), other, rng, hides_synopsis)
    for branch, task in enumerate(asked, TRUNK + 1):
        gap = "\n\n" if judged else rng.choice(["\n\n", "\n\n", "\n"])
        out.add(chat.words(gap + task.instruction) + chat.close() + chat.open("assistant"), branch)
        out.add_answer(task, chat, branch)
    return out


def two_texts(document, other, chat, rng):
    """Which of two, as lm_rank() and lm_top_k ask by comparing."""
    task = tasks.which(document, other, rng)
    if not task:
        return text_first(document, other, chat, rng)
    out = Sample()
    if rng.random() < 0.7:
        out.add(chat.open("system") + chat.words(wordings.A_OR_B) + chat.close())
    out.add(chat.open("user"))
    limit = rng.choice((BRIEF, 2 * BRIEF, 4 * BRIEF))
    for label, each in zip("AB", (document, other)):
        out.add(chat.words(f"{label}:"))
        out.add_text(chat.encode(" " + tasks.package_text(each, rng, True)[: 8 * limit])[:limit] + chat.words("\n\n"), rng)
    out.add(chat.words(task.instruction) + chat.close() + chat.open("assistant"))
    out.add_answer(task, chat)
    return out


WAYS = {one_question: 0.25, task_first: 0.5, text_first: 0.2, two_texts: 0.05}


def sample(document, other, chat, rng):
    """`other` is any other document, for what is not in this one."""
    if rng.random() < COPY_SHARE:
        return copy_exercise(chat, rng)
    (way,) = rng.choices(list(WAYS), list(WAYS.values()))
    return way(document, other, chat, rng)


def stream(training, chat, seed):
    """Yields samples for ever: of every document one, in another order each time."""
    rng = random.Random(seed)
    other = training[0]
    while True:
        for document in rng.sample(training, len(training)):
            yield sample(document, other, chat, rng)
            other = document


def batches(training, chat, tokens, seed):
    """Yields lists of samples of about `tokens` tokens, for ever."""
    group, size = [], 0
    for each in stream(training, chat, seed):
        group.append(each)
        size += len(each)
        if size >= tokens:
            yield group
            group, size = [], 0
