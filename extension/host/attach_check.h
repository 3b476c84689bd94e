// Whether a connection may open database files by SQL.
#ifndef LM_EXTENSION_HOST_ATTACH_CHECK_H_
#define LM_EXTENSION_HOST_ATTACH_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// OK where `db` may ATTACH the file: what a setting or a function opens on its behalf is held to
// the same authorizer and limit. PermissionDenied otherwise. Nothing is opened.
absl::Status CheckMayAttach(sqlite3* db, const std::string& path);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_ATTACH_CHECK_H_
