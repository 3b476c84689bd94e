-- lm_prefill(prompt [, system [, options]])  ->  JSON: what of the prompt is computed now, and kept
--
-- Computes the beginning of prompts and answers nothing: what begins with it later starts where it ends. With lm_settings('prefix_store') it is
-- written there at once, and other processes find it. prompt NULL: what all prompts behind this system prompt have in common.
-- Behind the prompt the model says one token, which nobody sees: it counts as an answer's, in budgets, lm_stats and costs.
--
-- When it pays: whenever a process to come asks for it once. Of a model of a billion parameters (Q8_0, two cores) a token of a prefix takes 21 ms
-- of CPU time to compute, 0.01 to 0.15 ms to read, and 32 KiB of disk. Within one process it is of use only before there is somebody who waits.

INSERT INTO temp.lm_settings VALUES ('prefix_store', '$TMP/prefixes'), ('salt', 'desk');
CREATE TEMP TABLE one AS SELECT lm_prefill(NULL,
  'You are given a note of an engineer. Say in one word what it is about: weather, food, work, travel, sport or music. Do not explain, '
  || 'and do not repeat the note. If you cannot tell, say so in one word.') AS did;
SELECT did ->> 'tokens' > 64, did ->> 'computed' = did ->> 'tokens', did ->> 'bytes' > 0, did ->> 'place' FROM one;
--> 1|1|1|store
SELECT own_tokens = (SELECT did ->> 'tokens' FROM one) FROM lm_cache WHERE place = 'store';
--> 1

SELECT tokens_stored = (SELECT did ->> 'tokens' FROM one) FROM lm_explain('SELECT generate(''rain all day'',
  ''You are given a note of an engineer. Say in one word what it is about: weather, food, work, travel, sport or music. Do not explain, ''
  || ''and do not repeat the note. If you cannot tell, say so in one word.'')');
--> 1

-- Another process: here, the same model loaded anew. Of the prompt it computes what is its own.
UPDATE temp.lm_settings SET value = 1 WHERE key = 'threads';
SELECT length(generate('rain all day',
  'You are given a note of an engineer. Say in one word what it is about: weather, food, work, travel, sport or music. Do not explain, '
  || 'and do not repeat the note. If you cannot tell, say so in one word.', '{"max_tokens":2}')) >= 0;
--> 1
SELECT tokens_reused = (SELECT did ->> 'tokens' FROM one) FROM lm_stats WHERE phase = 'prefill';
--> 1

-- What is asked for is written, be it a few tokens more.
SELECT did ->> 'computed' BETWEEN 1 AND 40, did ->> 'place' FROM (SELECT lm_prefill('rain all day and all night',
  'You are given a note of an engineer. Say in one word what it is about: weather, food, work, travel, sport or music. Do not explain, '
  || 'and do not repeat the note. If you cannot tell, say so in one word.') AS did);
--> 1|store

-- A prompt of fewer than 64 tokens is not worth a file.
SELECT lm_prefill('rain', 'Be brief.') ->> 'place';
--> memory

-- Once more: there is nothing left to do.
SELECT lm_prefill(NULL,
  'You are given a note of an engineer. Say in one word what it is about: weather, food, work, travel, sport or music. Do not explain, '
  || 'and do not repeat the note. If you cannot tell, say so in one word.') ->> 'computed';
--> 0
SELECT lm_prefill('x', x'00');
--! system must be text

-- The budgets of a statement hold for it, too.
SELECT lm_prefill('rain all day', 'Say in one word what it is about.', '{"max_total_tokens":5}');
--! max_total_tokens = 5 does not reach for another answer
