#!/usr/bin/env bash
# Installs what is needed, builds everything and runs all tests.
#
#   tests/run.sh [preset] [ctest arguments ...]      # release by default; asan, tsan, debug
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
[ "$#" -eq 0 ] || shift
bash .ci/setup "$preset"
# One more than there are processors: some wait.
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(($(nproc) + 1))" "$@"
