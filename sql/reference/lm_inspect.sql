-- lm_inspect(path [, tokens])
--   ->  name, family, parameters, bytes, types, context, layers, hidden, vocabulary, tokenizer, template,
--       kv_bytes_per_token, state_bytes, memory_1, memory_16, memory_64, problem, note
--
-- What a model file, or a Hugging Face directory, holds and what it takes to run it. Nothing is loaded.

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
SELECT * FROM lm_inspect('/no/such/model.gguf');
--! /no/such/model.gguf
