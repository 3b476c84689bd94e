// sqlite-lm summarize: documents of any length, in short.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"

namespace lm::cli {
namespace {

absl::Status RunSummarize(const Arguments& arguments) {
  std::vector<std::string> files = arguments.rest();
  if (files.empty()) files.push_back("-");
  ASSIGN_OR_RETURN(const auto session, Session::Open(":memory:", arguments));
  ASSIGN_OR_RETURN(const std::string options,
                   session->CallOptions({}, {"instruction", "combine", "part_tokens"}));
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(file));
    const auto summary = session->Query("SELECT lm_summarize(?1, ?2)", {text, options});
    if (!summary.ok()) {
      return absl::Status(summary.status().code(),
                          absl::StrCat(file, ": ", summary.status().message()));
    }
    session->ShowHints();
    const std::string& answer = (*summary)[0][0];
    if (arguments.Has("json")) {
      Json line = Json::MakeObject();
      line.Add("file", file).Add("summary", answer);
      std::printf("%s\n", line.Dump().c_str());
    } else {
      if (files.size() > 1) std::printf("%s:\n", file.c_str());
      std::printf("%s\n%s", answer.c_str(), files.size() > 1 ? "\n" : "");
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace

Command SummarizeCommand() {
  return {"summarize",
          "[FILE...]",
          "texts of any length, in short",
          "A text that is longer than the model's context is read in parts, and nothing is left "
          "out. Without a FILE the\n"
          "standard input is read.",
          {{"json", nullptr, "one object a file: file, summary"}},
          true,
          RunSummarize};
}

}  // namespace lm::cli
