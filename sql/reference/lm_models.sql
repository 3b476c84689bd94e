-- temp.lm_models(name, path, options, architecture, parameters, quantisation, context, device, bytes, status, constraints, pack_cache,
--                device_reason)
--
-- The models of this connection, by name. A row is checked when it is written and loaded at its first use.
--
-- columns; SELECT * and INSERT without names mean the first two
--   name           for {"model":"..."}; 'default' answers where a call names nobody
--   path           a GGUF file, a directory of Hugging Face's, hf:owner/name:quantisation, a server's address or a JSON array of several;
--                  "~/" is the folder that HOME names
--   options        JSON: how it is loaded (below, and sql/guide/settings.md), or how the server is spoken to (sql/guide/remote.md)
-- these are read only, and NULL until the model is in use:
--   architecture   its family
--   parameters     how many
--   quantisation   the type that most bytes of its weights have
--   context        tokens: the longest prompt and answer together
--   device         where it runs
--   device_reason  why not on the GPU that there is; NULL: nothing is to be said
--   bytes          of its weights, adapters included
--   pack_cache     what became of lm_settings('pack_cache'): written, mapped, read (where the system does not promise to keep it), or why it
--                  was of no use
--   status         ready; or why a server did not answer when the row was written
--   constraints    of a server, JSON: for each kind kept, or why it is not believed, or null while nothing is known
--
-- options of a model: sql/guide/settings.md has them all. Below are those that want an example.

INSERT INTO temp.lm_models(name, path) VALUES ('small', '$MODEL');
SELECT name, architecture FROM temp.lm_models WHERE name = 'small';
--> small|NULL
SELECT typeof(generate('Hello', NULL, '{"model":"small","max_tokens":2}'));
--> text
SELECT name, architecture, quantisation, device FROM temp.lm_models WHERE name = 'small';
--> small|llama|Q8_0|cpu

-- INSERT OR REPLACE says anew what a name means (SQLite has no UPSERT for virtual tables).
INSERT OR REPLACE INTO temp.lm_models(name, path) VALUES ('small', '$MODEL');
INSERT INTO temp.lm_models(name, path) VALUES ('small', '$MODEL') ON CONFLICT(name) DO UPDATE SET path = excluded.path;
--! UPSERT not implemented for virtual table "lm_models"

-- How it is loaded: device, threads, kv_bytes and kv_type (of the KV cache), context_length,
-- pack_cache, prefix_store (as in lm_settings).
UPDATE temp.lm_models SET options = '{"threads":1,"context_length":64}' WHERE name = 'small';
SELECT typeof(generate('Hello', NULL, '{"model":"small","max_tokens":2}'));
--> text
SELECT context FROM temp.lm_models WHERE name = 'small';
--> 64

-- draft: a smaller model of the same vocabulary, from its folder where the path is not absolute. What it guesses is checked several
-- tokens at a time, where that is quicker; answers are the same.
INSERT INTO temp.lm_models(name, path, options) VALUES ('helped', '$MODELS/llama-q6_k.gguf', '{"draft":"llama-q2_k.gguf"}'), ('alone', '$MODELS/llama-q6_k.gguf', '');
SELECT generate('Hello', NULL, '{"model":"helped","max_tokens":20,"speculate":"always"}') = generate('Hello', NULL, '{"model":"alone","max_tokens":20}');
--> 1
SELECT speculation LIKE 'on, with %', drafted > 0 FROM lm_stats WHERE model = 'helped' AND phase = 'decode';
--> 1|1
INSERT INTO temp.lm_models(name, path, options) VALUES ('mistaken', '$MODELS/llama-q6_k.gguf', '{"draft":"$MODELS/qwen2-q4_0.gguf"}');
SELECT generate('Hello', NULL, '{"model":"mistaken"}');
--! draft model .* cannot guess for
DELETE FROM temp.lm_models WHERE name IN ('helped', 'alone', 'mistaken');

