-- lm_stats: two rows for each running model, one for each phase of its work
--
-- Prefill reads prompts, decode writes answers. Columns of the other phase are NULL, those of neither are in both rows. Of a model
-- on the network, which computes elsewhere, the engine's columns are NULL, but for running, queued and ttft_*. Reading it loads nothing.
--
-- columns
--   model          its name in this connection, else its path
--   phase          prefill, decode
--   path           the model's file, or its server
-- of this database (of all connections that share its `salt`, see lm_settings):
--   requests, failed           that have ended, and how many of these failed
--   tokens_prefilled           prefill: tokens of prompts that were computed
--   tokens_reused              prefill: tokens of prompts that were found in the prefix cache
--   tokens_decoded             decode: tokens of answers
--   memo_hits                  answers that were remembered, or under way for another row already, instead of generated
--   cost                       what the tokens of the phase come to at the model's price_in or price_out (lm_models; NULL without), reused
--                              ones included: sum(cost) is the bill, as far as servers give no discounts. Tokens of a server are those of
--                              all that it has answered: what was asked for again, and its first questions (sql/guide/remote.md), too;
--                              where it does not tell how many they were, they are estimated
-- of the engine, whichever database keeps it busy:
--   running, queued            requests that are under way now, and that wait to begin
--   seconds                    of model time that the phase has taken
--   tokens_per_second          over these seconds
--   ttft_p50_ms, ttft_p95_ms, ttft_p99_ms     prefill: time to the first token, which half of the last few thousand requests, or 95 or
--                              99 of a hundred, did not exceed
--   itl_p50_ms, itl_p95_ms, itl_p99_ms        decode: likewise, the time between two tokens of an answer
--   batch_occupancy            decode: sequences that a step served, on average
--   preemptions                sequences that gave their cache up to others, and were computed again
--   kv_bytes                   the size of the KV cache
--   kv_bytes_used              what running requests and the prefix cache hold of it
--   kv_bytes_cached            the prefix cache's share; this database's is in lm_cache
--   arithmetic_percent         the phase's products with the weights, of what this machine's processors can do in that time at most
--   bandwidth_percent          the bytes of weights and cache that it had to read, of what memory gives; NULL, as the one before, where the
--                              model is not on the CPU. Asking for either measures the machine once, for a quarter of a second (lm_devices)
--   verdict                    what took more time: 'prefill-bound (slow to start)': shorter prompts, and prefixes that are shared, help;
--                              'decode-bound (slow to stream)': shorter answers, and more rows at a time, help
--   drafted, accepted          decode: tokens that were guessed (option `speculate`), and those of them that were right
--   steps_saved                decode: how many steps less the same rows took for it
--   speculation                decode: 'on', and what guesses: the draft model, or the model's own layer
--   prefix_store               what lm_settings('prefix_store') has of this model, what is wrong with it, or why it is off
-- of this connection:
--   foreseen                   calls of generate() and the like that found their answer under way, for look-ahead had seen them coming
--   cascaded                   rows for which it has asked this model first (option escalate)
--   escalated                  those of them that another model has answered
--   hint                       what the last statement that had to ask row by row could do better, and what else there is to be told: a
--                              budget that ended it, what is wrong with the memo's file, keywords of a schema that are not known, a
--                              model that was asked for something it was not made for

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
