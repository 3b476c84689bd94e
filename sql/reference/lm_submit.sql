-- lm_submit(prompt [, system [, options]])  ->  INTEGER, a ticket
-- lm_await(ticket)  ->  TEXT
--
-- One part of a statement asks, another waits. A MATERIALIZED CTE is computed as a whole first, so all
-- of its rows are under way before the first answer is waited for. A connection may have 100,000 tickets at
-- a time; lm_query takes a table of any size.

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews(body) VALUES ('it flies'), ('it tore'), (NULL);

WITH asked AS MATERIALIZED (
  SELECT id, body, lm_submit(body, 'Label the review.', '{"max_tokens":4}') AS ticket FROM reviews)
SELECT id, lm_await(ticket) IS generate(body, 'Label the review.', '{"max_tokens":4}') FROM asked;
--> 1|1
--> 2|1
--> 3|1

-- Tickets end with their statement.
SELECT lm_await(1);
--! there is no ticket 1
