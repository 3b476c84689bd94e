#!/usr/bin/env bash
# Draws the README's pictures anew, recording.svg and output.svg beside this file: what these commands show here. After sql/demo/run.sh and the target sqlite_lm_cli.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# By its name alone: a picture shows no path of the machine that it was drawn on (so it ends before doctor's line about the model).
export PATH=$top/build/release/extension:$PATH LM_MODEL=debian-notes.gguf
ln -s "$top/build/release/extension/lm0.so" "$top/build/demo/notes.db" "$top/sql/models/debian-notes.gguf" "$work"
sqlite3 "$work/packages.db" 'CREATE TABLE packages(package TEXT, description TEXT)' ".import --csv $top/build/demo/documents.csv packages"
cd "$work"
label="sqlite-lm label packages.db --table packages --column description --into section --instruction 'Name the section this package belongs to.' --options '{\"max_tokens\":12}'"

"$top/sql/demo/record.py" --out "$top/sql/demo/recording.svg" --seconds 60 --columns 100 --rows 22 \
  "sqlite-lm ask 'A Python module that reads and writes CSV files.' --system 'Write a one-line summary.'" \
  "$label ^C0.8" \
  "$label" \
  "sqlite3 -box packages.db 'SELECT section, count(*) AS packages FROM packages GROUP BY section ORDER BY packages DESC LIMIT 10'" \
  "sqlite3 -box packages.db '.load ./lm0' \"SELECT package, substr(generate(description, 'Write a one-line summary.'), 1, 60) AS summary FROM packages WHERE lm_score(description, 'Is it a Perl module?') > 0.95 LIMIT 12\"" \
  "sqlite-lm ask 'What is SQLite?' --options '{\"max_tokens\":12}'" \
  "sqlite-lm doctor | head -5"
"$top/sql/demo/record.py" --out "$top/sql/demo/output.svg" --still --columns 100 --rows 24 \
  "sqlite3 -box notes.db 'SELECT package, section, substr(summary, 1, 48) AS summary, is_library FROM notes LIMIT 16'"
