-- temp.lm_examples(name, prompt, answer), and the option "examples"
--
-- Questions with the answers that one would like to have (few-shot examples). The model reads them between the system prompt
-- and each prompt, as a conversation that went so: the same for all rows, and so computed once. They come in the order in which they
-- were inserted, that of rowid, which cannot be written. A set belongs to the connection.
--
-- columns
--   name    the set's: {"examples":"mood"}
--   prompt  a question, as a row would be asked it
--   answer  what the model should say

CREATE TEMP TABLE reviewed(body TEXT, label TEXT);
INSERT INTO reviewed VALUES ('It broke on the first day.', 'complaint'), ('I use it every morning.', 'praise'), ('Where is the switch?', 'question');
INSERT INTO temp.lm_examples SELECT 'mood', body, label FROM reviewed;

SELECT lm_render('Too bright.', 'Label the review.', '{"examples":"mood"}') LIKE '%Label the review.%It broke on the first day.%complaint%every morning.%praise%Where is the switch?%question%Too bright.%';
--> 1
-- What all rows share now has the examples, too.
CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews(body) VALUES ('Too bright.'), ('Keeps the rain off.'), ('Turned inside out.');
SELECT a.tokens_shared > b.tokens_shared + 2 * 20
  FROM lm_explain('SELECT generate(body, ''Label it.'', ''{"examples":"mood"}'') FROM reviews') AS a, lm_explain('SELECT generate(body, ''Label it.'') FROM reviews') AS b;
--> 1
SELECT count(lm_classify(body, '["complaint","praise","question"]', NULL, '{"examples":"mood"}')) FROM reviews;
--> 3

-- They may be given as they are, too: so in a job, which other programs may go on with.
SELECT lm_render('Too bright.', NULL, '{"examples":[{"prompt":"It broke.","answer":"complaint"}]}') LIKE '%It broke.%complaint%Too bright.%';
--> 1

-- It is a table: it can be read, changed and rolled back.
UPDATE temp.lm_examples SET answer = 'joy' WHERE answer = 'praise';
DELETE FROM temp.lm_examples WHERE prompt LIKE 'Where%';
SELECT name, prompt, answer FROM temp.lm_examples;
--> mood|It broke on the first day.|complaint
--> mood|I use it every morning.|joy

SELECT generate('x', NULL, '{"examples":"moods"}');
--! no examples 'moods' in temp.lm_examples; it has 'mood'
