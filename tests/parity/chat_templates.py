"""Compares our chat templates with jinja2, byte for byte, over a folder of templates.

    /usr/bin/python3 tests/parity/chat_templates.py build/release/tests/parity/lm_render_template DIR [-v]

Each *.jinja file of DIR is rendered for CASES by jinja2 in the environment that Hugging Face's
transformers makes for chat templates (Debian: python3-jinja2 3.1.2), and by us. They must give the same
bytes, or both refuse. Exits 1 with a line for each difference.

    /usr/bin/python3 tests/parity/chat_templates.py PROGRAM DIR --mutations 20000 [--seed 1]

renders, for one conversation, that many templates that are made of those by putting names, strings, numbers, operators and
whole tags in each other's place. Where both give a text it must be the same one, but where Python writes what it has ("range(0,
3)" or "Markup(...)" within a list); how often only one of them refuses is counted.

    python3 tests/parity/chat_templates.py expected tests/engine/text/testdata/templates

writes what jinja2 gives for the templates of the unit test, template_golden_test.cc.
"""
import argparse
import datetime
import json
import pathlib
import random
import re
import signal
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 9, 7, 5, 4)
BOS, EOS = "<s>", "</s>"


class Generation(jinja2.ext.Extension):
    """{% generation %}, as transformers has it: a block of its own, which changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_call")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _call(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


def message(role, content, **others):
    return {"role": role, "content": content, **others}


def call(name, arguments, identity="call12345"):
    return {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}


SYSTEM = message("system", "  You know the \"weather\" & <b>tides</b>.\n")
USER = message("user", " What's up in Zürich? 你好 \\n\n")
ANSWER = message("assistant", "Rain, <i>1 < 2</i>.  ")
THOUGHT = message("assistant", "<think>\nIt's wet.\n</think>\n\nTake a coat.")
REASONED = message("assistant", "Take a hat.", reasoning_content="Sun, so\nhot.")
LAST = message("user", "And tomorrow? /no_think <|im_end|> [INST] {{ x }}")
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Says \"what\" the weather <is>, & when.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Where, e.g. 'Zürich'"},
            "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
            "scale": {"type": "string", "nullable": True}},
            "required": ["city"]},
        "return": {"type": "string", "description": "text"}}},
    {"type": "function", "function": {
        "name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]
CALLED = [USER,
          message("assistant", "", tool_calls=[call("weather", {"city": "Zürich", "days": 2})]),
          message("tool", "{\"rain\": true}", tool_call_id="call12345", name="weather")]

CASES = [
    {"messages": [USER]},
    {"messages": [SYSTEM, USER]},
    {"messages": [USER, ANSWER, LAST]},
    {"messages": [SYSTEM, USER, THOUGHT, LAST]},
    {"messages": [SYSTEM, USER, REASONED, LAST], "args": {"enable_thinking": True, "thinking": True}},
    {"messages": [SYSTEM, USER], "args": {"enable_thinking": False, "thinking": False,
                                          "reasoning_effort": "low"}},
    {"messages": [SYSTEM, USER, ANSWER], "add_generation_prompt": False},
    {"messages": [USER], "tools": TOOLS},
    {"messages": [SYSTEM, USER, ANSWER, LAST], "tools": TOOLS},
    {"messages": CALLED, "tools": TOOLS},
    {"messages": [SYSTEM] + CALLED + [ANSWER, LAST], "tools": TOOLS,
     "args": {"enable_thinking": True}},
    {"messages": [message("user", "")], "args": {"reasoning_effort": "high", "functions": "[]",
                                                "x": 1.5e-7}},
]


def oracle(source, case):
    """('text', ...) or ('error', ...) as Python has it."""
    variables = {"tools": None, "documents": None, "bos_token": BOS, "eos_token": EOS,
                 "add_generation_prompt": case.get("add_generation_prompt", True),
                 "messages": case["messages"], **case.get("args", {})}
    if "tools" in case:
        variables["tools"] = case["tools"]
    try:
        return "text", environment().from_string(source).render(**variables)
    except Exception as error:  # pylint: disable=broad-except
        return "error", f"{type(error).__name__}: {error}"


def job(source, cases=None):
    """What a line of lm_render_template's input says."""
    return {"source": source, "bos": BOS, "eos": EOS, "cases": CASES if cases is None else cases,
            "now": list(NOW.timetuple()[:6])}


def ours(program, sources, cases=None):
    """For each source the results of all cases, or of these."""
    jobs = "".join(json.dumps(job(source, cases)) + "\n" for source in sources)
    run = subprocess.run([program], input=jobs, capture_output=True, text=True, check=False)
    sys.stderr.write(run.stderr)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    return results + [[{"error": "no answer"}] * len(CASES)] * (len(sources) - len(results))


def read_templates(folder):
    """(name, source): the *.jinja files of a folder, and what a constructs file holds."""
    for path in sorted(folder.glob("*.jinja")):
        yield path.name, path.read_text()
    for path in sorted(folder.glob("*constructs.txt")):
        for number, source in enumerate(path.read_text().split("\n=====\n"), 1):
            yield f"{path.name}, number {number}", source


