// sqlite-lm ask: one question, answered as it is made.
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"

namespace lm::cli {
namespace {

absl::Status RunAsk(const Arguments& arguments) {
  std::string question = absl::StrJoin(arguments.rest(), " ");
  if (question == "-" || (arguments.rest().empty() && isatty(STDIN_FILENO) == 0)) {
    ASSIGN_OR_RETURN(question, ReadText("-"));
  }
  if (question.empty()) {
    return absl::InvalidArgumentError("there is no question: sqlite-lm ask 'QUESTION'");
  }
  ASSIGN_OR_RETURN(const auto session, Session::Open(":memory:", arguments));
  ASSIGN_OR_RETURN(const std::string options, session->CallOptions());
  const Session::Values asked = {question, arguments.Get("system"), options};
  if (arguments.Has("json")) {
    ASSIGN_OR_RETURN(const auto tried,
                     session->Query("SELECT answer, coalesce(answer ->> '$.error', '') FROM "
                                    "(SELECT lm_try(?1, nullif(?2, ''), ?3) AS answer)",
                                    asked));
    session->ShowHints();
    std::printf("%s\n", tried[0][0].c_str());
    if (!tried[0][1].empty()) return absl::FailedPreconditionError(tried[0][1]);
    return absl::OkStatus();
  }
  bool begun = false, line_ended = false;
  RETURN_IF_ERROR(session->Each("SELECT piece FROM lm_stream(?1, nullif(?2, ''), ?3)", asked,
                                [&](const auto& row) {
                                  if (!std::exchange(begun, true)) session->ShowHints();
                                  std::fputs(row[0].c_str(), stdout);
                                  std::fflush(stdout);
                                  if (!row[0].empty()) line_ended = row[0].back() == '\n';
                                  return true;
                                }));
  if (!line_ended) std::putchar('\n');
  return absl::OkStatus();
}

}  // namespace

Command AskCommand() {
  return {"ask",
          "QUESTION",
          "answer one question",
          "The answer is printed as it is made. The question is read from the standard input where "
          "it is - or missing.",
          {{"system", "TEXT", "the system prompt"},
           {"json", nullptr, "an object: value, error, finish, tokens_in, tokens_out"}},
          true,
          RunAsk};
}

}  // namespace lm::cli
