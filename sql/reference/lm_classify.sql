-- lm_classify(text, labels [, instruction [, options]])  ->  TEXT
--
-- One of the labels. The model can say nothing else, so the result needs no cleaning.

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

-- Labels that differ in their first token cost no decode step: the answer is there when the prompt has been read.
SELECT lm_classify('x', '["complaint","complaint"]');
--! label 'complaint' is there twice