-- mtp: a file that has a layer for multi-token prediction (nextn_predict_layers: Qwen3.5 and 3.6, Qwen3-Next, GLM-4.5, DeepSeek-V3) guesses
-- with that, where it has no draft. false: it is not loaded.
INSERT INTO temp.lm_models(name, path, options) VALUES ('guesses', '$MODELS/glm4moe-mtp-f32.gguf', ''),
                                                       ('plain', '$MODELS/glm4moe-mtp-f32.gguf', '{"mtp":false}');
SELECT generate('Hello', NULL, '{"model":"guesses","max_tokens":20,"speculate":"always"}') = generate('Hello', NULL, '{"model":"plain","max_tokens":20}');
--> 1
SELECT speculation, drafted > 0 FROM lm_stats WHERE model = 'guesses' AND phase = 'decode';
--> on, with its own layer|1
DELETE FROM temp.lm_models WHERE name IN ('guesses', 'plain');

-- lora: adapters (LoRA, as GGUF) over the model's weights, from its folder where the path is not
-- absolute. A call chooses some of them; one that says nothing of lora has each at its `scale` here (1, or
-- 0: not unless it is named). Rows with different adapters decode together.
INSERT INTO temp.lm_models(name, path, options) VALUES ('adapted', '$MODELS/llama-q8_0.gguf',
  '{"lora":[{"name":"terse","path":"llama-q8_0-lora-1.gguf","scale":0},{"name":"rude","path":"llama-q8_0-lora-2.gguf","scale":0.5}]}');
SELECT count(DISTINCT generate('Hello', NULL, json_object('model', 'adapted', 'max_tokens', 8, 'lora', json(value))))
  FROM json_each('["[]","[{\"name\":\"terse\"}]","[{\"name\":\"rude\",\"scale\":2}]","[{\"name\":\"terse\"},{\"name\":\"rude\"}]"]');
--> 4
SELECT generate('Hello', NULL, '{"model":"adapted","lora":[]}') = generate('Hello', NULL, '{"model":"$MODELS/llama-q8_0.gguf"}'),
       generate('Hello', NULL, '{"model":"adapted"}') = generate('Hello', NULL, '{"model":"adapted","lora":[{"name":"rude","scale":0.5}]}');
--> 1|1
SELECT generate('Hello', NULL, '{"model":"adapted","lora":[{"name":"polite"}]}');
--! has no adapter named 'polite' \(its options in lm_models have 'terse', 'rude'\)

-- pooling: what the model is for, where its file is wrong about it or says nothing: "mean", "last", "cls" (as in lm_embed) or
-- "rank": a reranker, for lm_rerank. (An encoder with a classifier of one label is one without a word.) Of a model on a server "rank"
-- alone: lm_rank and lm_top_k take its scores, too.
INSERT INTO temp.lm_models(name, path, options) VALUES ('embeds', '$MODELS/bert-rerank-f32.gguf', '{"pooling":"mean"}'),
                                                       ('ranks', '$MODELS/bert-rerank-f32.gguf', '{"pooling":"rank"}');
SELECT length(lm_embed('rain', '{"model":"embeds"}')) > 0, typeof(lm_rerank('rain', 'Rain in May', '{"model":"ranks"}'));
--> 1|real
SELECT lm_rerank('rain', 'Rain in May', '{"model":"embeds"}');
--! ranks no texts

