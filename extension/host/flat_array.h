// Reads a JSON array of scalars without building a document of it: prompts, token ids.
#ifndef LM_EXTENSION_HOST_FLAT_ARRAY_H_
#define LM_EXTENSION_HOST_FLAT_ARRAY_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lm {

struct ArrayElement {
  enum class Kind { kNull, kBool, kInteger, kReal, kString };
  Kind kind = Kind::kNull;
  int64_t integer = 0;  // kInteger
  std::string text;     // kString: its characters; kInteger, kReal, kBool: as JSON writes it
};

// Calls `take` for each element, in order; it may refuse one. InvalidArgument that begins with
// `what` for a text that is not an array (with the byte) and for an array, an object or a number
// beyond a double inside it (with the index), where `wanted` says what an element must be: "a
// string or null".
absl::Status ReadFlatArray(
    absl::string_view json, absl::string_view what, absl::string_view wanted,
    absl::FunctionRef<absl::Status(int64_t index, ArrayElement element)> take);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_FLAT_ARRAY_H_
