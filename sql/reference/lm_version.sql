-- lm_version()  ->  TEXT

SELECT lm_version();
--~ ^\d+\.\d+\.\d+$