def write_expected(folder):
    """Writes what the unit test expects: a line with the cases, then a line a template."""
    def lines():
        yield {**job(""), "source": None}
        for name, source in read_templates(folder):
            # A construct says the same of every conversation, or nearly so.
            cases = CASES[8:9] if "constructs" in name else CASES
            yield {"name": name, "source": source, "first": CASES.index(cases[0]),
                   "results": [dict([oracle(source, case)]) for case in cases]}
    text = "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines())
    (folder / "expected.jsonl").write_text(text)


TAG = re.compile(r"\{[{%]-?(.*?)-?[%}]\}", re.DOTALL)
TOKEN = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|==|!=|<=|>=|//|\*\*|[-+*/%~|.,:<>=()\[\]{}]")
MUTATED = [case for case in CASES if case is CASES[8]]


def kind_of(token):
    return "string" if token[0] in "'\"" else "name" if token[0].isalpha() or token[0] == "_" else "number" if token[0].isdigit() else "sign"


class Mutator:
    """Templates that are made of others."""

    def __init__(self, sources, dice):
        self.sources, self.dice = sources, dice
        self.tags = [match[0] for source in sources for match in TAG.finditer(source)]
        self.tokens = {}
        for tag in self.tags:
            for match in TOKEN.finditer(tag[2:-2]):
                self.tokens.setdefault(kind_of(match[0]), []).append(match[0])

    def mutate(self, source):
        tags = list(TAG.finditer(source))
        if not tags:
            return source
        tag = self.dice.choice(tags)
        tokens = list(TOKEN.finditer(source, tag.start() + 2, tag.end() - 2))
        if not tokens or self.dice.random() < 0.15:
            return source[:tag.start()] + self.dice.choice(self.tags) + source[tag.end():]
        token = self.dice.choice(tokens)
        kind = kind_of(token[0]) if self.dice.random() < 0.9 else self.dice.choice(list(self.tokens))
        return source[:token.start()] + self.dice.choice(self.tokens[kind]) + source[token.end():]

    def make(self):
        source = self.dice.choice(self.sources)
        for _ in range(self.dice.randint(1, 3)):
            source = self.mutate(source)
        return source


def with_patience(source, case, seconds=2):
    """The oracle's result; an error where it takes longer."""
    def stop(*_):
        raise TimeoutError("too long")
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return oracle(source, case)
    except TimeoutError as error:
        return "error", str(error)
    finally:
        signal.alarm(0)


def compare_mutations(arguments, sources):
    mutator = Mutator([source for source in sources if len(source) < 600], random.Random(arguments.seed))
    counts = {"the same": 0, "refused by both": 0, "refused by us": 0, "refused by jinja2": 0, "other words": 0, "different": 0}
    for _ in range(0, arguments.mutations, 500):
        made = [mutator.make() for _ in range(500)]
        for source, results in zip(made, ours(arguments.program, made, MUTATED)):
            kind, wanted = with_patience(source, MUTATED[0])
            result = results[0]
            if "error" in result:
                outcome = "refused by both" if kind == "error" else "refused by us"
            else:
                outcome = "refused by jinja2" if kind == "error" else "the same" if result["text"] == wanted else "different"
                if outcome == "different" and re.search(r"range\(|Markup\(", wanted, re.IGNORECASE):
                    outcome = "other words"
            counts[outcome] += 1
            if outcome == "different" or (arguments.v and outcome.startswith("refused by") and "both" not in outcome):
                print(f"{outcome}: {source!r}\n  jinja2: {wanted[:500]!r}\n  ours: {result!r:.500}")
    print(f"{arguments.mutations} mutations of {len(mutator.sources)} templates: " +
          ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["different"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="lm_render_template; or 'expected', to write expected.jsonl")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-v", action="store_true", help="say what both refuse; of mutations, what one refuses")
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.program == "expected":
        write_expected(arguments.folder)
        return 0
    names, sources = zip(*read_templates(arguments.folder))
    if arguments.mutations > 0:
        return compare_mutations(arguments, sources)
    same = refused = different = whole = 0
    for name, source, results in zip(names, sources, ours(arguments.program, sources)):
        before = different
        for number, (case, result) in enumerate(zip(CASES, results)):
            kind, wanted = oracle(source, case)
            if kind == "error" and "error" in result:
                refused += 1
                if arguments.v:
                    print(f"{name} case {number}: both refuse: {wanted!r} / {result['error']!r}")
            elif kind == "text" and result.get("text") == wanted:
                same += 1
            else:
                different += 1
                print(f"{name} case {number}:\n  jinja2 {kind}: {wanted[:2000]!r}\n"
                      f"  ours: {result!r:.2000}")
        whole += different == before
    print(f"{len(names)} templates, {whole} without a difference; {same} texts the same, "
          f"{refused} refused by both, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
