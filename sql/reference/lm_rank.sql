-- lm_rank(query, texts [, top_k [, options]])  ->  rank, key, value, score
--
-- Which of many texts answer a query best. `texts` is a JSON array; key is a text's index in it. Each is asked about by itself, all
-- together, and its score is the probability of a yes, from the logits. A model that is made for ranking (lm_rerank) gives its own;
-- of one on a server {"pooling":"rank"} among its options in lm_models says that it is.
--
-- columns
--   rank    1 is the best
--   key     the text's index in the array, from 0
--   value   the text
--   score   from 0 to 1; NULL of a tournament
--
-- options are those of generate(), and
--   method  "pointwise": each text by itself; "pairwise": two at a time, a tournament
-- With on_error "null" a text that fails (it is too long, or holds a NUL character) has no row; in a tournament, where it is one of two,
-- it ends the statement whatever on_error says.

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('mailbox-sieve', 'mailbox-sieve is a command-line tool that sorts old mail into folders. It reads mbox and Maildir, applies rules that are written in a small language, and never deletes a message.'),
  ('skyplot', 'skyplot draws maps of the stars for a place and a time. The maps can be printed or saved as PNG and SVG. Catalogues of stars and deep-sky objects are included.'),
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('ruby-cartwheel', 'Cartwheel is a small web framework for Ruby. It maps addresses to blocks of code, renders templates, and needs no configuration.'),
  ('none', NULL);

SELECT rank, substr(value, 1, 13), score > 0.5 FROM lm_rank('a puzzle game', (SELECT json_group_array(description) FROM documents), 1);
--> 1|A puzzle game|1
SELECT documents.package
  FROM lm_rank('old mail', (SELECT json_group_array(description) FROM documents), 1) AS best
  JOIN (SELECT package, row_number() OVER () - 1 AS key FROM documents) AS documents USING (key);
--> mailbox-sieve

-- All of them, the best first; a null has no row.
SELECT count(*), min(score) >= 0, max(score) <= 1 FROM lm_rank('maps of the stars', (SELECT json_group_array(description) FROM documents));
--> 5|1|1

-- Two at a time: a knock-out tournament, each match in both orders, 2(n - 1) prompts for the first place and 2 log2(n) for each one
-- after it. For a few candidates, and a model that can compare.
SELECT count(*), count(DISTINCT key) FROM lm_rank('maps of the stars', (SELECT json_group_array(description) FROM documents), 3, '{"method":"pairwise"}');
--> 3|3

-- Of one that fails.
SELECT key, value FROM lm_rank('maps', '["a\u0000b","maps of the stars"]', NULL, '{"on_error":"null"}');
--> 1|maps of the stars
SELECT key, value FROM lm_rank('maps', '["a\u0000b","maps of the stars"]', NULL, '{"on_error":"null","method":"pairwise"}');
--! texts\[0\] has a NUL character at byte 1 of 3

SELECT * FROM lm_rank('q', '["a", ["b"]]');
--! texts\[1\] must be a string or null, got an array
