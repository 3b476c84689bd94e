-- lm_batch_poll(job [, options])
--   ->  batch, state, status, lines, completed, done, failed, again, unbegun, refused, note
--
-- Asks after the batches of lm_batch_submit() that have not ended, and takes the answers of those that have
-- (lm_batch_import() says how). From any process, any time later, and killed at any moment.
--
-- options: wait_seconds (0: each is asked once), pause_ms (10000: between two rounds), database

CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, kind TEXT);
INSERT INTO lm_jobs(name, query, target) VALUES ('sort',
  'SELECT id, body FROM notes', 'UPDATE notes SET kind = :value WHERE id = :id');
SELECT * FROM lm_batch_poll('sort');
--0
SELECT number, state, lines, file, batch FROM lm_job_batches;
--0
