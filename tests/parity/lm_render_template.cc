// Renders conversations with chat templates; one half of tests/parity/chat_templates.py.
//
//   lm_render_template < JOBS > RESULTS
//
// Each line of JOBS is an object: "source", the template; "bos" and "eos", the tokens' names;
// "now", [year, month, day, hour, minute, second]; "cases", a list of objects with "messages" and
// maybe "tools", "add_generation_prompt" and "args". Each line of RESULTS is a list with an object
// a case:
// {"text": ...}, BOS included, or {"error": ...}. With an argument, that many renders of each case
// are made first, and their mean time in microseconds goes to stderr.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "engine/text/template/json_value.h"
#include "engine/text/template/template_json.h"
#include "tests/engine/text/template_cases.h"

namespace lm {
namespace {

using Value = TemplateValue;

void Time(const ChatTemplate& chat, const Value& job, int repetitions) {
  const auto start = std::chrono::steady_clock::now();
  int64_t renders = 0;
  for (int i = 0; i < repetitions; ++i) {
    for (const Value& one : MemberOf(job, "cases")->list()) {
      RenderCase(chat, job, one).IgnoreError();
      ++renders;
    }
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  std::cerr << took.count() / renders << "\n";
}

absl::Status Answer(const std::string& line, int repetitions) {
  absl::StatusOr<Value> job = ParseJsonValue(line);
  if (!job.ok()) return job.status();
  const absl::StatusOr<ChatTemplate> chat =
      TemplateOf(*job, MemberOf(*job, "source")->text().bytes());
  if (chat.ok() && repetitions > 0) Time(*chat, *job, repetitions);
  Value::List results;
  for (const Value& one : MemberOf(*job, "cases")->list()) {
    absl::StatusOr<std::string> text =
        chat.ok() ? RenderCase(*chat, *job, one) : absl::StatusOr<std::string>(chat.status());
    const std::string said = text.ok() ? *text : std::string(text.status().message());
    results.push_back(
        Value::Dict({{Value::Template(text.ok() ? "text" : "error"), Value::Input(said)}}));
  }
  TemplateJsonForm form;
  form.ensure_ascii = true;
  TemplateText out;
  TemplateBudget budget(1 << 20, 1 << 30);
  absl::Status status =
      AppendJson(Value::Sequence(Value::Kind::kList, std::move(results)), form, &budget, &out);
  std::cout << out.bytes() << "\n" << std::flush;
  return status;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 0;
  for (std::string line; std::getline(std::cin, line);) {
    absl::Status status = lm::Answer(line, repetitions);
    if (status.ok()) continue;
    std::cerr << status << "\n";
    return 1;
  }
  return 0;
}
