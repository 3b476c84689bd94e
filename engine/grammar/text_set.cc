#include "engine/grammar/text_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/state_machine.h"

namespace lm {
namespace {

// Of a StateMachine, for one set.
constexpr int64_t kMostWork = 200'000'000;

absl::Status TooLarge() {
  return absl::InvalidArgumentError(
      absl::StrCat("too large: what these strings have in common needs more than ",
                   TextSet::kMaxStates, " states"));
}

absl::StatusOr<TextSet> OfExpression(absl::string_view regex, bool is_pattern) {
  AutomatonBuilder builder;
  ASSIGN_OR_RETURN(const RegexPiece piece,
                   ParseRegex(regex, {TextForm::kPlain, is_pattern}, &builder));
  return TextSet::OfFragment(piece.fragment, std::move(builder));
}

}  // namespace

absl::StatusOr<TextSet> TextSet::All() { return OfExpression("[\\s\\S]*", /*pattern=*/false); }

absl::StatusOr<TextSet> TextSet::Of(std::vector<std::string> texts) {
  AutomatonBuilder builder;
  const Fragment fragment = builder.AnyLiteral(std::move(texts));
  return OfFragment(fragment, std::move(builder));
}

absl::StatusOr<TextSet> TextSet::OfPattern(absl::string_view regex) {
  return OfExpression(regex, /*pattern=*/true);
}

absl::StatusOr<TextSet> TextSet::OfRegex(absl::string_view regex) {
  return OfExpression(regex, /*pattern=*/false);
}

absl::StatusOr<TextSet> TextSet::OfFragment(Fragment fragment, AutomatonBuilder builder) {
  const RuleId root = builder.AddRule("a string");
  builder.Define(root, fragment);
  RETURN_IF_ERROR(builder.status());
  TextSet set;
  const absl::StatusOr<Automaton> automaton = std::move(builder).Build(root);
  if (absl::IsCancelled(automaton.status())) return automaton.status();
  if (!automaton.ok()) return set;  // no text at all
  StateMachine machine(&*automaton);
  machine.Resume(kMostWork);
  set.class_of_byte_ = automaton->class_of_byte;
  set.num_classes_ = automaton->num_classes();
  HashMap<StateId, int32_t> numbers;
  std::vector<StateId> states;
  auto number_of = [&](StateId state) {
    if (state == StateMachine::kNoState) return kNowhere;
    auto [at, is_new] = numbers.try_emplace(state, static_cast<int32_t>(states.size()));
    if (is_new) states.push_back(state);
    return at->second;
  };
  number_of(machine.start());
  for (size_t i = 0; i < states.size(); ++i) {
    if (i % 256 == 0) RETURN_IF_ERROR(Checkpoint());
    if (machine.stopped() || i >= kMaxStates) return TooLarge();
    set.accepts_.push_back(machine.CanEnd(states[i]));
    for (int c = 0; c < set.num_classes_; ++c) {
      set.next_.push_back(number_of(machine.Next(states[i], automaton->representative[c])));
    }
  }
  if (machine.stopped() || states.empty()) return TooLarge();
  return set;
}

template <typename Accepts>
absl::StatusOr<TextSet> TextSet::Product(const TextSet& other, bool needs_other,
                                         Accepts accepts) const {
  TextSet product;
  if (empty()) return product;
  // Bytes that neither tells apart.
  std::map<std::pair<uint8_t, uint8_t>, uint8_t> classes;
  std::vector<uint8_t> representative;
  for (int byte = 0; byte < 256; ++byte) {
    auto [at, is_new] = classes.try_emplace({class_of_byte_[byte], other.class_of_byte_[byte]},
                                            static_cast<uint8_t>(representative.size()));
    if (is_new) representative.push_back(static_cast<uint8_t>(byte));
    product.class_of_byte_[byte] = at->second;
  }
  product.num_classes_ = static_cast<int>(representative.size());
  using Pair = std::pair<int32_t, int32_t>;
  HashMap<Pair, int32_t> numbers;
  std::vector<Pair> pairs;
  auto number_of = [&](Pair pair) {
    if (pair.first == kNowhere || (needs_other && pair.second == kNowhere)) return kNowhere;
    auto [at, is_new] = numbers.try_emplace(pair, static_cast<int32_t>(pairs.size()));
    if (is_new) pairs.push_back(pair);
    return at->second;
  };
  number_of({0, other.empty() ? kNowhere : 0});
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i % 1024 == 0) RETURN_IF_ERROR(Checkpoint());
    if (i >= kMaxStates) return TooLarge();
    const auto [a, b] = pairs[i];
    product.accepts_.push_back(accepts(accepts_[a], b != kNowhere && other.accepts_[b]));
    for (uint8_t byte : representative) {
      product.next_.push_back(
          number_of({Next(a, byte), b == kNowhere ? kNowhere : other.Next(b, byte)}));
    }
  }
  product.Trim();
  return product;
}

