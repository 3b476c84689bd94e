-- lm_debug()  ->  JSON
--
-- What a report of a problem should begin with: version, build, instruction set, threads, SQLite,
-- backends, network, the names of models, the engines that run; `apart` is why lm_running and other processes
-- do not see each other, else null. It loads nothing.

SELECT group_concat(key) FROM json_each(lm_debug());
--> version,build,isa,threads,sqlite,backends,network,models,engines,apart
SELECT lm_debug() ->> '$.sqlite.running' = sqlite_version();
--> 1
