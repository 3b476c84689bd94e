-- lm_requests: the last finished requests of this database, one row each, with their timings
--
-- The last 1,000 of each model that runs here, without any text; other databases' are not shown (those of another `salt`, see lm_settings).
--
-- columns
--   model          its name in this connection, else its path
--   request        the model's number of it
--   kind           generate, stream, score (lm_logprobs), embed
--   submitted      when (UTC); all times below begin then
--   finish         stop, length, context, error, cancelled (nobody wanted it any more: after an interrupt, or as a guess about a row that a
--                  LIMIT leaves out)
--   error          which; else NULL
--   tokens_in      of the prompt
--   tokens_cached  of these found in the prefix cache
--   tokens_out     of the answer
--   queued_ms      until the engine began
--   ttft_ms        until the first token of the answer
--   itl_ms         between two tokens, on average
--   total_ms       until the end

SELECT count(*) FROM lm_requests;
--> 0
CREATE TEMP TABLE answers AS
  SELECT value, error FROM lm_each('["rain all day", "a new bicycle"]', 'Say it in one word.', '{"max_tokens":4}');
SELECT kind, finish IN ('stop', 'length'), tokens_out <= 4, queued_ms <= ttft_ms, ttft_ms <= total_ms FROM lm_requests;
--> generate|1|1|1|1
--> generate|1|1|1|1

-- The slowest to start.
SELECT count(*) FROM (SELECT request, ttft_ms FROM lm_requests ORDER BY ttft_ms DESC LIMIT 1);
--> 1
-- What failed, and how often.
SELECT error, count(*) FROM lm_requests WHERE finish = 'error' GROUP BY error;
--0
