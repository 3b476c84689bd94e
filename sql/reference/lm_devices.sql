-- lm_devices: the processors that models could run on, why one cannot be used, and what the CPU can do

SELECT device, usable, reason FROM lm_devices WHERE device = 'cpu';
--> cpu|1|NULL
-- A GPU that cannot be used says why.
SELECT count(*) FROM lm_devices WHERE usable = 0 AND reason IS NULL;
--> 0
-- The ceilings are measured when they are first asked for, in a quarter of a second.
SELECT read_bytes_per_second > 0 FROM lm_devices WHERE device = 'cpu';
--> 1
