#include "tests/benchmarks/schema_instances.h"

#include "tests/engine/grammar/canonical_json.h"

namespace lm {

using nlohmann::ordered_json;

InstanceSearch::Answer InstanceSearch::Fits(const ordered_json& value, bool numbers_as_written) {
  numbers_as_written_ = numbers_as_written;
  if (machine_.start() == StateMachine::kNoState) return Answer::kUnknown;
  for (const bool keeps_possible : {true, false}) {
    keeps_possible_ = keeps_possible;
    trials_ = 0;
    text_.clear();
    const State end = Value(machine_.start(), value);
    if (end != StateMachine::kNoState && machine_.CanEnd(end)) return Answer::kYes;
  }
  return trials_ > kMaxTrials || machine_.stopped() ? Answer::kUnknown : Answer::kNo;
}

StateId InstanceSearch::Text(State state, const std::string& text) {
  for (char c : text) {
    if (state == StateMachine::kNoState) break;
    state = machine_.Next(state, static_cast<uint8_t>(c));
  }
  if (state != StateMachine::kNoState) text_ += text;
  return state;
}

StateId InstanceSearch::Value(State state, const ordered_json& value) {
  if (value.is_object()) return Object(state, value);
  if (value.is_number() && numbers_as_written_) return Text(state, value.dump());
  if (!value.is_array()) return Text(state, CanonicalJson(value.dump()));
  state = Text(state, "[");
  bool is_first = true;
  for (const ordered_json& item : value) {
    if (!is_first && state != StateMachine::kNoState) state = Text(state, ",");
    is_first = false;
    if (state == StateMachine::kNoState) return state;
    state = Value(state, item);
  }
  return state == StateMachine::kNoState ? state : Text(state, "]");
}

StateId InstanceSearch::Object(State state, const ordered_json& value) {
  struct Member {
    std::string key;  // with its colon
    const ordered_json* value;
  };
  std::vector<Member> members;
  for (const auto& [name, member] : value.items()) {
    members.push_back({CanonicalJson(ordered_json(name).dump()) + ":", &member});
  }
  state = Text(state, "{");
  if (state == StateMachine::kNoState) return state;
  // One place of the way: what was written before it, and which member is tried next.
  struct Place {
    State state;
    size_t text_bytes;
    std::vector<bool> written;
    std::vector<bool> was_possible;  // the member could have been written here or before
    size_t next = 0;
  };
  std::set<std::pair<State, std::vector<bool>>> seen;
  std::vector<Place> way;
  way.push_back(
      {state, text_.size(), std::vector<bool>(members.size()), std::vector<bool>(members.size())});
  while (!way.empty()) {
    const size_t depth = way.size() - 1;
    Place& place = way.back();
    text_.resize(place.text_bytes);
    auto leave = [&] { way.pop_back(); };
    if (depth == members.size()) {
      const State end = Text(place.state, "}");
      if (end != StateMachine::kNoState) return end;
      leave();
      continue;
    }
    const std::string comma = depth == 0 ? "" : ",";
    if (place.next == 0) {
      if (!seen.insert({place.state, place.written}).second || ++trials_ > kMaxTrials) {
        leave();
        continue;
      }
      bool is_lost = false;
      for (size_t i = 0; i < members.size() && !is_lost; ++i) {
        if (place.written[i]) continue;
        text_.resize(place.text_bytes);
        const bool possible = Text(place.state, comma + members[i].key) != StateMachine::kNoState;
        is_lost = keeps_possible_ && place.was_possible[i] && !possible;
        place.was_possible[i] = place.was_possible[i] || possible;
      }
      text_.resize(place.text_bytes);
      if (is_lost) {
        leave();
        continue;
      }
    }
    if (place.next == members.size()) {
      leave();
      continue;
    }
    const size_t i = place.next++;
    if (place.written[i]) continue;
    ++trials_;
    State after = Text(place.state, comma + members[i].key);
    if (after != StateMachine::kNoState) after = Value(after, *members[i].value);
    if (after == StateMachine::kNoState) continue;
    // Written without a trace, it need not be written later instead.
    if (after == place.state) place.next = members.size();
    Place next{after, text_.size(), place.written, place.was_possible};
    next.written[i] = true;
    way.push_back(std::move(next));
  }
  return StateMachine::kNoState;
}

}  // namespace lm
