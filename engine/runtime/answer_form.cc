#include "engine/runtime/answer_form.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/schema/json_text.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/schema/schema_validator.h"
#include "engine/grammar/state_machine.h"
#include "engine/runtime/extraction_schema.h"

namespace lm {
namespace {

constexpr absl::string_view kNumberBytes = "-.0123456789e";
constexpr int64_t kNumbersWork = 200'000'000;  // of StateMachine::Resume, for one text

// Numbers with more digits than ours have an exponent only where everybody writes one.
std::string CanonicalScalar(const Json& json) {
  std::string ours = JsonText::Scalar(json);
  if (!json.is_float()) return ours;
  const size_t exponent = ours.find('e');
  const size_t most = (ours[0] == '-') + kMaxDigits + 1;  // with the point
  if (exponent == ours.npos || exponent <= most) return ours;
  std::string shortest = json.Dump();
  return absl::StrContains(shortest, 'e') ? ours : shortest;
}

void AppendCanonical(const Json& json, std::string* text) {
  if (!json.is_structured()) {
    text->append(CanonicalScalar(json));
    return;
  }
  text->push_back(json.is_array() ? '[' : '{');
  absl::string_view separator;
  auto append = [&](const Json& part, absl::string_view name) {
    absl::StrAppend(text, std::exchange(separator, ","), name);
    AppendCanonical(part, text);
  };
  if (json.is_array()) {
    for (const Json& element : json.array()) append(element, "");
  } else {
    for (const auto& [name, value] : json.members()) {
      append(value, absl::StrCat(JsonString(name), ":"));
    }
  }
  text->push_back(json.is_array() ? ']' : '}');
}

// Numbers near one that the grammar has no text for, for which it has, most likely: with as many
// digits as it writes, or without an exponent.
std::vector<std::string> Near(absl::string_view number) {
  const std::optional<Decimal> exact = ParseDecimal(number);
  const std::optional<Json> json = Json::Parse(number);
  if (!exact.has_value() || !json.has_value()) return {};
  const std::string sign = exact->negative ? "-" : "";
  if (exact->fraction.empty()) return {sign + exact->whole.substr(0, kMaxWholeDigits)};
  const std::string six_digits = absl::StrCat(json->number());
  return {CanonicalJson(Json::Parse(six_digits).value_or(*json)),
          absl::StrCat(sign, "0.", std::string(kMaxFractionDigits - 1, '0'), "1")};
}

// Follows a JSON text through a grammar. In a place where the grammar does not have the number that
// is there, one near it will do, or any that it has there: the text goes on behind all of them at
// once. What takes too long to follow does not match.
class AnyNumbers {
 public:
  explicit AnyNumbers(const Grammar& grammar) : machine_(&grammar.automaton()) {
    machine_.Resume(kNumbersWork);
  }

  bool Match(absl::string_view text) {
    States states;
    if (machine_.start() != StateMachine::kNoState) states = {machine_.start()};
    while (!text.empty() && !states.empty() && !machine_.stopped()) {
      const size_t size = PieceOf(text);
      const absl::string_view piece = text.substr(0, size);
      text.remove_prefix(size);
      States after = Behind(states, piece);
      if (CountNumberBytes(piece) > 0 && !GoesOn(after, text)) {
        after = BehindAnother(states, piece, text);
      }
      states = std::move(after);
    }
    return !machine_.stopped() && CanEnd(states);
  }

 private:
  using States = std::vector<StateId>;

  // Of a string, a number, or a byte of what is around them.
  static size_t PieceOf(absl::string_view text) {
    if (text[0] != '"') return std::max<size_t>(CountNumberBytes(text), 1);
    size_t end = 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text.size());
  }

  static size_t CountNumberBytes(absl::string_view text) {
    if (text[0] != '-' && !absl::ascii_isdigit(text[0])) return 0;
    return std::min(text.find_first_not_of(kNumberBytes), text.size());
  }

  States Behind(const States& states, absl::string_view piece) {
    States after;
    for (StateId state : states) {
      for (size_t i = 0; i < piece.size() && state != StateMachine::kNoState; ++i) {
        state = machine_.Next(state, static_cast<uint8_t>(piece[i]));
      }
      if (state != StateMachine::kNoState) after.push_back(state);
    }
    // Most numbers lead to one place.
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    return after;
  }

  // Whether what comes next may.
  bool GoesOn(const States& states, absl::string_view text) {
    return text.empty() ? CanEnd(states) : !Behind(states, text.substr(0, 1)).empty();
  }

  bool CanEnd(const States& states) const {
    return std::any_of(states.begin(), states.end(),
                       [this](StateId state) { return machine_.CanEnd(state); });
  }

  // Behind a number in the place of `number`, before `text`.
  States BehindAnother(const States& states, absl::string_view number, absl::string_view text) {
    for (const std::string& near : Near(number)) {
      States after = Behind(states, near);
      if (GoesOn(after, text)) return after;
    }
    return BehindNumbers(states);
  }

  States BehindNumbers(const States& states) {
    HashSet<StateId> all;
    for (StateId state : states) {
      auto [known, is_new] = behind_numbers_.try_emplace(state);
      if (is_new) known->second = Reached(state);
      all.insert(known->second.begin(), known->second.end());
    }
    return States(all.begin(), all.end());
  }

  // Behind the beginnings of numbers.
  States Reached(StateId start) {
    HashSet<StateId> seen;
    States reached = {start};
    for (size_t i = 0; i < reached.size() && !machine_.stopped(); ++i) {
      for (const char byte : kNumberBytes) {
        const StateId next = machine_.Next(reached[i], static_cast<uint8_t>(byte));
        if (next != StateMachine::kNoState && seen.insert(next).second) reached.push_back(next);
      }
    }
    reached.erase(reached.begin());  // a number has a byte
    return reached;
  }

  StateMachine machine_;
  HashMap<StateId, States> behind_numbers_;
};

absl::StatusOr<bool> IsValidBySchema(const AnswerConstraint& constraint, const Json& value) {
  std::string schema = constraint.text;
  if (constraint.kind == AnswerConstraint::Kind::kExtraction) {
    ASSIGN_OR_RETURN(const Json extraction, ExtractionSchema(constraint));
    schema = extraction.Dump();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(schema));
  SchemaWork work;
  return IsValid(*document, {&document->root()}, value, &work);
}

}  // namespace

bool IsJson(AnswerConstraint::Kind kind) {
  return kind == AnswerConstraint::Kind::kSchema || kind == AnswerConstraint::Kind::kExtraction;
}

std::string CanonicalJson(const Json& json) {
  std::string text;
  AppendCanonical(json, &text);
  return text;
}

bool IsAnswer(const AnswerConstraint& constraint, const Grammar& grammar, absl::string_view text) {
  if (grammar.Matches(text).value_or(false)) return true;
  if (!IsJson(constraint.kind)) return false;
  const std::optional<Json> value = Json::Parse(text);
  return value.has_value() && CanonicalJson(*value) == text && AnyNumbers(grammar).Match(text) &&
         IsValidBySchema(constraint, *value).value_or(false);
}

}  // namespace lm
