-- lm_downloads(source, path, bytes, total, resumed, state, error, began, seconds)
--
-- The models that this process downloads, or has downloaded: a row for each file, the oldest first, to be read from another connection
-- while the INSERT runs.
--   INSERT INTO temp.lm_models(name, path) VALUES ('qwen', 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0');
--
-- columns
--   source    what was asked for
--   path      where the file will be, or is
--   bytes     that are there
--   total     that there will be; NULL while it is not known
--   resumed   those of bytes that were there before
--   state     waiting (for another process that downloads it), running, done, failed
--   error     why it failed; else NULL
--   began     when (UTC)
--   seconds   since, or until its end

SELECT count(*) FROM lm_downloads;
--> 0
-- Where the network is off, the error has the command that brings the model another way.
--@ env LM_CACHE=$TMP/cache
INSERT INTO temp.lm_settings VALUES ('network', 'off');
INSERT INTO temp.lm_models(name, path) VALUES ('qwen', 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0');
--! network 'off'; another way to have it: hf download Qwen/Qwen3-0.6B-GGUF --revision main --include '\*Q8_0\*'
INSERT INTO temp.lm_models(name, path) VALUES ('qwen', 'hf:Qwen3');
--! must be hf:owner/name, hf:owner/name:Q8_0 or hf:owner/name:file.gguf