-- chat_template: Jinja, or a file of it (from the model's folder where the path is not absolute), in the place of the file's own. A model
-- whose own cannot be followed needs it to generate, and for nothing else.
INSERT INTO temp.lm_models(name, path, options) VALUES ('spoken_to', '$MODEL',
  '{"chat_template":"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"}');
SELECT lm_render('Hello', 'Be brief.', '{"model":"spoken_to"}');
--> <system>Be brief.<user>Hello<assistant>
INSERT INTO temp.lm_models(name, path, options) VALUES ('misspelled', '$MODEL', '{"chat_template":"{% if %}"}');
SELECT lm_render('Hello', NULL, '{"model":"misspelled"}');
--! chat template, which begins .* is not supported
SELECT lm_token_count('Hello', '{"model":"misspelled"}') > 0;
--> 1
-- No text is lost to a template. One that drops a system prompt gets it in front of the prompt; where no form helps, that is an error.
INSERT INTO temp.lm_models(name, path, options) VALUES ('users_only', '$MODEL',
  '{"chat_template":"{% for m in messages if m.role == \"user\" %}<{{ m.content }}>{% endfor %}"}');
SELECT lm_render('Hello', 'Be brief.', '{"model":"users_only"}');
--> <Be brief.\n\nHello>
SELECT lm_render('[{"role":"user","content":"Hello"},{"role":"tool","content":"7"}]', NULL, '{"model":"users_only","messages":true}');
--! the model's chat template leaves out what message 2 of 2 says \(role 'tool'\)

-- thinking_marks: what begins and what ends the model's reasoning, where neither its tokens nor its template tell; [] for none. Where a
-- template begins it, an answer with a constraint comes behind its end.
INSERT INTO temp.lm_models(name, path, options) VALUES ('reasons', '$MODEL',
  '{"chat_template":"{{ messages[0].content }} <why>","thinking_marks":["<why>","</why>"]}');
SELECT lm_render('Hello', NULL, '{"model":"reasons","choices":["yes","no"]}');
--> Hello <why></why>
DELETE FROM temp.lm_models WHERE name IN ('reasons', 'users_only', 'embeds', 'ranks', 'spoken_to', 'misspelled');

-- The model of those who name none is 'default': a row of that name, else $LM_MODEL, else the model
-- that ships beside the library. {"model":"/path/to/file.gguf"} needs no row at all.
INSERT INTO temp.lm_models(name, path) VALUES ('default', '$MODEL');
SELECT typeof(generate('Hello', NULL, '{"max_tokens":2}'));
--> text

-- A model elsewhere: the address of a server of OpenAI's API (vLLM, SGLang, llama-server, Ollama, ...).
-- Writing the row sends nothing, unless its options have "check":true: then the server is asked for its models, and whether
-- it keeps to each kind of constraint. `constraints` shows it ({"choices":"kept",...}), and `status` why a server did not answer.
INSERT INTO temp.lm_models(name, path, options) VALUES ('fleet', 'http://127.0.0.1:8000/v1', '{"model":"Qwen3-32B","concurrency":64}');
-- dialect: what the server adds to that API, and how it takes constraints: vllm, sglang, llama-server, trtllm, ollama or openai; unless it
-- is given, as the server's list of models tells. openai, or an address of api.openai.com or *.openai.azure.com: max_completion_tokens
-- is sent and not max_tokens, and a temperature only where a call names one, for the models that reason refuse any.
-- extra: members of every request, over ours; null takes one of ours away. (Where a server refuses seed or stream_options it is asked
-- again without them, and from then on.)
INSERT INTO temp.lm_models(name, path, options) VALUES
  ('thinks', 'https://api.openai.com/v1', '{"model":"gpt-5-mini","key_env":"OPENAI_API_KEY","extra":{"reasoning_effort":"low"}}'),
  ('plain', 'http://127.0.0.1:8000/v1', '{"dialect":"vllm","extra":{"temperature":null,"seed":null}}');
-- A server that sends reasoning within its answers: what stands before </think> is no part of the answer, whether <think> came or its
-- template has begun with it. (lm_stream shows pieces as they come, and in the second case those of the reasoning, too; a server
-- that is started with its reasoning parser sends them apart.)
INSERT INTO temp.lm_settings VALUES ('network', 'off');
SELECT generate('Hello', NULL, '{"model":"fleet"}');
--! the model 'fleet' is on the network, and lm_settings has network 'off'
DELETE FROM temp.lm_settings WHERE key = 'network';
DELETE FROM temp.lm_models WHERE name IN ('thinks', 'plain');

INSERT INTO temp.lm_models(name, path) VALUES ('typo', '/no/such/file.gguf');
--! /no/such/file.gguf
DELETE FROM temp.lm_models WHERE name = 'small';
SELECT generate('Hello', NULL, '{"model":"small"}');
--! there is no model named 'small'
