-- lm_batch_export(job [, options])  ->  shard, lines, bytes, text
--
-- The rows of a job that wait, as requests for somebody else to answer: JSON objects, one a line, in the form of
-- OpenAI's Batch API. sql/batch_files.md shows who takes them. lm_batch_import() takes the answers.
--
-- columns
--   shard     which file, from 1
--   lines     in it; 1, where the row is a line
--   bytes     likewise
--   text      the line; with `path` the file's path
--
-- options
--   model     what the server calls its model; unless given, as lm_models has it of the job's model. The job is that model's
--             then: lm_run() with another goes on with it after UPDATE lm_jobs SET model = NULL
--   dialect   openai (unless given), vllm, sglang, llama-server, ollama: how constraints are written
--   path      writes files instead, path-00001.jsonl and so on: a row for each
--   lines, bytes   the most of a file (50000, 200000000)
--   retry     true: failed rows, too
--   database  as for lm_run()

--@ open file notes.db
CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, kind TEXT);
INSERT INTO notes(body) VALUES ('rain all day'), ('a new bicycle'), (NULL);
INSERT INTO lm_jobs(name, query, target, options) VALUES ('sort',
  'SELECT id, body FROM notes', 'UPDATE notes SET kind = :value WHERE id = :id', '{"choices":["weather","other"]}');

SELECT shard, text FROM lm_batch_export('sort', '{"model":"Qwen3-32B","dialect":"vllm"}') LIMIT 1;
--~ ^1\|\{"custom_id":"sort:1:[0-9a-f]{32}","method":"POST","url":"/v1/chat/completions","body":\{"model":"Qwen3-32B","messages":.*"structured_outputs":\{"choice":\["weather","other"\]\}\}\}$

-- What asks nothing is done at once.
SELECT id, state FROM lm_job_rows;
--> 1|waiting
--> 2|waiting
--> 3|done
SELECT shard, lines, text LIKE '%/notes-00001.jsonl' FROM lm_batch_export('sort', '{"model":"Qwen3-32B","path":"$TMP/notes"}');
--> 1|2|1
