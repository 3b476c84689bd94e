-- Answers the held-out tasks with our own engine, from SQL, for evaluate.py to score:
--
--   sqlite3 heldout.db '.load build/release/extension/lm0' '.read sql/models/recipe/held_out.sql'
--   sql/models/recipe/evaluate.py answers accuracy heldout.db answers_sections        # and _yesno, _yesno_section
--   sql/models/recipe/evaluate.py answers rouge heldout.db answers_synopsis
--   sql/models/recipe/evaluate.py answers tags heldout.db answers_tags
--
-- One lm_each() a system prompt: its rows decode together and share its KV cache.
DROP TABLE IF EXISTS answers_sections;
CREATE TABLE answers_sections AS
  WITH numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY system ORDER BY rowid) - 1 AS key FROM heldout_sections),
  answered AS MATERIALIZED (
    SELECT s.system, e.key, e.value FROM (SELECT DISTINCT system FROM numbered) AS s,
      lm_each((SELECT json_group_array(prompt) FROM (SELECT prompt FROM numbered WHERE system = s.system ORDER BY key)),
              s.system, '{"max_tokens":8}') AS e)
  SELECT package, system, expected, value AS prediction FROM numbered JOIN answered USING (system, key);

DROP TABLE IF EXISTS answers_yesno;
CREATE TABLE answers_yesno AS
  WITH numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY system ORDER BY rowid) - 1 AS key FROM heldout_yesno),
  answered AS MATERIALIZED (
    SELECT s.system, e.key, e.value FROM (SELECT DISTINCT system FROM numbered) AS s,
      lm_each((SELECT json_group_array(prompt) FROM (SELECT prompt FROM numbered WHERE system = s.system ORDER BY key)),
              s.system, '{"max_tokens":3}') AS e)
  SELECT package, system, expected, value AS prediction FROM numbered JOIN answered USING (system, key);

DROP TABLE IF EXISTS answers_yesno_section;
CREATE TABLE answers_yesno_section AS
  WITH numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY system ORDER BY rowid) - 1 AS key FROM heldout_yesno_section),
  answered AS MATERIALIZED (
    SELECT s.system, e.key, e.value FROM (SELECT DISTINCT system FROM numbered) AS s,
      lm_each((SELECT json_group_array(prompt) FROM (SELECT prompt FROM numbered WHERE system = s.system ORDER BY key)),
              s.system, '{"max_tokens":3}') AS e)
  SELECT package, system, expected, value AS prediction FROM numbered JOIN answered USING (system, key);

DROP TABLE IF EXISTS answers_synopsis;
CREATE TABLE answers_synopsis AS
  WITH numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY system ORDER BY rowid) - 1 AS key FROM heldout_synopsis),
  answered AS MATERIALIZED (
    SELECT s.system, e.key, e.value FROM (SELECT DISTINCT system FROM numbered) AS s,
      lm_each((SELECT json_group_array(prompt) FROM (SELECT prompt FROM numbered WHERE system = s.system ORDER BY key)),
              s.system, '{"max_tokens":48}') AS e)
  SELECT package, system, expected, value AS prediction FROM numbered JOIN answered USING (system, key);

DROP TABLE IF EXISTS answers_tags;
CREATE TABLE answers_tags AS
  WITH numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY system ORDER BY rowid) - 1 AS key FROM heldout_tags),
  answered AS MATERIALIZED (
    SELECT s.system, e.key, e.value FROM (SELECT DISTINCT system FROM numbered) AS s,
      lm_each((SELECT json_group_array(prompt) FROM (SELECT prompt FROM numbered WHERE system = s.system ORDER BY key)),
              s.system, '{"max_tokens":120}') AS e)
  SELECT package, system, expected, value AS prediction FROM numbered JOIN answered USING (system, key);
