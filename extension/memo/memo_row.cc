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

enum Column {
  kId,
  kModel,
  kOptions,
  kPrompt,
  kAnswer,
  kTokens,
  kFinish,
  kSeal,
  kChoices,
  kTokensIn,
  kTokensOut,
};

absl::string_view AsBytes(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)};
}

// The fields' digest, each with its length, so that no two lists of fields read the same.
int64_t Hash(std::initializer_list<absl::string_view> fields) {
  std::string all;
  for (absl::string_view field : fields) absl::StrAppend(&all, field.size(), ":", field);
  return static_cast<int64_t>(DigestOf(all).low);
}

template <typename T>
void AppendBytes(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// For each choice: the bytes of its text, as a uint32, its logprob, its text.
std::string BytesOfChoices(const std::vector<FirstChoice>& choices) {
  std::string bytes;
  for (const FirstChoice& choice : choices) {
    AppendBytes(static_cast<uint32_t>(choice.text.size()), &bytes);
    AppendBytes(choice.logprob, &bytes);
    bytes += choice.text;
  }
  return bytes;
}

int64_t SealOf(const MemoKey& key, const RememberedAnswer& answer) {
  return Hash({key.model, key.options, key.prompt, answer.text, AsBytes(answer.tokens),
               FinishReasonName(answer.finish), BytesOfChoices(answer.first_choices),
               absl::StrCat(answer.tokens_in), absl::StrCat(answer.tokens_out)});
}

// These return false for a value of another kind.
absl::StatusOr<bool> Read(const Statement& row, Column column, std::string* text) {
  if (row.type(column) != SQLITE_TEXT) return false;
  ASSIGN_OR_RETURN(*text, row.Text(column));
  return CheckText(*text, "").ok();
}

absl::StatusOr<bool> Read(const Statement& row, Column column, std::vector<int32_t>* tokens) {
  if (row.type(column) != SQLITE_BLOB) return false;
  ASSIGN_OR_RETURN(const std::string bytes, row.Blob(column));
  if (bytes.size() % sizeof(int32_t) != 0) return false;
  tokens->resize(bytes.size() / sizeof(int32_t));
  if (!bytes.empty()) std::memcpy(tokens->data(), bytes.data(), bytes.size());
  return true;
}

absl::StatusOr<bool> Read(const Statement& row, Column column, std::vector<FirstChoice>* choices) {
  if (row.type(column) != SQLITE_BLOB) return false;
  ASSIGN_OR_RETURN(const std::string bytes, row.Blob(column));
  for (size_t at = 0; at < bytes.size();) {
    uint32_t size = 0;
    FirstChoice choice;
    if (bytes.size() - at < sizeof(size) + sizeof(choice.logprob)) return false;
    std::memcpy(&size, &bytes[at], sizeof(size));
    std::memcpy(&choice.logprob, &bytes[at + sizeof(size)], sizeof(choice.logprob));
    at += sizeof(size) + sizeof(choice.logprob);
    if (bytes.size() - at < size) return false;
    choice.text = bytes.substr(at, size);
    at += size;
    choices->push_back(std::move(choice));
  }
  return true;
}

absl::StatusOr<bool> Read(const Statement& row, Column column, int32_t* count) {
  if (row.type(column) != SQLITE_INTEGER) return false;
  const int64_t value = row.Integer(column);
  *count = static_cast<int32_t>(value);
  return value >= 0 && value == *count;
}

}  // namespace

void BindMemoKey(Statement& statement, const MemoKey& key) {
  statement.Bind(1, Hash({key.model, key.options, key.prompt}))
      .Bind(2, key.model)
      .Bind(3, key.options)
      .Bind(4, key.prompt);
}

void BindMemoRow(Statement& statement, const MemoKey& key, const RememberedAnswer& answer) {
  BindMemoKey(statement, key);
  statement.Bind(5, answer.text)
      .BindBlob(6, AsBytes(answer.tokens))
      .Bind(7, FinishReasonName(answer.finish))
      .Bind(8, SealOf(key, answer))
      .BindBlob(9, BytesOfChoices(answer.first_choices))
      .Bind(10, answer.tokens_in)
      .Bind(11, answer.tokens_out);
}

absl::StatusOr<std::optional<MemoRow>> ReadMemoRow(const Statement& row) {
  MemoKey key;
  RememberedAnswer answer;
  std::string finish;
  for (const absl::StatusOr<bool>& read :
       {Read(row, kModel, &key.model), Read(row, kOptions, &key.options),
        Read(row, kPrompt, &key.prompt), Read(row, kAnswer, &answer.text),
        Read(row, kTokens, &answer.tokens), Read(row, kFinish, &finish),
        Read(row, kChoices, &answer.first_choices), Read(row, kTokensIn, &answer.tokens_in),
        Read(row, kTokensOut, &answer.tokens_out)}) {
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
