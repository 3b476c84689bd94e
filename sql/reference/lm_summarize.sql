-- lm_summarize(text [, options])  ->  TEXT
--
-- What a text of any length says, in short. Nothing is left out: a text longer than the model's context is cut into
-- parts at paragraphs and sentences, each part is summarised, and the summaries are combined.
--
-- options are those of generate(), and
--   instruction   instead of 'Summarise the text.'
--   combine       what to do with the answers about parts, instead of the wording that comes with sqlite-lm
--   part_tokens   the most tokens of the text in a part, where that is to be less than what fits
-- Rows of a table go together, and so do the parts of their texts; with a budget (max_total_tokens, max_cost), one row
-- after the other. A job does the same with {"summarize":true} in its options. Of a model on a server whose tokens are
-- not known here the server is asked, or texts are measured by their bytes (lm_models' option tokenizer is exact).

-- What fits is one prompt.
SELECT lm_summarize('A short note.', '{"max_tokens":8}') = generate('A short note.', 'Summarise the text.', '{"max_tokens":8}');
--> 1

-- A text of many times the context; generate() would refuse it.
CREATE TEMP TABLE book(body TEXT);
WITH RECURSIVE line(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM line LIMIT 400)
  INSERT INTO book SELECT group_concat('On day ' || n || ' it rained.', ' ') FROM line;
SELECT typeof(lm_summarize(body, '{"max_tokens":8}')) FROM book;
--> text
SELECT generate(body) FROM book;
--! tokens, the context holds

-- Smaller parts, and words of your own.
SELECT typeof(lm_summarize(body, '{"instruction":"List the days.", "combine":"Join the lists.", "part_tokens":40, "max_tokens":8}'))
  FROM book;
--> text

SELECT lm_summarize(NULL) IS NULL;
--> 1
SELECT lm_summarize('a', '{"part_tokens":0}');
--! part_tokens must be a whole number from 1 to 2147483647, got 0
