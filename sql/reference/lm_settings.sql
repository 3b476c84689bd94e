-- temp.lm_settings(key, value)
--
-- This connection's defaults. All keys are always there; NULL is the default.
--   model       a name of lm_models, or a path      threads     of the CPU
--   device      cpu                                 max_tokens  of an answer: 256
--   kv_bytes    cap of a model's KV cache           kv_type     of its values: f16, int8, f32
--   memo        the file that keeps answers         memo_bytes  what it may hold: 1 GiB
--   salt        whose prefix cache: the database file's
--   lookahead   'on', 'off': whether generate() looks ahead

SELECT group_concat(key) FROM temp.lm_settings;
--> model,threads,device,kv_bytes,kv_type,max_tokens,memo,memo_bytes,salt,lookahead
INSERT INTO temp.lm_settings VALUES ('max_tokens', 5);
SELECT lm_try('Tell me a story.') ->> 'tokens_out' <= 5;
--> 1
UPDATE temp.lm_settings SET value = 3 WHERE key = 'max_tokens';
DELETE FROM temp.lm_settings WHERE key = 'max_tokens';
SELECT value FROM temp.lm_settings WHERE key = 'max_tokens';
--> NULL

-- A cache of int8 holds twice the tokens in the same bytes.
INSERT INTO temp.lm_settings VALUES ('kv_type', 'int8');
SELECT typeof(generate('Hello', NULL, '{"max_tokens":2}'));
--> text
SELECT lm_debug() ->> '$.engines[#-1].kv_type';
--> int8
INSERT INTO temp.lm_settings VALUES ('kv_type', 'int4');
--! kv_type must be 'f16', 'int8' or 'f32', got 'int4'
INSERT INTO temp.lm_settings VALUES ('max_token', 5);
--! unknown key 'max_token'
