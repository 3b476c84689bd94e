#include "extension/questions/cascade.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/questions/yes_or_no.h"

namespace lm {

absl::StatusOr<EscalateOption> ParseEscalate(const Json& value, bool needs_below) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "escalate must be an object such as {\"model\": \"large\", \"below\": 0.9}, got ",
        value.Dump()));
  }
  EscalateOption option;
  for (const auto& [name, member] : value.members()) {
    if (name == "model") {
      if (!member.is_string() || member.string().empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("escalate.model must be the name of a model, got ", member.Dump()));
      }
      option.model = member.string();
    } else if (name == "below") {
      if (!member.is_number() || !(member.number() >= 0 && member.number() <= 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("escalate.below must be a number from 0 to 1, got ", member.Dump()));
      }
      option.below = member.number();
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option 'escalate.", name, "'; model, below are known"));
    }
  }
  if (option.model.empty()) {
    return absl::InvalidArgumentError("escalate has no model: whom to ask instead");
  }
  if (needs_below && !value.Has("below")) {
    return absl::InvalidArgumentError(
        "escalate has no below: how probable an answer must be that is kept; lm_calibrate finds "
        "it");
  }
  return option;
}

absl::StatusOr<std::shared_ptr<const CallOptions>> ReadForModel(const OwnOptions& own,
                                                                absl::string_view model,
                                                                ReadOptions read) {
  Json named = Json::MakeObject(), told = Json::MakeObject();
  const std::optional<Json> given =
      own.rest().has_value() ? Json::Parse(*own.rest()) : std::nullopt;
  if (given && given->is_object()) {
    for (const auto& [name, value] : given->members()) {
      if (name == "model") continue;
      told.Add(name, value);
      if (name != "thinking_tokens") named.Add(name, value);
    }
  }
  for (Json* options : {&named, &told}) options->Add("model", std::string(model));
  ASSIGN_OR_RETURN(std::shared_ptr<const CallOptions> options, read(named.Dump()));
  if (options->generator().engine() == nullptr || named.size() == told.size()) return options;
  return read(told.Dump());
}

absl::Status AddEscalation(const OwnOptions& own, double (*confidence)(const Generation&),
                           ReadOptions read, RowPrompt* row) {
  const Json* value = own.Value("escalate");
  if (value == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const EscalateOption option, ParseEscalate(*value));
  if (NumDrawn(row->options->generation) > 0) {
    return absl::InvalidArgumentError(
        "escalate cannot be beside vote, n or best_of: it goes by the probability of one answer");
  }
  auto escalation = std::make_shared<Escalation>();
  escalation->below = option.below;
  escalation->confidence = confidence;
  ASSIGN_OR_RETURN(escalation->options, ReadForModel(own, option.model, read));
  row->escalation = std::move(escalation);
  row->weighs = !row->chooses;
  return absl::OkStatus();
}

double ConfidenceInAnswer(const Generation& answer) {
  return answer.first_choices.empty() ? 1 : std::exp(double{answer.first_choices[0].logprob});
}

double ConfidenceInYesOrNo(const Generation& answer) {
  const double yes = ProbabilityOfYes(answer);
  return std::max(yes, 1 - yes);
}

}  // namespace lm
