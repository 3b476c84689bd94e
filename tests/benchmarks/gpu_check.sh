#!/usr/bin/env bash
# Builds, checks and times the CUDA backend on a machine with an NVIDIA GPU, its driver and a CUDA
# toolkit. CI has no GPU and does not run this; run it by hand where there is one.
#
#   tests/benchmarks/gpu_check.sh [model.gguf ...]      # models to time; by default the one that ships
#                                                       # and 1B's shape, Q8_0, of random weights
#   LM_PEER='peer_bench bench MODEL 8' tests/benchmarks/gpu_check.sh     # another engine beside it,
#                                                       # MODEL being replaced by each model
#
# 1. Builds everything, CUDA included.
# 2. The suite of all backends on cuda:0, and on two that compute together (cuda:0+cuda:1; of one GPU
#    cuda:0+cuda:0), and failing CUDA calls.
# 3. The same suite under compute-sanitizer (memcheck, racecheck), where it is installed.
# 4. Greedy answers of the model that ships, through SQL, 256 prompts: on cuda:0 one by one, all
#    together, with kernels that begin when the one before has ended (LM_CUDA_SERIAL), and on two that
#    compute together, which must be the same; and beside the cpu's, which round elsewhere, so that a near tie between two tokens
#    can fall the other way: at most one answer in seven may differ.
# 5. lm_bench --device cuda of each model, as JSON, without shares: the ceilings that lm_bench
#    measures are the CPU's; then its decoding with kernels, and steps, one after the other
#    (LM_CUDA_SERIAL), on two GPUs together, in whose layers each matrix is shared (1B is too small to gain by that), and the other engine.
# 6. Where there is CUPTI: what each kernel of a step took, and what the host did between two steps
#    (gpu_times.py), of one stream, of 32 and of a prompt. gpu_model.py predicts the same kernels.
#
# All output is kept in build/gpu_check/. Exits 1 if a check of 2-4 failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/gpu_check
models=("$@")
failed=0

# check <name> <command ...>: runs it, keeps its output, says how it went.
check() {
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$build/$name.log" 2>&1; then
    echo "ok      $name ($((SECONDS - begin)) s)"
  else
    echo "FAILED  $name: see $build/$name.log"
    failed=1
  fi
}

nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv
cmake --preset cuda -B "$build" >/dev/null
if ! grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=/' "$build/CMakeCache.txt"; then
  echo "there is no nvcc: nothing to check" >&2
  exit 1
fi
cmake --build "$build"

tests=$build/tests/engine/backend
if ! "$tests/backend_test" --gtest_list_tests | grep -q cuda_0; then
  echo "cuda:0 cannot be used:" >&2
  sqlite3 :memory: ".load $build/extension/lm0" \
    "INSERT INTO temp.lm_settings VALUES ('device', 'cuda'); SELECT generate('x');" >&2 || true
  exit 1
fi
check cuda_fault_test "$tests/cuda_fault_test"
check backend_test "$tests/backend_test" '--gtest_filter=*cuda_0*'
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$tests/backend_test" '--gtest_filter=*cuda_0*'
  done
else
  echo "absent  compute-sanitizer: no memcheck, no racecheck"
fi

# answers <device> <query>: the query's rows, from a database with the table prompts(id, system, prompt).
answers() {
  if [ "$1" = serial ]; then
    LM_CUDA_SERIAL=1 answers cuda "$2"
    return
  fi
  sqlite3 :memory: ".bail on" ".load $build/extension/lm0" \
    "INSERT INTO temp.lm_settings VALUES ('device', '$1'), ('kv_type', 'f16'), ('max_tokens', 24);" \
    "CREATE TABLE documents(package, description);" \
    ".import --csv sql/demo/documents.csv documents" \
    "CREATE TABLE prompts(id INTEGER PRIMARY KEY, system, prompt);
     WITH tasks(system) AS (
       VALUES ('Name the section this package belongs to.'), ('Extract the tags as JSON.'),
              ('Write a one-line summary of this package.'),
              ('Is this package a library? Answer yes or no.')),
     lengths(length) AS (VALUES (80), (160), (240), (100000))
     INSERT INTO prompts(system, prompt)
       SELECT system, substr(description, 1, length) FROM tasks, lengths, documents;" \
    "$2"
}

