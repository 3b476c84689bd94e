-- lm_calibrate(select_sql, function, argument, options)  ->  below, agreement, agreement_low, escalated, alone, rows, options
--
-- A cascade: a small model answers lm_if, lm_classify or lm_extract, and where it finds its own answer less probable than `below`, a
-- large one is asked instead: {"model":"small","escalate":{"model":"large","below":0.9}}. lm_calibrate asks both about a sample of the rows
-- and says which number makes the cascade agree with the large model as often as you want, and how many rows it then hands on.
-- The SELECT has an id and a text; `function` is lm_if, lm_classify or lm_extract, `argument` its second one.
--
-- columns
--   below          the number, for `escalate`: what the small model finds less probable is handed on. Where none is enough, the one with
--                  the best agreement
--   agreement      share of the sample whose answers then are the large model's, handed on or not
--   agreement_low  what that is at least among all rows, with 95% certainty
--   escalated      share of the sample that is handed on
--   alone          share that agrees where nothing is
--   rows           of the sample that both have answered
--   options        JSON: what to call the function with
--
-- options are those of the function, for both models, and
--   escalate       {"model":"large"}: the model that is right
--   agreement      the share that is wanted; 0.95
--   sample         how many rows, drawn from all, the same ones in each call; 200
--   instruction    of lm_classify
--   curve          true: a row for each number that makes a difference

-- The large model is the one that ships; the small one is the same in four bits.
SELECT lm_convert('$MODEL', '$TMP/small.gguf', 'Q4_0') ->> 'bytes' > 0;
--> 1
INSERT INTO temp.lm_models(name, path) VALUES ('small', '$TMP/small.gguf'), ('large', '$MODEL');
CREATE TEMP TABLE documents(package TEXT PRIMARY KEY, description TEXT, section TEXT);
INSERT INTO documents(package, description) VALUES
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('libtidepool-dev', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the header files and the static library that are needed to compile programs with it.'),
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('netsplit', 'netsplit watches the network interfaces of a computer and divides the traffic between two uplinks. When one of them fails, the connections move to the other. It runs as a daemon and is configured by a text file.'),
  ('gene-ladder', 'gene-ladder assembles bacterial genomes from short reads. It builds a graph of overlaps, resolves repeats by the coverage, and writes contigs with their quality.'),
  ('ruby-cartwheel', 'Cartwheel is a small web framework for Ruby. Routes are blocks, templates are methods, and there is nothing to configure.'),
  ('fonts-quill', 'Quill is a serif typeface for long texts. It has old-style figures, small capitals and italics, and covers Latin and Greek.');

CREATE TEMP TABLE found AS
  SELECT * FROM lm_calibrate('SELECT package, description FROM documents', 'lm_classify', '["libs","libdevel","games","fonts","net","science","mail","ruby"]',
    '{"model":"small","escalate":{"model":"large"},"agreement":1,"instruction":"Name the section this package belongs to."}');
SELECT rows, agreement, escalated < 1, agreement_low < agreement, options ->> '$.escalate.below' = below FROM found;
--> 8|1.0|1|1|1

-- With these options all rows have the large model's answer, most of them without asking it.
UPDATE documents SET section = lm_classify(description, '["libs","libdevel","games","fonts","net","science","mail","ruby"]',
                                           'Name the section this package belongs to.', (SELECT options FROM found));
SELECT count(*) FROM documents WHERE section = lm_classify(description, '["libs","libdevel","games","fonts","net","science","mail","ruby"]',
                                                           'Name the section this package belongs to.', '{"model":"large"}');
--> 8
-- How often it was asked.
SELECT DISTINCT cascaded, escalated = (SELECT escalated * rows FROM found) FROM lm_stats WHERE model = 'small';
--> 8|1

-- The whole curve: agreement against the share that is handed on.
SELECT count(*) > 0, max(escalated) FROM lm_calibrate('SELECT package, description FROM documents', 'lm_if', 'Does the package run as a daemon?',
  '{"model":"small","escalate":{"model":"large"},"curve":true}');
--> 1|1.0

SELECT * FROM lm_calibrate('SELECT package, description FROM documents', 'lm_if', 'Is it a game?', '{"model":"small"}');
--! escalate is missing
