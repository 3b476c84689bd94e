#!/bin/sh
# Usage: kernels_spill_test.sh OBJDUMP OBJECT...
#
# AVX-512 has registers for a whole tile of a product: none of its vectors may go to the stack and
# come back. (gcc kept all sums there once, and attention took twice as long.) But for the largest
# tiles with two running sums a token whose scales are read from the panel: they want one or two
# more than there are, and a form with less of it was slower. And but for tiles of four runs: of
# their groups' scales, which a block reads once, some lie there, and some codes of two tokens.
objdump=$1
shift
for object in "$@"; do
  case $object in
    *kernels_avx512*) ;;
    *) continue ;;
  esac
  "$objdump" -d -C --no-show-raw-insn "$object" | awk -v object="$object" '
    /^[0-9a-f]+ <.*>:$/ { tile = /Multiply(Float|Quantized)Tile</; name = $0; tiles += tile }
    tile && /[xyz]mm/ && /\(%r[sb]p/ { spills[name]++ }
    END {
      if (tiles == 0) { print object ": no tiles of products in it"; exit 1 }
      for (name in spills) {
        if (name ~ /GroupScales, true, [02], 4, 2, 1>/ && spills[name] < 10) continue
        if (name ~ /GroupScales, (true|false), [01], [12], 2, 4>/ && spills[name] < 60) continue
        if (name ~ /PlainScales, false, [01], 2, 2, 4>/ && spills[name] < 25) continue
        print object ": " spills[name] " times the stack in " name
        failed = 1
      }
      exit failed
    }' || exit 1
  exit 0
done
echo "no kernels of AVX-512 among the objects"
exit 1
