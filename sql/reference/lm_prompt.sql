-- lm_prompt(template, fields [, order])  ->  TEXT
--
-- A prompt made of a template and a row's fields: {{name}} is a field of the JSON object, {{*}} all fields that the template
-- does not name, a line "name: value" for each that is not NULL. What rows have in common at their beginning is computed once,
-- so what is repeated most is best put first: order, a JSON array of names, says which fields come first at {{*}}. A number stays as it
-- is written.

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT, product TEXT, shop TEXT);
INSERT INTO reviews VALUES
  (1, 'Too bright.',         'A lamp of brass, with a switch at its foot and three arms that can be bent.', 'Moth and Son'),
  (2, 'It fell over.',       'A lamp of brass, with a switch at its foot and three arms that can be bent.', 'Moth and Son'),
  (3, 'Keeps the rain off.', 'An umbrella of black cloth that opens by itself and fits into a bag.',        'Moth and Son'),
  (4, 'Turned inside out.',  'An umbrella of black cloth that opens by itself and fits into a bag.',        NULL);

SELECT lm_prompt('Review {{id}}.' || char(10) || '{{*}}', json_object('id', id, 'body', body, 'shop', shop)) FROM reviews WHERE id IN (1, 4);
--> Review 1.\nbody: Too bright.\nshop: Moth and Son
--> Review 4.\nbody: Turned inside out.

SELECT lm_prompt('{{*}}', json_object('id', id, 'body', body, 'shop', shop), '["shop","body"]') FROM reviews WHERE id = 1;
--> shop: Moth and Son\nbody: Too bright.\nid: 1

-- Which order shares most, the table knows (lm_field_order), and lm_explain says what it would save.
SELECT lm_field_order(json_object('body', body, 'product', product, 'shop', shop)) FROM reviews;
--> ["product","shop","body"]
SELECT tokens_shared_ordered > tokens_shared, field_order FROM lm_explain('
  SELECT generate(lm_prompt(''{{*}}'', json_object(''body'', body, ''product'', product, ''shop'', shop)), ''Was it worth its money?'') FROM reviews');
--> 1|["product","shop","body"]

-- The order is asked for once for the statement, and each answer is its own row's.
SELECT id, length(generate(lm_prompt('{{*}}', json_object('body', body, 'product', product, 'shop', shop),
                                     (SELECT lm_field_order(json_object('body', body, 'product', product, 'shop', shop)) FROM reviews)),
                           'Was it worth its money?', '{"max_tokens":4}')) > 0 FROM reviews;
--> 1|1
--> 2|1
--> 3|1
--> 4|1

SELECT lm_prompt('{{*}} by {{author}}', '{"body":"x"}');
--! the template's field 'author' is none of the row's: body
