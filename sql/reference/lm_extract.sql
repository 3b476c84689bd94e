-- lm_extract(text, schema [, options])  ->  JSON
--
-- What the text says, in the schema's fields; null where it does not tell. A field in `required` is never null.
--
-- options are those of generate(), and
--   escalate   {"model":"large","below":0.9}: where the model finds its answer less probable, the large one is asked (lm_calibrate)

CREATE TEMP TABLE notes(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO notes(body) VALUES ('Ada Lovelace, born in London in 1815.'), ('Nobody knows when Homer lived.');

CREATE TEMP TABLE people AS
  SELECT id, lm_extract(body, '{"type":"object",
    "properties":{"name":{"type":"string","maxLength":30,"description":"of the person"},
                  "born":{"type":"integer","minimum":-3000,"maximum":2100,"description":"a year"}},
    "required":["name"]}') AS fields
    FROM notes;
SELECT id, json_type(fields, '$.name'), json_type(fields, '$.born') IN ('integer', 'null') FROM people;
--> 1|text|1
--> 2|text|1

-- As columns.
SELECT count(*) FROM (SELECT id, fields ->> 'name' AS name, fields ->> 'born' AS born FROM people);
--> 2

-- What is null because it is not there counts for neither minProperties nor maxProperties.
SELECT count(*) FROM json_each(lm_extract('Ada', '{"properties":{"a":{"const":1},"b":{"const":2}},"minProperties":1,"maxProperties":1}'))
 WHERE type <> 'null';
--> 1

-- Short: names, or names and what they mean, of fields that are texts.
SELECT group_concat(field.key || ' ' || (field.type IN ('text', 'null')), ', ')
  FROM json_each(lm_extract('Ada Lovelace, born in London in 1815.', '["name","born"]')) AS field;
--> name 1, born 1
SELECT group_concat(field.key, ', ')
  FROM json_each(lm_extract('Ada Lovelace, born in London in 1815.', '{"name":"of the person","town":"where she was born"}')) AS field;
--> name, town
-- What could be a field or a keyword of a JSON Schema is asked about.
SELECT lm_extract('x', '{"title":"of the book"}');
--! is "title" a field, or a keyword of a JSON Schema\? For a field, write \{"properties":\{"title":\{"type":"string"
