// Times as SQLite's date functions write and read them.
#ifndef LM_EXTENSION_TABLES_TIMESTAMP_H_
#define LM_EXTENSION_TABLES_TIMESTAMP_H_

#include <string>

#include "absl/time/time.h"

namespace lm {

// "2026-03-31 12:00:59.123", UTC, as strftime('%Y-%m-%d %H:%M:%f') gives it.
inline std::string Timestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S", time, absl::UTCTimeZone());
}

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_TIMESTAMP_H_
