-- lm_embed(text [, options])  ->  BLOB of float32
--
-- The text as a vector: the model's hidden states after the output norm, pooled into one.
--
-- options (beside them model, timeout_ms, on_error and on_overflow, as in generate())
--   pooling     "mean": of all tokens; "last": the last one; "cls": the first; by default what the model's file says, else the mean
--   task        "query", "document", "classification", "clustering", "similarity": what the text is for; on_overflow leaves what that puts before it
--   dimensions  so many numbers: the first ones, for models that may be cut ("Matryoshka"); brought to length 1 behind that
--   normalize   true (the default): to length 1

-- As many numbers as the model is wide, four bytes each.
SELECT typeof(lm_embed('rain all day')), length(lm_embed('rain all day')) % 4;
--> blob|0

-- The first 16 of them; and another pooling (of a text of one token it would be the same).
SELECT length(lm_embed('rain', '{"dimensions":16}')) / 4;
--> 16
SELECT lm_embed('rain all day') = lm_embed('rain all day', '{"pooling":"mean","normalize":true}'),
       lm_embed('rain all day') = lm_embed('rain all day', '{"pooling":"last"}');
--> 1|0

-- Any vector extension takes it: sqlite-vec's vec_distance_cosine(lm_embed(a), lm_embed(b)), say.
CREATE TEMP TABLE notes(id INTEGER PRIMARY KEY, body TEXT, vector BLOB);
INSERT INTO notes(body) VALUES ('rain all day'), ('a new bicycle'), ('rain all day'), (NULL);
UPDATE notes SET vector = lm_embed(body);
SELECT count(vector), count(DISTINCT vector) FROM notes;
--> 3|2

-- An empty text, as of an empty field of a CSV file; NULL is passed over.
SELECT lm_embed('');
--! lm_embed: the text has no tokens, and so no embedding \(nullif\(x, ''\) leaves it out, or on_error\)
SELECT lm_embed(nullif('', ''));
--> NULL
SELECT lm_embed('rain', '{"pooling":"max"}');
--! pooling must be 'mean', 'last' or 'cls', got 'max'

-- task: what the text is for. Models of search (nomic-embed-text, bge, e5, EmbeddingGemma, ...) read words
-- before it that say so, and this puts them there; of other models they are not known:
SELECT lm_embed('rain', '{"task":"query"}');
--! what model '.+' wants to read before a text for task 'query' is not known here

-- No answer is generated: what only answers have is refused.
SELECT lm_embed('rain', '{"max_tokens":3}');
--! option 'max_tokens' is for answers that are generated, and here none is
