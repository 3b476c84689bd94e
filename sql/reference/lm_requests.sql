-- lm_requests: the last finished requests of this database, one row each, with their timings
--
-- queued_ms until the engine began, ttft_ms until the first token, itl_ms between tokens, total_ms
-- until the end. No text is kept; other databases' requests are not shown.

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
