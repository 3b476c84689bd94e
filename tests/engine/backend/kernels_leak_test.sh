#!/bin/sh
# Usage: kernels_leak_test.sh NM OBJECT...
#
# No file of kernels may define a symbol that the linker shares between files (an inline function, a
# template): the shared copy could be the one with instructions that this machine lacks.
nm=$1
shift
status=0
for object in "$@"; do
  case $object in
    *kernels_avx* | *kernels_neon_*) ;;
    *) continue ;;
  esac
  symbols=$("$nm" -C --defined-only "$object") || exit 1
  shared=$(printf '%s\n' "$symbols" | grep -E ' [WVu] ' | grep -v 'DW.ref')
  if [ -n "$shared" ]; then
    printf '%s defines shared symbols:\n%s\n' "$object" "$shared"
    status=1
  fi
done
exit $status
