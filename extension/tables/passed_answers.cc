#include "extension/tables/passed_answers.h"

#include <utility>

namespace lm {
namespace {

size_t BytesOf(const PassedAnswer& row) {
  const Generation& generation = row.answer.generation;
  size_t bytes = sizeof(row) + generation.text.size() + generation.status.message().size();
  const int type = row.id != nullptr ? sqlite3_value_type(row.id.get()) : SQLITE_NULL;
  if (type == SQLITE_TEXT || type == SQLITE_BLOB) bytes += sqlite3_value_bytes(row.id.get());
  return bytes;
}

}  // namespace

void PassedAnswers::Begin(sqlite3* db) {
  kept_.Begin(db);
  all_ = true;
  rows_.clear();
  bytes_ = at_ = 0;
}

bool PassedAnswers::Next() {
  if (current() == nullptr) return false;
  ++at_;
  return true;
}

void PassedAnswers::Add(int64_t number, OwnedValue id, const RowAnswer& answer) {
  if (!all_) return;
  PassedAnswer row = {number, std::move(id), answer};
  row.answer.generation.tokens = {};  // no column shows them
  bytes_ += BytesOf(row);
  if (bytes_ <= kMostBytes) {
    rows_.push_back(std::move(row));
  } else {
    all_ = false;
    rows_.clear();
  }
  at_ = rows_.size();
}

}  // namespace lm
