-- What came out, and what the shared prefix saved.
.mode box --wrap 48
SELECT package, section, summary, is_library AS "library?" FROM notes ORDER BY package LIMIT 16;
SELECT section, count(*) AS packages FROM notes GROUP BY section ORDER BY packages DESC LIMIT 8;
SELECT package, json_extract(tags, '$.role[0]') AS role, json_extract(tags, '$.implemented_in[0]') AS language
  FROM notes WHERE json_valid(tags) ORDER BY package LIMIT 8;
-- tokens_reused is the work that the shared prefix saved.
SELECT phase, requests, tokens_prefilled, tokens_reused, tokens_decoded, round(seconds, 2) AS seconds,
       round(ttft_p50_ms, 1) AS ttft_ms, round(itl_p50_ms, 2) AS itl_ms, round(batch_occupancy, 1) AS rows_per_step
  FROM lm_stats;
