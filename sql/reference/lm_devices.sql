-- lm_devices: the processors that models could run on, why one cannot be used, and what the CPU can do
--
-- columns
--   device                   what the setting and the option of that name take: cpu, cuda:0, ...
--   name                     the processor's own
--   features                 of a CPU, the instruction set that its kernels use; of a GPU, its compute capability
--   threads                  as many as this process may use
--   memory_bytes             of the machine, or of the GPU
--   usable                   1 or 0
--   reason                   why it is not usable; else NULL
--   read_bytes_per_second    what the CPU reads from memory
--   fp32_flops_per_second    operations on float32; a multiply and an add are two
--   int8_ops_per_second      operations on bytes, which weights of four and eight bits take
-- The last three are NULL for GPUs. They are measured once, for a quarter of a second, when a statement first asks for one of them; a busy
-- machine gives lower ones.

SELECT device, usable, reason FROM lm_devices WHERE device = 'cpu';
--> cpu|1|NULL
-- A GPU that cannot be used says why.
SELECT count(*) FROM lm_devices WHERE usable = 0 AND reason IS NULL;
--> 0
-- The ceilings are measured when they are first asked for, in a quarter of a second.
SELECT read_bytes_per_second > 0 FROM lm_devices WHERE device = 'cpu';
--> 1
