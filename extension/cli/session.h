// The connection that a command works on: a database with sqlite-lm in it, which Ctrl-C interrupts.
#ifndef LM_EXTENSION_CLI_SESSION_H_
#define LM_EXTENSION_CLI_SESSION_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "extension/cli/arguments.h"
#include "extension/host/statement.h"

namespace lm::cli {

// --model, --model-options, --options: of every command that asks a model.
const std::vector<Option>& ModelOptions();

class Session {
 public:
  // `path` may be ":memory:". Only a command that writes it makes a database that is not there.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const std::string& path,
                                                       const Arguments& arguments,
                                                       bool create = false);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  sqlite3* db() const { return db_; }
  bool read_only() const;  // the database

  using Values = std::vector<std::string>;
  // The rows of a statement as texts; NULL is "". `parameters` are ?1, ?2, ...
  absl::StatusOr<std::vector<Values>> Query(absl::string_view sql, const Values& parameters = {});
  // Row by row, until the function returns false. InvalidArgument for SQL that cannot be prepared,
  // as with a name that is not there; FailedPrecondition for what it says as it runs, as that a
  // model cannot be loaded; other codes are of the database itself.
  absl::Status Each(absl::string_view sql, const Values& parameters,
                    const std::function<bool(const Values&)>& row);
  absl::Status Run(absl::string_view sql, const Values& parameters = {});
  // The same where the parameters are what was typed: what is said of them is InvalidArgument.
  absl::Status RunTyped(absl::string_view sql, const Values& parameters);

  // What --options says, with `more` added to it, as a JSON text. InvalidArgument for what is wrong
  // with it whatever the model; `own` are options that the command has beside generate()'s.
  absl::StatusOr<std::string> CallOptions(
      const std::vector<std::pair<std::string, Json>>& more = {},
      const std::vector<absl::string_view>& own = {});

  // By --model or LM_MODEL.
  bool model_is_named() const { return named_; }
  // Those of the hints (of lm_stats or lm_run, one or several) that were not given here before;
  // hints that differ in numbers only are equal. Empty where there is none.
  std::string NewHints(absl::string_view hints);
  // Says on stderr what lm_stats hints at now and was not said yet, as that the model was not made
  // for what it was asked.
  void ShowHints();

  // Statements wait ten seconds for others' locks, and hear Ctrl-C meanwhile; a job, which does so
  // by itself, reads from the connection how long it is to wait, which has it while this lives.
  class JobsWait {
   public:
    explicit JobsWait(Session* session);
    ~JobsWait();

   private:
    Session* const session_;
  };

  // Whether Ctrl-C was pressed; TakeInterrupt() goes on as if it had not been. Pressed twice, it
  // ends the program.
  static bool interrupted();
  static bool TakeInterrupt();

 private:
  Session() = default;

  absl::Status Step(absl::string_view sql, const Values& parameters, absl::StatusCode of_statement,
                    const std::function<bool(const Values&)>& row);

  sqlite3* db_ = nullptr;
  std::string options_;
  bool named_ = false;
  std::set<std::string> hinted_;  // parts of hints, without their numbers
};

// An error with the name of the file that it is of; OK stays.
absl::Status InFile(const std::string& path, const absl::Status& status);

}  // namespace lm::cli

#endif  // LM_EXTENSION_CLI_SESSION_H_
