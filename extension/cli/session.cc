#include "extension/cli/session.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "extension/cli/terminal.h"
#include "extension/host/host.h"
#include "lm/sqlite.h"

namespace lm::cli {
namespace {

std::atomic<sqlite3*> current{nullptr};
std::atomic<bool> pressed{false};

// The second time it kills, for what does not listen.
void OnInterrupt(int) {
  if (pressed.exchange(true)) _Exit(130);
  if (sqlite3* db = current) sqlite3_interrupt(db);
}

constexpr absl::Duration kLongestWait = absl::Seconds(10);

// What waits for another's lock would not notice Ctrl-C by itself.
int WaitForLock(void*, int times_before) {
  constexpr absl::Duration kPause = absl::Milliseconds(10);
  if (pressed || times_before * kPause >= kLongestWait) return 0;
  absl::SleepFor(kPause);
  return 1;
}

// What fails is an error of the command, and not an answer that is printed, or kept as one.
absl::Status CheckOnError(const Json& options) {
  const std::string on_error = options.TextAt("on_error");
  if (on_error.empty() || on_error == "error") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("on_error cannot be '", on_error,
                   "' in --options: what fails is told as an error, and is no answer"));
}

}  // namespace

const std::vector<Option>& ModelOptions() {
  static const auto& options = *new std::vector<Option>{
      {"model", "FILE",
       "a GGUF file, or the URL of a server; else $LM_MODEL, else the model that ships"},
      {"model-options", "JSON",
       "beside --model: how it is loaded, {\"device\":\"cpu\",\"threads\":8}, or a server's "
       "options"},
      {"options", "JSON", "of each answer: {\"temperature\":0.7,\"seed\":1}, as for generate()"},
  };
  return options;
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const std::string& path,
                                                       const Arguments& arguments, bool create) {
  AdoptHost(nullptr, nullptr);
  std::unique_ptr<Session> session(new Session());
  const int flags = SQLITE_OPEN_READWRITE | (create || path == ":memory:" ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path.c_str(), &session->db_, flags, nullptr);
  if (code != SQLITE_OK) {
    return absl::NotFoundError(absl::StrCat(path, ": ", sqlite3_errmsg(session->db_)));
  }
  sqlite3_busy_handler(session->db_, &WaitForLock, nullptr);
  // A name that is not there is an error, and no text; jobs take it over.
  sqlite3_db_config(session->db_, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  if (absl::Status read = session->Run("SELECT 1 FROM sqlite_schema"); !read.ok()) {
    return InFile(path, read);
  }
  char* message = nullptr;
  if ((sqlite3_lm_init(session->db_, &message, nullptr) & 0xff) != SQLITE_OK) {
    const std::string text = message != nullptr ? message : "sqlite-lm could not be set up";
    sqlite3_free(message);
    return absl::InternalError(text);
  }
  current = session->db_;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);

  session->options_ = arguments.Get("options");
  const char* variable = std::getenv("LM_MODEL");
  session->named_ = arguments.Has("model") || (variable != nullptr && *variable != '\0');
  if (arguments.Has("model")) {
    RETURN_IF_ERROR(session->RunTyped(
        "INSERT INTO temp.lm_models(name, path, options) VALUES ('default', ?1, nullif(?2, ''))",
        {arguments.Get("model"), arguments.Get("model-options")}));
  } else if (arguments.Has("model-options")) {
    return absl::InvalidArgumentError("--model-options needs --model");
  }
  return session;
}

Session::JobsWait::JobsWait(Session* session) : session_(session) {
  sqlite3_busy_timeout(session->db_, static_cast<int>(absl::ToInt64Milliseconds(kLongestWait)));
}

Session::JobsWait::~JobsWait() { sqlite3_busy_handler(session_->db_, &WaitForLock, nullptr); }

Session::~Session() {
  current = nullptr;
  sqlite3_close_v2(db_);
}

bool Session::read_only() const { return sqlite3_db_readonly(db_, "main") == 1; }

bool Session::interrupted() { return pressed; }
bool Session::TakeInterrupt() { return pressed.exchange(false); }

