"""Is a value valid against a JSON Schema? Written from draft 2020-12 and from nothing in engine/grammar, so that the two can
be held against each other. Raises Invalid with the place and the reason."""
import calendar
import ipaddress
import math
import re
import uuid
from fractions import Fraction


class Invalid(Exception):
    pass


def is_integer(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == math.floor(value)


TYPES = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": is_integer,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def equal(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return a == b


def is_date(text):
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text, re.ASCII)
    if not match:
        return False
    year, month, day = map(int, match.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)  # the year 0 too
    return 1 <= month <= 12 and 1 <= day <= (29 if month == 2 and leap else calendar.mdays[month])


def is_time(text):
    match = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-](\d\d):(\d\d))", text, re.ASCII)
    if not match:
        return False
    hour, minute, second = (int(match[i]) for i in (1, 2, 3))
    offset = match[6] is None or (int(match[6]) < 24 and int(match[7]) < 60)
    return hour < 24 and minute < 60 and second <= 60 and offset


def is_uuid(text):
    return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None and bool(uuid.UUID(text))


def is_address(version):
    def check(text):
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


FORMATS = {
    "date": is_date,
    "time": is_time,
    "date-time": lambda t: len(t) > 11 and t[10] in "Tt " and is_date(t[:10]) and is_time(t[11:]),
    "email": lambda t: re.fullmatch(r"[^@\s]+@[^@\s]+", t) is not None,
    "ipv4": is_address(4),
    "ipv6": is_address(6),
    "uuid": is_uuid,
}


def check(value, schema, root=None, where="#"):
    root = schema if root is None else root

    def need(good, reason):
        if not good:
            raise Invalid(f"{where}: {reason}: {value!r}")

    def valid(candidate, part, place):
        try:
            check(candidate, part, root, place)
            return True
        except Invalid:
            return False

    if isinstance(schema, bool):
        return need(schema, "nothing is valid")
    if "$ref" in schema:
        target = root
        for token in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = target[int(token) if isinstance(target, list) else token]
        check(value, target, root, where + "/$ref")
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        need(any(TYPES[name](value) for name in names), f"is not of type {names}")
    if "enum" in schema:
        need(any(equal(value, one) for one in schema["enum"]), "is none of the enum")
    if "const" in schema:
        need(equal(value, schema["const"]), "is not the constant")
    for i, part in enumerate(schema.get("allOf", [])):
        check(value, part, root, f"{where}/allOf/{i}")
    if "anyOf" in schema:
        need(any(valid(value, part, where) for part in schema["anyOf"]), "matches no branch of anyOf")
    if "oneOf" in schema:
        need(sum(valid(value, part, where) for part in schema["oneOf"]) == 1, "matches not one branch of oneOf")
    if TYPES["number"](value):
        need(value >= schema.get("minimum", value), "is below the minimum")
        need(value <= schema.get("maximum", value), "is above the maximum")
        need("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"], "is not above the minimum")
        need("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"], "is not below the maximum")
        if "multipleOf" in schema:
            need(Fraction(str(value)) % Fraction(str(schema["multipleOf"])) == 0, "is not a multiple")
    if isinstance(value, str):
        need(len(value) >= schema.get("minLength", 0), "is too short")
        need(len(value) <= schema.get("maxLength", len(value)), "is too long")
        need("pattern" not in schema or re.search(schema["pattern"], value), "does not match the pattern")
        need("format" not in schema or FORMATS[schema["format"]](value), f"is no {schema.get('format')}")
    if isinstance(value, list):
        need(len(value) >= schema.get("minItems", 0), "has too few items")
        need(len(value) <= schema.get("maxItems", len(value)), "has too many items")
        prefix = schema.get("prefixItems", [])
        for i, item in enumerate(value):
            check(item, prefix[i] if i < len(prefix) else schema.get("items", True), root, f"{where}/{i}")
    if isinstance(value, dict):
        need(len(value) >= schema.get("minProperties", 0), "has too few properties")
        need(len(value) <= schema.get("maxProperties", len(value)), "has too many properties")
        for name in schema.get("required", []):
            need(name in value, f"lacks {name!r}")
        for name, member in value.items():
            part = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            check(member, part, root, f"{where}/{name}")
