// Whether a grammar has a text for a JSON value: with the members of its objects in any order,
// since a grammar writes them in its own.
#ifndef LM_TESTS_BENCHMARKS_SCHEMA_INSTANCES_H_
#define LM_TESTS_BENCHMARKS_SCHEMA_INSTANCES_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/automaton.h"
#include "engine/grammar/state_machine.h"

namespace lm {

// Texts are tried depth first. A member is written as soon as it can be, and a way is left where a
// member that could have been written no longer can be; if that finds nothing, all ways are tried.
class InstanceSearch {
 public:
  // Members tried; far more than a grammar with one order of members needs.
  static constexpr int64_t kMaxTrials = 200'000;

  // REQUIRES: *automaton outlives this.
  explicit InstanceSearch(const Automaton* automaton) : machine_(automaton) {}

  enum class Answer { kYes, kNo, kUnknown };
  // Of a value that is not valid, numbers stand as they are written: 1.0 is no integer in draft 4.
  Answer Fits(const nlohmann::ordered_json& value, bool numbers_as_written);
  // The text that was found by the last Fits that said yes.
  const std::string& text() const { return text_; }

 private:
  using State = StateId;
  // The state behind the text of `value`, which is appended to text_; kNoState where there is none.
  State Value(State state, const nlohmann::ordered_json& value);
  State Object(State state, const nlohmann::ordered_json& value);
  State Text(State state, const std::string& text);

  StateMachine machine_;
  std::string text_;
  int64_t trials_ = 0;
  bool numbers_as_written_ = false;
  bool keeps_possible_ = true;
};

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_SCHEMA_INSTANCES_H_
