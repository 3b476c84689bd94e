#include "extension/binding/scalar_function.h"

#include <algorithm>
#include <new>
#include <vector>

#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "extension/binding/direct_call.h"

namespace lm {
namespace {

// The models that the functions of one statement use, kept until it is reset. SQLite shares
// auxiliary data with a negative index among all calls of a statement; the number is arbitrary, so
// that no other extension hits on it.
constexpr int kPinIndex = -0x6c6d30;
constexpr int kWorkIndex = -0x6c6d33;
constexpr int kDirectIndex = -0x6c6d34;  // functions that it calls itself
using DirectCalls = std::vector<const ScalarFunction*>;
using PinnedModels = HashMap<std::string, std::shared_ptr<const ModelUse>>;

}  // namespace

std::shared_ptr<RunningWork>* KeptWork(sqlite3_context* context, bool make) {
  using Work = std::shared_ptr<RunningWork>;
  auto* kept = static_cast<Work*>(sqlite3_get_auxdata(context, kWorkIndex));
  if (kept != nullptr || !make) return kept;
  sqlite3_set_auxdata(context, kWorkIndex, new Work(),
                      [](void* data) { delete static_cast<Work*>(data); });
  // Null where there was no memory for it: then it is deleted.
  return static_cast<Work*>(sqlite3_get_auxdata(context, kWorkIndex));
}

absl::Status CheckIsDirectCall(sqlite3_context* context, const ScalarFunction& function) {
  auto* known = static_cast<DirectCalls*>(sqlite3_get_auxdata(context, kDirectIndex));
  if (known != nullptr && std::find(known->begin(), known->end(), &function) != known->end()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckIsDirectCall(function.connection->db(), function.name));
  if (known != nullptr) {
    known->push_back(&function);
    return absl::OkStatus();
  }
  sqlite3_set_auxdata(context, kDirectIndex, new DirectCalls{&function},
                      [](void* data) { delete static_cast<DirectCalls*>(data); });
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> Call::Text(int i, absl::string_view what) const {
  if (i >= num_args_) return std::nullopt;
  return TextOf(args_[i], what);
}

absl::StatusOr<std::shared_ptr<const ModelUse>> Call::Model(const std::string& reference) const {
  auto* pinned = static_cast<PinnedModels*>(sqlite3_get_auxdata(context_, kPinIndex));
  if (pinned != nullptr) {
    auto found = pinned->find(reference);
    if (found != pinned->end()) return found->second;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelUse> use, connection_->Use(reference));
  if (!use->session.generator().absence().ok()) return use;  // a later row looks again
  if (pinned != nullptr) {
    pinned->emplace(reference, use);
  } else {
    auto first = std::make_unique<PinnedModels>();
    first->emplace(reference, use);
    // May delete it at once: the pointer is SQLite's from here on.
    sqlite3_set_auxdata(context_, kPinIndex, first.release(),
                        [](void* data) { delete static_cast<PinnedModels*>(data); });
  }
  return use;
}

absl::StatusOr<CallOptions> Call::Options(int i, const CallDefaults& defaults) const {
  ASSIGN_OR_RETURN(std::optional<std::string> json, Text(i, "options"));
  return Options(json, defaults);
}

absl::StatusOr<CallOptions> Call::Options(const std::optional<std::string>& json,
                                          const CallDefaults& defaults) const {
  ASSIGN_OR_RETURN(
      CallOptions options,
      ReadCallOptions(
          json, connection_->options_cache(),
          [this](const std::string& reference) { return Model(reference); }, defaults));
  RETURN_IF_ERROR(connection_->examples().Resolve(&options.generation));
  connection_->NoteSchema(options.generation.constraint);
  return options;
}

int RegisterScalar(const std::shared_ptr<Connection>& connection, const ScalarSpec& spec,
                   void (*function)(sqlite3_context*, int, sqlite3_value**)) {
  for (int num_args = spec.min_args; num_args <= spec.max_args; ++num_args) {
    auto* data =
        new (std::nothrow) ScalarFunction{spec.name, connection, (spec.flags & kDirectOnly) != 0,
                                          spec.said_by != nullptr ? spec.said_by : spec.name};
    if (data == nullptr) return SQLITE_NOMEM;
    int code = sqlite3_create_function_v2(
        connection->db(), spec.name, num_args, SQLITE_UTF8 | spec.flags, data, function, nullptr,
        nullptr, [](void* p) { delete static_cast<ScalarFunction*>(p); });
    if (code != SQLITE_OK) return code;
  }
  return SQLITE_OK;
}

}  // namespace lm
