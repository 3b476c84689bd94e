-- generate_json(prompt, schema [, system [, options]])  ->  JSON
--
-- An answer that is valid against a JSON Schema, or an error: the model can write nothing else. Every value has one text, so that
-- GROUP BY, DISTINCT and = compare values: no white space; members in the schema's order; numbers without needless zeros, exponent
-- or sign (1.5, 20, 6.02e23); strings with no escapes but those that JSON asks for. {"json_spaces":true} lets the model write spaces.

SELECT generate_json('A red bicycle, 240 euros.',
  '{"type":"object",
    "properties":{"thing":{"type":"string","maxLength":20},
                  "price":{"type":"number","minimum":0,"maximum":100000},
                  "condition":{"enum":["new","used",null]}},
    "required":["thing","price","condition"]}',
  'Describe the offer as JSON with thing, price and condition.') AS offer;
--~ ^\{"thing":".*","price":[0-9.]+,"condition":("new"|"used"|null)\}$

-- It is JSON to SQLite.
SELECT json_type(offer, '$.price') IN ('integer', 'real')
  FROM (SELECT generate_json('A red bicycle, 240 euros.', '{"properties":{"price":{"type":"integer","minimum":0,"maximum":999}},"required":["price"]}') AS offer);
--> 1

-- Dates, patterns, lists; branches and definitions.
SELECT generate_json('Call me on Tuesday.', '{"type":"string","format":"date"}') AS day;
--~ ^"\d{4}-\d{2}-\d{2}"$
SELECT generate_json('Part AB-12.', '{"type":"string","pattern":"^[A-Z]{2}-[0-9]{2}$"}') AS part;
--~ ^"[A-Z]{2}-[0-9]{2}"$
SELECT json_array_length(generate_json('red, green', '{"type":"array","items":{"$ref":"#/$defs/colour"},"minItems":1,"maxItems":3,
                                                      "$defs":{"colour":{"anyOf":[{"const":"red"},{"const":"green"},{"type":"null"}]}}}')) BETWEEN 1 AND 3 AS colours;
--> 1

-- Keywords of all drafts from 4 to 2020-12: conditions, opposites, patterns of names, sets. What cannot be enforced is an error.
SELECT generate_json('x', '{"type":"array","items":{"enum":["red","green","blue"]},"contains":{"const":"blue"},"minItems":2,"maxItems":2}')
  IN ('["red","blue"]', '["green","blue"]', '["blue","red"]', '["blue","green"]', '["blue","blue"]') AS colours;
--> 1
SELECT generate_json('x', '{"properties":{"paid":{"const":true},"by":{"enum":["card","cash"]}},"required":["paid"],
                            "if":{"properties":{"paid":{"const":true}}},"then":{"required":["by"]}}') GLOB '{"paid":true,"by":"ca*"}' AS condition;
--> 1
-- unevaluatedProperties and unevaluatedItems: of what neither the schema nor a branch of it that is valid speaks.
SELECT generate_json('x', '{"oneOf":[{"properties":{"by":{"const":"card"},"iban":{"const":"DE1"}},"required":["by","iban"]},
                                     {"properties":{"by":{"const":"cash"}},"required":["by"]}],"unevaluatedProperties":false}')
  IN ('{"by":"card","iban":"DE1"}', '{"by":"cash"}') AS closed;
--> 1
SELECT generate_json('x', '{"type":"string","not":{"format":"date"}}');
--! the opposite of a format is not supported, at #/not/format

-- Members that a schema does not list are not written, unless {"additional":true} asks for what JSON Schema says. Of those whose names
-- a schema leaves open (additionalProperties, patternProperties) the model may write one twice; -> gives the first. What is no keyword
-- of JSON Schema is ignored, and named in lm_stats.hint; {"strict_schema":true} makes it an error. So it is with formats.
-- OpenAPI's "nullable":true, which lets null be there beside the type, and draft 3's type "any" are understood; strict_schema refuses
-- them, too.
SELECT generate_json('x', '{"properties":{"ok":{"const":true}},"required":["ok"],"colour":"red"}') AS answer;
--> {"ok":true}
SELECT hint LIKE '%"colour" is no keyword of JSON Schema and ignored%' AS told FROM lm_stats LIMIT 1;
--> 1
SELECT generate_json('x', '{"type":"string","format":"phone","enum":["112"]}') AS answer;
--> "112"
SELECT generate_json('x', '{"type":"string","nullable":true}', NULL, '{"strict_schema":true}');
--! keyword "nullable" is OpenAPI's, not JSON Schema's, at #/nullable
SELECT hint LIKE '%the schema''s format "phone" is not known and ignored%' AS told FROM lm_stats LIMIT 1;
--> 1

-- The schema constrains, it is not shown: say what the fields mean in `system`. The same constraint is there for every function
-- that takes options, besides three more: choices, regex and grammar (GBNF).
SELECT generate('A red bicycle, 240 euros.', 'What is the price?', '{"regex":"[0-9]{1,5} (euros|dollars)"}');
--~ ^[0-9]{1,5} (euros|dollars)$
-- A regex matches the whole answer. \p{..} and \P{..} are Unicode's categories, scripts and binary properties, in classes too; (?i) and
-- (?i:..) leave case aside (simple folding; the case of an ASCII letter is ASCII), (?s) lets . be a newline; ^, $ and \b may stand anywhere.
SELECT generate('x', 'A word.', '{"regex":"\\p{Lu}\\p{Ll}{2,9}"}') <> '' AS word, generate('x', 'Go on?', '{"regex":"(?i)(yes|no)"}') COLLATE NOCASE IN ('yes', 'no') AS answer,
       generate('x', 'A list.', '{"regex":"(red|blue)\\b[,s](red|blue)"}') IN ('red,red', 'red,blue', 'blue,red', 'blue,blue') AS list;
--> 1|1|1
SELECT generate('x', 'y', '{"regex":"\\p{Latn}+(?=!)"}');
--! look-around .* is not supported, but for look-ahead at the beginning, behind \^, at byte 9
SELECT generate('x', 'A password.', '{"regex":"(?=.*[0-9])(?=.*[A-Z])[a-zA-Z0-9]{8}"}') GLOB '*[0-9]*' AS has_digit;
--> 1

-- Half an object is an error, not an answer; so is a schema with a mistake in it.
SELECT generate_json('x', '{"type":"string","minLength":40}', NULL, '{"max_tokens":3}');
--! max_tokens = 3 ended the answer before it was whole by its schema
-- With on_length it is led to its end in time; or the error says how many tokens are enough.
SELECT length(generate_json('x', '{"type":"array","items":{"enum":["red","green"]},"minItems":2}', NULL, '{"max_tokens":16,"on_length":"complete"}')) BETWEEN 13 AND 90 AS led;
--> 1
SELECT generate_json('x', '{"type":"array","items":{"enum":["red"]},"minItems":40}', NULL, '{"max_tokens":16,"on_length":"complete"}');
--! max_tokens = 16 ended the answer before it was whole by its schema: \d+ tokens are enough
SELECT generate_json('x', '{"properties":{"price":{"type":"nummer"}}}');
--! type must be null, boolean, .*at #/properties/price/type
SELECT generate_json('x', '{"type":"string","minLength":40,"maxLength":30}');
--! no text fits: #/minLength \(40\) and #/maxLength \(30\) cannot hold together
