-- lm_job_diff(job_a, job_b)  ->  id, a, b, same, state_a, state_b, tokens_a, tokens_b
--
-- Two jobs over the same rows, answer beside answer: another instruction, another model, before a big run. A row for each
-- id that one of them has. Nothing is run.
--
-- columns
--   id                  the row's, as the queries gave it
--   a, b                the answers
--   same                1 where they are the same text, 0 where not, NULL where one has no answer: its state says why
--   state_a, state_b    waiting, running, done, failed; NULL: the job has no such row
--   tokens_a, tokens_b  what the row took, its prompt included

CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO notes(body) VALUES ('rain all day'), ('a new bicycle'), ('bread, butter, jam'), ('bread, butter, jam');
INSERT INTO lm_jobs(name, query, system, options) VALUES
  ('old', 'SELECT id, body FROM notes', 'Is it about food?', '{"choices":["yes","no"]}'),
  ('new', 'SELECT id, body FROM notes', 'Can it be eaten?', '{"choices":["yes","no"]}'),
  ('few', 'SELECT id, body FROM notes WHERE id > 2 UNION ALL SELECT 9, ''an egg''', 'Is it about food?', '{"choices":["yes","no"]}');
SELECT max(done) FROM lm_run('old');
--> 4

-- Before the other has run.
SELECT count(*), count(same), count(a), count(b), max(state_b) FROM lm_job_diff('old', 'new');
--> 4|0|4|0|NULL
SELECT max(done) FROM lm_run('new');
--> 4
SELECT max(done) FROM lm_run('few');
--> 3

-- A summary: on what share they agree, and what each took.
SELECT count(*), avg(same) BETWEEN 0 AND 1, count(same), sum(tokens_a) > 0, sum(tokens_b) > 0 FROM lm_job_diff('old', 'new');
--> 4|1|4|1|1
-- The rows that changed.
SELECT count(*) = (SELECT sum(NOT same) FROM lm_job_diff('old', 'new')) FROM lm_job_diff('old', 'new') WHERE a <> b;
--> 1
-- The same question has the same answers, where both have the row.
SELECT id, same, state_a, state_b FROM lm_job_diff('old', 'few') ORDER BY id;
--> 1|NULL|done|NULL
--> 2|NULL|done|NULL
--> 3|1|done|done
--> 4|1|done|done
--> 9|NULL|NULL|done

SELECT * FROM lm_job_diff('old');
--! the names of two jobs are wanted: lm_job_diff\(job_a, job_b\)
SELECT * FROM lm_job_diff('old', NULL);
--! job_b is NULL
SELECT * FROM lm_job_diff('old', 'lost');
--! there is no job named 'lost': lm_jobs of no database has it
