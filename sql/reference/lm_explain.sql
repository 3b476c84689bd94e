-- lm_explain(select_sql [, options])
--   ->  model, rows, prompts, tokens, tokens_shared, answer_tokens, prefill_seconds, decode_seconds, seconds, basis,
--       cost_in, cost_out, tokens_shared_ordered, field_order, tokens_stored
--
-- What a query would ask of the model, and how long that will take. Nothing is generated, unless you ask for a sample:
-- with {"sample":32} so many of the prompts are, the memo keeps their answers, and the forecast of the rest is made of them.
-- max_seconds, max_total_tokens and max_cost beside it bound what the sample may take; what then has no answer is left out of
-- it, and where nothing has one, the reason is the error. Where the query calls functions, all other options stand in the calls.
--
-- A call behind another one's answer (WHERE lm_if(...), CASE WHEN lm_score(...) > 0.5 THEN generate(...)) is counted as that goes on when
-- nothing is generated: lm_if says no, lm_score 0.5, lm_classify its first label, generate an empty text. What stands behind a yes is not
-- counted, and the cost that much too low: explain that call alone over the rows, which is the most that it takes.
--
-- columns, a row for each model
--   model                    its name in this connection, else its path
--   rows                     calls, or rows of id, prompt and system
--   prompts                  those that differ, in their text or in how they are asked (seed, max_tokens, ...): equal ones are generated
--                            once, but with {"cache":false}, by lm_stream and by lm_logprobs each time
--   tokens                   of these prompts
--   tokens_shared            of these in a prefix that another prompt has, too: computed once
--   tokens_stored            of the others those that lm_settings('prefix_store') has: read instead of computed
--   answer_tokens            an answer without a constraint is taken to be as long as this engine's were (once three of them have come to
--                            their own end); any other, and the first ones, to have max_tokens; of choices the longest, where they are only weighed, too;
--                            with thinking_tokens so many more
--   prefill_seconds, decode_seconds, seconds     of each phase, and together; NULL on a GPU, and for a server, before there is a sample or a past
--   basis                    'measured': from what this engine has reached before; 'ceilings': 40% of what the machine can do at most;
--                            'sample'; of a server 'tokens' (its option tokenizer counts them) or 'guessed tokens' (four bytes each)
--   cost_in, cost_out        what prompts and answers come to at the model's price_in and price_out; NULL without
--   field_order              JSON: of lm_prompt's fields at {{*}}, the order in which the rows share most; NULL elsewhere
--   tokens_shared_ordered    tokens_shared, if that were the order
--
-- options (the others are generate()'s, for a query of id, prompt and system; calls have theirs with them)
--   sample                   how many of the prompts to ask for; 0
--   max_seconds, max_total_tokens, max_cost     what the sample may take

CREATE TEMP TABLE reviews(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO reviews(body) VALUES ('good'), ('bad'), ('good'), (NULL), ('I do not know');

-- A query as you would write it: its calls are counted. Equal prompts are generated once.
SELECT rows, prompts, tokens > 0, tokens_shared > 0, seconds > 0, basis
  FROM lm_explain('SELECT id, generate(body, ''Say in one word what the review is like.'') FROM reviews');
--> 4|3|1|1|1|ceilings

-- Or its prompts alone, as lm_query takes them: id, prompt and system.
SELECT rows, prompts, answer_tokens
  FROM lm_explain('SELECT id, body, ''Say it in one word.'' FROM reviews', '{"max_tokens":5}');
--> 4|3|15

-- A yes or no takes no decoding at all; it has its tokens (of a server, one), as the bill has.
SELECT answer_tokens > 0, decode_seconds FROM lm_explain('SELECT id, lm_if(body, ''Is it praise?'') FROM reviews');
--> 1|0.0

-- Of prompts that lm_prompt makes of fields: the order of these in which the rows share most, and how many tokens they would share then.
SELECT field_order, tokens_shared_ordered > tokens_shared
  FROM lm_explain('SELECT generate(lm_prompt(''{{*}}'', json_object(''id'', id, ''shop'', ''the one at the corner of the market''))) FROM reviews');
--> ["shop","id"]|1

-- With lm_settings('prefix_store'), tokens_stored of the tokens that are not shared will be read instead of computed.
SELECT tokens_stored FROM lm_explain('SELECT id, generate(body) FROM reviews');
--> 0

-- What the memo tells apart is generated apart: five draws of each of three texts; and with {"cache":false} each row.
SELECT prompts FROM lm_explain('SELECT generate(body, NULL, json_object(''temperature'', 1, ''seed'', value)) FROM reviews, json_each(''[1,2,3,4,5]'')');
--> 15
SELECT rows, prompts FROM lm_explain('SELECT generate(body, NULL, ''{"cache":false}'') FROM reviews');
--> 4|4

-- Behind a yes nothing is counted; over all rows it is the most that it takes.
SELECT rows, prompts FROM lm_explain('SELECT CASE WHEN lm_if(body, ''Is it praise?'') THEN generate(body, ''Thank for it.'') END FROM reviews');
--> 4|3
SELECT rows, prompts FROM lm_explain('SELECT lm_if(body, ''Is it praise?''), generate(body, ''Thank for it.'') FROM reviews');
--> 8|6

-- Nothing has been generated, and nothing can be written.
SELECT sum(requests) FROM lm_stats;
--> 0
SELECT rows FROM lm_explain('UPDATE reviews SET body = generate(body) WHERE id < 4');
--> 3
SELECT count(body) FROM reviews WHERE id < 4;
--> 3
SELECT * FROM lm_explain('DROP TABLE reviews');
--! select_sql must be a SELECT: it begins with DROP

-- After a sample the forecast is of what is left: here the three different prompts have been asked for, and are remembered.
SELECT prompts, basis, answer_tokens, seconds
  FROM lm_explain('SELECT id, generate(body, ''Say it in one word.'', ''{"max_tokens":5}'') FROM reviews WHERE id < 5', '{"sample":32}');
--> 2|sample|0|0.0
SELECT basis, seconds > 0, answer_tokens > 0
  FROM lm_explain('SELECT value, ''Page '' || value FROM json_each(''[1,2,3,4,5,6,7,8]'')', '{"sample":4,"max_tokens":5}');
--> sample|1|1
SELECT sum(requests) FROM lm_stats WHERE phase = 'decode';
--> 6
SELECT * FROM lm_explain('SELECT generate(body, NULL, ''{"max_tokens":5}'') FROM reviews', '{"sample":32,"max_total_tokens":10}');
--! max_total_tokens = 10 does not reach for another answer: 0 have taken 0, the next may take
SELECT * FROM lm_explain('SELECT generate(body) FROM reviews', '{"max_tokens":5}');
--! option 'max_tokens' must be written into the query
-- A local model may have prices, so that a budget can be told in money.
INSERT INTO temp.lm_models(name, path, options) SELECT 'dear', path, '{"price_in":2,"price_out":10}' FROM temp.lm_models WHERE name = 'default';
SELECT cost_in = tokens * 2 / 1e6, cost_out = 4 * 5 * 10 / 1e6
  FROM lm_explain('SELECT value, ''Page '' || value FROM json_each(''[1,2,3,4]'')', '{"model":"dear","max_tokens":5}');
--> 1|1
