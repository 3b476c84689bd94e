// Arrays of SchemaCompiler.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_compiler.h"
#include "engine/grammar/schema/schema_validator.h"
#include "engine/grammar/schema/schema_values.h"

namespace lm {
namespace {

// Values of an array with uniqueItems, and sets of them that were written already. Where there are
// more, they stand in one order.
constexpr size_t kMostOfASet = 64;
constexpr int64_t kMaxSets = 4096;
// Places of an array with `contains`, items written times items that count; of one with uniqueItems
// in one order, values times items written.
constexpr int64_t kMaxPlaces = 20000;
// Items that count, at most, where maxContains allows more, and maxItems does not forbid it.
constexpr int64_t kMostThatCount = 4000;

// There are no more than kMaxSets sets of up to `most` of so many values.
bool AreFewSets(size_t num_values, int64_t most) {
  const int64_t values = static_cast<int64_t>(num_values);
  int64_t of_this_size = 1, sets = 1;
  for (int64_t size = 1; size <= most && sets <= kMaxSets; ++size) {
    of_this_size = of_this_size * (values - size + 1) / size;
    sets += of_this_size;
  }
  return sets <= kMaxSets;
}

}  // namespace

Conjunction SchemaCompiler::ItemOf(const MergedSchema& schema, size_t i) {
  Conjunction conjunction;
  for (const MergedSchema::ArrayPart& part : schema.arrays) {
    const size_t own = part.prefix == nullptr ? 0 : part.prefix->size();
    work_.members += 1;
    if (i < own) {
      AddPartTo({&part.prefix->array()[i]}, &conjunction);
    } else if (part.rest && i >= part.before_rest) {
      AddPartTo(*part.rest, &conjunction);
    }
  }
  return conjunction;
}

RuleId SchemaCompiler::ValueRule(Conjunction conjunction) {
  if (!conjunction.empty()) return RuleOf(std::move(conjunction));
  if (any_value_ < 0) {
    any_value_ = builder_.AddRule("any value");
    builder_.Define(any_value_, json_.AnyValue());
  }
  return any_value_;
}

absl::StatusOr<Fragment> SchemaCompiler::Array(const MergedSchema& schema) {
  // Item i must be valid against the i-th of each prefix, or what comes behind it.
  size_t prefix = 0;
  for (const MergedSchema::ArrayPart& part : schema.arrays) {
    if (part.prefix != nullptr) prefix = std::max(prefix, part.prefix->size());
    prefix = std::max(prefix, part.before_rest);
  }
  // A schema that lets no item be there.
  auto refusal = [&](size_t i) -> const SchemaJson* {
    for (const SchemaPart& part : ItemOf(schema, i)) {
      if (part.schema->is_boolean() && part.schema->boolean() == part.negated) return part.schema;
    }
    return nullptr;
  };
  const int64_t min = schema.min_items;
  const std::optional<int64_t> max = schema.max_items;
  if (max && *max < min) {
    return builder_.Nothing(Together({schema.at.min_items, schema.at.max_items}));
  }
  for (int64_t i = 0; i < std::min<int64_t>(min, static_cast<int64_t>(prefix) + 1); ++i) {
    if (const SchemaJson* refused = refusal(static_cast<size_t>(i)); refused != nullptr) {
      return builder_.Nothing(Together({schema.at.min_items, refused}));
    }
  }
  const bool is_unique = schema.unique_items && (!max || *max > 1);
  if (is_unique && !schema.contains.empty()) {
    return document_.Error(*schema.at.unique_items, "uniqueItems beside contains is not supported");
  }
  if (is_unique) return UniqueItems(schema, prefix);
  if (!schema.contains.empty()) return ItemsThatCount(schema, prefix);
  // Drawn from the end. `place` is behind i items; the last one is repeated where there is no end,
  // or it is where no more may follow.
  const NodeId end = builder_.AddLink();
  const NodeId close = builder_.AddBytes(']', ']', end);
  const RuleId rest = ValueRule(ItemOf(schema, prefix));
  const int64_t last = max ? *max : std::max<int64_t>({min, static_cast<int64_t>(prefix), 1});
  NodeId place = close;
  if (!max) {
    const NodeId loop = builder_.AddLink();
    place = builder_.AddSplit(Element(false, rest, loop), close);
    builder_.Connect(loop, place);
  }
  for (int64_t i = last; i-- > 0 && builder_.status().ok();) {
    const RuleId rule =
        i < static_cast<int64_t>(prefix) ? ValueRule(ItemOf(schema, static_cast<size_t>(i))) : rest;
    place = Element(i == 0, rule, place);
    if (i >= min) place = builder_.AddSplit(place, close);
  }
  return Fragment{builder_.AddBytes('[', '[', place), end};
}

NodeId SchemaCompiler::Element(bool is_first, RuleId rule, NodeId next) {
  const NodeId call = builder_.AddCall(rule, next);
  if (is_first) return call;
  return builder_.AddBytes(',', ',', json_.BehindSeparator(call));
}

absl::StatusOr<std::vector<SchemaJson>> SchemaCompiler::AllValuesOf(const MergedSchema& schema,
                                                                    const SchemaJson& where) {
  std::vector<SchemaJson> values;
  const auto refused = [&] {
    return document_.Error(where,
                           absl::StrCat("uniqueItems is supported for items of which there are "
                                        "few: enum, const, boolean, null, small integers"));
  };
  if (schema.impossible || schema.kinds == 0) return values;
  if (schema.values) {
    ValueSet known;
    for (const SchemaJson* value : *schema.values) {
      if (known.insert(value).second) values.push_back(*value);
    }
    return values;
  }
  if (!schema.choices.empty() || (schema.kinds & ~(kNull | kBoolean | kInteger)) != 0) {
    return refused();
  }
  if ((schema.kinds & kNull) != 0) values.push_back(nullptr);
  if ((schema.kinds & kBoolean) != 0) {
    values.push_back(false);
    values.push_back(true);
  }
  if ((schema.kinds & kInteger) != 0) {
    const std::optional<NumberBound>&lower = schema.numbers.lower, &upper = schema.numbers.upper;
    if (!lower || !upper || lower->value.whole.size() > 6 || upper->value.whole.size() > 6) {
      return refused();
    }
    auto whole = [](const NumberBound& bound) {
      return (bound.value.negative ? -1 : 1) * std::stol(bound.value.whole);
    };
    const long first = whole(*lower) - 1, last = whole(*upper) + 1;
    if (last - first > 64) return refused();
    Conjunction parts = schema.parts;
    for (long number = first; number <= last; ++number) {
      bool fits = true;
      for (const SchemaPart& part : parts) {
        ASSIGN_OR_RETURN(const bool valid, IsValid(document_, part, SchemaJson(number), &work_));
        fits = fits && valid;
      }
      if (fits) values.push_back(SchemaJson(number));
    }
  }
  std::erase_if(values, [&](const SchemaJson& value) {
    return std::any_of(schema.excluded.begin(), schema.excluded.end(),
                       [&](const SchemaJson* other) { return SameValue(value, *other); });
  });
  return values;
}

absl::StatusOr<Fragment> SchemaCompiler::UniqueItems(const MergedSchema& schema, size_t prefix) {
  const SchemaJson& where = *schema.at.unique_items;
  if (prefix > 0) {
    return document_.Error(where, "uniqueItems beside a list of items' schemas is not supported");
  }
  ASSIGN_OR_RETURN(const MergedSchema item, Merge(document_, ItemOf(schema, 0), &work_));
  ASSIGN_OR_RETURN(const std::vector<SchemaJson> values, AllValuesOf(item, where));
  const int64_t num_values = static_cast<int64_t>(values.size());
  const int64_t min = schema.min_items;
  const int64_t max = std::min(schema.max_items.value_or(num_values), num_values);
  if (max < min) return builder_.Nothing(Together({schema.at.min_items, &where}));
  std::vector<RuleId> rules;
  for (const SchemaJson& value : values) {
    rules.push_back(builder_.AddRule("a value of a set"));
    builder_.Define(rules.back(), json_.Value(value));
  }
  const NodeId end = builder_.AddLink();
  const NodeId close = builder_.AddBytes(']', ']', end);
  if (values.size() > kMostOfASet || !AreFewSets(values.size(), max)) {
    // Drawn from the last value to the first: places[count] is before value v and behind `count`
    // of those before it; -1 where too few are left. Where any number may follow, they are counted
    // as far as that matters.
    const bool is_exact = max < num_values;
    const int64_t counted = is_exact ? max : std::max<int64_t>(min, 1);
    if (num_values > kMaxPlaces / (counted + 1)) {
      return document_.Error(where, "uniqueItems: too many values to count");
    }
    std::vector<NodeId> places(counted + 1, -1);
    std::fill(places.begin() + min, places.end(), close);
    for (size_t v = values.size(); v-- > 0 && builder_.status().ok();) {
      for (int64_t count = 0; count <= counted; ++count) {
        if (is_exact && count == max) continue;
        // Of v, not yet of this one.
        const NodeId next = places[std::min(count + 1, counted)];
        if (next < 0) continue;
        const NodeId take = Element(count == 0, rules[v], next);
        places[count] = places[count] < 0 ? take : builder_.AddSplit(take, places[count]);
      }
    }
    return Fragment{builder_.AddBytes('[', '[', places[0]), end};
  }
  // A place for each set of values that may stand before it.
  HashMap<uint64_t, NodeId> places;
  std::vector<uint64_t> sets;
  auto place_of = [&](uint64_t set) {
    auto [at, is_new] = places.try_emplace(set, -1);
    if (is_new) {
      at->second = builder_.AddLink();
      sets.push_back(set);
    }
    return at->second;
  };
  const NodeId start = place_of(0);
  for (size_t i = 0; i < sets.size(); ++i) {
    const uint64_t set = sets[i];
    const int64_t count = __builtin_popcountll(set);
    std::vector<NodeId> ways;
    for (size_t v = 0; v < values.size() && count < max; ++v) {
      const uint64_t one = uint64_t{1} << v;
      if ((set & one) == 0) ways.push_back(Element(set == 0, rules[v], place_of(set | one)));
    }
    if (count >= min) ways.push_back(close);
    builder_.Connect(places[set], builder_.AddFork(ways));
  }
  return Fragment{builder_.AddBytes('[', '[', start), end};
}

absl::StatusOr<Fragment> SchemaCompiler::ItemsThatCount(const MergedSchema& schema, size_t prefix) {
  const MergedSchema::Contains& contains = schema.contains.front();
  if (schema.contains.size() > 1) {
    return document_.Error(*schema.contains[1].at, "a second contains is not supported");
  }
  const int64_t min = schema.min_items;
  const int64_t least = contains.min;
  if (contains.max && *contains.max < least) return builder_.Nothing(Together({contains.at}));
  // No more can count than there may be.
  const bool is_limited = contains.max && !(schema.max_items && *schema.max_items <= *contains.max);
  const int64_t last = schema.max_items ? *schema.max_items
                                        : std::max<int64_t>({min, static_cast<int64_t>(prefix), 1});
  int64_t room = kMostThatCount;
  if (!schema.max_items) room = std::min(room, kMaxPlaces / (last + 1) - 1);
  const int64_t most = is_limited ? std::min(*contains.max, std::max(room, least)) : least;
  if ((last + 1) > kMaxPlaces / (most + 1)) {
    return document_.Error(*contains.at, "contains: too many items to count");
  }
  // places[i][count] is behind i items, `count` of which count; the last i is repeated where there
  // is no greatest, the last count where it needs none.
  const NodeId end = builder_.AddLink();
  const NodeId close = builder_.AddBytes(']', ']', end);
  std::vector<std::vector<NodeId>> places(last + 1, std::vector<NodeId>(most + 1));
  for (auto& row : places) {
    for (NodeId& place : row) place = builder_.AddLink();
  }
  for (int64_t i = 0; i <= last && builder_.status().ok(); ++i) {
    const Conjunction item = ItemOf(schema, static_cast<size_t>(i));
    Conjunction counted = item, other = item;
    AddPartTo(contains.part, &counted);
    if (is_limited) AddPartTo(contains.part.Negated(), &other);
    const bool goes_on = i < last || !schema.max_items;
    const RuleId counted_rule = ValueRule(std::move(counted));
    const RuleId other_rule = ValueRule(std::move(other));
    const int64_t next = std::min(i + 1, last);
    for (int64_t count = 0; count <= most; ++count) {
      std::vector<NodeId> ways;
      if (goes_on) {
        ways.push_back(Element(i == 0, other_rule, places[next][count]));
        if (count < most) ways.push_back(Element(i == 0, counted_rule, places[next][count + 1]));
      }
      if (i >= min && count >= least) ways.push_back(close);
      builder_.Connect(places[i][count], builder_.AddFork(ways));
    }
  }
  return Fragment{builder_.AddBytes('[', '[', places[0][0]), end};
}

}  // namespace lm
