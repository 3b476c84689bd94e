-- lm_summarize_agg(text [, options])  ->  TEXT, an aggregate
--
-- What the rows of a group say, in short: lm_agg() with the instruction of lm_summarize(). What fails beside it, fails late: see there.
--
-- options are those of generate(), and
--   instruction   instead of 'Summarise the text.'
--   combine       what to do with the answers about parts, instead of the wording that comes with sqlite-lm
--   part_tokens   the most tokens of the text in a part, where that is to be less than what fits

CREATE TEMP TABLE log(day INTEGER, line TEXT);
WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 300)
  INSERT INTO log SELECT n / 100, 'At ' || n || ' the pump was switched off.' FROM n;

SELECT day, typeof(lm_summarize_agg(line, '{"max_tokens":8}')) FROM log GROUP BY day HAVING count(*) > 1;
--> 0|text
--> 1|text
--> 2|text

-- All rows of a group are one text. Groups are asked about one after the other; many small ones decode together where that text is
-- made first, as it is here on the right.
SELECT lm_summarize_agg(line, '{"max_tokens":8}') = lm_summarize(group_concat(line, char(10, 10)), '{"max_tokens":8}')
  FROM (SELECT line FROM log LIMIT 3);
--> 1

SELECT lm_summarize_agg(line, '{"instruction":"Which pump?","max_tokens":4}') IS NOT NULL FROM log WHERE day = 2;
--> 1
