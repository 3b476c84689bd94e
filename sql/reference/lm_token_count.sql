-- lm_token_count(text [, options])  ->  INTEGER
--
-- How many tokens the model is fed for a text (without the chat template; see lm_render). NULL gives NULL.

SELECT lm_token_count('How much is the fish?') > 0, lm_token_count(NULL);
--> 1|NULL

-- Which rows are too long for the model, before anything is generated?
CREATE TEMP TABLE notes(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO notes(body) VALUES ('short'), (replace(hex(zeroblob(1000)), '0', 'long '));
SELECT id FROM notes WHERE lm_token_count(body) > 100;
--> 2

-- Every model counts its own way.
SELECT typeof(lm_token_count('fish', '{"model":"$MODEL"}'));
--> integer
