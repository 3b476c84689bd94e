-- lm_batch_submit(job, model [, options])  ->  batch, state, status, lines, note
--
-- Hands the rows of a job that wait to the Batch API of a model on the network (half the price, within a day): files
-- of 50,000 lines go up, and become batches. Everything is in the table lm_job_batches, which the first call makes: a
-- process may be killed at any moment, and the next call, of whichever process, goes on; a row is in one batch.
-- lm_batch_poll() gets the answers. Until a batch has ended, lm_run() claims none of its rows, tells how many there are (`submitted`),
-- and retries none that failed among them; those that a cancelled or an expired one has not answered wait then.
--
-- columns, a row for each batch
--   batch     the server's number of it
--   state     making, submitting, submitted, ended
--   status    as the server last said
--   lines     in it
--   note      what went wrong with it
--
-- options
--   lines, bytes   the most of a batch (50000, 200000000)
--   retry     true: failed rows, too
--   database  as for lm_run()
--
-- columns of lm_job_batches, an ordinary table beside lm_jobs, there from the first lm_batch_submit() or lm_batch_poll() on
--   number    the row's own
--   job       its name
--   first, last    of its rows in lm_job_rows: their numbers
--   failed    whether these have failed rows, too
--   model     its name in lm_models
--   url       the server's address
--   key       what the server's own lists know it by
--   state     making, submitting, submitted, ended
--   file, batch    the server's numbers
--   lines     in it
--   status    as the server last said
--   note      what went wrong with it
--   worker, lease  who is at it, and until when (milliseconds since 1970)
--   changed   when it last was (UTC)
-- To forget a batch: DELETE FROM lm_job_batches, or UPDATE lm_job_batches SET state = 'ended'. A job that is begun anew or replaced
-- has none of its batches any more; lm_run(job, '{"refresh":true}') keeps them.

CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, kind TEXT);
INSERT INTO lm_jobs(name, query, target) VALUES ('sort',
  'SELECT id, body FROM notes', 'UPDATE notes SET kind = :value WHERE id = :id');
INSERT INTO temp.lm_models(name, path, options) VALUES
  ('gpt', 'https://api.openai.com/v1', '{"model":"gpt-5-mini","dialect":"openai","key_env":"OPENAI_API_KEY"}');
INSERT INTO temp.lm_settings VALUES ('network', 'off');
SELECT * FROM lm_batch_submit('sort', 'gpt');
--! the model 'gpt' is on the network, and lm_settings has network 'off'
SELECT * FROM lm_batch_submit('sort', '$MODEL');
--! is not on the network, and has no batches
