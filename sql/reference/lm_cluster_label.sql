-- lm_cluster_label(text [, options])  ->  aggregate: TEXT
--
-- What the texts of a group have in common, in a few words: lm_agg with an instruction that asks for that. What
-- fails beside it, fails late: see there.
--
-- options are those of generate() (with `choices` the label is one of those), and
--   instruction   asks in other words
--   combine       what to do with the answers about parts, instead of the wording that comes with sqlite-lm
--   part_tokens   the most tokens of the text in a part, where that is to be less than what fits

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('libtidepool-dev', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the header files and the static library that are needed to compile programs with it.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('none', NULL);

SELECT same_as, lm_cluster_label(text, '{"max_tokens":16}') <> '' FROM lm_distinct('SELECT package, description FROM documents') WHERE text IS NOT NULL GROUP BY same_as;
--> chessmaze|1
--> libtidepool2|1
--> mailbox-sieve|1
SELECT lm_cluster_label(description, '{"instruction":"Name the section this package belongs to.","choices":["games","mail","fonts"]}') FROM documents WHERE package = 'chessmaze';
--> games
SELECT lm_cluster_label(description) FROM documents WHERE description IS NULL;
--> NULL
