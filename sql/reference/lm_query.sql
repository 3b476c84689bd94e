-- lm_query(select_sql [, options])  ->  id, value, error, finish, tokens_in, tokens_cached, tokens_out
--
-- Reads the rows of a SELECT id, prompt [, system], and answers them together, in its order.
--
-- columns
--   id             what the SELECT gave
--   value          the answer; NULL where the prompt is NULL, or failed
--   error          why it failed; else NULL
--   finish         stop (the model ended, or a stop string came), length (max_tokens), context (full), error
--   tokens_in      of the prompt
--   tokens_cached  of these found in the prefix cache
--   tokens_out     of the answer
--
-- options are those of generate(), and
--   order          "query" (the default): rows come in its order; "finished": each as soon as it is done

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews VALUES (11, 'it flies'), (12, NULL), (15, 'it tore');

SELECT id, value IS NOT NULL, error
  FROM lm_query('SELECT id, body, ''Label the review.'' FROM reviews', '{"max_tokens":4}');
--> 11|1|NULL
--> 12|0|NULL
--> 15|1|NULL

-- "order": "finished" gives each row as soon as it is done. Its rowid is its number in the SELECT, from 0 on.
SELECT count(value) FROM lm_query('SELECT id, body FROM reviews', '{"max_tokens":4,"order":"finished"}');
--> 2

-- SQLite scans the right side of a LEFT JOIN, or a subquery, for each row around it: with the same arguments
-- that is asked about once, and has for the whole statement the rows that it had at first (even where an UPDATE
-- writes what it reads; what another statement or a trigger of the connection writes in between, it reads anew).
SELECT reviews.id, q.value IS NOT NULL
  FROM reviews LEFT JOIN lm_query('SELECT id, body FROM reviews WHERE id > 11', '{"max_tokens":4}') q ON q.id = reviews.id;
--> 11|0
--> 12|0
--> 15|1

-- So up to 16 MiB of answers. More are asked about for each row again, and only the memo knows them. A
-- MATERIALIZED CTE has them once, however many, and with an id of a type SQLite builds an index over it.
WITH q AS MATERIALIZED (SELECT CAST(id AS INTEGER) AS id, value FROM lm_query('SELECT id, body FROM reviews WHERE id > 11', '{"max_tokens":4}'))
SELECT reviews.id, q.value IS NOT NULL FROM reviews LEFT JOIN q ON q.id = reviews.id;
--> 11|0
--> 12|0
--> 15|1

-- It only reads.
SELECT * FROM lm_query('DELETE FROM reviews RETURNING id, body');
--! it begins with DELETE
