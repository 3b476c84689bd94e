// HfObject (hf_config.h): members of a JSON object, with errors that name them.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"
#include "engine/hf/hf_config.h"

namespace lm {
namespace {

constexpr double kMaxInt = 1LL << 40;

}  // namespace

const Json* HfObject::Find(absl::string_view name) const {
  const Json* const member = json_.Find(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

absl::Status HfObject::Error(absl::string_view name, absl::string_view wanted) const {
  return absl::InvalidArgumentError(
      absl::StrCat(where_, ": \"", name, "\": wanted ", wanted, ", got ", Found(name)));
}

absl::Status HfObject::Unsupported(absl::string_view name) const {
  return absl::UnimplementedError(
      absl::StrCat(where_, ": \"", name, "\": ", Found(name), " is not supported"));
}

std::string HfObject::Found(absl::string_view name) const {
  const Json* const member = Find(name);
  return member == nullptr ? "nothing" : Excerpt(member->Dump(), 80);
}

absl::StatusOr<int64_t> HfObject::Int(absl::string_view name,
                                      std::optional<int64_t> otherwise) const {
  const Json* const member = Find(name);
  if (member == nullptr && otherwise) return *otherwise;
  if (member != nullptr && member->is_integer() && std::abs(member->number()) <= kMaxInt) {
    return member->integer();
  }
  return Error(name, "a whole number");
}

absl::StatusOr<double> HfObject::Number(absl::string_view name,
                                        std::optional<double> otherwise) const {
  const Json* const member = Find(name);
  if (member == nullptr && otherwise) return *otherwise;
  if (member != nullptr && member->is_number() && std::isfinite(member->number())) {
    return member->number();
  }
  return Error(name, "a number");
}

absl::StatusOr<std::string> HfObject::Text(absl::string_view name,
                                           std::optional<std::string> otherwise) const {
  const Json* const member = Find(name);
  if (member == nullptr && otherwise) return *otherwise;
  if (member != nullptr && member->is_string()) return member->string();
  return Error(name, "a string");
}

absl::StatusOr<bool> HfObject::Bool(absl::string_view name, bool otherwise) const {
  const Json* const member = Find(name);
  if (member == nullptr) return otherwise;
  if (member->is_boolean()) return member->boolean();
  return Error(name, "true or false");
}

absl::StatusOr<std::vector<float>> HfObject::Floats(absl::string_view name, size_t count) const {
  const Json* const member = Find(name);
  std::vector<float> values;
  if (member != nullptr && member->is_array()) {
    for (const Json& value : member->array()) {
      if (value.is_number()) values.push_back(static_cast<float>(value.number()));
    }
  }
  if (values.size() == count && member->size() == count) return values;
  return Error(name, absl::StrCat("an array of ", count, " numbers"));
}

}  // namespace lm