// An error of the statement as it runs has the code `of_statement`.
absl::Status Session::Step(absl::string_view sql, const Values& parameters,
                           absl::StatusCode of_statement,
                           const std::function<bool(const Values&)>& row) {
  // One that was not under way when Ctrl-C came would not notice.
  if (interrupted()) return absl::CancelledError("interrupted");
  ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(db_, sql));
  for (size_t i = 0; i < parameters.size(); ++i) {
    statement.Bind(static_cast<int>(i) + 1, absl::string_view(parameters[i]));
  }
  Values values;
  for (;;) {
    const absl::StatusOr<bool> more = statement.Step();
    if (!more.ok() && interrupted()) return absl::CancelledError("interrupted");
    if (absl::IsInvalidArgument(more.status())) {
      return absl::Status(of_statement, more.status().message());
    }
    RETURN_IF_ERROR(more.status());
    if (!*more) return absl::OkStatus();
    values.clear();
    for (int c = 0; c < sqlite3_column_count(statement.get()); ++c) {
      ASSIGN_OR_RETURN(std::string text, statement.Text(c));
      values.push_back(std::move(text));
    }
    if (!row(values)) return absl::OkStatus();
  }
}

absl::Status Session::Each(absl::string_view sql, const Values& parameters,
                           const std::function<bool(const Values&)>& row) {
  return Step(sql, parameters, absl::StatusCode::kFailedPrecondition, row);
}

absl::Status Session::RunTyped(absl::string_view sql, const Values& parameters) {
  return Step(sql, parameters, absl::StatusCode::kInvalidArgument,
              [](const Values&) { return true; });
}

absl::StatusOr<std::vector<Session::Values>> Session::Query(absl::string_view sql,
                                                            const Values& parameters) {
  std::vector<Values> rows;
  RETURN_IF_ERROR(Each(sql, parameters, [&rows](const Values& row) {
    rows.push_back(row);
    return true;
  }));
  return rows;
}

absl::Status Session::Run(absl::string_view sql, const Values& parameters) {
  return Each(sql, parameters, [](const Values&) { return true; });
}

absl::StatusOr<std::string> Session::CallOptions(
    const std::vector<std::pair<std::string, Json>>& more,
    const std::vector<absl::string_view>& own) {
  Json all = Json::MakeObject(), of_generate = Json::MakeObject();
  if (!options_.empty()) {
    const std::optional<Json> given = Json::Parse(options_);
    if (!given.has_value() || !given->is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--options must be a JSON object, got '", options_, "'"));
    }
    for (const auto& [name, value] : given->members()) all.Add(name, value);
  }
  for (const auto& [name, value] : more) {
    if (!all.Has(name)) all.Add(name, value);
  }
  for (const auto& [name, value] : all.members()) {
    if (std::find(own.begin(), own.end(), name) == own.end()) of_generate.Add(name, value);
  }
  const absl::Status checked = RunTyped("SELECT lm_check_job(NULL, ?1)", {of_generate.Dump()});
  if (!checked.ok()) {  // it speaks in the name of the table whose options it is to check
    return absl::Status(checked.code(), absl::StripPrefix(checked.message(), "lm_jobs: "));
  }
  RETURN_IF_ERROR(CheckOnError(all));
  return all.Dump();
}

std::string Session::NewHints(absl::string_view hints) {
  std::vector<std::string> parts;
  for (absl::string_view part : absl::StrSplit(hints, "; ", absl::SkipEmpty())) {
    std::string kind(part);
    std::erase_if(kind, [](char c) { return absl::ascii_isdigit(c); });
    if (!hinted_.insert(kind).second) continue;
    const bool names_model = absl::StartsWith(part, "name another model");
    parts.push_back(absl::StrCat(part, names_model ? " (here: --model FILE)" : ""));
  }
  return absl::StrJoin(parts, "; ");
}

void Session::ShowHints() {
  const auto hints = Query("SELECT hint FROM lm_stats WHERE hint IS NOT NULL LIMIT 1");
  if (!hints.ok() || hints->empty()) return;
  if (const std::string hint = NewHints((*hints)[0][0]); !hint.empty()) Say(hint);
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace lm::cli
