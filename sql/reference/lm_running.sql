-- lm_running: what is under way for this database: statements, jobs, loadings
--
-- For a second connection to look at while a first one is at work: in a second shell, say, on the same file.
--   SELECT id, sql, done, failed, foreseen, tokens_per_second, eta_seconds, waiting_for FROM lm_running;
--   DELETE FROM lm_running WHERE id = 7;          -- ends that statement, within 50 ms (between two rows: when it goes on)
-- In Python:
--   worker, watcher = connect("notes.db"), connect("notes.db")        # both have loaded lm0
--   threading.Thread(target=worker.execute, args=("UPDATE notes SET y = generate(body)",)).start()
--   watcher.execute("SELECT sql, done, tokens_per_second FROM lm_running").fetchall()
--   watcher.execute("DELETE FROM lm_running")
-- Of other processes those of the same user are seen (column process; their ids are larger).

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
