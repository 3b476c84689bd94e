-- lm_jobs(name, query, target, system, options, model, total, created, began, ended, status)
-- lm_job_rows(number, job, id, prompt, system, state, value, error, finish, tokens_in, tokens_cached, tokens_out,
--             attempts, worker, lease, answered, prompt_version, model, vanished)
--
-- Jobs, and their rows. The first INSERT into lm_jobs makes both tables in the main database (INSERT INTO a.lm_jobs: in
-- the attached database a); they are ordinary tables, and any program can read them. lm_run() works on them.
-- (That one INSERT is one into a virtual table, to whose RETURNING SQLite gives only what was given: no rowid, no times;
-- and as an UPSERT SQLite refuses it: INSERT OR IGNORE, and an UPDATE behind it, will do before and after.)
--
-- columns of lm_jobs
--   name     the job's, for lm_run()
--   query    SELECT id, prompt [, system]: asked once, when the job first runs; from then on it goes on without what that reads.
--            It may read the answers of other jobs (lm_job_rows)
--   target   an INSERT, UPDATE or DELETE that takes an answer: :id, :prompt (what was asked), :value, :error; NULL: answers stay in
--            lm_job_rows. Which row :id is must not change meanwhile: VACUUM may give a table without an INTEGER PRIMARY KEY other
--            rowids. With WHERE id = :id AND body IS :prompt a row whose text has changed meanwhile is left as it is
--   system   the system prompt of rows without one of their own
--   options  those of generate(). on_error: "null" unless given here or in lm_settings: a row that fails has its error in
--            lm_job_rows, and the target is not run for it; "json": the target is run, :value is lm_try's object, :error the
--            text; "error": the first failure ends the run; and those below
--   created  when (UTC, as all times here)
--   model, total, began, ended   set by lm_run(): the model that the job was begun with, its rows, when the query was asked, when no row was
--            left. To go on with another model, or with another file, other adapters or another chat template of it, is an error, unless model = NULL has been set before. A job
--            that is made with a total is refused, unless its lm_job_rows are there
--   status   how the last run that came to an end did: 'done', where no row waits (of a query without rows, too), or why it
--            stopped: 'stopped: ...', by a budget, by max_errors, for want of a server that answers, or before rows that were
--            added, or set to wait again, while it ran, or that another run works on; `ended` is NULL then. Both are NULL once
--            {"retry":true} has set rows to wait again.
--            'submitted: ...': so many rows are in batches of a server (lm_batch_submit)
--
-- options are those of generate(), and
--   summarize          true: rows are answered as lm_summarize() does, so texts longer than the context are read in parts; the system
--                      prompt is the instruction
--   combine, part_tokens   as lm_summarize() has them, beside it
--
-- columns of lm_job_rows
--   number   the row's place in the query
--   job      its name
--   id, prompt, system   what the query gave
--   state    waiting, running, done, failed
--   value    the answer; also where the target has refused it (`finish` is then not 'error'): lm_run() gives it to the target again.
--            A row that was to be answered anew, and failed, keeps the answer that it had
--   error    why there is none; else NULL
--   finish, tokens_in, tokens_cached, tokens_out   as in lm_each
--   attempts   how often a run has claimed it, but for those that ended since the model's server was gone, or would not answer at all
--   worker, lease   who has claimed it, and until when (milliseconds since 1970)
--   answered   when it was done, or failed
--   prompt_version, model   to what that is the answer, or the error: a digest of prompt, system prompt and options, and one of the
--            model's file, with those of its adapters and its chat template where lm_models gives it others
--   vanished   since when the query does not give the row any more: lm_run(job, '{"refresh":true}') found it so
--
-- What is wrong with options or system is said by lm_run(), before anything is asked, and at any time by lm_check_job(system, options); the
-- INSERT that makes the tables says it, too. A query is asked once: a later change is an error, unless the same UPDATE sets
-- total = NULL, and so begins anew.

