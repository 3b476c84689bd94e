-- lm_batch_submit(job, model [, options])  ->  batch, state, status, lines, note
--
-- Hands the rows of a job that wait to the Batch API of a model on the network (half the price, within a day): files
-- of 50,000 lines go up, and become batches. Everything is in the table lm_job_batches: a process may be killed at
-- any moment, and the next call, of whichever process, goes on; a row is in one batch. lm_batch_poll() gets the answers.
--
-- options: lines, bytes (the most of a batch), retry (failed rows, too), database

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
