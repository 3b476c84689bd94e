#include "extension/jobs/job_question.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/digest.h"
#include "engine/base/json.h"
#include "engine/runtime/memo_key.h"

namespace lm {
namespace {

// OptionsOfAnswer, and what a request would have made part of its prompt or its adapters.
std::string OptionsAsGiven(const GenerationOptions& options, const ReadInParts* parts) {
  Json json = OptionsOfAnswer(options);
  if (!options.examples.empty()) {
    Json pairs = Json::MakeArray();
    for (const Example& example : options.examples) {
      pairs.Append(Json::MakeArray().Append(example.prompt).Append(example.answer));
    }
    json.Add("examples", std::move(pairs));
  }
  if (options.messages) json.Add("messages", true);
  if (!options.template_args.empty()) json.Add("template_args", options.template_args);
  if (options.on_overflow != OnOverflow::kError) {
    json.Add("on_overflow", static_cast<int>(options.on_overflow));
  }
  if (options.lora.has_value()) {
    Json pairs = Json::MakeArray();
    for (const AdapterChoice& choice : *options.lora) {
      pairs.Append(Json::MakeArray().Append(choice.name).Append(double{choice.scale}));
    }
    json.Add("lora", std::move(pairs));
  }
  if (parts != nullptr) {
    Json reading = Json::MakeArray().Append(parts->part_tokens);
    if (parts->combine.has_value()) reading.Append(*parts->combine);
    json.Add("summarize", std::move(reading));
  }
  return json.Dump();
}

}  // namespace

size_t JobRow::bytes() const {
  auto of = [](const absl::StatusOr<std::optional<std::string>>& text) {
    return text.ok() && text->has_value() ? (*text)->size() : 0;
  };
  return of(prompt) + of(system) + (kept.has_value() ? kept->generation.text.size() : 0);
}

JobQuestion::JobQuestion(const GenerationOptions& options, std::string system, std::string model,
                         const ReadInParts* parts)
    : options_(OptionsAsGiven(options, parts)),
      system_(std::move(system)),
      model_(std::move(model)) {}

JobAsked JobQuestion::Of(const JobRow& row) const {
  // What is no text has no answer but its error.
  auto text_of = [](const absl::StatusOr<std::optional<std::string>>& text,
                    absl::string_view otherwise) {
    if (!text.ok()) return absl::StrCat("!", text.status().message());
    return text->has_value() ? absl::StrCat("=", **text) : std::string(otherwise);
  };
  const std::string system = text_of(row.system, absl::StrCat("=", system_));
  // Lengths, so that no two questions have one text.
  return {.version = DigestOf(absl::StrCat(options_.size(), ":", options_, system.size(), ":",
                                           system, text_of(row.prompt, "")))
                         .Hex(),
          .model = model_};
}

std::optional<Generation> JobQuestion::Kept(const JobRow& row) const {
  if (!row.kept.has_value() || !(row.kept->asked == Of(row))) return std::nullopt;
  return row.kept->generation;
}

}  // namespace lm
