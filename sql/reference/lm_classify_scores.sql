-- lm_classify_scores(text, labels [, instruction [, options]])  ->  label, probability
--
-- How probable each label is as lm_classify's answer, by the model's logits: they sum to 1. Where labels begin alike ("libs",
-- "libdevel"), the model is asked again behind the tokens they have in common. Rows come in the order of `labels`.
--
-- columns
--   label        as it was given
--   probability  from 0 to 1

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('night-bus', NULL);

SELECT package, label FROM documents, lm_classify_scores(description, '["libs","libdevel","games","mail"]', 'Name the section this package belongs to.')
 WHERE probability > 0.5;
--> chessmaze|games
--> mailbox-sieve|mail
--> libtidepool2|libs
SELECT round(sum(probability), 9) FROM documents, lm_classify_scores(description, '["libs","libdevel","games","mail"]') GROUP BY package;
--> 1.0
--> 1.0
--> 1.0

-- Also where they all begin alike, the most probable is what lm_classify says (which takes the most probable token each time: rarely
-- another label where many share the one).
SELECT value, lm_classify('A library.', value) = (SELECT label FROM lm_classify_scores('A library.', value) ORDER BY probability DESC LIMIT 1)
  FROM json_each(json_array('["libs","libdevel"]', '["no","none","not"]', '["python","perl","php"]', '["science","sound","shells"]', '["web server","web scraper"]'));
--> ["libs","libdevel"]|1
--> ["no","none","not"]|1
--> ["python","perl","php"]|1
--> ["science","sound","shells"]|1
--> ["web server","web scraper"]|1

-- A text that is NULL has no rows, and one that fails has none either, if asked so.
SELECT count(*) FROM documents, lm_classify_scores(description, '["a","b"]') WHERE package = 'night-bus';
--> 0
SELECT count(*) FROM lm_classify_scores(x'00', '["a","b"]', NULL, '{"on_error":"null"}');
--> 0

-- The same numbers as a JSON object. (Both ways rows are asked about together: where the table stands behind FROM with the table of
-- the rows, look-ahead sees them coming. In a subquery of its own it is asked row by row; lm_classify's page fills two columns.)
SELECT package, key FROM documents, json_each(lm_classify(description, '["libs","libdevel","games","mail"]', 'Name the section this package belongs to.', '{"scores":true}'))
 WHERE value > 0.5;
--> chessmaze|games
--> mailbox-sieve|mail
--> libtidepool2|libs

SELECT * FROM lm_classify_scores('x', '["a","a"]');
--! label 'a' is there twice
