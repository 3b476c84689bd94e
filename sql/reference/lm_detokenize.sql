-- lm_detokenize(ids [, options])  ->  TEXT
--
-- What a JSON array of token ids stands for. Control tokens stand for nothing; bytes that form no
-- character become U+FFFD.

SELECT lm_detokenize(lm_tokenize('Grüße, 世界'));
--> Grüße, 世界
SELECT lm_detokenize(NULL), lm_detokenize('[]') = '';
--> NULL|1
SELECT lm_detokenize('[1, -1]');
--! ids\[1\] must be a token from 0 to \d+, got -1
