"""Training samples: one document followed by several questions about it.

Most of a sample's tokens are the description, so each sample asks more than once: after the common trunk stand
branches that see the trunk and themselves but not each other, as if each were the end of a conversation of its own.
"""
import random

import tasks
import wordings

TRUNK = 0
TEXT_LIMITS, LIMIT_SHARES = (128, 220, 900), (0.7, 0.25, 0.05)
COPY_SHARE = 0.2  # of the samples are random tokens twice: a short way to learn to look back and copy


class Sample:
    def __init__(self):
        self.ids, self.positions, self.branches, self.is_answer, self.is_text = [], [], [], [], []
        self.trunk_length = 0

    def add(self, ids, branch=TRUNK, answer=False, text=False):
        first = self.trunk_length if branch == TRUNK or branch not in self.branches[-1:] else self.positions[-1] + 1
        self.ids += ids
        self.positions += range(first, first + len(ids))
        self.branches += [branch] * len(ids)
        self.is_answer += [answer] * len(ids)
        self.is_text += [text] * len(ids)
        if branch == TRUNK:
            self.trunk_length += len(ids)

    def __len__(self):
        return len(self.ids)


def truncated(ids, rng):
    return ids[: rng.choices(TEXT_LIMITS, LIMIT_SHARES)[0]]


def copy_exercise(chat, rng):
    out = Sample()
    span = [rng.randrange(chat.first_piece, len(chat)) for _ in range(rng.randint(8, 40))]
    out.add(span)
    out.add(span, text=True)
    return out


def several_tasks(document, rng, hides_synopsis):
    """The questions asked at the end of one document."""
    out = [tasks.section(document, rng)] + tasks.questions(document, rng, 3)
    if hides_synopsis:
        out.append(tasks.synopsis(document, rng))
    if rng.random() < 0.3 and (found := tasks.json_tags(document, rng)):
        out.append(found)
    rng.shuffle(out)
    return out


def sample(document, chat, rng):
    if rng.random() < COPY_SHARE:
        return copy_exercise(chat, rng)
    out = Sample()
    draw = rng.random()
    if draw < 0.65:  # one task, named before the text; some more tasks in later turns
        task = tasks.one_task(document, rng)
        text = truncated(chat.encode(tasks.package_text(document, rng, task.kind == "synopsis")), rng)
        if draw < 0.55:
            out.add(chat.open("system") + chat.encode(task.instruction) + chat.close() + chat.open("user"))
        else:
            if rng.random() < 0.3:
                out.add(chat.open("system") + chat.encode(rng.choice(wordings.GENERIC_SYSTEM)) + chat.close())
            out.add(chat.open("user") + chat.encode(task.instruction + rng.choice(["\n\n", "\n\n", "\n"])))
        out.add(text, text=True)
        out.add(chat.close() + chat.open("assistant"))
        out.add(chat.encode(task.answer) + [chat.end], answer=True)
        follow_up = tasks.questions(document, rng, rng.randint(1, 2))
        if task.kind != "section" and rng.random() < 0.5:
            follow_up.append(tasks.section(document, rng))
        for branch, task in enumerate(follow_up, TRUNK + 1):
            out.add(chat.newline + chat.open("user") + chat.encode(task.instruction) + chat.close() + chat.open("assistant"), branch)
            out.add(chat.encode(task.answer) + [chat.end], branch, answer=True)
    else:  # the text first, then each task in a branch
        if rng.random() < 0.5:
            out.add(chat.open("system") + chat.encode(rng.choice(wordings.GENERIC_SYSTEM)) + chat.close())
        out.add(chat.open("user"))
        hides_synopsis = rng.random() < 0.7
        out.add(truncated(chat.encode(tasks.package_text(document, rng, hides_synopsis)), rng), text=True)
        for branch, task in enumerate(several_tasks(document, rng, hides_synopsis), TRUNK + 1):
            out.add(chat.encode(rng.choice(["\n\n", "\n\n", "\n"]) + task.instruction) + chat.close() + chat.open("assistant"), branch)
            out.add(chat.encode(task.answer) + [chat.end], branch, answer=True)
    return out


def batches(training, chat, tokens, seed, pool=2048):
    """Yields lists of samples of like length, about `tokens` tokens each with the padding, for ever."""
    rng = random.Random(seed)
    while True:
        order = rng.sample(training, len(training))
        for first in range(0, len(order), pool):
            drawn = sorted((sample(d, chat, rng) for d in order[first : first + pool]), key=len)
            groups, group = [], []
            for item in drawn:
                if group and (len(group) + 1) * len(item) > tokens:
                    groups.append(group)
                    group = []
                group.append(item)
            groups.append(group)
            rng.shuffle(groups)
            yield from groups
