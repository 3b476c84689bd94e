-- lm_try(prompt [, system [, options]])  ->  JSON
--
-- As generate(), but a row that fails does not end the statement: the object says why. So it is with rows that a budget does
-- not reach for, max_seconds too, with those of a model on the network whose servers are away, and whatever on_error says.
--   value          the answer, or null
--   error          null, or why there is none
--   finish         stop (the model ended, or a stop string came), length (max_tokens), context (full), error
--   tokens_in      of the prompt
--   tokens_out     of the answer
--   votes          of the option vote only: what was said, the most first, with its share of the votes; of a tie too

SELECT lm_try('Write a haiku about autumn.', NULL, '{"max_tokens":8}');
--~ ^\{"value":".*","error":null,"finish":"(stop|length)","tokens_in":\d+,"tokens_out":\d+\}$

-- Rows that went wrong, by reason.
CREATE TEMP TABLE notes(id INTEGER PRIMARY KEY, body);
INSERT INTO notes(body) VALUES ('a note'), (x'00'), (CAST(x'80' AS TEXT)), (NULL);
CREATE TEMP TABLE results AS SELECT id, lm_try(body, 'Summarise.', '{"max_tokens":4}') AS try FROM notes;
SELECT id, try ->> 'error' FROM results WHERE try ->> 'finish' = 'error';
--~ ^2\|prompt must be text, got a BLOB of 1 bytes
--> 3|prompt is not valid UTF-8 at byte 0 of 1 (0x80)
SELECT id, try IS NULL FROM results WHERE id = 4;
--> 4|1

-- Five answers are drawn and counted; how sure is the model of what most of them say?
CREATE TEMP TABLE counted AS SELECT lm_try('Do you ship to Norway?', 'Is it a question? Answer yes or no.', '{"vote":5,"choices":["yes","no"]}') AS try;
SELECT try ->> 'value' = first.key, first.value >= 0.6, (SELECT round(sum(value), 6) FROM json_each(try -> 'votes')) FROM counted, json_each(try -> 'votes') AS first LIMIT 1;
--> 1|1|1.0

-- Mistakes of the statement are errors nevertheless.
SELECT lm_try('a', NULL, '{"model":"nobody"}');
--! there is no model named 'nobody'