SELECT count(*) FROM lm_jobs;
--> 0
INSERT INTO lm_jobs(name, query) VALUES ('kept', 'SELECT 1, 2') ON CONFLICT(name) DO UPDATE SET query = excluded.query;
--! UPSERT not implemented for virtual table "lm_jobs"
INSERT INTO lm_jobs(name, query, options) VALUES
  ('animals', 'SELECT 1, ''What barks?'' UNION ALL SELECT 2, NULL UNION ALL SELECT 3, x''00''', '{"max_tokens":2}');
SELECT type, name FROM sqlite_master WHERE tbl_name LIKE 'lm_job%' AND sql IS NOT NULL ORDER BY name;
--> table|lm_job_rows
--> index|lm_job_rows_by_state
--> index|lm_job_rows_vanished
--> table|lm_jobs
--> trigger|lm_jobs_begun
--> trigger|lm_jobs_delete
--> trigger|lm_jobs_query
--> trigger|lm_jobs_rename
--> trigger|lm_jobs_replace

SELECT max(total), max(done), max(failed) FROM lm_run('animals');
--> 3|2|1
SELECT id, state, value IS NULL, error, attempts FROM lm_job_rows WHERE job = 'animals';
--> 1|done|0|NULL|1
--> 2|done|1|NULL|1
--> 3|failed|1|prompt must be text, got a BLOB of 1 bytes (CAST(x AS TEXT) if it is text)|1

SELECT created <= began, began <= ended FROM lm_jobs;
--> 1|1
-- A table that the query reads may be gone by then.
CREATE TABLE inbox AS SELECT 1 AS id, 'Hello' AS body;
INSERT INTO lm_jobs(name, query, options) VALUES ('mails', 'SELECT id, body FROM inbox', '{"max_tokens":2,"cache":false}');
SELECT max(total), max(done) FROM lm_run('mails', '{"max_total_tokens":1}');
--> 1|0
DROP TABLE inbox;
SELECT max(total), max(done) FROM lm_run('mails');
--> 1|1
SELECT * FROM lm_run('mails', '{"refresh":true}');
--! the job's query does not compile: no such table: inbox
DELETE FROM lm_jobs WHERE name = 'mails';

UPDATE lm_jobs SET query = 'SELECT 4, 5';
--! the job has begun, .* its query is not asked again
SELECT name, lm_check_job(system, options) FROM lm_jobs;
--> animals|1
SELECT lm_check_job(NULL, '{"max_token":2}');
--! unknown option 'max_token'; the nearest known one is 'max_tokens'
UPDATE lm_jobs SET system = x'6162';
SELECT * FROM lm_run('animals');
--! lm_jobs.system must be text, got a BLOB of 2 bytes
UPDATE lm_jobs SET system = NULL;

-- What is to be done again is what you say.
UPDATE lm_job_rows SET prompt = 'What meows?', state = 'waiting' WHERE job = 'animals' AND state = 'failed';
SELECT max(total), max(done), max(failed) FROM lm_run('animals');
--> 3|3|0

-- Its rows go along with a job's name, and with the job. (A run that is under way goes on under the new name. What a
-- server has of it, by lm_batch_submit(), has the old one: until that is back, renaming it is an error.)
UPDATE lm_jobs SET name = 'beasts' WHERE name = 'animals';
SELECT job, count(*) FROM lm_job_rows GROUP BY job;
--> beasts|3
DELETE FROM lm_jobs WHERE name = 'beasts';
SELECT count(*) FROM lm_job_rows;
--> 0
-- A job of that name, whether there was one or not.
INSERT OR IGNORE INTO lm_jobs(name, query) VALUES ('kept', 'SELECT 1, 2');
UPDATE lm_jobs SET query = 'SELECT 1, 3' WHERE name = 'kept';
INSERT INTO lm_jobs(name, query) VALUES ('kept', 'SELECT 1, 4') ON CONFLICT(name) DO UPDATE SET query = excluded.query;
SELECT count(*), query FROM lm_jobs;
--> 1|SELECT 1, 4
DELETE FROM lm_jobs;
INSERT INTO lm_jobs(name) VALUES ('empty');
--! NOT NULL constraint failed: lm_jobs.query
