-- lm_chunks(text [, max_tokens [, overlap [, options]]])  ->  n, chunk, start, tokens
--
-- A long text in pieces that a model can take. They end with paragraphs, sentences or words, and have at most `max_tokens`
-- tokens (256 unless given), but for a single character that takes more: it is a piece by itself.
-- With `overlap`, a piece repeats about that many tokens of the one before, from the beginning of a sentence or word; where no word
-- begins there, as in Chinese or base64, from a character.
-- The tokens are those of the model: of one on a server that has no tokenizer here, as the server counts them; where it
-- does not tell, a piece has at most so many bytes, and `tokens` is NULL.
-- Of the options it takes `model`: whose tokens are meant. What only answers have (`max_tokens`, `stop`, ...) is an error.
--
-- columns
--   n       counts from 1
--   chunk   the piece
--   start   its first character, as substr() counts
--   tokens  of the piece

CREATE TEMP TABLE article(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO article(body) VALUES
  ('The fox came at night. It took two hens.

In the morning the dog found the hole in the fence. We mended it. The fox came back the next night, and went away hungry.');

SELECT n, chunk FROM article, lm_chunks(body, 25);
--> 1|The fox came at night. It took two hens.\n\n
--> 2|In the morning the dog found the hole in the fence. We mended it. 
--> 3|The fox came back the next night, and went away hungry.

-- Nothing is left out, and nothing is longer than it was asked for.
SELECT group_concat(chunk, '') = body, max(tokens) <= 25 FROM article, lm_chunks(body, 25) GROUP BY id;
--> 1|1

-- start is where it stands in the text.
SELECT count(*) FROM article, lm_chunks(body, 12) WHERE substr(body, start, length(chunk)) <> chunk;
--> 0

-- Each piece for itself, with the end of the one before.
SELECT n, chunk, generate(chunk, 'What happens here?', '{"max_tokens":4}') IS NOT NULL AS told FROM article, lm_chunks(body, 25, 10);
--> 1|The fox came at night. It took two hens.\n\n|1
--> 2|In the morning the dog found the hole in the fence. We mended it. |1
--> 3|We mended it. The fox came back the next night, and went away |1
--> 4|the next night, and went away hungry.|1

-- The first character of each, where there are no words.
SELECT group_concat(start) FROM lm_chunks('山高月小水落石出曾日月之幾何而江山不可復識矣', 24, 12);
--> 1,5,9,13,17

SELECT * FROM lm_chunks(NULL);
--0
SELECT * FROM lm_chunks('a text', 0);
--! max_tokens must be from 1 to \d+, got 0
SELECT * FROM lm_chunks('a text', NULL, NULL, '{"max_tokens":10}');
--! option 'max_tokens' is for answers that are generated, and here none is
SELECT * FROM lm_chunks('a text', 10, 10);
--! overlap must be from 0 to 9, got 10
