-- Annotates documents [@first, @first + @count): classify, summarise, extract, ask.
--
-- Each lm_each() takes a JSON array of prompts and one system prompt. The rows decode together, and the system
-- prompt's KV cache is computed once for all of them. Generating holds no write lock: the answers are collected in
-- a temporary table first, and the INSERT into notes takes milliseconds.
CREATE TEMP TABLE IF NOT EXISTS batch(key INTEGER PRIMARY KEY, package TEXT, text TEXT);
DELETE FROM batch;
INSERT INTO batch
  SELECT rowid - 1 - @first, package, 'Package: ' || package || char(10) || description FROM documents
  WHERE rowid > @first AND rowid <= @first + @count ORDER BY rowid;

CREATE TEMP TABLE IF NOT EXISTS answers(task TEXT, key INTEGER, value TEXT);
DELETE FROM answers;
INSERT INTO answers
  SELECT 'section', key, value
  FROM lm_each((SELECT json_group_array(text) FROM batch), 'Name the section this package belongs to.', '{"max_tokens":12}')
  UNION ALL
  SELECT 'summary', key, value
  FROM lm_each((SELECT json_group_array(text) FROM batch), 'Write a one-line summary of this package.', '{"max_tokens":32}')
  UNION ALL
  SELECT 'tags', key, value
  FROM lm_each((SELECT json_group_array(text) FROM batch), 'Extract the tags as JSON.', '{"max_tokens":96}')
  UNION ALL
  SELECT 'is_library', key, value
  FROM lm_each((SELECT json_group_array(text || char(10, 10) || 'Is this package a library? Answer yes or no.') FROM batch), NULL, '{"max_tokens":4}');

INSERT INTO notes
  SELECT package,
         max(value) FILTER (WHERE task = 'section'),
         max(value) FILTER (WHERE task = 'summary'),
         max(value) FILTER (WHERE task = 'tags'),
         max(value) FILTER (WHERE task = 'is_library')
  FROM batch JOIN answers USING (key) GROUP BY package;

SELECT printf('annotated %d of %d packages', (SELECT count(*) FROM notes), (SELECT count(*) FROM documents));
