"""Training samples: one document followed by several questions about it.

Most of a sample's tokens are the description, so each sample asks more than once: after the common trunk stand
branches that see the trunk and themselves but not each other, as if each were the end of a conversation of its own.
"""
import random

import tasks
import wordings

TRUNK = 0
TEXT_LIMITS, LIMIT_SHARES = (128, 220, 900), (0.65, 0.3, 0.05)
BRIEF = 32  # tokens of a text when one question is all that is asked: many more questions fit in a batch
COPY_SHARE = 0.03  # of the samples are random tokens twice: a short way to learn to look back and copy
WEIGHT = {"yesno": 3.0, "section": 2.0, "synopsis": 1.0, "tags": 0.7}  # of each token of an answer
TEXT_WEIGHT, TEXT_SHARE = 0.5, 0.4  # of the description's own tokens, and how many of them are predicted


class Sample:
    def __init__(self):
        self.ids, self.positions, self.branches, self.weights, self.is_answer = [], [], [], [], []
        self.trunk_length = 0

    def add(self, ids, branch=TRUNK, weight=0.0, answer=False):
        """Adds tokens; weight is that of predicting each, or a list."""
        first = self.trunk_length if branch == TRUNK or branch not in self.branches[-1:] else self.positions[-1] + 1
        self.ids += ids
        self.positions += range(first, first + len(ids))
        self.branches += [branch] * len(ids)
        self.weights += weight if isinstance(weight, list) else [weight] * len(ids)
        self.is_answer += [answer] * len(ids)
        if branch == TRUNK:
            self.trunk_length += len(ids)

    def add_text(self, ids, rng):
        self.add(ids, weight=[TEXT_WEIGHT * (rng.random() < TEXT_SHARE) for _ in ids])

    def add_answer(self, task, chat, branch=TRUNK):
        self.add(chat.encode(task.answer) + [chat.end], branch, WEIGHT[task.kind], answer=True)

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


def several_tasks(document, rng, hides_synopsis):
    """The questions asked at the end of one document."""
    out = [tasks.section(document, rng)] + tasks.questions(document, rng, 3)
    if hides_synopsis:
        out.append(tasks.synopsis(document, rng))
    if rng.random() < 0.5 and (found := tasks.json_tags(document, rng)):
        out.append(found)
    rng.shuffle(out)
    return out


def one_question(document, chat, rng):
    """A yes/no question as the system message and the beginning of the text: the question first is the harder way."""
    out = Sample()
    task = tasks.questions(document, rng, 1)[0] if rng.random() < 0.85 else tasks.section(document, rng)
    out.add(chat.open("system") + chat.encode(task.instruction) + chat.close() + chat.open("user"))
    out.add_text(chat.encode(tasks.package_text(document, rng, False, brief=True))[:BRIEF], rng)
    out.add(chat.close() + chat.open("assistant"))
    out.add_answer(task, chat)
    return out


def task_first(document, chat, rng):
    """One task, named before the text, and some more in later turns."""
    out = Sample()
    task = tasks.one_task(document, rng)
    hides_synopsis = task.kind == "synopsis" or rng.random() < 0.6
    text = truncated(chat.encode(tasks.package_text(document, rng, hides_synopsis)), rng)
    if rng.random() < 0.85:
        out.add(chat.open("system") + chat.encode(task.instruction) + chat.close() + chat.open("user"))
    else:
        if rng.random() < 0.3:
            out.add(chat.open("system") + chat.encode(rng.choice(wordings.GENERIC_SYSTEM)) + chat.close())
        out.add(chat.open("user") + chat.encode(task.instruction + rng.choice(["\n\n", "\n\n", "\n"])))
    out.add_text(text, rng)
    out.add(chat.close() + chat.open("assistant"))
    out.add_answer(task, chat)
    follow_up = tasks.questions(document, rng, rng.randint(1, 2))
    if task.kind != "section" and rng.random() < 0.5:
        follow_up.append(tasks.section(document, rng))
    if hides_synopsis and task.kind != "synopsis" and rng.random() < 0.7:
        follow_up.append(tasks.synopsis(document, rng))
    for branch, task in enumerate(follow_up, TRUNK + 1):
        out.add(chat.newline + chat.open("user") + chat.encode(task.instruction) + chat.close() + chat.open("assistant"), branch)
        out.add_answer(task, chat, branch)
    return out


def text_first(document, chat, rng):
    """The text, then each task in a branch."""
    out = Sample()
    if rng.random() < 0.5:
        out.add(chat.open("system") + chat.encode(rng.choice(wordings.GENERIC_SYSTEM)) + chat.close())
    out.add(chat.open("user"))
    hides_synopsis = rng.random() < 0.8
    out.add_text(truncated(chat.encode(tasks.package_text(document, rng, hides_synopsis)), rng), rng)
    for branch, task in enumerate(several_tasks(document, rng, hides_synopsis), TRUNK + 1):
        out.add(chat.encode(rng.choice(["\n\n", "\n\n", "\n"]) + task.instruction) + chat.close() + chat.open("assistant"), branch)
        out.add_answer(task, chat, branch)
    return out


def sample(document, chat, rng):
    if rng.random() < COPY_SHARE:
        return copy_exercise(chat, rng)
    return rng.choices((one_question, task_first, text_first), (0.35, 0.45, 0.2))[0](document, chat, rng)


def batches(training, chat, tokens, seed):
    """Yields lists of samples of about `tokens` tokens, for ever."""
    rng = random.Random(seed)
    group, size = [], 0
    while True:
        for document in rng.sample(training, len(training)):
            group.append(sample(document, chat, rng))
            size += len(group[-1])
            if size >= tokens:
                yield group
                group, size = [], 0
