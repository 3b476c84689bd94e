-- lm_running: what is under way for this database: statements, jobs, loadings
--
-- For a second connection to look at while a first one is at work: in a second shell, say, on the same file.
--   SELECT id, sql, done, failed, foreseen, tokens_per_second, eta_seconds, waiting_for FROM lm_running;
--   DELETE FROM lm_running WHERE id = 7;          -- ends that statement, within 50 ms (between two rows: when it goes on)
-- Its transaction goes on. Only a statement that is deep in SQLite's own work is interrupted, as by sqlite3_interrupt(): with it ends what
-- else its connection has under way, and SQLite takes back a transaction that it writes in. While another statement of its connection is at
-- work it is not: one that is between two rows, or cannot be told from others, ends when it calls something of ours again.
-- In Python:
--   def connect():
--       connection = sqlite3.connect("notes.db", isolation_level=None, check_same_thread=False)
--       connection.enable_load_extension(True)
--       connection.load_extension("./lm0")
--       return connection
--   worker, watcher = connect(), connect()
--   threading.Thread(target=worker.execute, args=("UPDATE notes SET y = generate(body)",)).start()
--   watcher.execute("SELECT sql, done, tokens_per_second FROM lm_running").fetchall()
--   watcher.execute("DELETE FROM lm_running")
-- Of other processes those of the same user are seen (their ids are larger).
-- Where the file was new, without a table, when a connection loaded the extension, its DELETE may have to wait for who writes the file until it
-- has read lm_running once, with a plain SELECT.
--
-- columns
--   id                 for DELETE
--   kind               statement; job: one that runs lm_run(); load: a model that is being read
--   process            its number, getpid()
--   connection         its number in that process
--   sql                the statement's text, without the values of its parameters
--   name               the job's, or the model's file's
--   total              the rows that there will be, where anybody knows: of lm_each and jobs; else NULL
--   done, failed       the rows it has been answered (of lm_summarize and its kin the parts, of lm_stream the tokens, of a job all of its
--                      rows, whoever has run them); a row that SQLite evaluates twice counts twice
--   foreseen           of these, what look-ahead had asked for before SQLite came to the row
--   tokens_per_second  generated for it, over all of `seconds`
--   eta_seconds        where the total is known
--   seconds            since it began
--   waiting_for        model; load: a model; network: a batch of a Batch API, or a job's server that is to come back; memory: some for the
--                      rows of a job; lock: another's on the job's database; others: rows of the job that other runs have claimed; NULL:
--                      it is SQLite's turn, or the host's
--   hint               why it is answered row by row; SQLite's log has it, too
--   began              when (UTC)

-- Nothing that waits for a model.
SELECT id FROM lm_running;
--0

-- A statement sees itself, from its second row on.
WITH n(i) AS (VALUES (1), (2), (3))
SELECT i, answer IS NOT NULL, (SELECT kind || ' ' || done FROM lm_running WHERE i > 0) AS running
  FROM (SELECT i, generate('row ' || i, NULL, '{"max_tokens":2}') AS answer FROM n LIMIT 3);
--~ 1\|1\|statement \d+
--~ 2\|1\|statement \d+
--~ 3\|1\|statement \d+

DELETE FROM lm_running;
UPDATE lm_running SET done = 1 WHERE id = -1;
INSERT INTO lm_running(sql) VALUES ('SELECT 1');
--! DELETE ends it
