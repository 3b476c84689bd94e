// sqlite-lm chat: a conversation, kept in a database.
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"

namespace lm::cli {
namespace {

constexpr char kTable[] =
    "CREATE TABLE IF NOT EXISTS lm_chat(number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, "
    "role TEXT NOT NULL, "
    "content TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)";
constexpr char kMessages[] =
    "SELECT json_group_array(json_object('role', role, 'content', content)) FROM (SELECT * FROM ("
    "SELECT number, role, content FROM lm_chat WHERE conversation = ?1 "
    "UNION ALL SELECT 9e18, 'user', ?2) ORDER BY number)";

// One turn. Both sides of it are stored together, when the answer is whole.
absl::Status Turn(Session& session, const std::string& name, const std::string& said,
                  const std::string& options) {
  ASSIGN_OR_RETURN(const auto messages, session.Query(kMessages, {name, said}));
  std::string answer;
  const absl::Status status = session.Each("SELECT piece FROM lm_stream(?1, NULL, ?2)",
                                           {messages[0][0], options}, [&](const auto& row) {
                                             if (answer.empty()) session.ShowHint();
                                             std::fputs(row[0].c_str(), stdout);
                                             std::fflush(stdout);
                                             answer += row[0];
                                             return true;
                                           });
  std::putchar('\n');
  RETURN_IF_ERROR(status);
  return session.Run(
      "INSERT INTO lm_chat(conversation, role, content) VALUES (?1, 'user', ?2), (?1, 'assistant', "
      "?3)",
      {name, said, answer});
}

absl::Status RunChat(const Arguments& arguments) {
  if (arguments.rest().size() > 1) return absl::InvalidArgumentError("one database at most");
  const std::string path = arguments.rest().empty() ? ":memory:" : arguments.rest()[0];
  const std::string name = arguments.Get("name", "default");
  ASSIGN_OR_RETURN(const auto session, Session::Open(path, arguments, /*create=*/true));
  ASSIGN_OR_RETURN(const std::string options, session->CallOptions({{"messages", Json(true)}}));
  RETURN_IF_ERROR(session->Run(kTable));
  ASSIGN_OR_RETURN(
      const auto known,
      session->Query("SELECT role, content FROM lm_chat WHERE conversation = ?1 ORDER BY number",
                     {name}));
  if (known.empty() && arguments.Has("system")) {
    RETURN_IF_ERROR(
        session->Run("INSERT INTO lm_chat(conversation, role, content) VALUES (?1, 'system', ?2)",
                     {name, arguments.Get("system")}));
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    for (const auto& row : known)
      std::printf("%s%s\n", row[0] == "user" ? "> " : "", row[1].c_str());
    std::fputs("(an empty line or Ctrl-D ends it)\n", stderr);
  }
  for (std::string said;;) {
    if (terminal) std::fputs("> ", stdout), std::fflush(stdout);
    if (!std::getline(std::cin, said) || said.empty() || Session::interrupted()) break;
    RETURN_IF_ERROR(Turn(*session, name, said, options));
  }
  return absl::OkStatus();
}

}  // namespace

Command ChatCommand() {
  return {"chat",
          "[DATABASE]",
          "a conversation, kept in a database",
          "Every line is a turn. With a DATABASE the conversation is kept in its table lm_chat and "
          "goes on the next time.",
          {{"name", "NAME", "which conversation of the database; unless given, 'default'"},
           {"system", "TEXT", "the system prompt of a new one"}},
          true,
          RunChat};
}

}  // namespace lm::cli
