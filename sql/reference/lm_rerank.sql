-- lm_rerank(query, text [, options])  ->  REAL
--
-- How well a text answers a query, by a model that is made for it (bge-reranker, Qwen3-Reranker, ...): the
-- higher the better. For the best of what an index or a vector search has found.
--
-- options (beside them model, timeout_ms, on_error and on_overflow, as in generate())
--   normalize   false (the default): the score as it is; true: from 0 to 1, for models whose scores are any numbers
INSERT INTO temp.lm_models(name, path) VALUES ('reranker', '$MODELS/bert-rerank-f32.gguf');

CREATE TEMP TABLE found(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO found(body) VALUES ('Rain in May'), ('A new bicycle'), ('Rain in May'), (NULL);
SELECT count(*), count(DISTINCT score) FROM (SELECT lm_rerank('rain', body, '{"model":"reranker"}') AS score FROM found);
--> 4|2

SELECT lm_rerank('rain', 'Rain in May', '{"model":"reranker","normalize":true}') BETWEEN 0 AND 1;
--> 1

-- Other models have no such scores; lm_score asks them. (A reranker whose file does not say what it is: the option
-- {"pooling":"rank"} in lm_models.)
SELECT lm_rerank('rain', 'Rain in May');
--! ranks no texts: it is not a reranker
