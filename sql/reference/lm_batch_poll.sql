-- lm_batch_poll(job [, options])
--   ->  batch, state, status, lines, completed, done, failed, again, unbegun, refused, note
--
-- Asks after the batches of lm_batch_submit() that have not ended, and takes the answers of those that have
-- (lm_batch_import() says how). From any process, any time later, and killed at any moment.
--
-- columns, a row for each batch that had not ended
--   batch      the server's number of it
--   state      submitted, or ended
--   status     as the server last said
--   lines      in it
--   completed  of these done, as the server says
--   done, failed, again, unbegun, refused    what lm_batch_import() made of them
--   note       what went wrong with it; or why a line was refused
--
-- A batch that its server knows no more, whose files have expired, or whose model lm_models has no more keeps no other from being
-- fetched: the note says so, and it stays submitted until it is forgotten (lm_batch_submit() has how). Where none could be
-- asked after, the statement ends with the first error.
--
-- options
--   wait_seconds  how long batches are waited for, a row each time that one is asked; 0: each is asked once
--   pause_ms      between two rounds of questions; 10000
--   database      as for lm_run()

CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, kind TEXT);
INSERT INTO lm_jobs(name, query, target) VALUES ('sort',
  'SELECT id, body FROM notes', 'UPDATE notes SET kind = :value WHERE id = :id');
SELECT * FROM lm_batch_poll('sort');
--0
SELECT number, state, lines, file, batch FROM lm_job_batches;
--0
