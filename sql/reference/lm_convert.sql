-- lm_convert(source, destination, type [, options])  ->  JSON
--
-- A model, a GGUF file or a Hugging Face directory, as a GGUF file of type F32, F16, BF16, Q8_0, Q6_K, Q4_0 or Q4_K_M.
--
-- options
--   texts       an array: of these the perplexity before and after
--   importance  an array of other texts: what they multiply much is made more exact
--   threads     0: all that this process may use
--
-- The object has tensors, source_bytes and bytes; of texts perplexity_before and perplexity_after.

WITH made(report) AS MATERIALIZED (SELECT lm_convert('$MODELS/qwen3-f32.gguf', '$TMP/small.gguf', 'Q8_0'))
  SELECT report ->> 'tensors' > 20, report ->> 'bytes' < report ->> 'source_bytes' FROM made;
--> 1|1

-- What it costs: the perplexity of texts of one's own, before and after. The less the better.
CREATE TEMP TABLE notes(body TEXT);
INSERT INTO notes VALUES ('Rain in May'), ('A new bicycle for two');
WITH made(report) AS MATERIALIZED (
  SELECT lm_convert('$MODELS/qwen3-f32.gguf', '$TMP/smaller.gguf', 'Q4_0', json_object('texts', json_group_array(body))) FROM notes)
  SELECT (report ->> 'perplexity_after') / (report ->> 'perplexity_before') BETWEEN 0.8 AND 1.25 FROM made;
--> 1

-- Other texts of that kind say which weights must be exact (an "importance matrix").
WITH made(report) AS MATERIALIZED (
  SELECT lm_convert('$MODELS/qwen3-f32.gguf', '$TMP/better.gguf', 'Q4_0', json_object('importance', json_group_array(body))) FROM notes)
  SELECT report ->> 'bytes' > 0 FROM made;
--> 1

SELECT family, problem FROM lm_inspect('$TMP/small.gguf');
--> qwen3|NULL

-- An adapter is used as it is.
SELECT lm_convert('$MODELS/llama-q8_0-lora-1.gguf', '$TMP/adapter.gguf', 'Q4_0');
--! llama-q8_0-lora-1.gguf.*an adapter \(LoRA\) of a model, and none itself

-- A source that somebody writes over or replaces meanwhile is an error, and leaves no file.
--
-- Nothing is written over, neither the file nor what is its name and '.part' until it is complete: one that a conversion has left which was
-- killed is to be deleted by hand.
SELECT lm_convert('$MODELS/qwen3-f32.gguf', '$TMP/small.gguf', 'F16');
--! exists, and is not written over
