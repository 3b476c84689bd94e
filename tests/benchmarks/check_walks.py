"""Validates random texts of schemas' grammars with another program, python3-jsonschema:

  schema_bench --first 2000 --walks walks.jsonl maskbench/data
  python3 tests/benchmarks/check_walks.py walks.jsonl

Formats are checked as far as the package's own dependencies go.
"""

import collections
import json
import sys

import jsonschema
import jsonschema.validators


def verdict(schema, text):
    try:
        value = json.loads(text)
    except ValueError as error:
        return "not JSON", str(error)
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        errors = list(cls(schema, format_checker=cls.FORMAT_CHECKER).iter_errors(value))
    except Exception as error:  # a schema that the package cannot read
        return "not judged", f"{type(error).__name__}: {error}"
    if errors:
        return "invalid", errors[0].message
    return "valid", ""


def main():
    counts = collections.Counter()
    schemas = 0
    for line in open(sys.argv[1], encoding="utf-8"):
        one = json.loads(line)
        schemas += 1
        for text in one["walks"]:
            outcome, why = verdict(one["schema"], text)
            counts[outcome] += 1
            if outcome in ("invalid", "not JSON"):
                print(f"{one['name']}: {outcome}: {why[:200]}\n  {text[:300]}")
    print(f"{schemas} schemas:", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    sys.exit(counts["invalid"] + counts["not JSON"] > 0)


main()
