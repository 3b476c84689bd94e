-- lm_filter(text, question [, options])  ->  0 or 1
--
-- lm_if, by the name that it has in a WHERE. Rows are looked at ahead of the statement, so that many are asked about together,
-- and what generates behind it runs while the filter of later rows does (lm_stats.foreseen counts the calls).
--
-- options are those of generate(), and
--   escalate   {"model":"large","below":0.9}: where the model finds its answer less probable, the large one is asked (lm_calibrate)

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('ruby-cartwheel', 'Cartwheel is a small web framework for Ruby. It maps addresses to blocks of code, renders templates, and needs no configuration.'),
  ('netsplit', 'netsplit watches the network interfaces of a computer and divides the traffic between two uplinks. When one of them fails, the connections move to the other. It runs as a daemon and is configured by a text file.'),
  ('fonts-lantern', 'Lantern is a serif typeface with large lower-case letters for text on screens. It has four weights, small capitals, and covers Latin, Greek and Cyrillic.'),
  ('none', NULL);

SELECT package FROM documents WHERE lm_filter(description, 'Does the package run as a daemon?');
--> netsplit
SELECT package, generate(description, 'Write a one-line summary.', '{"max_tokens":24}') <> '' FROM documents WHERE lm_filter(description, 'Is it written in Ruby?');
--> ruby-cartwheel|1

-- A question of each row's own; NULL for a text that is.
SELECT package FROM documents WHERE lm_filter(description, 'Is its name ' || package || '?') IS NULL;
--> none
SELECT lm_filter('x', NULL);
--! question must not be NULL
