-- generate(prompt [, system [, options]])  ->  TEXT
--
-- The answer of a language model, computed in this process. Load the extension first:
--   .load build/release/extension/lm0
-- Lines that begin with an arrow say what the statement before them returns.

-- One call is enough.
SELECT generate('Write a haiku about autumn.', NULL, '{"max_tokens":20}');

-- Over a table. The system prompt is an argument of its own because all rows share it: the engine
-- reads it once.
CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews(body) VALUES ('Great phone, weak battery.'), ('Broke after a day.'), (NULL);
SELECT id, generate(body, 'Label the review: positive, negative or mixed.', '{"max_tokens":4}') AS label
  FROM reviews;

-- Generating can take long. A SELECT and CREATE TEMP TABLE AS hold no write lock meanwhile, so
-- generate first, then write. They keep others from writing only without PRAGMA journal_mode = WAL
-- and where they read a table of the file, and not a copy in a TEMP one.
CREATE TEMP TABLE labels AS
  SELECT id, generate(body, 'Label the review: positive, negative or mixed.', '{"max_tokens":4}') AS label
    FROM reviews;
SELECT count(*), count(label) FROM labels;
--> 3|2

-- NULL gives NULL; the empty text is a prompt like any other.
SELECT generate(NULL) IS NULL, typeof(generate('', NULL, '{"max_tokens":1}'));
--> 1|text

-- Options are one JSON object: model, max_tokens, temperature (0: the likeliest token each time),
-- top_k, top_p, min_p, seed, stop, repeat_penalty, logit_bias, messages, thinking, thinking_tokens, template_args, on_error, on_overflow, on_length,
-- timeout_ms (of the model's time, for the row), max_seconds, max_total_tokens, max_cost (budgets of the statement), json_spaces, additional,
-- strict_schema, priority ('interactive' goes before 'batch'), speculate ('auto', 'off', 'always': whether tokens are guessed and checked
-- several at a time; the answer is the same).
-- With "messages" the prompt is a conversation; with "thinking":"keep" an answer has its reasoning.
-- A key that does not exist is an error that names it.
SELECT generate('Name three colours.', NULL, '{"temperature":0.8,"top_p":0.95,"seed":42,"max_tokens":12}')
     = generate('Name three colours.', NULL, '{"temperature":0.8,"top_p":0.95,"seed":42,"max_tokens":12}')
    AS same_seed_same_answer;
--> 1
SELECT generate('Hello', NULL, '{"temprature":0.8}');
--! temprature

SELECT generate(json_array(json_object('role', 'user', 'content', 'Hello'),
                           json_object('role', 'assistant', 'content', 'Hi.'),
                           json_object('role', 'user', 'content', 'Bye')), 'Be brief.', '{"messages":true,"max_tokens":4}') IS NOT NULL;
--> 1
SELECT generate('Hello', NULL, '{"messages":true}');
--! the prompt must be a JSON array of messages

-- A row that cannot be answered is an error; or NULL, or JSON, if that is asked for.
SELECT generate(x'00ff');
--! prompt must be text, got a BLOB of 2 bytes
SELECT generate(x'00ff', NULL, '{"on_error":"null"}');
--> NULL
SELECT generate(x'00ff', NULL, '{"on_error":"json"}') ->> 'error';
--~ ^prompt must be text

-- A prompt that does not fit into the model's context is an error that names both numbers; cutting
-- it must be asked for by name.
SELECT generate(replace(hex(zeroblob(40000)), '0', 'word '));
--! tokens
SELECT typeof(generate(replace(hex(zeroblob(40000)), '0', 'word '), NULL,
                       '{"on_overflow":"truncate_start","max_tokens":2}'));
--> text

-- Several answers to one prompt, which is computed once: n as a JSON array, each drawn with a seed of its own at a temperature of 1,
-- unless one is given, which must be above 0; best_of draws so many and gives the one whose tokens the model finds most probable, or the first n of them.
SELECT json_array_length(generate('Write a haiku.', NULL, '{"n":3,"max_tokens":8}'));
--> 3
SELECT generate('Write a haiku.', NULL, '{"best_of":3,"max_tokens":8}') = generate('Write a haiku.', NULL, '{"best_of":3,"n":2,"max_tokens":8}') ->> 0;
--> 1