absl::StatusOr<TextSet> TextSet::Intersect(const TextSet& other) const {
  return Product(other, /*needs_other=*/true, [](bool a, bool b) { return a && b; });
}

absl::StatusOr<TextSet> TextSet::Minus(const TextSet& other) const {
  return Product(other, /*needs_other=*/false, [](bool a, bool b) { return a && !b; });
}

absl::StatusOr<TextSet> TextSet::OfLength(int64_t min, std::optional<int64_t> max) const {
  const int64_t last = max.value_or(min);
  TextSet product;
  if (empty() || last < min) return product;
  // Bytes that go on with a character are told from those that begin one.
  std::map<std::pair<uint8_t, bool>, uint8_t> classes;
  std::vector<uint8_t> representative;
  for (int byte = 0; byte < 256; ++byte) {
    auto [at, is_new] = classes.try_emplace({class_of_byte_[byte], (byte & 0xc0) != 0x80},
                                            static_cast<uint8_t>(representative.size()));
    if (is_new) representative.push_back(static_cast<uint8_t>(byte));
    product.class_of_byte_[byte] = at->second;
  }
  product.num_classes_ = static_cast<int>(representative.size());
  const size_t width = representative.size();
  // Layer by layer: the states behind so many characters. What is behind `last` of them stays
  // there where there is no greatest. Each layer is reached from the one before it, by the first
  // byte of a character, and from itself, by the others.
  struct Layer {
    std::vector<int32_t> states;        // of this set
    HashMap<int32_t, int32_t> numbers;  // in `product`
  };
  auto number_in = [&](Layer* layer, int32_t state) {
    auto [at, is_new] = layer->numbers.try_emplace(state, product.num_states());
    if (is_new) {
      layer->states.push_back(state);
      product.accepts_.push_back(false);
      product.next_.resize(product.next_.size() + width, kNowhere);
    }
    return at->second;
  };
  bool has_text = false;
  int64_t num_drawn = 0;
  Layer layer;
  number_in(&layer, 0);
  for (int64_t chars = 0; !layer.states.empty(); ++chars) {
    Layer ahead;
    bool ends_here = false;
    for (size_t i = 0; i < layer.states.size(); ++i) {
      if (num_drawn++ % 1024 == 0) RETURN_IF_ERROR(Checkpoint());
      const int32_t state = layer.states[i];
      const int32_t number = layer.numbers.find(state)->second;
      product.accepts_[number] = chars >= min && accepts_[state];
      ends_here = ends_here || product.accepts_[number];
      for (size_t c = 0; c < width; ++c) {
        const int32_t next = Next(state, representative[c]);
        if (next == kNowhere) continue;
        const bool begins = (representative[c] & 0xc0) != 0x80;
        if (begins && chars == last && max) continue;
        Layer* const to = begins && chars < last ? &ahead : &layer;
        const int32_t next_number = number_in(to, next);
        product.next_[static_cast<size_t>(number) * width + c] = next_number;
      }
    }
    if (num_drawn > kMaxStates) {
      if (!has_text || !max) return TooLarge();
      for (const auto& [state, number] : layer.numbers) {
        product.accepts_[number] = false;
        std::fill_n(product.next_.begin() + static_cast<ptrdiff_t>(number * width), width,
                    kNowhere);
      }
      break;
    }
    has_text = has_text || ends_here;
    layer = std::move(ahead);
  }
  product.Trim();
  return product;
}

