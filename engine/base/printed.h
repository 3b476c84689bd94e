// Numbers as printf writes them, as a string. (absl::StrFormat is of no use here: hash_map.h.)
//
//   Printed("%02d:%02d", 7, 5)   // "07:05"
#ifndef LM_ENGINE_BASE_PRINTED_H_
#define LM_ENGINE_BASE_PRINTED_H_

#include <cstdarg>
#include <cstdio>
#include <string>

namespace lm {

[[gnu::format(printf, 1, 2)]] inline std::string Printed(const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(length > 0 ? length : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_PRINTED_H_
