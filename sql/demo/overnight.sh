#!/usr/bin/env bash
# A job that is killed in the middle of its work, again and again, and loses nothing: one-line summaries of documents.
#
#   sql/demo/overnight.sh [number of documents, default 96] [number of kills, default 3]
set -euo pipefail
cd "$(dirname "$0")/../.."
rows=${1:-96}
kills=${2:-3}
extension=${LM0:-build/release/extension/lm0}
work=${LM_DEMO_FOLDER:-build/demo}
# Debian's own: an interpreter from elsewhere may have been built without load_extension.
python=${PYTHON:-/usr/bin/python3}

[ -n "${LM0:-}" ] || bash .ci/setup release lm0
mkdir -p "$work"
database=$work/overnight.db
rm -f "$database" "$database-wal" "$database-shm"

sqlite3 "$database" <<SQL
.bail on
PRAGMA journal_mode = wal;
CREATE TABLE documents(package TEXT, description TEXT);
.import --csv sql/demo/documents.csv documents
CREATE TABLE notes AS  -- as many as are wanted, no two alike
  WITH RECURSIVE copy(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM copy LIMIT 1 + $rows / 16)
  SELECT package || '-' || n AS package, substr(description, 1, 400 + n) AS description, NULL AS summary
    FROM copy, documents ORDER BY n LIMIT $rows;
CREATE UNIQUE INDEX notes_package ON notes(package);
.load $extension
INSERT INTO lm_jobs(name, query, system, target, options) VALUES ('summaries',
  'SELECT package, ''Package: '' || package || char(10) || description FROM notes',
  'Write a one-line summary of this package.',
  'UPDATE notes SET summary = :value WHERE package = :id',
  '{"max_tokens":32}');
SQL

for ((i = 1; i <= kills; i++)); do
  "$python" sql/demo/progress.py "$database" summaries --extension "$extension" --options '{"chunk":16,"progress_ms":200}' &
  sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"
  { kill -9 $! && wait $!; } 2>/dev/null || true
  sqlite3 "$database" "SELECT 'killed: ' || count(summary) || ' of ' || count(*) || ' summaries are there, integrity ' ||
    (SELECT integrity_check FROM pragma_integrity_check) FROM notes"
done
"$python" sql/demo/progress.py "$database" summaries --extension "$extension"

sqlite3 -box "$database" "SELECT package, summary FROM notes WHERE rowid % ($rows / 8 + 1) = 1" \
  "SELECT count(*) AS rows, sum(attempts) AS attempts, sum(tokens_out) AS tokens_out FROM lm_job_rows"
