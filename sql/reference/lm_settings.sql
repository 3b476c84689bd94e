-- temp.lm_settings(key, value, default_value, source)
--
-- This connection's defaults. All keys are always there.
--
-- columns; SELECT * and INSERT without names mean the first two
--   key
--   value          what holds; NULL sets it to the default
--   default_value  what holds where nobody has set it
--   source         lm_settings, default, or database (its own salt)
--
-- keys
--   model       a name of lm_models, or a path
--   threads     of the CPU
--   device      cpu, cuda:0, cuda:0+cuda:1, ...
--   kv_bytes    cap of a model's KV cache
--   kv_type     auto, f16, int16, int8, f32
--   pack_cache  a folder of packed weights, which the next process maps: in lm_models.pack_cache what
--               became of it ($LM_PACK_CACHE; else none)
--   prefix_store        a folder in which prompts' shared beginnings outlive the process (none)
--   prefix_store_bytes  what it may hold: 4 GiB
--   memo        the file that keeps answers
--   memo_bytes  what it may hold: 1 GiB
--   salt        whose prefix cache: the database file's
--   lookahead   'on', 'off': whether generate() looks ahead
--   network     'on', 'off': whether models on the network are asked
--   system      the system prompt of calls that give none
--   max_tokens, temperature, top_k, top_p, min_p, seed, repeat_penalty, thinking, thinking_tokens, on_overflow,
--   on_error, timeout_ms, max_seconds, max_total_tokens, max_cost, speculate     as in the options of a call, which go before them
-- on_error, where it is set here, is that of jobs and of tables of answers (lm_each, lm_query), too, which keep a row's
-- error beside it unless somebody says otherwise ("error" ends them at the first one).
-- A relative path is made absolute when it is set (that of a model where there is such a file); $LM_PACK_CACHE and $LM_MODEL are seen from the working directory in
-- which the process loaded the extension.

SELECT group_concat(key) FROM temp.lm_settings;
--> model,threads,device,kv_bytes,kv_type,pack_cache,prefix_store,prefix_store_bytes,memo,memo_bytes,salt,lookahead,network,system,max_tokens,temperature,top_k,top_p,min_p,seed,repeat_penalty,thinking,thinking_tokens,on_overflow,on_error,timeout_ms,max_seconds,max_total_tokens,max_cost,speculate
SELECT value, default_value, source FROM temp.lm_settings WHERE key = 'max_tokens';
--> 256|256|default
INSERT INTO temp.lm_settings VALUES ('max_tokens', 5);
SELECT lm_try('Tell me a story.') ->> 'tokens_out' <= 5;
--> 1
UPDATE temp.lm_settings SET value = 3 WHERE key = 'max_tokens';
DELETE FROM temp.lm_settings WHERE key = 'max_tokens';
SELECT value FROM temp.lm_settings WHERE key = 'max_tokens';
--> 256

-- What all calls of this connection have in common.
INSERT INTO temp.lm_settings VALUES ('system', 'Say it in one word.'), ('temperature', 0.7), ('seed', 1);
SELECT lm_render('rain all day') = lm_render('rain all day', 'Say it in one word.');
--> 1
SELECT key, value, source FROM temp.lm_settings WHERE source = 'lm_settings';
--> system|Say it in one word.|lm_settings
--> temperature|0.7|lm_settings
--> seed|1|lm_settings
DELETE FROM temp.lm_settings;
SELECT generate('Hello', NULL, '{"threads":2}');
--! 'threads' is a setting of the connection, no option of a call

-- A cache of int8 holds twice the tokens in the same bytes.
INSERT INTO temp.lm_settings VALUES ('kv_type', 'int8');
SELECT typeof(generate('Hello', NULL, '{"max_tokens":2}'));
--> text
SELECT lm_debug() ->> '$.engines[#-1].kv_type';
--> int8
INSERT INTO temp.lm_settings VALUES ('kv_type', 'int4');
--! kv_type must be 'auto', 'f16', 'int16', 'int8' or 'f32', got 'int4'

-- What was computed of prompts that begin alike is there for the next process, too. It is stored once it was used twice, for this database
-- file's connections (or those with this salt), and found by the same model with the same kv_type.
INSERT INTO temp.lm_settings VALUES ('prefix_store', '$TMP/prefixes'), ('salt', 'docs'), ('kv_type', 'f16');
CREATE TEMP TABLE told AS
  SELECT value FROM lm_each('["rain all day", "a new bicycle", "soup again"]',
    'You are given a note. Say in one word what it is about: weather, food or sport. '
    || 'Do not explain, and do not repeat the note. If it is none of them, say other.', '{"max_tokens":2,"cache":false}');
SELECT DISTINCT speculation, prefix_store FROM lm_stats WHERE prefix_store IS NOT NULL AND phase = 'decode';
--~ ^on\|[01] prefix
INSERT INTO temp.lm_settings VALUES ('max_token', 5);
--! unknown key 'max_token'
