-- lm_query(select_sql [, options])  ->  id, value, error, finish, tokens_in, tokens_cached, tokens_out
--
-- Reads the rows of a SELECT id, prompt [, system], and answers them together, in its order.

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews VALUES (11, 'it flies'), (12, NULL), (15, 'it tore');

SELECT id, value IS NOT NULL, error
  FROM lm_query('SELECT id, body, ''Label the review.'' FROM reviews', '{"max_tokens":4}');
--> 11|1|NULL
--> 12|0|NULL
--> 15|1|NULL

-- "order": "finished" gives each row as soon as it is done.
SELECT count(value) FROM lm_query('SELECT id, body FROM reviews', '{"max_tokens":4,"order":"finished"}');
--> 2

-- It only reads.
SELECT * FROM lm_query('DELETE FROM reviews RETURNING id, body');
--! it begins with DELETE
