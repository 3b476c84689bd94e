// Scalar SQL functions as C++ functions from a Call to a Status.
//
//   absl::Status TokenCount(Call& call) {
//     ASSIGN_OR_RETURN(std::optional<std::string> text, call.Text(0, "text"));
//     ...
//     sqlite3_result_int64(call.context(), count);
//     return absl::OkStatus();
//   }
//   RegisterScalar<&TokenCount>(connection, {.name = "lm_token_count", .min_args = 1, ...});
#ifndef LM_EXTENSION_BINDING_SCALAR_FUNCTION_H_
#define LM_EXTENSION_BINDING_SCALAR_FUNCTION_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/connection/call_options.h"
#include "extension/connection/connection.h"
#include "extension/connection/statement_call.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/sqlite_status.h"
#include "extension/host/sqlite_value.h"

namespace lm {

// What SQLite keeps with a function.
struct ScalarFunction {
  const char* name;
  std::shared_ptr<Connection> connection;
  bool direct_only = false;
  const char* said_by = name;  // before its errors
};

// Where the record of the statement that calls is kept: with its auxiliary data.
// REQUIRES: `context` is that of a scalar function, or of an aggregate's step.
std::shared_ptr<RunningWork>* KeptWork(sqlite3_context* context, bool make);

// Of a function that is kDirectOnly: CheckIsDirectCall (direct_call.h), once a statement.
absl::Status CheckIsDirectCall(sqlite3_context* context, const ScalarFunction& function);

// One call of a function. Lives as long as the call.
class Call {
 public:
  Call(sqlite3_context* context, const std::shared_ptr<Connection>& connection, int num_args,
       sqlite3_value** args)
      : context_(context), connection_(connection), num_args_(num_args), args_(args) {}

  sqlite3_context* context() const { return context_; }
  const char* function() const {
    return static_cast<ScalarFunction*>(sqlite3_user_data(context_))->name;
  }
  Connection& connection() const { return *connection_; }
  const std::shared_ptr<Connection>& shared_connection() const { return connection_; }

  // REQUIRES: there is such an argument.
  sqlite3_value* value(int i) const { return args_[i]; }

  // The text of argument i (see TextOf); nullopt for NULL, and where there is no such argument.
  absl::StatusOr<std::optional<std::string>> Text(int i, absl::string_view what) const;

  bool IsNull(int i) const { return sqlite3_value_type(args_[i]) == SQLITE_NULL; }

  // The options in argument i, if there is one. The model is the same for the whole statement,
  // whatever happens to lm_models meanwhile.
  absl::StatusOr<CallOptions> Options(int i, const CallDefaults& defaults = {}) const;
  // The same from a text, for functions that take options of their own out of it first.
  absl::StatusOr<CallOptions> Options(const std::optional<std::string>& json,
                                      const CallDefaults& defaults = {}) const;

 private:
  absl::StatusOr<std::shared_ptr<const ModelUse>> Model(const std::string& reference) const;

  sqlite3_context* const context_;
  const std::shared_ptr<Connection>& connection_;
  const int num_args_;
  sqlite3_value** const args_;
};

struct ScalarSpec {
  const char* name;
  int min_args;
  int max_args;
  int flags;
  const char* said_by = nullptr;  // before its errors, where that is not its name
};

// Everything that loads a model or generates: not to be called from views, triggers and constraints
// that a stranger's database brings along.
inline constexpr int kDirectOnly = SQLITE_DIRECTONLY;
// A function of its arguments and the connection's default model alone: it says the same whenever
// it is asked, and tells and changes nothing, so schemas may use it.
inline constexpr int kPure = SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
// SQLITE_RESULT_SUBTYPE of SQLite 3.45 for functions that return JSON; ignored before.
inline constexpr int kReturnsJson = 0x001000000;

int RegisterScalar(const std::shared_ptr<Connection>& connection, const ScalarSpec& spec,
                   void (*function)(sqlite3_context*, int, sqlite3_value**));

// kBody sets a result or returns an error.
template <absl::Status (*kBody)(Call&)>
int RegisterScalar(const std::shared_ptr<Connection>& connection, const ScalarSpec& spec) {
  return RegisterScalar(
      connection, spec, [](sqlite3_context* context, int num_args, sqlite3_value** args) noexcept {
        auto* self = static_cast<ScalarFunction*>(sqlite3_user_data(context));
        absl::Status status = RunForStatement(
            *self->connection, self->name, [context](bool make) { return KeptWork(context, make); },
            [&]() -> absl::Status {
              if (self->direct_only) {
                absl::Status direct = CheckIsDirectCall(context, *self);
                if (!direct.ok()) return direct;
              }
              Call call(context, self->connection, num_args, args);
              return kBody(call);
            });
        if (!status.ok()) ResultError(context, self->said_by, status);
      });
}

}  // namespace lm

#endif  // LM_EXTENSION_BINDING_SCALAR_FUNCTION_H_
