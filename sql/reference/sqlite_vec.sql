-- sqlite-vec beside lm_embed
--
-- lm_embed makes the vectors; sqlite-vec, an extension of its own (github.com/asg017/sqlite-vec; its
-- packages for npm and Python have the library, vec0), keeps them and finds the nearest. In the shell:
-- .load ./lm0 and .load ./vec0.

CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO notes(body) VALUES ('Rain all day, and the cellar is wet again.'), ('The new bicycle has a loose chain.'),
  ('Lunch with Ines: soup and bread.'), ('Rain all day, and the cellar is wet again!');

-- An index has as many numbers a vector as the model gives, here the one that ships; with
-- {"dimensions":256} 256 of a model that was trained to be cut so.
SELECT length(lm_embed('rain')) / 4;
--> 384
CREATE VIRTUAL TABLE vectors USING vec0(id INTEGER PRIMARY KEY, vector float[384] distance_metric=cosine);

-- All rows of the SELECT are embedded together. A model made for search wants to know what a text is
-- for: {"task":"document"} here, {"task":"query"} below.
INSERT INTO vectors(id, vector) SELECT id, lm_embed(body) FROM notes;

-- The nearest of a question.
SELECT id, round(distance, 3) FROM vectors
  WHERE vector MATCH lm_embed('Rain all day, and the cellar is wet again.') AND k = 3 ORDER BY distance;
--> 1|0.0
--~ ^4\|0\.\d+$
--~ ^[23]\|0\.\d+$

-- ... and an answer from them. What stands before MATCH is computed once, what generates once a row.
SELECT count(answer) FROM (SELECT generate(body, 'Is this note about the weather?', '{"max_tokens":4}') AS answer
  FROM vectors JOIN notes USING (id) WHERE vector MATCH lm_embed('the weather') AND k = 2);
--> 2

-- The best of many, read again by a model that is made to rank (lm_rerank).
INSERT INTO temp.lm_models(name, path) VALUES ('reranker', '$MODELS/bert-rerank-f32.gguf');
SELECT count(*) FROM (SELECT id FROM vectors JOIN notes USING (id) WHERE vector MATCH lm_embed('rain') AND k = 3
  ORDER BY lm_rerank('rain', body, '{"model":"reranker"}') DESC LIMIT 2);
--> 2

-- New notes: what has no vector yet. (Not by a trigger: what loads a model runs in no trigger.)
INSERT INTO notes(body) VALUES ('Snow on the pass until Friday.');
INSERT INTO vectors(id, vector) SELECT id, lm_embed(body) FROM notes WHERE id NOT IN (SELECT id FROM vectors);
SELECT count(*) FROM vectors;
--> 5

-- Without an index, sqlite-vec's functions take the vectors as they are.
SELECT abs(vec_distance_cosine(lm_embed('rain'), lm_embed('rain'))) < 1e-6, vec_length(lm_embed('rain'));
--> 1|384
