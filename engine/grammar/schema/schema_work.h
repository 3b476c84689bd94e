// What the work for one grammar has come to, and what of it is not done again.
//
//   SchemaWork work;
//   ASSIGN_OR_RETURN(const MergedSchema merged, Merge(document, conjunction, &work));
//   ASSIGN_OR_RETURN(const SharedTextSet keys, work.texts.OfPattern("^x-"));
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_WORK_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_WORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/text_set.h"

namespace lm {

using SharedTextSet = std::shared_ptr<const TextSet>;

// The texts of patterns and formats: each is compiled once, as long as they are not too many.
class KnownTexts {
 public:
  // Errors: as TextSet::OfPattern.
  absl::StatusOr<SharedTextSet> OfPattern(const std::string& pattern);
  // `regex`: see string_formats.h.
  absl::StatusOr<SharedTextSet> OfFormat(absl::string_view regex);

 private:
  using Sets = HashMap<std::string, absl::StatusOr<SharedTextSet>>;
  // Errors are known, too.
  absl::StatusOr<SharedTextSet> Keep(absl::StatusOr<TextSet> set, const std::string& name,
                                     Sets* sets);

  Sets patterns_;
  Sets formats_;      // by their expressions
  size_t bytes_ = 0;  // of both
};

// Members of schemas that may be looked at for one grammar: combinations of anyOf within allOf can
// be exponentially many.
inline constexpr int64_t kMaxSchemaWork = 2'000'000;

struct SchemaWork {
  int64_t members = 0;  // of schemas, that were looked at
  KnownTexts texts;

  bool IsTooMuch() const { return members > kMaxSchemaWork; }
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_WORK_H_
