// What tokens come to where they have a price.
#ifndef LM_EXTENSION_TABLES_TOKEN_COST_H_
#define LM_EXTENSION_TABLES_TOKEN_COST_H_

#include <cstdint>
#include <optional>

#include "extension/host/sqlite_value.h"

namespace lm {

// `price` is that of a million; NULL where there is none.
inline Cell TokenCost(int64_t tokens, std::optional<double> price) {
  return price.has_value() ? Cell(static_cast<double>(tokens) * *price / 1e6) : Cell();
}

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_TOKEN_COST_H_
