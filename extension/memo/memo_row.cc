#include "extension/memo/memo_row.h"

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/digest.h"
#include "engine/base/status_macros.h"
#include "extension/host/sqlite_value.h"

namespace lm {
namespace {

enum Column { kId, kModel, kOptions, kPrompt, kAnswer, kTokens, kFinish, kSeal, kChoices };

template <typename T>
absl::string_view AsBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The fields' digest, each with its length, so that no two lists of fields read the same.
int64_t Hash(std::initializer_list<absl::string_view> fields) {
  std::string all;
  for (absl::string_view field : fields) absl::StrAppend(&all, field.size(), ":", field);
  return static_cast<int64_t>(DigestOf(all).low);
}

int64_t SealOf(const MemoKey& key, const RememberedAnswer& answer) {
  return Hash({key.model, key.options, AsBytes(key.prompt), answer.text, AsBytes(answer.tokens),
               FinishReasonName(answer.finish), AsBytes(answer.first_choices)});
}

// These return false for a value of another kind.
absl::StatusOr<bool> Read(const Statement& row, Column column, std::string* text) {
  if (row.type(column) != SQLITE_TEXT) return false;
  ASSIGN_OR_RETURN(*text, row.Text(column));
  return CheckText(*text, "").ok();
}

template <typename T>
absl::StatusOr<bool> Read(const Statement& row, Column column, std::vector<T>* values) {
  if (row.type(column) != SQLITE_BLOB) return false;
  ASSIGN_OR_RETURN(const std::string bytes, row.Blob(column));
  if (bytes.size() % sizeof(T) != 0) return false;
  values->resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values->data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace

void BindMemoKey(Statement& statement, const MemoKey& key) {
  statement.Bind(1, Hash({key.model, key.options, AsBytes(key.prompt)}))
      .Bind(2, key.model)
      .Bind(3, key.options)
      .BindBlob(4, AsBytes(key.prompt));
}

void BindMemoRow(Statement& statement, const MemoKey& key, const RememberedAnswer& answer) {
  BindMemoKey(statement, key);
  statement.Bind(5, answer.text)
      .BindBlob(6, AsBytes(answer.tokens))
      .Bind(7, FinishReasonName(answer.finish))
      .Bind(8, SealOf(key, answer))
      .BindBlob(9, AsBytes(answer.first_choices));
}

absl::StatusOr<std::optional<MemoRow>> ReadMemoRow(const Statement& row) {
  MemoKey key;
  RememberedAnswer answer;
  std::string finish;
  for (const absl::StatusOr<bool>& read :
       {Read(row, kModel, &key.model), Read(row, kOptions, &key.options),
        Read(row, kPrompt, &key.prompt), Read(row, kAnswer, &answer.text),
        Read(row, kTokens, &answer.tokens), Read(row, kFinish, &finish),
        Read(row, kChoices, &answer.first_choices)}) {
    RETURN_IF_ERROR(read.status());
    if (!*read) return std::nullopt;
  }
  for (FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kContext}) {
    if (finish != FinishReasonName(reason)) continue;
    answer.finish = reason;
    if (row.Integer(kSeal) != SealOf(key, answer)) return std::nullopt;
    return MemoRow(std::move(key), std::move(answer));
  }
  return std::nullopt;
}

}  // namespace lm
