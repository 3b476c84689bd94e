-- lm_match(left_sql, right_sql, question [, options])  ->  left_id, right_id, left_text, right_text, similarity, probability
--
-- A join whose condition is a question about both texts. Each SELECT has an id and a text. For each row on the left the rows on the
-- right whose embeddings are most like its own are asked about, and those to which the model rather says yes than no are rows.
--
-- columns
--   left_id, right_id      what the SELECTs gave
--   left_text, right_text  likewise
--   similarity             of the two embeddings, from -1 to 1; with fts5 the score of bm25, which has no bound
--   probability            of a yes
--
-- options are those of lm_if but for escalate (`vote` and what else only answers have are the question's alone), and
--   threshold              a pair is a row where a yes is more probable; 0.5. 0: whatever was asked about.
--                          Without it, a pair with as many votes for yes as for no fails (an odd `vote` of which all answer has no tie)
--   candidates             rows on the right that are asked about for each on the left; 5. 0: all, with fts5 all that have a word in common
--   blocking               "embeddings"; "fts5": those that have the most words in common, without embeddings; one at least. A word
--                          is a run of letters and digits, so that a sentence of Japanese or Chinese, which has no blanks, is one
--   embed_model            the model that embeds. `model` is asked the question: with a model that only embeds, name it here and another there
--   pooling, task, dimensions   as in lm_embed

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('libtidepool-dev', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the header files and the static library that are needed to compile programs with it.'),
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('netsplit', 'netsplit watches the network interfaces of a computer and divides the traffic between two uplinks. When one of them fails, the connections move to the other. It runs as a daemon and is configured by a text file.'),
  ('none', NULL);

-- What is asked about, and how sure the model is.
SELECT left_id, right_id, similarity > 0.9, probability BETWEEN 0 AND 1
  FROM lm_match('SELECT package, description FROM documents WHERE package = ''libtidepool2''',
                'SELECT package, description FROM documents WHERE package <> ''libtidepool2''',
                'Are the first and the second parts of one program?', '{"candidates":1,"threshold":0}');
--> libtidepool2|libtidepool-dev|1|1

-- What matches. The text on the left is read once for all of its candidates.
SELECT count(*) FROM lm_match('SELECT package, description FROM documents', 'SELECT package, description FROM documents',
                              'Are the first and the second parts of one program?') WHERE probability <= 0.5;
--> 0
-- By the words that they have in common, with SQLite's FTS5 and without embeddings: a millisecond or two a row.
SELECT left_id, right_id, probability BETWEEN 0 AND 1
  FROM lm_match('SELECT package, description FROM documents WHERE package = ''libtidepool2''',
                'SELECT package, description FROM documents WHERE package <> ''libtidepool2''',
                'Are the first and the second parts of one program?', '{"blocking":"fts5","candidates":1,"threshold":0}');
--> libtidepool2|libtidepool-dev|1
-- All pairs of five: a NULL matches nothing.
SELECT count(*) FROM lm_match('SELECT package, description FROM documents', 'SELECT package, description FROM documents',
                              'Are the first and the second parts of one program?', '{"candidates":0,"threshold":0}');
--> 25

SELECT * FROM lm_match('SELECT 1, ''a''', 'SELECT 2', 'Are they alike?');
--! right_sql must be one SELECT id, text that only reads: it has 1 columns
