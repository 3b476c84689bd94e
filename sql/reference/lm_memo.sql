-- lm_memo(model, prompt, answer, options, tokens, hits, bytes, created, used)
--
-- The generations that are remembered. An answer is a function of model, prompt and options (at a temperature
-- the seed says what is drawn, and is 0 where none is given), so it is generated once; {"cache": false} opts out.
-- In memory there is room for 64 MiB of them, of all connections of the process: what was not used for longest goes first,
-- but of a statement with more rows than that the first ones stay.
--
-- columns
--   model    its name in this connection, else its path; empty in a row of the memo's file that is damaged, or not ours, and never used
--   prompt   what was said: the system prompt first, a line each, without the template's words
--   answer   NULL: a vector, or a reranker's score
--   options  those that change an answer; a constraint of more than 1,024 bytes as its digest
--   tokens   of the prompt and the answer
--   hits     generations that it has spared since it came into this process's memory
--   bytes    that it takes there
--   created, used     when (UTC), and when last

SELECT generate('one', NULL, '{"max_tokens":4}') = generate('one', NULL, '{"max_tokens":4}');
--> 1
SELECT model, options, tokens > 1, hits, bytes > 1 FROM lm_memo;
--> default|{"max_tokens":4}|1|1|1
SELECT requests, memo_hits FROM lm_stats WHERE phase = 'decode';
--> 1|1

SELECT prompt, answer = generate('one', NULL, '{"max_tokens":4}'), created <= used FROM lm_memo;
--> one|1|1
DELETE FROM lm_memo WHERE prompt LIKE '%two%';
SELECT count(*) FROM lm_memo;
--> 1
DELETE FROM lm_memo;
SELECT count(*) FROM lm_memo;
--> 0

-- So are vectors (lm_embed, lm_similarity, lm_distinct, lm_match) and lm_rerank's scores: rows without an answer.
-- Memory has them, 16 MiB besides the 64 of answers, and no file.
SELECT lm_embed('rain all day') = lm_embed('rain all day');
--> 1
SELECT prompt, answer, options, hits FROM lm_memo;
--> rain all day|NULL|{"embed":"mean"}|1
DELETE FROM lm_memo;

-- In a file of its own, answers outlive transactions and processes. What this process has
-- in memory alone (vectors, and what others have deleted there) is listed behind it, and forgotten likewise.
INSERT INTO temp.lm_settings VALUES ('memo', '$TMP/memo.db');
SELECT generate('one', NULL, '{"max_tokens":4}') IS NOT NULL;
--> 1
SELECT count(*) FROM lm_memo;
--> 1
