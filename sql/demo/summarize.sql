-- Summarises documents that are longer than the model's context. From the top folder, after sql/demo/run.sh has built it:
--
--   sqlite3 :memory: ".load build/release/extension/lm0" ".read sql/demo/summarize.sql"
--
-- The model that ships knows one kind of text, the descriptions of Debian's packages, and one kind of summary. With a
-- model of your own leave `instruction` and `combine` out.
CREATE TABLE documents(package TEXT, description TEXT);
.import --csv sql/demo/documents.csv documents

-- Two long documents: all descriptions, and twice all of them.
CREATE TABLE collections AS
  SELECT n AS id, group_concat(description, char(10, 10)) AS body
    FROM (SELECT 1 AS n, 1 AS copies UNION ALL SELECT 2, 2), documents, (SELECT 1 AS copy UNION ALL SELECT 2)
    WHERE copy <= copies GROUP BY n;
CREATE TEMP TABLE words AS
  SELECT json_object('instruction', 'Write a one-line summary of this package.',
                     'combine', 'Write a one-line summary of this package.', 'max_tokens', 32) AS options;

.mode box --wrap 60
SELECT id, lm_token_count(body) AS tokens, lm_summarize(body, options) AS summary FROM collections, words;

-- What was read: every token, each in some part.
SELECT id, count(*) AS parts, sum(tokens) AS tokens, group_concat(chunk, '') = body AS whole
  FROM collections, lm_chunks(body, 300) GROUP BY id;

-- The same over rows, without putting them together first.
SELECT lm_summarize_agg(description, options) AS summary FROM documents, words;
