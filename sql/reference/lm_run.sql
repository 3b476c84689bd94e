-- lm_run(job [, options])  ->  total, done, failed, cached, rows_per_second, tokens_per_second, eta_seconds, seconds, hint, joined,
--                        changed, vanished, stopped
--
-- Runs a job of lm_jobs, or goes on with it: a row of progress a second, and one at the end. What is answered is
-- committed together with the row's state and what the job's target does with it, again and again, and while the model
-- works no lock is held. Killed and run again, it goes on where it was; several processes may run the same job at once.
-- Rows are taken in the query's order, 4096 at a time, and of those in the order of their texts: what they begin with alike is
-- computed once, however small the cache.
-- At its beginning another connection's lock is waited for as long as PRAGMA busy_timeout says (5 s where it is not set), and
-- is an error then; later, with answers at stake, for ten minutes.
-- `hint` says from the first row on, as lm_stats does, where the model was made for something else than it is asked.
--
-- options
--   chunk        rows under way and not committed (128): what a kill may cost
--   max_errors   how many rows may fail before the run ends with an error; no limit unless given
--   retry        true: rows that failed before are tried again
--   refresh      true: the query is asked again. New rows join; those whose prompt, system prompt, options or model are
--                others than those of their answer are generated again; those that are gone are marked, and kept
--   progress_ms  the least time between two rows of the result (1000)
--   lease_ms     after how long without a sign of life another run's claims are void (30000)
--   max_seconds, max_total_tokens, max_cost
--                the run's budgets: it ends well where one is reached, and the rows that are left wait; `stopped` says it
--   database     which database has the job: main, or an attached one; unless given, the first that does
--
-- A row that fails is 'failed' in lm_job_rows, with its error, and the others go on: a job's on_error is "null", unless its
-- options or lm_settings name another. The target is not run for such a row, but with "on_error":"json", where :value is
-- lm_try's object and :error the text; with "on_error":"error" the first failure ends the run.
-- `hint` says, too, where the target has changed no row at all by this run's answers: it may look for other ids than the query has.
--
-- The job's statements run on a connection of their own, which behaves as yours does: the same foreign keys, triggers,
-- limits and case_sensitive_like; SQLite's own functions and collations, not those that your program has registered. An authorizer is asked what it allows before the job begins; hooks of the host do not see the job.
-- A database in memory has only your connection: there, a job that reads or writes another database (temp is one), reads a
-- virtual table but json_each, json_tree, lm_chunks and those of full-text search, or calls what is not SQLite's, is an error.

--@ open file notes.db
CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, short TEXT);
INSERT INTO notes(body) VALUES ('rain all day'), ('a new bicycle'), ('bread, butter, jam');
INSERT INTO lm_jobs(name, query, system, target, options) VALUES ('shorten',
  'SELECT id, body FROM notes WHERE short IS NULL',
  'Say in one word what the note is about.',
  'UPDATE notes SET short = :value WHERE id = :id',
  '{"max_tokens":4}');

SELECT max(total), max(done), max(failed), max(cached), min(eta_seconds) FROM lm_run('shorten');
--> 3|3|0|0|0.0
SELECT count(short) FROM notes;
--> 3
-- Done is done.
SELECT max(total), max(done), max(rows_per_second) FROM lm_run('shorten');
--> 3|3|0.0

-- A row that fails does not stop the others. Then once more, with the reason gone.
INSERT INTO notes(id, body) VALUES (4, 'an owl'), (5, x'00');
INSERT INTO lm_jobs(name, query, target, options) SELECT 'more', query, target, options FROM lm_jobs;
SELECT max(total), max(done), max(failed) FROM lm_run('more');
--> 2|1|1
UPDATE lm_job_rows SET prompt = 'a fox' WHERE job = 'more' AND state = 'failed';
SELECT max(total), max(done), max(failed) FROM lm_run('more', '{"retry":true}');
--> 2|2|0

-- A job that follows its table: one statement in cron. Its query gives all rows, not only those without an answer.
CREATE TABLE pages(url TEXT PRIMARY KEY, body TEXT, topic TEXT);
INSERT INTO pages(url, body) VALUES ('/a', 'an owl'), ('/b', 'a fox'), ('/c', 'a hen');
INSERT INTO lm_jobs(name, query, system, target, options) VALUES ('topics', 'SELECT url, body FROM pages',
  'Which animal is it?', 'UPDATE pages SET topic = :value WHERE url = :id', '{"max_tokens":4}');
SELECT max(total), max(done), max(joined) FROM lm_run('topics', '{"refresh":true}');
--> 3|3|3
INSERT INTO pages(url, body) VALUES ('/d', 'a cow');
UPDATE pages SET body = 'two foxes' WHERE url = '/b';
DELETE FROM pages WHERE url = '/c';
SELECT max(total), max(done), max(joined), max(changed), max(vanished) FROM lm_run('topics', '{"refresh":true}');
--> 3|3|1|1|1
SELECT id, state, attempts, vanished IS NOT NULL FROM lm_job_rows WHERE job = 'topics' ORDER BY id;
--> /a|done|1|0
--> /b|done|2|0
--> /c|done|1|1
--> /d|done|1|0
-- Another instruction is another question, to all rows.
UPDATE lm_jobs SET system = 'Which animals are they?' WHERE name = 'topics';
SELECT max(total), max(done), max(joined), max(changed), max(vanished) FROM lm_run('topics', '{"refresh":true}');
--> 3|3|0|3|0

-- A budget ends the job half-way; a larger one finishes it. A row is begun only where its prompt and the most that its
-- answer may take (max_tokens) are left, so that a budget is never exceeded.
INSERT INTO lm_jobs(name, query, options) VALUES ('dear', 'SELECT url, ''The page '' || url FROM pages', '{"max_tokens":4,"cache":false}');
SELECT max(total), max(done), max(stopped) IS NOT NULL FROM lm_run('dear', '{"max_total_tokens":40}');
--> 3|1|1
SELECT status FROM lm_jobs WHERE name = 'dear';
--~ ^stopped: max_total_tokens = 40 does not reach for another answer: 1 have taken \d+, the next may take \d+; 2 of 3 rows are left for a later run$
SELECT max(total), max(done), max(stopped) FROM lm_run('dear', '{"max_total_tokens":1000}');
--> 3|3|NULL
SELECT status FROM lm_jobs WHERE name = 'dear';
--> done

SELECT * FROM lm_run('lost');
--! there is no job named 'lost'; lm_jobs has 'shorten', 'more', 'topics', 'dear'
SELECT * FROM lm_run('more', '{"chunks":3}');
--! unknown option 'chunks'; chunk, max_errors, retry, refresh, progress_ms, lease_ms, max_seconds, max_total_tokens, max_cost, database are known
