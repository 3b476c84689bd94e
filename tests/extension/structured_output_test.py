"""What constrained functions answer is always valid: random schemas, the model that ships, hot sampling, and a checker of
schemas that shares nothing with the engine (schema_checker.py)."""
import decimal
import json
import random
import re
import unittest

import harness
from schema_checker import FORMATS, Invalid, check

ROOT = harness.MODELS.parents[2]
SHIPPED = str(ROOT / "sql" / "models" / "debian-notes.gguf")
NAMES = ["name", "a", "size of it", "naïve", "tags", 'q"uote', "kind", "x/y", "~", ""]
PROMPTS = ["Package: gimp\nAn image manipulation program.", "", "{\"a\": [1, 2", "日本語のテキスト", "x" * 300]
# An answer may also be none, where it would have gone on for longer than it may.
CUT_OFF = re.compile(r"(max_tokens = \d+|the context of \d+ tokens) ended the answer before it was whole")
NUMBERS = decimal.Context(prec=4000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


class Schemas:
    """Random schemas that something is valid against, most of them with short values."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.defs = {}

    def schema(self):
        root = self.value(0)
        if self.defs:
            root = {**root, "$defs": self.defs} if "$ref" not in root else {"allOf": [root], "$defs": self.defs}
        return root

    def value(self, depth):
        rng = self.rng
        simple = [self.string, self.number, self.integer, self.boolean, self.null, self.enum, self.constant]
        nested = [self.object, self.object, self.array, self.any_of, self.one_of, self.all_of, self.reference]
        return rng.choice(simple if depth > 2 or (depth and rng.random() < 0.4) else nested)(depth + 1)

    def boolean(self, _):
        return {"type": "boolean"}

    def null(self, _):
        return {"type": "null"}

    def plain(self, depth=0):
        rng = self.rng
        draws = [None, True, False, rng.randint(-99, 99), 1.5, "", "a\"b\\c\n", "é", rng.choice(NAMES)]
        if depth == 0:
            draws += [[], {}, [self.plain(1)], {"k": self.plain(1), "": None}]
        return rng.choice(draws)

    def enum(self, _):
        return {"enum": [self.plain() for _ in range(self.rng.randint(1, 5))]}

    def constant(self, _):
        return {"const": self.plain()}

    def string(self, _):
        rng = self.rng
        draw = rng.random()
        if draw < 0.3:
            return {"type": "string", "format": rng.choice(sorted(FORMATS))}
        if draw < 0.6:
            return {"type": "string", "pattern": rng.choice(
                ["^[a-z]{2,5}$", "^(ab|cd)+e?$", "^[^\"]{0,4}$", "^\\d{3}-\\d{2}$", "x", "^[A-ZÄÖ]\\w*$", "^$"])}
        low = rng.randint(0, 6)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 8)}

    def integer(self, _):
        rng = self.rng
        low = rng.randint(-1000, 1000)
        schema = {"type": "integer", rng.choice(["minimum", "exclusiveMinimum"]): low}
        if rng.random() < 0.7:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.randint(8, 10 ** rng.randint(1, 6))
        if rng.random() < 0.3:
            schema["multipleOf"] = rng.choice([1, 2, 3, 5, 7])
        return schema

    def number(self, _):
        rng = self.rng
        low = round(rng.uniform(-50, 50), rng.randint(0, 3))
        schema = {"type": "number", "minimum": low, rng.choice(["maximum", "exclusiveMaximum"]): low + rng.choice([0.5, 1, 250])}
        if rng.random() < 0.3:
            schema = {"type": "number", "multipleOf": rng.choice([0.1, 0.01]), "minimum": -5, "maximum": 5}
        return schema

    def object(self, depth):
        rng = self.rng
        names = rng.sample(NAMES, rng.randint(0, 4))
        schema = {"type": "object", "properties": {name: self.value(depth) for name in names}}
        schema["required"] = [name for name in names if rng.random() < 0.6]
        draw = rng.random()
        if draw < 0.15:
            schema["additionalProperties"] = self.string(depth)
            schema["maxProperties"] = len(names) + 2
        elif draw < 0.5:
            schema["additionalProperties"] = False
        if rng.random() < 0.2:
            schema["minProperties"] = len(schema["required"])
        return schema

    def array(self, depth):
        rng = self.rng
        low = rng.randint(0, 2)
        schema = {"type": "array", "items": self.value(depth), "minItems": low, "maxItems": low + rng.randint(0, 2)}
        if rng.random() < 0.3:
            schema["prefixItems"] = [self.value(depth) for _ in range(rng.randint(1, 2))]
        return schema

    def any_of(self, depth):
        return {"anyOf": [self.value(depth) for _ in range(self.rng.randint(1, 3))]}

    def one_of(self, depth):
        branches = [self.string(depth), self.integer(depth), self.boolean(depth), self.array(depth)]
        return {"oneOf": self.rng.sample(branches, self.rng.randint(1, 4))}

    def all_of(self, depth):
        first = self.object(depth)
        return {"allOf": [first, {"type": "object", "required": sorted(first["properties"])[:1]}]}

    def reference(self, depth):
        name = f"d{len(self.defs)}"
        self.defs[name] = True  # taken, while its body is made
        self.defs[name] = self.value(depth)
        if self.rng.random() < 0.3:  # a list of itself, which may be empty
            self.defs[name] = {"type": "object", "properties": {"v": self.defs[name], "next": {"$ref": f"#/$defs/{name}"}},
                               "required": ["v"], "additionalProperties": False}
        return {"$ref": f"#/$defs/{name}"}


def value_of(text):
    """What a JSON text says, as something that is equal where that is: 1 is 1.0, members have an order and may be there twice."""
    number = lambda said: {"number": str(NUMBERS.normalize(decimal.Decimal(said)))}  # exactly: two long ones may be one float
    return json.dumps(json.loads(text, parse_int=number, parse_float=number, object_pairs_hook=lambda members: {"members": [list(m) for m in members]}))


class StructuredOutputTest(unittest.TestCase):
    def setUp(self):
        self.db = harness.connect()
        self.db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('shipped', ?)", (SHIPPED,))
        self.db.execute("UPDATE temp.lm_settings SET value = 'shipped' WHERE key = 'model'")
        self.addCleanup(self.db.close)

    def answers(self, options, system="Answer in JSON."):
        sql = "SELECT value, error FROM lm_each(?, ?, ?) ORDER BY key"
        return self.db.execute(sql, (json.dumps(PROMPTS), system, json.dumps(options))).fetchall()

    def test_every_answer_is_valid_against_its_schema(self):
        whole = 0
        for seed in range(120):
            schema = Schemas(seed).schema()
            texts = {}  # by value
            for temperature in (0, 1.5):
                options = {"schema": schema, "temperature": temperature, "seed": seed, "max_tokens": 400}
                for text, error in self.answers(options):
                    if text is None:
                        self.assertRegex(error, CUT_OFF, f"seed {seed}: {json.dumps(schema)}")
                        continue
                    whole += 1
                    self.assertEqual(texts.setdefault(value_of(text), text), text)
                    try:
                        check(json.loads(text), schema)
                    except (Invalid, ValueError) as error:
                        self.fail(f"seed {seed}: {error}\n{json.dumps(schema)}\n{text}")
        self.assertGreater(whole, 120 * 2 * len(PROMPTS) * 0.9)

    def test_an_answer_is_led_to_its_end_or_says_how_long_the_shortest_is(self):
        whole = short = 0
        for seed in range(200, 215):
            schema = Schemas(seed).schema()
            for max_tokens in (1, 4, 12, 40):
                options = {"schema": schema, "temperature": seed % 3, "seed": seed, "max_tokens": max_tokens, "on_length": "complete"}
                for text, error in self.answers(options)[:2]:
                    if text is None:
                        shortest = re.fullmatch(rf"max_tokens = {max_tokens} ended .*: (\d+) tokens are enough; .*", error, re.DOTALL)
                        self.assertIsNotNone(shortest, error)
                        self.assertGreater(int(shortest[1]), max_tokens)
                        short += 1
                        enough = {**options, "max_tokens": int(shortest[1])}
                        text = self.answers(enough)[0][0]
                    whole += 1
                    check(json.loads(text), schema)
        self.assertGreater(short, 15)
        self.assertGreater(whole - short, 30)

    def test_an_answer_that_fits_is_not_refused_for_an_end_that_seems_far(self):
        """Bytes are told as tokens of their own where the model has longer ones."""
        schema = {"properties": {"name": {"type": "string", "minLength": 30}}, "required": ["name"]}

        def answer(max_tokens, on_length):
            options = {"schema": schema, "max_tokens": max_tokens, "on_length": on_length, "model": SHIPPED}
            return json.loads(self.db.execute("SELECT lm_try('a puzzle game with a maze', NULL, ?)", (json.dumps(options),)).fetchone()[0])

        whole = answer(200, "cut")
        self.assertLess(whole["tokens_out"], 30)
        for max_tokens in range(whole["tokens_out"], 45):
            self.assertEqual(answer(max_tokens, "complete")["value"], whole["value"], max_tokens)
        self.assertIn(" tokens are enough; it begins with", answer(2, "complete")["error"])

    def test_equal_values_are_equal_texts(self):
        schema = {"type": "object", "required": ["score", "ok", "tags", "note"], "properties": {
            "score": {"type": "number"}, "ok": {"type": ["boolean", "null"]}, "note": {"type": "string", "maxLength": 3},
            "tags": {"type": "array", "items": {"enum": ["a", 1.0, 2.50]}, "maxItems": 2}}}
        for options in ({}, {"temperature": 1.5, "seed": 7}):
            prompts = json.dumps([f"Package: number-{i % 60} of {i}" for i in range(300)])
            rows = self.db.execute("SELECT generate_json(value, ?, 'Answer in JSON.', ?) FROM json_each(?)",
                                   (json.dumps(schema), json.dumps(options), prompts)).fetchall()
            texts = {text for text, in rows}
            self.assertEqual(len(rows), 300)
            self.assertEqual(len(texts), len({value_of(text) for text in texts}))

    def test_the_functions_answer_within_their_labels_and_schemas(self):
        labels = ["graphics", "net", "libs", "libdevel", "naïve café", "no", "not", "nothing at all"]
        schema = {"type": "object", "properties": {
            "title": {"type": "string", "maxLength": 20}, "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
            "maker": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}}, "required": ["year"]}
        nullable = json.loads(json.dumps(schema))
        for name in ("title", "tags"):
            nullable["properties"][name] = {"anyOf": [schema["properties"][name], {"type": "null"}]}
        maker = {"type": "object", "properties": {"name": {"type": ["string", "null"], "maxLength": 9}}, "required": ["name"]}
        nullable["properties"]["maker"] = {"anyOf": [maker, {"type": "null"}]}
        nullable["required"] = list(schema["properties"])
        for seed, text in enumerate(PROMPTS * 6):
            options = json.dumps({"temperature": 1.5 if seed % 2 else 0, "seed": seed})
            row = self.db.execute(
                "SELECT lm_classify(?1, ?2, NULL, ?4), lm_classify(?1, ?5, 'Sort it.', ?4), lm_extract(?1, ?3, ?4), "
                "generate_json(?1, ?3, NULL, ?4), lm_if(?1, 'Is it a game?', ?4), lm_score(?1, 'Is it a game?', ?4)",
                (text, json.dumps(labels), json.dumps(schema), options, json.dumps({l: "about " + l for l in labels}))).fetchone()
            self.assertIn(row[0], labels)
            self.assertIn(row[1], labels)
            check(json.loads(row[2]), nullable)
            check(json.loads(row[3]), schema)
            self.assertIn(row[4], (0, 1))
            self.assertTrue(0 <= row[5] <= 1)

    def test_a_regex_and_a_grammar_hold(self):
        for regex in ("[a-c]{3,9}", "(yes|no|perhaps)!?", "\\d{4}-\\d\\d", "[^a]{5}", "(.|\\n){0,30}", "é*x"):
            for text, error in self.answers({"regex": regex, "temperature": 1.5, "seed": 3, "max_tokens": 60}, ""):
                self.assertTrue(text is not None or CUT_OFF.search(error), error)
                if text is not None:
                    self.assertRegex(text, f"\\A(?:{regex})\\Z")
        grammar = 'root ::= "(" root ")" root | "x"'
        for text, error in self.answers({"grammar": grammar, "temperature": 1, "seed": 5, "max_tokens": 300}, ""):
            if text is None:
                self.assertRegex(error, CUT_OFF)
                continue
            reduced = text
            while "(x)x" in reduced:
                reduced = reduced.replace("(x)x", "x")
            self.assertEqual(reduced, "x")

    def test_the_checker_itself_refuses(self):
        for value, schema in ((1, {"type": "string"}), (True, {"type": "integer"}), ("ab", {"maxLength": 1}), ([1], {"maxItems": 0}),
                              ({"a": 1}, {"additionalProperties": False}), ({}, {"required": ["a"]}), (1.5, {"multipleOf": 1}),
                              ("2023-02-29", {"format": "date"}), (1, {"oneOf": [True, True]}), (0, {"const": False}),
                              ("x", {"pattern": "y"}), (3, {"$ref": "#/$defs/a", "$defs": {"a": {"maximum": 2}}})):
            self.assertRaises(Invalid, check, value, schema)


if __name__ == "__main__":
    unittest.main()
