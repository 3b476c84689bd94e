-- lm_classify(text, labels [, instruction [, options]])  ->  TEXT
--
-- One of the labels. The model can say nothing else, so the result needs no cleaning.
--
-- options are those of generate(), and
--   multi      true: all labels that apply, as a JSON array in their order
--   threshold  of multi: a label applies where a yes is more probable; 0.5. 0: all do.
--              Without it, a label with as many votes for yes as for no is the row's failure (an odd `vote` of which all answer has no tie)
--   scores     true: a JSON object from each label to its probability
--   escalate   {"model":"large","below":0.9}: where the model finds its label less probable, the large one is asked (lm_calibrate)

CREATE TEMP TABLE letters(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO letters(body) VALUES ('The lamp broke after a day.'), ('Do you ship to Norway?'), (NULL);

SELECT id, lm_classify(body, '["complaint","question","praise"]') AS kind FROM letters;
--~ ^1\|(complaint|question|praise)$
--~ ^2\|(complaint|question|praise)$
--> 3|NULL

-- Labels with what they mean, and an instruction of your own. Both go into the prompt that all rows share.
SELECT count(*) FROM (
  SELECT lm_classify(body, '{"refund":"wants money back","exchange":"wants another one","other":null}', 'What does the writer want?') AS wish
    FROM letters) WHERE wish IN ('refund', 'exchange', 'other');
--> 2

-- What most of three answers say, each drawn with a seed of its own.
SELECT lm_classify('Do you ship to Norway?', '["complaint","question"]', NULL, '{"vote":3}') IN ('complaint', 'question');
--> 1

-- All labels that apply, each asked about by itself behind the text, which is read once: a label applies where yes is more probable
-- than no, or more probable than `threshold`. A description that ends with a question mark is the question.
SELECT json_array_length(lm_classify(body, '{"question":"Does the writer ask something?","complaint":"the writer complains"}', NULL, '{"multi":true}')) IN (0, 1, 2) FROM letters WHERE id < 3;
--> 1
--> 1
SELECT lm_classify('x', '["a","b"]', NULL, '{"multi":true,"threshold":0}');
--> ["a","b"]

-- How probable each is: they sum to 1 (lm_classify_scores has them as rows); with multi, each by itself.
SELECT round(sum(value), 9) FROM json_each(lm_classify('Do you ship to Norway?', '["complaint","question","praise"]', NULL, '{"scores":true}'));
--> 1.0

-- The label and how probable it is, in two columns: joined to the rows, so that these are asked together (max() says which label is
-- taken). A subquery behind SET, (SELECT label FROM lm_classify_scores(...) ...), would be asked row by row.
ALTER TABLE letters ADD COLUMN kind TEXT;
ALTER TABLE letters ADD COLUMN sure REAL;
UPDATE letters SET kind = best.label, sure = best.p
  FROM (SELECT id AS letter, label, max(probability) AS p FROM letters, lm_classify_scores(body, '["complaint","question","praise"]') GROUP BY id) AS best
 WHERE id = letter;
SELECT id, kind = lm_classify(body, '["complaint","question","praise"]') AS same, sure BETWEEN 0.33 AND 1 AS sure FROM letters;
--> 1|1|1
--> 2|1|1
--> 3|NULL|NULL

-- A threshold for one label is a condition: WHERE sure > 0.8.
SELECT lm_classify('x', '["complaint","question"]', NULL, '{"threshold":0.8}');
--! threshold is for {"multi": true}; lm_classify_scores gives the probability of each label

-- Labels that differ in their first token cost no decode step: the answer is there when the prompt has been read.
SELECT lm_classify('x', '["complaint","complaint"]');
--! label 'complaint' is there twice
