-- lm_distinct(select_sql [, options])  ->  id, text, same_as, similarity
--
-- Which rows say what an earlier one has said: texts are alike by the cosine of their embeddings. The SELECT has an id and a text.
--
-- columns
--   id           what the SELECT gave
--   text         likewise
--   same_as      the id of the row that it is like, of those that are like none before them; its own where it is one of these; NULL where the
--                text is NULL, or failed
--   similarity   to that row, from -1 to 1
--
-- options (beside them model, on_error and on_overflow, as in generate())
--   threshold    how alike they must be; 0.9, but what a good one is depends on the model
--   pooling, task, dimensions    as in lm_embed
--
-- Each text is compared with all that stand for themselves before it: ten times as many rows of which none repeats another take a hundred
-- times as long to compare, beside the embeddings, which take ten times. A processor compares some ten million pairs of 512 dimensions
-- in a second, more than a hundred million of 32. A server that gives vectors of several lengths is an error, which names the rows.

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('libtidepool-dev', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the header files and the static library that are needed to compile programs with it.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('none', NULL);

SELECT id, same_as, similarity > 0.9 FROM lm_distinct('SELECT package, description FROM documents');
--> libtidepool2|libtidepool2|1
--> chessmaze|chessmaze|1
--> libtidepool-dev|libtidepool2|1
--> mailbox-sieve|mailbox-sieve|1
--> none|NULL|NULL

-- Those that are left. Whoever comes first stays: the order of the SELECT says who that is.
SELECT group_concat(id) FROM lm_distinct('SELECT package, description FROM documents ORDER BY package') WHERE same_as = id;
--> chessmaze,libtidepool-dev,mailbox-sieve
SELECT same_as, count(*) FROM lm_distinct('SELECT package, description FROM documents', '{"threshold":0.99}') WHERE same_as IS NOT NULL GROUP BY same_as HAVING count(*) > 1;
--0

-- Those that repeat another, deleted: by same_as <> id, which is not true of a NULL. (NOT IN (SELECT same_as ...) would delete the rows
-- without a text, too, or no row at all: their same_as is NULL.)
DELETE FROM documents WHERE package IN (SELECT id FROM lm_distinct('SELECT package, description FROM documents ORDER BY package') WHERE same_as <> id)
  RETURNING package;
--> libtidepool2
SELECT group_concat(package) FROM documents;
--> chessmaze,libtidepool-dev,mailbox-sieve,none

-- An empty text has no vector, and is an error: nullif makes it NULL.
INSERT INTO documents VALUES ('empty', '');
SELECT * FROM lm_distinct('SELECT package, description FROM documents');
--! row 5: the text has no tokens, and so no embedding
SELECT id, same_as FROM lm_distinct('SELECT package, nullif(description, '''') FROM documents WHERE package IN (''chessmaze'', ''empty'')');
--> chessmaze|chessmaze
--> empty|NULL

SELECT * FROM lm_distinct('SELECT package, description FROM documents', '{"max_tokens":10}');
--! option 'max_tokens' is for answers that are generated, and here none is
SELECT * FROM lm_distinct('SELECT package FROM documents');
--! select_sql must be one SELECT id, text that only reads: it has 1 columns
