// KnownAnswers: what the calls of a statement have been answered so far, so that its shadow can be
// given the same.
#ifndef LM_EXTENSION_BATCH_KNOWN_ANSWERS_H_
#define LM_EXTENSION_BATCH_KNOWN_ANSWERS_H_

#include <cstddef>

#include "engine/base/hash_map.h"
#include "extension/batch/call_text.h"
#include "extension/batch/row_answer.h"

namespace lm {

// Not thread-safe.
class KnownAnswers {
 public:
  static constexpr size_t kMaxBytes = 256 << 20;

  // False where there is no room: then there is no room for any later answer either.
  bool Add(const CallText& call, const RowAnswer& answer);
  // nullptr where it is not known. Only a guess may rest on it: calls are told apart by their hash.
  const RowAnswer* Find(const CallText& call) const;
  void Clear();
  size_t size() const { return answers_.size(); }

 private:
  HashMap<size_t, RowAnswer> answers_;  // by the call's hash
  size_t bytes_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_KNOWN_ANSWERS_H_
