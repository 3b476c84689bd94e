-- Answers the held-out tasks with our own engine, from SQL, for evaluate.py to score:
--
--   sqlite3 heldout.db '.load build/release/extension/lm0' '.read sql/models/recipe/held_out.sql'
--   sql/models/recipe/evaluate.py answers accuracy heldout.db answers_sections     # _yesno, _yesno_section, _if, _mentions, _which, _labels
--   sql/models/recipe/evaluate.py answers rouge heldout.db answers_synopsis
--   sql/models/recipe/evaluate.py answers tags heldout.db answers_tags
--   sql/models/recipe/evaluate.py answers keywords heldout.db answers_keywords
--
-- One lm_query() a task: its rows decode together and share the prefixes that they have in common.
DROP TABLE IF EXISTS answers_sections;
CREATE TABLE answers_sections AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_sections', '{"max_tokens":8}') AS answer JOIN heldout_sections ON heldout_sections.rowid = answer.id;

DROP TABLE IF EXISTS answers_yesno;
CREATE TABLE answers_yesno AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_yesno', '{"max_tokens":3}') AS answer JOIN heldout_yesno ON heldout_yesno.rowid = answer.id;

DROP TABLE IF EXISTS answers_yesno_section;
CREATE TABLE answers_yesno_section AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_yesno_section', '{"max_tokens":3}') AS answer JOIN heldout_yesno_section ON heldout_yesno_section.rowid = answer.id;

DROP TABLE IF EXISTS answers_synopsis;
CREATE TABLE answers_synopsis AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_synopsis', '{"max_tokens":48}') AS answer JOIN heldout_synopsis ON heldout_synopsis.rowid = answer.id;

DROP TABLE IF EXISTS answers_tags;
CREATE TABLE answers_tags AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_tags', '{"max_tokens":120}') AS answer JOIN heldout_tags ON heldout_tags.rowid = answer.id;

DROP TABLE IF EXISTS answers_if;
CREATE TABLE answers_if AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_if', '{"max_tokens":3}') AS answer JOIN heldout_if ON heldout_if.rowid = answer.id;

DROP TABLE IF EXISTS answers_mentions;
CREATE TABLE answers_mentions AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_mentions', '{"max_tokens":3}') AS answer JOIN heldout_mentions ON heldout_mentions.rowid = answer.id;

DROP TABLE IF EXISTS answers_which;
CREATE TABLE answers_which AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_which', '{"max_tokens":3}') AS answer JOIN heldout_which ON heldout_which.rowid = answer.id;

DROP TABLE IF EXISTS answers_labels;
CREATE TABLE answers_labels AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_labels', '{"max_tokens":8}') AS answer JOIN heldout_labels ON heldout_labels.rowid = answer.id;

DROP TABLE IF EXISTS answers_keywords;
CREATE TABLE answers_keywords AS
  SELECT package, system, expected, value AS prediction
  FROM lm_query('SELECT rowid AS id, prompt, system FROM heldout_keywords', '{"max_tokens":60}') AS answer JOIN heldout_keywords ON heldout_keywords.rowid = answer.id;
