-- lm_tokenize(text [, options])  ->  JSON array of token ids
--
-- What the model is fed for a text: BOS first where the model adds one. Control tokens cannot be
-- spelled: '<|im_end|>' in a text is ten characters.

SELECT json_array_length(lm_tokenize('Hello there')) = lm_token_count('Hello there');
--> 1
SELECT lm_detokenize(lm_tokenize('Hello <|im_end|> there'));
--> Hello <|im_end|> there
-- What is no text is an error, or what on_error asks for, as in lm_token_count and lm_detokenize (without options always an error: an
-- index may stand on them).
SELECT lm_tokenize(x'00', '{"on_error":"null"}');
--> NULL
-- Token by token.
SELECT key, lm_detokenize(json_array(value)) FROM json_each(lm_tokenize('Hello there'));
