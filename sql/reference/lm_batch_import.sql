-- lm_batch_import(job, path [, options])  ->  lines, done, failed, again, unbegun, refused, refusal
--
-- The answers to what lm_batch_export() wrote, as the Batch API and `vllm run-batch` give them: in any order, in any
-- number of files, some missing, some twice. Each is held to the job's constraint and must be the answer to what its
-- row asks now; one with a NUL character (U+0000) is a failure of its row. The tokens of one without `usage` are estimated:
-- four bytes for one. A row of the result for each line that no row can take, and one with the sums.
--
-- columns
--   lines     read so far
--   done      rows that got their answer
--   failed    rows that failed
--   again     lines of rows that had their answer, or their failure, already
--   unbegun   requests that the server did not begin in time: their rows wait
--   refused   lines that no row can take
--   refusal   why this one; NULL in the row with the sums
--
-- options
--   database  as for lm_run()

--@ open file notes.db
CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, kind TEXT);
INSERT INTO notes(body) VALUES ('rain all day'), ('a new bicycle'), ('snow');
INSERT INTO lm_jobs(name, query, target, options) VALUES ('sort',
  'SELECT id, body FROM notes', 'UPDATE notes SET kind = :value WHERE id = :id', '{"choices":["weather","other"]}');
SELECT count(*) FROM lm_batch_export('sort', '{"model":"Qwen3-32B","dialect":"vllm","path":"$TMP/notes"}');
--> 1

-- Somebody else answers them: sql/batch_files.md. (Here nobody has, and the requests come back as they went.)
SELECT lines, done, failed, again, refused FROM lm_batch_import('sort', '$TMP/notes-00001.jsonl');
--> 3|0|3|0|0
SELECT id, state, error FROM lm_job_rows LIMIT 1;
--> 1|failed|there is neither a response nor an error
-- Twice is harmless.
SELECT lines, done, failed, again, refused FROM lm_batch_import('sort', '$TMP/notes-00001.jsonl');
--> 3|0|0|3|0

-- A row that asks something else by now has no use for an answer to what it asked.
UPDATE lm_job_rows SET prompt = 'fog' WHERE id = 2;
SELECT refused, refusal FROM lm_batch_import('sort', '$TMP/notes-00001.jsonl');
--> 1|line 2 is of row 2, id 2, whose prompt, system prompt or options have changed since
--> 1|NULL
SELECT * FROM lm_batch_import('sort', '$TMP/nowhere.jsonl');
--! nowhere.jsonl': No such file

-- lm_run() does what is left. The job is the exported model's, so that no column has answers of two models unawares:
-- who wants those of another says so.
SELECT * FROM lm_run('sort', '{"retry":true}');
--! job 'sort' was begun with the model Qwen3-32B, this connection's is .* \(UPDATE lm_jobs SET model = NULL
UPDATE lm_jobs SET model = NULL WHERE name = 'sort';
SELECT max(total), max(done), max(failed) FROM lm_run('sort', '{"retry":true}');
--> 3|3|0
