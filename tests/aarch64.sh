#!/usr/bin/env bash
# Builds for ARM64 on another machine and tries it under qemu-user: the suites that are C++ alone, on
# processors without dot products, with them, and with i8mm; then the packages. It takes an hour.
#
#   tests/aarch64.sh [preset's cmake arguments ...]
#
# On Debian 12 with what .ci/packages names, as root, once:
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install g++-aarch64-linux-gnu qemu-user-static libsqlite3-dev:arm64 libpcre2-dev:arm64 \
#     libcurl4-openssl-dev:arm64 libgmock-dev:arm64 libstdc++6:arm64
# LM_PACKAGE_ROOT: see tests/package/packages_test.py.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset aarch64 "$@"
cmake --build build/aarch64 --target package base_test backend_test text_test model_test
for processor in cortex-a53 neoverse-n1 max; do
  QEMU_CPU=$processor ctest --test-dir build/aarch64 --output-on-failure -R '^(base|backend|text|model)_test$'
done
python3 tests/package/packages_test.py build/aarch64/dist
