-- lm_explain(select_sql [, options])
--   ->  model, rows, prompts, tokens, tokens_shared, answer_tokens, prefill_seconds, decode_seconds, seconds, basis
--
-- What a query would ask of the model, and how long that will take. Nothing is generated.

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews(body) VALUES ('good'), ('bad'), ('good'), (NULL), ('I do not know');

-- A query as you would write it: its calls are counted. Equal prompts are generated once.
SELECT rows, prompts, tokens > 0, tokens_shared > 0, seconds > 0, basis
  FROM lm_explain('SELECT id, generate(body, ''Say in one word what the review is like.'') FROM reviews');
--> 4|3|1|1|1|ceilings

-- Or its prompts alone, as lm_query takes them: id, prompt and system.
SELECT rows, prompts, answer_tokens
  FROM lm_explain('SELECT id, body, ''Say it in one word.'' FROM reviews', '{"max_tokens":5}');
--> 4|3|15

-- A yes or no takes no decoding at all.
SELECT answer_tokens, decode_seconds FROM lm_explain('SELECT id, lm_if(body, ''Is it praise?'') FROM reviews');
--> 0|0.0

-- Nothing has been generated, and nothing can be written.
SELECT sum(requests) FROM lm_stats;
--> 0
SELECT rows FROM lm_explain('UPDATE reviews SET body = generate(body) WHERE id < 4');
--> 3
SELECT count(body) FROM reviews WHERE id < 4;
--> 3
SELECT * FROM lm_explain('DROP TABLE reviews');
--! select_sql must be a SELECT: it begins with DROP
