// sqlite-lm chat: a conversation, kept in a database.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

constexpr char kTable[] =
    "CREATE TABLE IF NOT EXISTS lm_chat(number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, "
    "role TEXT NOT NULL, "
    "content TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)";
constexpr char kKnown[] =
    "SELECT role, content FROM lm_chat WHERE conversation = ?1 ORDER BY number";
constexpr char kSystem[] =
    "INSERT INTO lm_chat(conversation, role, content) VALUES (?1, 'system', ?2)";
constexpr char kTurn[] =
    "INSERT INTO lm_chat(conversation, role, content) VALUES (?1, 'user', ?2), (?1, 'assistant', "
    "?3)";

// The model's context, empty where it is not known, and the most tokens that the messages ?1 may
// have: each mark of the template is one, and counted as the text that it is not.
constexpr char kContext[] = "SELECT context FROM temp.lm_models WHERE name = ?1";
constexpr char kMostTokens[] =
    "SELECT lm_token_count(lm_render(?1, NULL, ?2), json_object('model', ?3))";
// What they have. The first time it measures the processor, a quarter of a second.
constexpr char kTokens[] =
    "SELECT tokens FROM lm_explain('SELECT 1, ' || quote(?1) || ', NULL', ?2)";

struct Message {
  std::string role, content;
};

// As generate() has them: max_tokens, and what may follow a reasoning that is at its end.
constexpr int64_t kMaxTokens = 256, kClosing = 64;

struct Conversation {
  std::string path, name, options;
  std::string model;   // its name in lm_models
  int64_t answer = 0;  // the most tokens that an answer may have
  std::vector<Message> messages;
  size_t stored = 0;     // messages in the database; behind them are whole turns
  size_t forgotten = 0;  // messages that the model is not shown, but for the system prompt
};

absl::Status CheckText(const std::string& what, const std::string& text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": no UTF-8 at byte ", valid));
}

// What the model is shown, as `messages` has it.
std::string Messages(const Conversation& conversation, size_t forgotten, const std::string& said) {
  Json shown = Json::MakeArray();
  auto show = [&shown](const std::string& role, const std::string& content) {
    Json message = Json::MakeObject();
    message.Add("role", role).Add("content", content);
    shown.Append(std::move(message));
  };
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const auto& [role, content] = conversation.messages[i];
    if (i >= forgotten || role == "system") show(role, content);
  }
  show("user", said);
  return shown.Dump();
}

// Where the turns behind `forgotten` end: how many messages may be forgotten, too.
std::vector<size_t> TurnEnds(const Conversation& conversation, size_t forgotten) {
  std::vector<size_t> ends;
  for (size_t i = forgotten; i < conversation.messages.size(); ++i) {
    if (conversation.messages[i].role == "assistant") ends.push_back(i + 1);
  }
  return ends;
}

// The turns that are not yet in the database, each whole.
absl::Status Store(Session& session, Conversation& conversation) {
  while (conversation.stored < conversation.messages.size()) {
    const Message* turn = &conversation.messages[conversation.stored];
    RETURN_IF_ERROR(
        InFile(conversation.path,
               session.Run(kTurn, {conversation.name, turn[0].content, turn[1].content})));
    conversation.stored += 2;
  }
  return absl::OkStatus();
}

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

// Whether the messages leave room for an answer, or half of the context at least. True where that
// is not known, as of most servers.
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

// How many messages must be forgotten for what is said now: the oldest turns, as few as leave room
// for an answer, or all.
size_t Forgotten(Session& session, const Conversation& conversation, const std::string& said) {
  auto leaves_room = [&](size_t forgotten) {
    return LeavesRoom(session, conversation, Messages(conversation, forgotten, said));
  };
  if (leaves_room(conversation.forgotten)) return conversation.forgotten;
  const std::vector<size_t> ends = TurnEnds(conversation, conversation.forgotten);
  if (ends.empty()) return conversation.forgotten;
  return *std::partition_point(ends.begin(), ends.end() - 1,
                               [&](size_t end) { return !leaves_room(end); });
}

