-- lm_render(prompt [, system [, options]])  ->  TEXT
--
-- What generate() has the model read: the prompt in the model's chat template.

SELECT lm_render('Which section?', 'You know Debian packages.');
--~ You know Debian packages\..*Which section\?

-- What cannot be rendered is an error, or what on_error asks for.
SELECT lm_render('no messages', NULL, '{"messages":true,"on_error":"null"}');
--> NULL

-- How long is that, and how much of it do all rows share?
SELECT lm_token_count(lm_render('Which section?', 'You know Debian packages.')) > 0;
--> 1