void TextSet::Trim() {
  const int32_t count = num_states();
  std::vector<std::vector<int32_t>> before(count);
  for (int32_t state = 0; state < count; ++state) {
    for (int c = 0; c < num_classes_; ++c) {
      const int32_t next = next_[static_cast<size_t>(state) * num_classes_ + c];
      if (next != kNowhere && (before[next].empty() || before[next].back() != state)) {
        before[next].push_back(state);
      }
    }
  }
  std::vector<bool> ends = accepts_;
  std::vector<int32_t> open;
  for (int32_t state = 0; state < count; ++state) {
    if (ends[state]) open.push_back(state);
  }
  while (!open.empty()) {
    const int32_t state = open.back();
    open.pop_back();
    for (int32_t one : before[state]) {
      if (!ends[one]) open.push_back(one);
      ends[one] = true;
    }
  }
  if (count == 0 || !ends[0]) {
    next_.clear();
    accepts_.clear();
    return;
  }
  std::vector<int32_t> number(count, kNowhere);
  int32_t kept = 0;
  for (int32_t state = 0; state < count; ++state) {
    if (ends[state]) number[state] = kept++;
  }
  std::vector<int32_t> next;
  std::vector<bool> accepts;
  for (int32_t state = 0; state < count; ++state) {
    if (!ends[state]) continue;
    accepts.push_back(accepts_[state]);
    for (int c = 0; c < num_classes_; ++c) {
      const int32_t to = next_[static_cast<size_t>(state) * num_classes_ + c];
      next.push_back(to == kNowhere ? kNowhere : number[to]);
    }
  }
  next_ = std::move(next);
  accepts_ = std::move(accepts);
}

bool TextSet::Contains(absl::string_view text) const {
  if (empty()) return false;
  int32_t state = 0;
  for (char c : text) {
    state = Next(state, static_cast<uint8_t>(c));
    if (state == kNowhere) return false;
  }
  return accepts_[state];
}

Fragment TextSet::Write(TextForm form, AutomatonBuilder* builder) const {
  const NodeId end = builder->AddLink();
  std::vector<NodeId> places(num_states());
  for (NodeId& place : places) place = builder->AddLink();
  // Escapes are rules: the same go on at many states.
  std::map<std::string, RuleId> escapes;
  auto escape_of = [&](const std::string& bytes) {
    auto [at, is_new] = escapes.try_emplace(bytes, -1);
    if (is_new) {
      CodePointSet set;
      for (char c : bytes) set.Add(static_cast<uint8_t>(c));
      at->second = builder->AddRule("an escape");
      builder->Define(at->second, ClassIn(form, set, builder));
    }
    return at->second;
  };
  for (int32_t state = 0; state < num_states() && builder->status().ok(); ++state) {
    std::vector<NodeId> ways;
    std::map<int32_t, std::string> escaped;  // by where they lead
    int run = -1;                            // the first byte of a run with one target
    for (int byte = 0; byte <= 256; ++byte) {
      const int32_t target = byte < 256 ? Next(state, static_cast<uint8_t>(byte)) : kNowhere;
      const bool escapes_it =
          form == TextForm::kJsonString && byte > 0 && IsEscapedInJson(static_cast<uint32_t>(byte));
      if (escapes_it && target != kNowhere) escaped[target].push_back(static_cast<char>(byte));
      if (run >= 0 &&
          (byte == 256 || escapes_it || target != Next(state, static_cast<uint8_t>(run)))) {
        ways.push_back(builder->AddBytes(static_cast<uint8_t>(run), static_cast<uint8_t>(byte - 1),
                                         places[Next(state, static_cast<uint8_t>(run))]));
        run = -1;
      }
      if (run < 0 && target != kNowhere && !escapes_it) run = byte;
    }
    for (const auto& [target, bytes] : escaped) {
      ways.push_back(builder->AddCall(escape_of(bytes), places[target]));
    }
    if (accepts_[state]) ways.push_back(end);
    builder->Connect(places[state], builder->AddFork(ways));
  }
  return {places[0], end};
}

}  // namespace lm
