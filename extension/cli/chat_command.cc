// sqlite-lm chat: a conversation, kept in a database.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

constexpr char kTable[] =
    "CREATE TABLE IF NOT EXISTS lm_chat(number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, "
    "role TEXT NOT NULL, "
    "content TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)";
constexpr char kMessages[] =
    "SELECT json_group_array(json_object('role', role, 'content', content)) FROM (SELECT * FROM ("
    "SELECT number, role, content FROM lm_chat WHERE conversation = ?1 AND (role = 'system' OR "
    "number > ?3) UNION ALL SELECT 9e18, 'user', ?2) ORDER BY number)";
// The end of the first turn behind ?2.
constexpr char kOldestTurn[] =
    "SELECT min(number) FROM lm_chat WHERE conversation = ?1 AND role = 'assistant' AND number > "
    "?2";

// The model's context, empty where it is not known, and the most tokens that the messages ?1 may
// have: each mark of the template is one, and counted as the text that it is not.
constexpr char kContext[] = "SELECT context FROM temp.lm_models WHERE name = ?1";
constexpr char kMostTokens[] =
    "SELECT lm_token_count(lm_render(?1, NULL, ?2), json_object('model', ?3))";
// What they have. The first time it measures the processor, a quarter of a second.
constexpr char kTokens[] =
    "SELECT tokens FROM lm_explain('SELECT 1, ' || quote(?1) || ', NULL', ?2)";

// As generate() has them: max_tokens, and what may follow a reasoning that is at its end.
constexpr int64_t kMaxTokens = 256, kClosing = 64;

struct Conversation {
  std::string name, options;
  std::string model;            // its name in lm_models
  int64_t answer = 0;           // the most tokens that an answer may have
  std::string forgotten = "0";  // the last message that the model is not shown any more
};

// What of the options tells how much of the context an answer may have: they are right.
void ReadOptions(Conversation* conversation) {
  const std::optional<Json> options = Json::Parse(conversation->options);
  auto number = [&options](const char* name, int64_t otherwise) {
    const Json* value = options.has_value() ? options->Find(name) : nullptr;
    return value != nullptr && value->is_integer() ? value->integer() : otherwise;
  };
  const Json* model = options.has_value() ? options->Find("model") : nullptr;
  conversation->model = model != nullptr && model->is_string() ? model->string() : "default";
  const int64_t reasoning = number("thinking_tokens", 0);
  conversation->answer =
      number("max_tokens", kMaxTokens) + reasoning + (reasoning > 0 ? kClosing : 0);
}

// Whether a model, here or on the network, has found that it was given more than its context, or
// that nothing was left of that for an answer.
bool IsTooLong(const absl::Status& status) {
  const absl::string_view words = status.message();
  return absl::StrContains(words, "the prompt is too long") ||
         absl::StrContains(words, "the context's end cut the answer off") ||
         (absl::StrContains(words, "the prompt has ") && absl::StrContains(words, " tokens, the "));
}

// Whether the messages leave room for an answer, or half of the context at least. True where nobody
// knows, as of most servers.
bool LeavesRoom(Session& session, const Conversation& conversation, const std::string& messages) {
  auto number = [&session](const char* sql, const Session::Values& parameters) {
    const auto rows = session.Query(sql, parameters);
    return rows.ok() && !rows->empty() ? std::strtoll((*rows)[0][0].c_str(), nullptr, 10) : 0;
  };
  // First, for it loads the model.
  const int64_t most = number(kMostTokens, {messages, conversation.options, conversation.model});
  const int64_t context = number(kContext, {conversation.model});
  const int64_t room = context - std::min(conversation.answer, context / 2);
  return context == 0 || (most > 0 && most <= room) ||
         number(kTokens, {messages, conversation.options}) <= room;
}

// The answer, printed as it is made. Of turns that do not fit into the context the oldest are left
// out.
absl::StatusOr<std::string> Answer(Session& session, Conversation& conversation,
                                   const std::string& said) {
  std::string forgotten = conversation.forgotten, answer;
  bool begun = false;
  // Only now it is known to fit.
  auto begin = [&] {
    if (std::exchange(begun, true)) return;
    session.ShowHints();
    if (conversation.forgotten == "0" && forgotten != "0") {
      Say("the conversation is longer than the model's context: its oldest turns are left out from "
          "here on");
    }
    conversation.forgotten = forgotten;
  };
  auto forget_oldest = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const auto oldest, session.Query(kOldestTurn, {conversation.name, forgotten}));
    if (!oldest[0][0].empty()) forgotten = oldest[0][0];
    return !oldest[0][0].empty();
  };
  for (;;) {
    ASSIGN_OR_RETURN(const auto messages,
                     session.Query(kMessages, {conversation.name, said, forgotten}));
    if (!LeavesRoom(session, conversation, messages[0][0])) {
      ASSIGN_OR_RETURN(const bool shorter, forget_oldest());
      if (shorter) continue;
    }
    const absl::Status status =
        session.Each("SELECT piece FROM lm_stream(?1, NULL, ?2)",
                     {messages[0][0], conversation.options}, [&](const auto& row) {
                       begin();
                       std::fputs(row[0].c_str(), stdout);
                       std::fflush(stdout);
                       answer += row[0];
                       return true;
                     });
    if (status.ok()) begin();
    if (begun) std::putchar('\n');
    if (status.ok()) return answer;
    if (begun || !IsTooLong(status)) return status;
    ASSIGN_OR_RETURN(const bool shorter, forget_oldest());
    if (!shorter) return status;
  }
}

// One turn. Both sides of it are stored together, when the answer is whole. False where there is
// none, which is said.
absl::StatusOr<bool> Turn(Session& session, Conversation& conversation, const std::string& said) {
  const absl::StatusOr<std::string> answer = Answer(session, conversation, said);
  if (absl::IsFailedPrecondition(answer.status())) {
    Say(answer.status().message());
    return false;
  }
  RETURN_IF_ERROR(answer.status());
  RETURN_IF_ERROR(session.Run(
      "INSERT INTO lm_chat(conversation, role, content) VALUES (?1, 'user', ?2), (?1, 'assistant', "
      "?3)",
      {conversation.name, said, *answer}));
  return true;
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
  Conversation conversation{.name = name, .options = options, .model = "", .answer = 0};
  ReadOptions(&conversation);
  bool all_answered = true;
  for (std::string said;;) {
    if (terminal) std::fputs("> ", stdout), std::fflush(stdout);
    if (!std::getline(std::cin, said) || said.empty() || Session::interrupted()) break;
    ASSIGN_OR_RETURN(const bool answered, Turn(*session, conversation, said));
    all_answered &= answered;
  }
  return all_answered ? absl::OkStatus() : absl::UnavailableError("not all turns were answered");
}

}  // namespace

Command ChatCommand() {
  return {"chat",
          "[DATABASE]",
          "a conversation, kept in a database",
          "Every line is a turn. With a DATABASE the conversation is kept in its table lm_chat and "
          "goes on the next time.\n"
          "Once it leaves no room for an answer in the model's context, the model is not shown its "
          "oldest turns any more,\nbut for the system prompt. A turn that fails is not kept, and "
          "the chat goes on.",
          {{"name", "NAME", "which conversation of the database; unless given, 'default'"},
           {"system", "TEXT", "the system prompt of a new one"}},
          true,
          RunChat};
}

}  // namespace lm::cli
