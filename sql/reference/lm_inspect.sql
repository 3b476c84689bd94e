-- lm_inspect(path [, tokens])
--   ->  name, family, parameters, bytes, types, context, layers, hidden, vocabulary, tokenizer, template,
--       kv_bytes_per_token, state_bytes, memory_1, memory_16, memory_64, problem, note
--
-- What a model file, or a Hugging Face directory, holds and what it takes to run it. Nothing is loaded. A name of
-- lm_models will do as well, and hf:owner/name:quantisation of what has been downloaded.
--
-- columns
--   name                what the file calls its model
--   family              its architecture, general.architecture
--   parameters          how many
--   bytes               of the file, or files
--   types               JSON: the bytes of the tensors of each type
--   context             tokens that it was trained for
--   layers, hidden      how many, and how wide
--   vocabulary          tokens that it knows
--   tokenizer           the kind, as tokenizer.ggml.model has it
--   template            what people call its chat template (chatml, llama3, ...; jinja for any other); NULL: it reads the plain prompt
--   kv_bytes_per_token  of the cache, for each token of a row's prompt and answer that it shares with no other
--   state_bytes         for each row of a recurrent model
--   memory_1, memory_16, memory_64   bytes of weights, and of the cache for so many rows of `tokens` tokens (2048, or the context where that
--                       is less) that share nothing: what they need to run together
--   problem             why it cannot run (the file of a vocabulary alone has no weights); NULL: nothing in its keys is against it
--   note                what of the file is left out, as images' and sounds' parts are; else NULL
-- Keys and values are those of lm_settings' kv_type and device.

-- Its family and size, and that nothing keeps it from running.
SELECT family, parameters > 0, context >= 512, layers > 0, template, problem
  FROM lm_inspect((SELECT path FROM temp.lm_models WHERE name = 'default'));
--> llama|1|1|1|chatml|NULL

-- Which types its tensors have, by bytes.
SELECT key, value > 0
  FROM lm_inspect((SELECT path FROM temp.lm_models WHERE name = 'default')) AS model, json_each(model.types);
--> Q8_0|1
--> F32|1

-- Memory for 1, 16 and 64 rows of 500 tokens that share nothing: weights and cache.
SELECT memory_1 < memory_16, (memory_64 - memory_16) / 48 = 512 * kv_bytes_per_token
  FROM lm_inspect((SELECT path FROM temp.lm_models WHERE name = 'default'), 500);
--> 1|1

SELECT * FROM lm_inspect((SELECT path FROM temp.lm_models WHERE name = 'default'), 3000000000);
--! tokens must be from 1 to 2147483647, got 3000000000
SELECT memory_1 < memory_64, memory_1 > 2147483647 * kv_bytes_per_token
  FROM lm_inspect((SELECT path FROM temp.lm_models WHERE name = 'default'), 2147483647);
--> 1|1
SELECT family, memory_16 > memory_1 FROM lm_inspect('default');
--> llama|1
SELECT * FROM lm_inspect('hf:nobody/never-downloaded:Q8_0');
--! is not downloaded yet: INSERT INTO temp.lm_models\(name, path\) VALUES \('default', 'hf:nobody/never-downloaded:Q8_0'\) does that
SELECT * FROM lm_inspect('/no/such/model.gguf');
--! /no/such/model.gguf
