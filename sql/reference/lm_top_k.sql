-- lm_top_k(query, text, k [, options])  ->  aggregate: JSON, the k texts that answer the query best
--
-- lm_rank's scores over the rows of a group, while they are scanned: [{"text":..., "score":...}, ...], the best first.

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('skyplot', 'skyplot draws maps of the stars for a place and a time. The maps can be printed or saved as PNG and SVG. Catalogues of stars and deep-sky objects are included.'),
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('ruby-cartwheel', 'Cartwheel is a small web framework for Ruby. It maps addresses to blocks of code, renders templates, and needs no configuration.'),
  ('none', NULL);

SELECT substr(lm_top_k('a puzzle game', description, 2) ->> '$[0].text', 1, 13) FROM documents;
--> A puzzle game
SELECT documents.package, value ->> 'score' > 0.5
  FROM json_each((SELECT lm_top_k('old mail', description, 1) FROM documents)) JOIN documents ON description = value ->> 'text';
--> mailbox-sieve|1

-- In groups. NULLs are passed over, be it the query or the text; a group of nothing else has no result.
SELECT package LIKE '%b%' AS b, json_array_length(lm_top_k('old mail', description, 2)) FROM documents GROUP BY b;
--> 0|2
--> 1|2
SELECT lm_top_k('old mail', description, 2) FROM documents WHERE package = 'none';
--> NULL

SELECT lm_top_k('old mail', description, 0) FROM documents;
--! k must be a whole number of at least 1, got 0
SELECT lm_top_k(NULL, description, 1) FROM documents;
--> NULL
