// GetEngine() that an interrupt ends: reading gigabytes takes a while.
#ifndef LM_EXTENSION_CONNECTION_LOAD_ENGINE_H_
#define LM_EXTENSION_CONNECTION_LOAD_ENGINE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/runtime/engine_registry.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// GetEngine(path, options), on a thread of its own. Cancelled, within a few milliseconds, where the
// statement on `db` is interrupted meanwhile; the loading then ends soon, too.
absl::StatusOr<std::shared_ptr<Engine>> LoadEngine(sqlite3* db, const std::string& path,
                                                   const ModelOptions& options);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_LOAD_ENGINE_H_
