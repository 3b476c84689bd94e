-- lm_map(prompt [, system [, options]]) OVER (ROWS BETWEEN CURRENT ROW AND n FOLLOWING)  ->  TEXT
--
-- generate() as a window function: SQLite steps n rows ahead of the current one, so that up to n + 1
-- rows decode together. Each row gets its own answer, the same one that generate() gives.

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, product TEXT, body TEXT);
INSERT INTO reviews(product, body) VALUES ('kite', 'it flies'), ('kite', 'it tore'), ('mug', 'it leaks'), ('mug', NULL);

SELECT id, lm_map(body, 'Label the review.', '{"max_tokens":4}') OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING) IS NOT NULL
  FROM reviews;
--> 1|1
--> 2|1
--> 3|1
--> 4|0

-- ORDER BY what rows have in common keeps those together that share the beginning of their prompts.
SELECT id, lm_map('About a ' || product || ': ' || body, 'Label the review.', '{"max_tokens":4}')
             OVER (ORDER BY product ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING) IS NOT NULL
  FROM reviews WHERE body IS NOT NULL ORDER BY id;
--> 1|1
--> 2|1
--> 3|1

-- A frame in which a row would get the answers of others is an error.
SELECT lm_map(body) OVER (ORDER BY id) FROM reviews;
--! write lm_map\(...\) OVER \(ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING\)
-- So is EXCLUDE, in any form.
SELECT lm_map(body) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING EXCLUDE GROUP) FROM reviews;
--! write lm_map\(...\) OVER \(ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING\)
