// The commands of the program; each has a file of its own.
#ifndef LM_EXTENSION_CLI_COMMAND_H_
#define LM_EXTENSION_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "extension/cli/arguments.h"

namespace lm::cli {

struct Command {
  const char* name;
  const char* operands;  // "QUESTION", "[FILE...]"
  const char* summary;   // one line
  const char* text;      // what the manual says of it
  std::vector<Option> options;
  bool asks_model;  // takes ModelOptions() too
  // Writes its result to stdout, and what else there is to say to stderr. An error ends the
  // program.
  absl::Status (*run)(const Arguments& arguments);
};

Command AskCommand();
Command LabelCommand();
Command SummarizeCommand();
Command ChatCommand();
Command ModelsCommand();
Command BenchCommand();
Command DoctorCommand();

inline constexpr char kByteOrderMark[] = "\xef\xbb\xbf";

// All of stdin, or of a file, but for a byte order mark. InvalidArgument for what is no UTF-8.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace lm::cli

#endif  // LM_EXTENSION_CLI_COMMAND_H_
