-- lm_stream(prompt [, system [, options]])  ->  piece, token, logprob, ms
--
-- An answer as it is made, one row a token; each row is there before the next token is computed. Tokens that were
-- guessed right (the option `speculate`) come several at a time.
--
-- columns
--   piece    the text that has become certain: whole characters only, so empty where a token ends within one, or where a stop string may begin
--   token    its id; NULL in a last row that brings text which was held back
--   logprob  the natural logarithm of the probability that the model gave it; NULL where a constraint left no choice
--   ms       from the call to the token

SELECT count(*) > 0, min(ms) > 0, max(logprob) <= 0 FROM lm_stream('Name a colour.', NULL, '{"max_tokens":8}');
--> 1|1|1

-- The pieces together are what generate() returns. Of a model on the network they are as its server sends them, with neither token nor
-- logprob. What a constraint allows comes in one piece, once it is proved. An answer that breaks off on its way is asked for again, and
-- goes on behind the pieces that are out; where the new one does not begin with these, that is an error.
SELECT group_concat(piece, '') = generate('Name a colour.', NULL, '{"max_tokens":8}')
  FROM lm_stream('Name a colour.', NULL, '{"max_tokens":8}');
--> 1

-- How sure was the model, and how long did each token take? The first row's ms is the time to it; a guessed token takes none.
SELECT count(*) FROM (
  SELECT piece, exp(logprob) AS p, ms - lag(ms, 1, 0) OVER () AS took
    FROM lm_stream('Name a colour.', NULL, '{"max_tokens":8}')) WHERE p > 1 OR took < 0;
--> 0

-- A LIMIT ends the generation.
SELECT count(*) FROM (SELECT piece FROM lm_stream('A library that predicts the tides of a harbour.', 'Write a one-line summary.') LIMIT 3);
--> 3

SELECT * FROM lm_stream('Name a colour.', NULL, '{"max_token":8}');
--! unknown option 'max_token'
