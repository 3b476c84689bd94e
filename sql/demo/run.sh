#!/usr/bin/env bash
# The demo: annotates the descriptions of the packages on this machine with the model that ships with us.
# Installs what the build needs, builds lm0.so, then runs plain SQL (documents.sql, annotate.sql, report.sql).
#
#   sql/demo/run.sh [number of packages, default 96]
set -euo pipefail
cd "$(dirname "$0")/../.."
rows=${1:-96}
batch=32

bash .ci/setup release lm0
extension=build/release/extension/lm0
work=build/demo
mkdir -p "$work"
database=$work/notes.db
documents=$work/documents.csv
rm -f "$database" "$database-wal" "$database-shm"

# package, description without its first line, as CSV: quotes doubled, newlines kept.
if command -v dpkg-query >/dev/null; then
  dpkg-query -W -f '@package@${Package}\t${Description}\n' | awk -v RS='@package@' '
    (tab = index($0, "\t")) {
      package = substr($0, 1, tab - 1); count = split(substr($0, tab + 1), lines, "\n"); text = ""
      for (i = 2; i <= count; i++) { line = lines[i]; sub(/^ /, "", line); if (line == ".") line = ""; text = text line "\n" }
      gsub(/^\n+|\n+$/, "", text)
      if (length(text) > 40) { gsub(/"/, "\"\"", text); printf "\"%s\",\"%s\"\n", package, text }
    }' >"$documents"
else
  cp sql/demo/documents.csv "$documents"
fi

{
  echo ".bail on"
  echo ".load $extension"
  echo ".read sql/demo/documents.sql"
  echo ".import --csv $documents documents"
  echo "DELETE FROM documents WHERE rowid > $rows;"
  for ((first = 0; first < rows; first += batch)); do
    echo ".parameter set @first $first"
    echo ".parameter set @count $batch"
    echo ".read sql/demo/annotate.sql"
  done
  echo ".read sql/demo/report.sql"
} | sqlite3 "$database"
echo "The table is in $database. Try:"
echo "  sqlite3 '$database' '.load $extension' \"SELECT generate('A Python module that reads and writes CSV files.', 'Write a one-line summary.')\""
