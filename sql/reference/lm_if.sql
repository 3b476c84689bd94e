-- lm_if(text, question [, options])  ->  0 or 1
--
-- Whether the model says yes. It decides by the logits of yes and no, without a decode step; the tokens of that one word are counted
-- (lm_stats, max_total_tokens, price_out).
--
-- options are those of generate(), and
--   escalate   {"model":"large","below":0.9}: where the model finds its answer less probable, the large one is asked (lm_calibrate)

CREATE TEMP TABLE letters(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO letters(body) VALUES ('The lamp broke after a day.'), ('Do you ship to Norway?'), (NULL);

SELECT id, lm_if(body, 'Does the writer ask something?') AS asks FROM letters;
--~ ^1\|[01]$
--~ ^2\|[01]$
--> 3|NULL
SELECT count(*) BETWEEN 0 AND 2 FROM letters WHERE lm_if(body, 'Does the writer complain?');
--> 1

-- Counted instead of weighed, for models elsewhere that tell no probabilities: what most of five answers say, each drawn with a
-- seed of its own. Half and half is the row's failure.
SELECT lm_if(body, 'Does the writer ask something?', '{"vote":5}') IN (0, 1), lm_score(body, 'A question.', '{"vote":5}') * 5 IN (0, 1, 2, 3, 4, 5)
  FROM letters WHERE id = 2;
--> 1|1

-- A number in its place: lm_score, which asks about a criterion in other words, so that one need not say more than a half where
-- the other says yes. Several questions about one text read the text once.
SELECT id, lm_if(body, 'Is it short?') IN (0, 1), lm_if(body, 'Is it long?') IN (0, 1), lm_score(body, 'It is short.') BETWEEN 0 AND 1
  FROM letters WHERE id = 1;
--> 1|1|1|1
