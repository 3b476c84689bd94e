-- lm_prefetch(prompt [, system [, options]])  ->  aggregate, INTEGER: rows that have an answer now
--
-- Of no rows 0. Generates all rows together into the memo. The plain UPDATE that follows finds its answers there: it
-- generates nothing, and holds its write lock for milliseconds. lm_prefetch itself keeps others from writing only without
-- PRAGMA journal_mode = WAL and where it reads a table of the file, and not a copy in a TEMP one.
--
-- In memory the memo has room for 64 MiB, some 60,000 to 90,000 short answers. Of more rows those of the first ones stay;
-- the others are forgotten again and not counted, lm_stats.hint says how many they are, and the UPDATE generates them.
-- INSERT INTO temp.lm_settings VALUES ('memo', 'memo.db'), before, keeps all of them in a file.

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT, label TEXT);
INSERT INTO reviews(body) VALUES ('it flies'), ('it tore'), ('it leaks');

SELECT lm_prefetch(body, 'Label the review.', '{"max_tokens":4}') FROM reviews WHERE label IS NULL;
--> 3
UPDATE reviews SET label = generate(body, 'Label the review.', '{"max_tokens":4}') WHERE label IS NULL;
SELECT count(label) FROM reviews;
--> 3
SELECT requests FROM lm_stats WHERE phase = 'decode';
--> 3

-- What is not remembered cannot be fetched ahead.
SELECT lm_prefetch(body, NULL, '{"cache":false}') FROM reviews;
--! nothing would be remembered
