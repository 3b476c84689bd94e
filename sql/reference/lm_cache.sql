-- lm_cache: the prefixes of prompts that this database has in the running models' caches
--
-- A tree: prompts that begin alike share what they have in common, and part from there. A row is a part that does not fork.
--
-- columns
--   model       its name in this connection, else its path
--   prefix      the row's number
--   parent      the row that it goes on from; NULL: none
--   tokens      of the prefix up to its end
--   own_tokens  of these the row's own
--   bytes       that its own tokens take
--   hits        how many prompts have found it
--   last_used   when one did last, or when it was made (UTC)
--   text        how its own tokens begin, without control tokens
--   lora        the adapters that it was computed with, as the option of that name has them (NULL: none); it is for prompts with these
--   place       'memory', or 'store' for a file of lm_settings('prefix_store'), which has no parent, hits and last_used

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
