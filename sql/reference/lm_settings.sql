-- temp.lm_settings(key, value)
--
-- This connection's defaults. All keys are always there; NULL is the default.
--   model       a name of lm_models, or a path      threads     of the CPU
--   device      cpu                                 kv_bytes    cap of a model's KV cache
--   max_tokens  of an answer: 256                   salt        whose prefix cache: the database file's
--   memo        the file that keeps answers         lookahead   'on', 'off': whether generate() looks ahead

SELECT group_concat(key) FROM temp.lm_settings;
--> model,threads,device,kv_bytes,max_tokens,memo,salt,lookahead
INSERT INTO temp.lm_settings VALUES ('max_tokens', 5);
SELECT lm_try('Tell me a story.') ->> 'tokens_out' <= 5;
--> 1
UPDATE temp.lm_settings SET value = 3 WHERE key = 'max_tokens';
DELETE FROM temp.lm_settings WHERE key = 'max_tokens';
SELECT value FROM temp.lm_settings WHERE key = 'max_tokens';
--> NULL
INSERT INTO temp.lm_settings VALUES ('max_token', 5);
--! unknown key 'max_token'
