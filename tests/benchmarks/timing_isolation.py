#!/usr/bin/python3
"""Whether the time of an answer tells what somebody of another salt has asked.

    timing_isolation.py --lm0 build/release/extension/lm0.so --model MODEL.gguf [--trials 10000]

In each trial a text is made up, and a coin decides whether a victim asks about it or about another one; then an attacker, on
a connection of his own, asks about the text and takes the time. AUC is the probability that a time after the victim had asked
about it is the shorter one of two: 0.5 tells nothing, 1 everything. Three attackers, trial by trial: of another salt, one that
asks the victim's very question, one that shares only the beginning of the prompt with it; and, to show that the measurement
can see what there is to see, one of the victim's own salt. The interval is that of the AUC itself, twice its standard error.
"""
import argparse
import math
import random
import sqlite3
import time


def connect(arguments, salt):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.load_extension(arguments.lm0)
    settings = {"model": arguments.model, "salt": salt, "max_tokens": 1}
    connection.executemany("INSERT INTO temp.lm_settings VALUES (?, ?)", settings.items())
    return connection


def text(dice, words=60):
    return " ".join("".join(dice.choices("abcdefghijklmnoprstuvw", k=4)) for _ in range(words))


def auc(shorter, longer):
    """The probability that a value of the first is below one of the second, and its standard error."""
    ranked = sorted([(value, 0) for value in shorter] + [(value, 1) for value in longer])
    rank_sum, at = 0.0, 0
    while at < len(ranked):
        end = at
        while end < len(ranked) and ranked[end][0] == ranked[at][0]:
            end += 1
        mean_rank = (at + 1 + end) / 2
        rank_sum += mean_rank * sum(1 for _, group in ranked[at:end] if group == 0)
        at = end
    n, m = len(shorter), len(longer)
    area = 1 - (rank_sum - n * (n + 1) / 2) / (n * m)
    return area, math.sqrt((n + m + 1) / (12 * n * m))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm0", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--trials", type=int, default=10000)
    arguments = parser.parse_args()
    dice = random.Random(1)
    victim = connect(arguments, "victim")
    attackers = {
        "another salt, the same question": (connect(arguments, "attacker"), ""),
        "another salt, the same beginning": (connect(arguments, "attacker"), " And then?"),
        "the victim's salt, the same beginning": (connect(arguments, "victim"), " And then?"),
    }
    times = {name: ([], []) for name in attackers}
    for _ in range(arguments.trials):
        for name, (connection, end) in attackers.items():
            secret, other = text(dice), text(dice)
            asked = dice.random() < 0.5
            victim.execute("SELECT generate(?)", [secret if asked else other]).fetchone()
            begin = time.perf_counter()
            connection.execute("SELECT generate(?)", [secret + end]).fetchone()
            times[name][0 if asked else 1].append(time.perf_counter() - begin)
    print(f"{arguments.trials} trials each\n\n| attacker | AUC | interval |\n|---|---|---|")
    for name, (hit, miss) in times.items():
        area, error = auc(hit, miss)
        print(f"| {name} | {area:.3f} | {area - 2 * error:.3f} to {area + 2 * error:.3f} |")


if __name__ == "__main__":
    main()
