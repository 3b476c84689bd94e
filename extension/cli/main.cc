// sqlite-lm: the program. All that it does is SQL over the extension, which it has inside.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "extension/cli/command.h"
#include "extension/cli/manual.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"
#include "lm/lm.h"

namespace lm::cli {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  std::string text;
  char buffer[1 << 16];
  // At a terminal, what is behind the end of the text is there to be read, too.
  while (std::feof(file) == 0 && std::ferror(file) == 0) {
    text.append(buffer, std::fread(buffer, 1, sizeof(buffer), file));
  }
  const int failed = std::ferror(file) != 0 ? errno : 0;
  if (file != stdin) std::fclose(file);
  if (Session::interrupted()) return absl::CancelledError("interrupted");
  if (failed != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", std::strerror(failed)));
  }
  const size_t valid = ValidUtf8Prefix(text);
  if (valid < text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no UTF-8 at byte ", valid));
  }
  return std::string(absl::StripPrefix(text, kByteOrderMark));
}

namespace {

constexpr int kWrongArguments = 2;
constexpr int kInterrupted = 130;

int Fail(const absl::Status& status) {
  Say(status.message());
  if (absl::IsCancelled(status)) return kInterrupted;
  return absl::IsInvalidArgument(status) ? kWrongArguments : 1;
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

int Main(std::vector<std::string> words) {
  if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h")
    return Print(Help());
  if (words[0] == "--version" && words.size() == 1)
    return Print(absl::StrCat("sqlite-lm ", lm_version(), "\n"));
  const std::string name = words[0];
  words.erase(words.begin());
  if (words.empty() && name == "man") return Print(ManualPage());
  if (name == "man" || name == "--version") {
    return Fail(absl::InvalidArgumentError(absl::StrCat(name, " takes no arguments")));
  }
  if (name == "completion") {
    const absl::StatusOr<std::string> text = Completion(words.empty() ? "" : words[0]);
    return text.ok() ? Print(*text) : Fail(text.status());
  }
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.push_back(command.name);
    if (name != command.name) continue;
    for (const std::string& word : words) {
      if (word == "--help" || word == "-h") return Print(HelpOf(command));
      if (word == "--") break;
    }
    const absl::StatusOr<Arguments> arguments = Arguments::Parse(OptionsOf(command), words);
    if (!arguments.ok()) return Fail(arguments.status());
    const absl::Status status = command.run(*arguments);
    const int code = status.ok() ? 0 : Fail(status);
    return Session::interrupted() ? kInterrupted : code;
  }
  const std::string nearest = Nearest(name, names);
  return Fail(absl::InvalidArgumentError(
      absl::StrCat("there is no command '", name, "'",
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
                   " (sqlite-lm --help)")));
}

// Success only where all that was said has arrived.
int WithOutput(int code) {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  return lost && code == 0 ? Fail(absl::DataLossError("the output could not be written")) : code;
}

}  // namespace
}  // namespace lm::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no more is an error of the write
  return lm::cli::WithOutput(lm::cli::Main({argv + 1, argv + argc}));
}
