// A row of a memo's file: an answer, the key that it is found by, and a seal over both.
//
//   BindMemoRow(insert, key, answer);
//   RETURN_IF_ERROR(insert.Run());
//   ...
//   ASSIGN_OR_RETURN(std::optional<MemoRow> row, ReadMemoRow(select));
//
// The seal is a digest without a key. It notices damage; whoever can write the file can seal
// anything, so what is read is held to CanBeAnswer() before it is used.
#ifndef LM_EXTENSION_MEMO_MEMO_ROW_H_
#define LM_EXTENSION_MEMO_MEMO_ROW_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/runtime/memo_key.h"
#include "engine/runtime/remembered_answer.h"
#include "extension/host/statement.h"

namespace lm {

using MemoRow = std::pair<MemoKey, RememberedAnswer>;

inline int64_t BytesOf(const MemoRow& row) { return row.first.bytes() + row.second.bytes(); }

inline constexpr char kMemoTable[] =
    "CREATE TABLE generations(id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, model TEXT NOT NULL, "
    "options TEXT NOT NULL, prompt TEXT NOT NULL, answer TEXT NOT NULL, tokens BLOB NOT NULL, "
    "finish TEXT NOT NULL, seal INTEGER NOT NULL, choices BLOB NOT NULL, "
    "tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, "
    "created INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0)";
inline constexpr char kMemoIndex[] = "CREATE INDEX generations_by_hash ON generations(hash)";
// created and used (last) are milliseconds since 1970, and no part of the seal.
inline constexpr char kMemoUseIndex[] = "CREATE INDEX generations_by_use ON generations(used)";

// Parameters 1 to 4: hash, model, options, prompt.
void BindMemoKey(Statement& statement, const MemoKey& key);
// Parameters 1 to 11: the same, and answer, tokens, finish, seal, choices, tokens_in, tokens_out.
void BindMemoRow(Statement& statement, const MemoKey& key, const RememberedAnswer& answer);

// Of a statement with the columns id, model, options, prompt, answer, tokens, finish, seal,
// choices, tokens_in, tokens_out. nullopt for a row that we did not write, or that has changed
// since. The key has no owner. ResourceExhausted where there is no memory for it.
absl::StatusOr<std::optional<MemoRow>> ReadMemoRow(const Statement& row);

}  // namespace lm

#endif  // LM_EXTENSION_MEMO_MEMO_ROW_H_
