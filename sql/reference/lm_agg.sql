-- lm_agg(text, instruction [, options])  ->  TEXT, an aggregate
--
-- Carries out an instruction over all rows of a group, however many there are. The rows are one text, a blank line
-- apart; as soon as there is more of it than fits the model's context, that part is under way while SQLite reads
-- further rows. The answers about parts are combined in as many rounds as it takes. Nothing is left out. Where another
-- column of the statement fails, json(j) in the last row say, the group's answer is asked for all the same, and dropped:
-- check such columns first.
--
-- options are those of generate(), and
--   combine       what to do with the answers about parts, instead of the wording that comes with sqlite-lm
--   part_tokens   the most tokens of the text in a part, where that is to be less than what fits

CREATE TEMP TABLE reviews(product TEXT, body TEXT);
WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 200)
  INSERT INTO reviews SELECT CASE n % 2 WHEN 0 THEN 'kettle' ELSE 'lamp' END, 'Review ' || n || ': it broke on day ' || n || '.' FROM n;

SELECT product, typeof(lm_agg(body, 'What do buyers complain about most?', '{"max_tokens":8}')) FROM reviews GROUP BY product;
--> kettle|text
--> lamp|text

-- The order of the rows is that of the scan; a subquery says which.
SELECT typeof(lm_agg(body, 'What changed over time?', '{"max_tokens":8}')) FROM (SELECT body FROM reviews ORDER BY rowid DESC);
--> text

-- Few rows are one prompt.
SELECT lm_agg(x, 'Name a colour.', '{"max_tokens":4}') = generate('a' || char(10, 10) || 'b', 'Name a colour.', '{"max_tokens":4}')
  FROM (SELECT 'a' AS x UNION ALL SELECT NULL UNION ALL SELECT 'b');
--> 1

-- NULLs are passed over; without other rows there is no answer.
SELECT lm_agg(body, 'Summarise.') IS NULL FROM reviews WHERE product = 'anvil';
--> 1

-- A row that is no text fails its group, as on_error says.
SELECT lm_agg(column1, 'Summarise.') FROM (VALUES ('a'), (x'00'), ('b'));
--! row 2: text must be text, got a BLOB of 1 bytes
SELECT lm_agg(column1, 'Summarise.', '{"on_error":"null"}') IS NULL FROM (VALUES ('a'), (x'00'), ('b'));
--> 1
SELECT lm_agg(column1, column1) FROM (VALUES ('a'), ('b'));
--! row 2: instruction must be the same in all rows of a group
SELECT lm_agg(body, 'Summarise.') OVER () FROM reviews;
--! may not be used as a window function
