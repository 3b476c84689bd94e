// sqlite-lm summarize: documents of any length, in short.
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

absl::StatusOr<std::string> SummaryOf(Session& session, const std::string& file,
                                      const std::string& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  if (absl::StripAsciiWhitespace(text).empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, ": it is empty: there is nothing to be summarized"));
  }
  const auto summary = session.Query("SELECT lm_summarize(?1, ?2)", {text, options});
  if (summary.ok()) return (*summary)[0][0];
  return absl::Status(summary.status().code(),
                      absl::StrCat(file, ": ", summary.status().message()));
}

absl::Status RunSummarize(const Arguments& arguments) {
  std::vector<std::string> files = arguments.rest();
  if (files.empty()) files.push_back("-");
  ASSIGN_OR_RETURN(const auto session, Session::Open(":memory:", arguments));
  ASSIGN_OR_RETURN(const std::string options,
                   session->CallOptions({}, {"instruction", "combine", "part_tokens"}));
  bool all_summarized = true;
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> summary = SummaryOf(*session, file, options);
    if (!summary.ok()) {
      if (files.size() == 1 || absl::IsCancelled(summary.status())) return summary.status();
      Say(summary.status().message());
      all_summarized = false;
      continue;
    }
    session->ShowHints();
    if (arguments.Has("json")) {
      Json line = Json::MakeObject();
      line.Add("file", file).Add("summary", *summary);
      std::printf("%s\n", line.Dump().c_str());
    } else {
      if (files.size() > 1) std::printf("%s:\n", file.c_str());
      std::printf("%s\n%s", summary->c_str(), files.size() > 1 ? "\n" : "");
    }
    std::fflush(stdout);
  }
  return all_summarized ? absl::OkStatus()
                        : absl::UnavailableError("not all texts were summarized");
}

}  // namespace

Command SummarizeCommand() {
  return {"summarize",
          "[FILE...]",
          "texts of any length, in short",
          "A text that is longer than the model's context is read in parts, and nothing is left "
          "out. Without a FILE the\n"
          "standard input is read. What cannot be summarized is told, and the other files are.",
          {{"json", nullptr, "one object a file: file, summary"}},
          true,
          RunSummarize};
}

}  // namespace lm::cli
