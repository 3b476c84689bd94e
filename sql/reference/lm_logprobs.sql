-- lm_logprobs(text [, options])  ->  JSON array
--
-- The natural logarithm of each token's probability given those before it; the first is null. One
-- number for each token of lm_tokenize(text). Rows are computed one after the other, and not remembered.

SELECT json_array_length(lm_logprobs('The quick brown fox')) = lm_token_count('The quick brown fox');
--> 1
SELECT max(value) <= 0, count(*) - count(value) FROM json_each(lm_logprobs('The quick brown fox'));
--> 1|1

-- Which rows are what the model expects? The nearer to 0, the more. (exp(-mean) is the perplexity.)
CREATE TEMP TABLE sentences(text TEXT);
INSERT INTO sentences VALUES ('The cat sat on the mat.'), ('Mat the on sat cat the.');
SELECT text, (SELECT avg(value) FROM json_each(lm_logprobs(text))) < 0 AS mean_logprob FROM sentences;
--> The cat sat on the mat.|1
--> Mat the on sat cat the.|1

-- Of the options those that matter without an answer: model, timeout_ms, on_error, on_overflow (of a text that is cut, the numbers are
-- those of the tokens that are left), the statement's budgets.
SELECT lm_logprobs('', '{"on_error":"null"}');
--> NULL
SELECT lm_logprobs('The quick brown fox', '{"max_total_tokens":2}');
--! max_total_tokens = 2 does not reach for another answer
SELECT lm_logprobs('The quick brown fox', '{"temperature":1}');
--! option 'temperature' is for answers that are generated, and here none is
