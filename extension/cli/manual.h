// What the program says of itself: help, manual page, completion of shells; all from the commands.
#ifndef LM_EXTENSION_CLI_MANUAL_H_
#define LM_EXTENSION_CLI_MANUAL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "extension/cli/command.h"

namespace lm::cli {

const std::vector<Command>& Commands();
// Its own options, then those of every command that asks a model.
std::vector<Option> OptionsOf(const Command& command);

std::string Help();
std::string HelpOf(const Command& command);
std::string ManualPage();  // in man(7)
// For "bash", "zsh" or "fish".
absl::StatusOr<std::string> Completion(const std::string& shell);

}  // namespace lm::cli

#endif  // LM_EXTENSION_CLI_MANUAL_H_
