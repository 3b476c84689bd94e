-- lm_score(text, criterion [, options])  ->  REAL from 0 to 1
--
-- The probability of a yes against that of a no, from the model's logits: for sorting, and for thresholds of your own.

CREATE TEMP TABLE letters(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO letters(body) VALUES ('The lamp broke after a day.'), ('Do you ship to Norway?'), (NULL);

SELECT id, round(lm_score(body, 'The writer is angry.'), 2) BETWEEN 0 AND 1 AS anger FROM letters;
--> 1|1
--> 2|1
--> 3|NULL
SELECT count(*) FROM (SELECT id FROM letters WHERE body IS NOT NULL ORDER BY lm_score(body, 'The writer is angry.') DESC LIMIT 1);
--> 1