// The answer, printed as it is made. Of turns that do not fit into the context the oldest are left
// out: where only the model finds that they do not, an eighth of them at a time.
absl::StatusOr<std::string> Answer(Session& session, Conversation& conversation,
                                   const std::string& said) {
  size_t forgotten = Forgotten(session, conversation, said);
  std::string answer;
  bool begun = false;
  // Only now it is known to fit.
  auto begin = [&] {
    if (std::exchange(begun, true)) return;
    session.ShowHints();
    if (conversation.forgotten == 0 && forgotten != 0) {
      Say("the conversation is longer than the model's context: its oldest turns are left out from "
          "here on");
    }
    conversation.forgotten = forgotten;
  };
  for (;;) {
    const std::string messages = Messages(conversation, forgotten, said);
    const absl::Status status =
        session.Each("SELECT piece FROM lm_stream(?1, NULL, ?2)", {messages, conversation.options},
                     [&](const auto& row) {
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
    const std::vector<size_t> ends = TurnEnds(conversation, forgotten);
    if (ends.empty()) return status;
    forgotten = ends[ends.size() / 8];
  }
}

// One turn. Both sides of it are kept together, when the answer is whole, and stored now, or with
// a later one. False where there is no answer, which is said. At a terminal, Ctrl-C ends the answer
// and not the chat.
absl::StatusOr<bool> Turn(Session& session, Conversation& conversation, const std::string& said,
                          bool terminal) {
  if (const absl::Status text = CheckText("what was said", said); !text.ok()) {
    Say(text.message());
    return false;
  }
  const absl::StatusOr<std::string> answer = Answer(session, conversation, said);
  const bool stopped = terminal && Session::TakeInterrupt();
  if (absl::IsCancelled(answer.status()) && stopped) {
    Say("stopped; this turn is not kept");
    return true;
  }
  const bool locked = absl::IsUnavailable(answer.status());  // as the model's tables are, with it
  if (locked || absl::IsFailedPrecondition(answer.status())) {
    Say((locked ? InFile(conversation.path, answer.status()) : answer.status()).message());
    return false;
  }
  RETURN_IF_ERROR(answer.status());
  conversation.messages.push_back({"user", said});
  conversation.messages.push_back({"assistant", *answer});
  if (const absl::Status stored = Store(session, conversation); !stored.ok()) {
    Say(absl::StrCat(stored.message(), "; the turn will be stored with the next one"));
  }
  if (terminal) Session::TakeInterrupt();  // it was of storing, and not of what is typed next
  return true;
}

// What could not be stored before is tried once more.
absl::Status End(Session& session, Conversation& conversation, bool all_answered) {
  if (conversation.stored < conversation.messages.size()) {
    const bool interrupted = Session::TakeInterrupt();
    const absl::Status stored = Store(session, conversation);
    if (!stored.ok()) {
      const size_t turns = (conversation.messages.size() - conversation.stored) / 2;
      return absl::Status(stored.code(),
                          absl::StrCat(stored.message(), "; ", turns,
                                       turns == 1 ? " turn is" : " turns are", " not stored"));
    }
    if (interrupted) return absl::CancelledError("interrupted");
  }
  return all_answered ? absl::OkStatus() : absl::UnavailableError("not all turns were answered");
}

// What the database has of it, and the system prompt of a new one.
absl::Status Begin(Session& session, const Arguments& arguments, Conversation& conversation) {
  if (session.read_only()) {
    return absl::PermissionDeniedError("it is read-only, and nothing would be kept there");
  }
  RETURN_IF_ERROR(session.Run(kTable));
  ASSIGN_OR_RETURN(const auto known, session.Query(kKnown, {conversation.name}));
  for (const auto& row : known) conversation.messages.push_back({row[0], row[1]});
  if (known.empty() && arguments.Has("system")) {
    const std::string system = arguments.Get("system");
    RETURN_IF_ERROR(session.Run(kSystem, {conversation.name, system}));
    conversation.messages.push_back({"system", system});
  }
  conversation.stored = conversation.messages.size();
  return absl::OkStatus();
}

absl::Status RunChat(const Arguments& arguments) {
  if (arguments.rest().size() > 1) return absl::InvalidArgumentError("one database at most");
  Conversation conversation;
  conversation.path = arguments.rest().empty() ? ":memory:" : arguments.rest()[0];
  conversation.name = arguments.Get("name", "default");
  ASSIGN_OR_RETURN(const auto session,
                   Session::Open(conversation.path, arguments, /*create=*/true));
  ASSIGN_OR_RETURN(conversation.options, session->CallOptions({{"messages", Json(true)}}));
  ReadOptions(&conversation);
  RETURN_IF_ERROR(CheckText("--system", arguments.Get("system")));
  RETURN_IF_ERROR(InFile(conversation.path, Begin(*session, arguments, conversation)));
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    for (const auto& [role, content] : conversation.messages)
      std::printf("%s%s\n", role == "user" ? "> " : "", content.c_str());
    std::fputs("(an empty line or Ctrl-D ends it)\n", stderr);
  }
  bool all_answered = true, first = true;
  for (std::string said;;) {
    if (terminal) std::fputs("> ", stdout), std::fflush(stdout);
    if (!std::getline(std::cin, said)) break;
    if (std::exchange(first, false)) said = std::string(absl::StripPrefix(said, kByteOrderMark));
    if (Session::interrupted()) break;
    if (absl::EndsWith(said, "\r")) said.pop_back();
    if (said.empty() && terminal) break;
    if (said.empty()) continue;
    const absl::StatusOr<bool> answered = Turn(*session, conversation, said, terminal);
    if (!answered.ok()) {
      End(*session, conversation, false).IgnoreError();
      return answered.status();
    }
    all_answered &= *answered;
  }
  return End(*session, conversation, all_answered);
}

}  // namespace

Command ChatCommand() {
  return {"chat",
          "[DATABASE]",
          "a conversation, kept in a database",
          "Every line is a turn, but an empty one, which at a terminal ends it. With a DATABASE "
          "the conversation is kept in its table lm_chat and "
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
