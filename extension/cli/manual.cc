#include "extension/cli/manual.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

std::string Shown(const Option& option) {
  return absl::StrCat("--", option.name, option.value != nullptr ? " " : "",
                      option.value != nullptr ? option.value : "");
}

// A text in man(7): a backslash and a dot or quote at the beginning of a line mean something there.
std::string Roff(absl::string_view text) {
  std::string roff = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", "\n"}});
  if (!roff.empty() && (roff[0] == '.' || roff[0] == '\'')) roff.insert(0, "\\&");
  return roff;
}

}  // namespace

const std::vector<Command>& Commands() {
  static const auto& commands =
      *new std::vector<Command>{AskCommand(),    LabelCommand(), SummarizeCommand(), ChatCommand(),
                                ModelsCommand(), BenchCommand(), DoctorCommand()};
  return commands;
}

std::vector<Option> OptionsOf(const Command& command) {
  std::vector<Option> options = command.options;
  if (command.asks_model) {
    options.insert(options.end(), ModelOptions().begin(), ModelOptions().end());
  }
  return options;
}

std::string Help() {
  std::string text = "Local language models over SQLite.\n\n";
  std::vector<std::vector<std::string>> rows;
  for (const Command& command : Commands()) {
    rows.push_back(
        {absl::StrCat("  sqlite-lm ", command.name, " ", command.operands), command.summary});
  }
  rows.push_back({"  sqlite-lm completion bash|zsh|fish", "what the shell completes"});
  rows.push_back({"  sqlite-lm man", "the manual page: sqlite-lm man | man -l -"});
  rows.push_back({"  sqlite-lm --version", "which release this is"});
  return absl::StrCat(
      text, Table(rows),
      "\nsqlite-lm COMMAND --help tells more. In SQL there is more of everything: the README.\n");
}

std::string HelpOf(const Command& command) {
  std::vector<std::vector<std::string>> rows;
  for (const Option& option : OptionsOf(command))
    rows.push_back({absl::StrCat("  ", Shown(option)), option.help});
  return absl::StrCat("sqlite-lm ", command.name, " ", command.operands, "\n\n", command.text,
                      "\n\n", Table(rows));
}

std::string ManualPage() {
  std::string page =
      ".TH SQLITE-LM 1\n.SH NAME\nsqlite\\-lm \\- local language models over SQLite\n"
      ".SH SYNOPSIS\n.B sqlite\\-lm\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIOPERAND\\fR...]\n.SH "
      "COMMANDS\n";
  for (const Command& command : Commands()) {
    absl::StrAppend(&page, ".SS ", Roff(absl::StrCat(command.name, " ", command.operands)), "\n",
                    Roff(absl::StrCat(command.summary, ".\n", command.text)), "\n");
    for (const Option& option : OptionsOf(command)) {
      absl::StrAppend(&page, ".TP\n.B ", Roff(Shown(option)), "\n", Roff(option.help), "\n");
    }
  }
  absl::StrAppend(
      &page,
      ".SH ENVIRONMENT\n.TP\n.B LM_MODEL\nThe model where no \\-\\-model is given.\n"
      ".TP\n.B LM_NETWORK\n\"off\": no model elsewhere is asked.\n"
      ".SH EXIT STATUS\n0, 1 for an error, 2 for wrong arguments, 130 after Ctrl\\-C.\n");
  return page;
}

absl::StatusOr<std::string> Completion(const std::string& shell) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  names.insert(names.end(), {"completion", "man"});
  if (shell == "fish") {
    std::string text = "complete -c sqlite-lm -n __fish_use_subcommand -f\n";
    for (const Command& command : Commands()) {
      absl::StrAppend(&text, "complete -c sqlite-lm -n __fish_use_subcommand -a ", command.name,
                      " -d '", command.summary, "'\n");
      for (const Option& option : OptionsOf(command)) {
        absl::StrAppend(&text, "complete -c sqlite-lm -n '__fish_seen_subcommand_from ",
                        command.name, "' -l ", option.name, option.value != nullptr ? " -r" : "",
                        "\n");
      }
    }
    return absl::StrCat(
        text,
        "complete -c sqlite-lm -n __fish_use_subcommand -a completion -d 'what the shell "
        "completes'\ncomplete -c sqlite-lm -n '__fish_seen_subcommand_from completion' -f -a "
        "'bash zsh fish'\ncomplete -c sqlite-lm -n __fish_use_subcommand -a man -d 'the manual "
        "page'\n");
  }
  if (shell != "bash" && shell != "zsh") {
    return absl::InvalidArgumentError(
        absl::StrCat("completion for bash, zsh or fish, got '", shell, "'"));
  }
  std::string cases;
  for (const Command& command : Commands()) {
    std::vector<std::string> options;
    for (const Option& option : OptionsOf(command))
      options.push_back(absl::StrCat("--", option.name));
    absl::StrAppend(&cases, "    ", command.name, ") words='", absl::StrJoin(options, " "),
                    "' ;;\n");
  }
  return absl::StrCat(shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "",
                      "_sqlite_lm() {\n  local words='", absl::StrJoin(names, " "),
                      "' current=${COMP_WORDS[COMP_CWORD]}\n"
                      "  [ \"$COMP_CWORD\" -lt 2 ] || case ${COMP_WORDS[1]} in\n",
                      cases,
                      "    completion) words='bash zsh fish' ;;\n"
                      "    *) words= ;;\n  esac\n"
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\ncomplete -o "
                      "default -F _sqlite_lm sqlite-lm\n");
}

}  // namespace lm::cli
