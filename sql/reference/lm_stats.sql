-- lm_stats: two rows for each running model, one for each phase of its work
--
-- prefill reads prompts (tokens_prefilled computed, tokens_reused found in the prefix cache, ttft_*
-- the time to the first token); decode writes answers (tokens_decoded, itl_* the time between two
-- tokens, batch_occupancy how many decoded together). requests, failed, tokens_* and memo_hits are this database's; the rest is
-- the engine's, whichever database keeps it busy. Reading it loads nothing.

SELECT count(*) FROM lm_stats;
--> 0
CREATE TEMP TABLE notes(body TEXT);
INSERT INTO notes VALUES ('rain all day'), ('a new bicycle'), ('soup again');
CREATE TEMP TABLE labels AS
  SELECT generate(body, 'You are given a note. Say in one word what it is about: weather, food or sport. '
                     || 'Do not explain, and do not repeat the note. If it is none of them, say other.',
                  '{"max_tokens":4}') AS label FROM notes;
SELECT phase, requests, tokens_reused > 0 FROM lm_stats;
--> prefill|3|1
--> decode|3|NULL

-- A statement's rows are seen coming, and decode together. (What writes runs to its end: only its first row was not foreseen.)
SELECT DISTINCT foreseen, hint FROM lm_stats;
--> 2|NULL

-- What did the shared system prompt save?
SELECT round(100.0 * tokens_reused / (tokens_prefilled + tokens_reused)) > 0 FROM lm_stats WHERE phase = 'prefill';
--> 1
-- Slow to start, or slow to stream?
SELECT model, max(ttft_p50_ms) > 0, max(batch_occupancy) FROM lm_stats GROUP BY model;
--~ ^default\|1\|
-- How good is that on this machine, and what did the time go to?
SELECT phase, arithmetic_percent > 0, bandwidth_percent > 0 FROM lm_stats;
--> prefill|1|1
--> decode|1|1
SELECT DISTINCT verdict FROM lm_stats;
--~ ^(prefill-bound \(slow to start\)|decode-bound \(slow to stream\))$

-- An answer that repeats its prompt, or other answers, takes fewer steps: what may come next is guessed and checked together.
-- drafted: tokens guessed; accepted: those that were right. The answer is the same without.
SELECT generate('rain all day', 'What is it about?', '{"max_tokens":24,"cache":false,"speculate":"always"}')
     = generate('rain all day', 'What is it about?', '{"max_tokens":24,"cache":false,"speculate":"off"}') AS same;
--> 1
SELECT speculation, drafted >= accepted AND accepted >= steps_saved AND steps_saved >= 0 FROM lm_stats WHERE phase = 'decode';
--> on|1
