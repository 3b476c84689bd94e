-- lm_each(prompts [, system [, options]])  ->  key, value, error, finish, tokens_in, tokens_cached, tokens_out
--
-- Many prompts at once: they decode together, which is the quick way for more than a few rows.
-- `prompts` is a JSON array of strings; key is a prompt's index in it.
--
-- columns
--   key            the prompt's index in the array, from 0
--   value          the answer; NULL where the prompt is NULL, or failed
--   error          why it failed; else NULL
--   finish         stop (the model ended, or a stop string came), length (max_tokens), context (full), error
--   tokens_in      of the prompt
--   tokens_cached  of these found in the prefix cache
--   tokens_out     of the answer

SELECT key, error FROM lm_each('["Name a colour.", "Name an animal."]', 'Answer in one word.', '{"max_tokens":4}');
--> 0|NULL
--> 1|NULL

-- A whole table, joined back to its rows.
CREATE TEMP TABLE notes(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO notes VALUES (11, 'rain all day'), (12, NULL), (15, 'a new bicycle');
WITH batch AS MATERIALIZED (SELECT row_number() OVER (ORDER BY id) - 1 AS key, id, body FROM notes)
SELECT batch.id, answer.value IS NOT NULL, answer.error
  FROM lm_each((SELECT json_group_array(body) FROM (SELECT body FROM batch ORDER BY key)),
               'Say in one word what the note is about.', '{"max_tokens":4}') AS answer
  JOIN batch USING (key);
--> 11|1|NULL
--> 12|0|NULL
--> 15|1|NULL

-- A prompt that fails says why, and the others go on.
SELECT key, error FROM lm_each('["good", "b\u0000d"]', NULL, '{"max_tokens":2}');
--> 0|NULL
--> 1|prompt has a NUL character at byte 1 of 3

-- Rows come in order, each as soon as it can; a LIMIT cancels the rest.
SELECT key FROM lm_each('["a", "b", "c", "d"]', NULL, '{"max_tokens":2}') LIMIT 2;
--> 0
--> 1

SELECT * FROM lm_each('["a", {"prompt":"b"}]');
--! prompts\[1\] must be a string or null, got an object
