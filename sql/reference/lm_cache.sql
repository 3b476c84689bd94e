-- lm_cache: the prefixes of prompts that this database has in the running models' caches
--
-- A tree: a row is a part that does not fork; parent is the row it goes on from, tokens the length of
-- the prefix to its end, own_tokens and bytes are its own. place is 'memory', or 'store' for a file of lm_settings('prefix_store').

SELECT count(*) FROM lm_cache;
--> 0
CREATE TEMP TABLE labels AS
  SELECT value FROM lm_each('["rain all day", "a new bicycle", "soup again"]',
    'You are given a note. Say in one word what it is about: weather, food or sport. '
    || 'Do not explain, and do not repeat the note. If it is none of them, say other.', '{"max_tokens":4}');
-- What do the prompts share, and how often was it found?
SELECT hits > 0, text LIKE '%You are given a note.%' FROM lm_cache WHERE parent IS NULL;
--> 1|1
-- How much memory is that?
SELECT sum(bytes) = (SELECT kv_bytes_cached FROM lm_stats WHERE phase = 'prefill') FROM lm_cache;
--> 1
