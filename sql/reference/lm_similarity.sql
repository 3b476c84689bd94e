-- lm_similarity(a, b [, options])  ->  REAL from -1 to 1
--
-- How alike two texts are: the cosine of their embeddings. Either may be a vector that lm_embed has made before, with the same options.
-- Of two vectors no model is needed: two or three microseconds for 512 dimensions.
--
-- options (beside them model, timeout_ms, on_error and on_overflow, as in generate())
--   pooling, task, dimensions    as in lm_embed

CREATE TEMP TABLE documents(package TEXT, description TEXT, vector BLOB);
INSERT INTO documents(package, description) VALUES
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('libtidepool-dev', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the header files and the static library that are needed to compile programs with it.'),
  ('chessmaze', 'A puzzle game in which the walls of a maze are chess pieces: a square that is attacked cannot be entered. It comes with two hundred levels and an editor.'),
  ('night-bus', NULL);

SELECT a.package, b.package, lm_similarity(a.description, b.description) > 0.9 AS alike
  FROM documents AS a JOIN documents AS b ON a.rowid < b.rowid ORDER BY lm_similarity(a.description, b.description) DESC;
--> libtidepool2|libtidepool-dev|1
--~ ^(libtidepool2|libtidepool-dev)\|chessmaze\|
--~ ^(libtidepool2|libtidepool-dev)\|chessmaze\|
--> libtidepool2|night-bus|NULL
--> libtidepool-dev|night-bus|NULL
--> chessmaze|night-bus|NULL

-- The vectors of a table are made once. So is that of a text which comes again with each row.
UPDATE documents SET vector = lm_embed(description);
SELECT package FROM documents WHERE vector IS NOT NULL
 ORDER BY lm_similarity(vector, 'This library predicts the tides of a harbour. It contains the shared library that programs need.') DESC LIMIT 2;
--> libtidepool2
--> libtidepool-dev

SELECT lm_similarity('rain', x'00');
--! b must be a text, or a vector of float32 as lm_embed gives it, got a BLOB of 1 bytes
SELECT lm_similarity('rain', x'00', '{"on_error":"null"}');
--> NULL