alone="SELECT system, id, json_quote(generate(prompt, system)) FROM prompts ORDER BY system, id"
together="SELECT p.system, p.first + e.key, json_quote(e.value)
  FROM (SELECT system, min(id) AS first, json_group_array(prompt) AS batch
          FROM (SELECT * FROM prompts ORDER BY system, id) GROUP BY system) AS p
  JOIN lm_each(p.batch, p.system) AS e ORDER BY 1, 2"

# compare <tolerated per cent> <device> <query> <device> <query>
compare() {
  answers "$2" "$3" >"$build/first.txt" || return 1
  answers "$4" "$5" >"$build/second.txt" || return 1
  local all differing
  all=$(wc -l <"$build/first.txt")
  differing=$(diff "$build/first.txt" "$build/second.txt" | grep -c '^<' || true)
  echo "$differing of $all answers differ"
  diff "$build/first.txt" "$build/second.txt" | head -6 || true
  [ "$all" -ge 200 ] && [ "$((100 * differing))" -le "$(($1 * all))" ]
}

check answers_in_company compare 0 cuda "$alone" cuda "$together"
check answers_in_order compare 0 cuda "$together" serial "$together"
two=cuda:0+cuda:0
[ "$(nvidia-smi --list-gpus | wc -l)" -lt 2 ] || two=cuda:0+cuda:1
check answers_of_two compare 0 cuda "$together" "$two" "$together"
check answers_beside_cpu compare 15 cpu "$together" cuda "$together"
cat "$build"/answers_*.log

if [ "${#models[@]}" -eq 0 ]; then
  models=(sql/models/debian-notes.gguf)
  if python3 tests/benchmarks/shape_model.py 1b Q8_0 --random -o "$build/1b-Q8_0.gguf"; then
    models+=("$build/1b-Q8_0.gguf")
  fi
fi

# show_times <kernels or steps> <model> <figure>: a table of gpu_times.py.
show_times() {
  echo "$1 of $3:"
  rm -f "$build/times.tsv"
  CUDA_INJECTION64_PATH=$PWD/$build/tests/benchmarks/libkernel_times.so LM_KERNEL_TIMES=$build/times.tsv \
    LM_KERNEL_TIMES_OF=$1 "$build/tests/benchmarks/lm_bench" "$2" --device cuda --reps 2 --only "$3" >/dev/null
  python3 tests/benchmarks/gpu_times.py "$build/times.tsv" | tee -a "$build/times.txt"
}

for model in "${models[@]}"; do
  echo "$model"
  "$build/tests/benchmarks/lm_bench" "$model" --device cuda --json | tee -a "$build/lm_bench.json"
  for serial in 1 steps; do
    echo "LM_CUDA_SERIAL=$serial:"
    LM_CUDA_SERIAL=$serial "$build/tests/benchmarks/lm_bench" "$model" --device cuda \
      --only tg128,b8,b32,b64 --json | tee -a "$build/lm_bench.json"
  done
  echo "$two:"
  "$build/tests/benchmarks/lm_bench" "$model" --device "$two" --json | tee -a "$build/lm_bench.json"
  if [ -n "${LM_PEER:-}" ]; then
    echo "peer:"
    ${LM_PEER/MODEL/$model} | tee -a "$build/peer.txt"
  fi
  [ -e "$build/tests/benchmarks/libkernel_times.so" ] || continue
  for figure in tg128 b32 pp512; do
    show_times steps "$model" "$figure"
    LM_CUDA_SERIAL=1 show_times kernels "$model" "$figure"  # so that each is told from its turn on
  done
done
exit "$failed"
