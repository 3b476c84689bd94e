#include "engine/grammar/unicode_sets.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace lm {
namespace {

struct FreeExpression {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

// An expression that is looked for in texts of single characters.
class Expression {
 public:
  // NotFound where PCRE2 has none of what is asked for.
  static absl::StatusOr<Expression> Create(const std::string& pattern, uint32_t options) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Expression expression;
    expression.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                         pattern.size(), PCRE2_UTF | options, &error, &offset,
                                         nullptr));
    if (expression.code_ == nullptr) {
      if (error == PCRE2_ERROR_NOMEMORY) return absl::ResourceExhaustedError("out of memory");
      return absl::NotFoundError("not known");
    }
    expression.data_.reset(pcre2_match_data_create(2, nullptr));
    if (expression.data_ == nullptr) return absl::ResourceExhaustedError("out of memory");
    return expression;
  }

  // The next match at or behind `from`: false where there is none. *group says whether the first
  // group is in it.
  absl::StatusOr<bool> Find(absl::string_view text, size_t from, size_t* begin, size_t* end,
                            bool* group) {
    const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               from, PCRE2_NO_UTF_CHECK, data_.get(), nullptr);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) return absl::InternalError(absl::StrCat("PCRE2 gave ", rc));
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data_.get());
    *begin = match[0];
    *end = match[1];
    *group = rc > 1;
    return true;
  }

 private:
  std::unique_ptr<pcre2_code, FreeExpression> code_;
  std::unique_ptr<pcre2_match_data, FreeMatch> data_;
};

// The characters that are \p{name}, as PCRE2 spells it.
absl::StatusOr<CodePointSet> Enumerate(absl::string_view name) {
  // Runs of characters that have it, and of those that have not.
  ASSIGN_OR_RETURN(
      Expression runs,
      Expression::Create(absl::StrCat("(\\p{", name, "}++)|\\P{", name, "}++"), PCRE2_ANCHORED));
  constexpr uint32_t kChunk = 1 << 14, kLast = 0x10ffff;
  CodePointSet set;
  std::string text;
  for (uint32_t first = 1; first <= kLast; first += kChunk) {
    RETURN_IF_ERROR(Checkpoint());
    text.clear();
    const uint32_t last = std::min(first + kChunk - 1, kLast);
    for (uint32_t c = first; c <= last; ++c) {
      if (c < 0xd800 || c > 0xdfff) AppendUtf8(c, &text);
    }
    for (size_t at = 0; at < text.size();) {
      size_t begin = 0, end = 0;
      bool has_it = false;
      ASSIGN_OR_RETURN(const bool found, runs.Find(text, at, &begin, &end, &has_it));
      if (!found || end == at) return absl::InternalError("PCRE2 found no run");
      if (has_it) {
        size_t low = begin, high = end - 1;
        while ((static_cast<uint8_t>(text[high]) & 0xc0) == 0x80) --high;
        const uint32_t from = DecodeUtf8(text, &low);
        const uint32_t to = DecodeUtf8(text, &high);
        // Surrogates, which are no characters, may be within; Add leaves them out.
        set.Add(from, to);
      }
      at = end;
    }
  }
  return set;
}

// The names of general categories that ECMA-262 has, as PCRE2 spells them; "" for others.
// https://tc39.es/ecma262/#table-unicode-general-category-values
absl::string_view GeneralCategory(absl::string_view name) {
  static const auto& names = *new HashMap<std::string, const char*>({
      {"lc", "L&"},    {"casedletter", "L&"},
      {"pe", "Pe"},    {"closepunctuation", "Pe"},
      {"pc", "Pc"},    {"connectorpunctuation", "Pc"},
      {"cc", "Cc"},    {"control", "Cc"},
      {"sc", "Sc"},    {"currencysymbol", "Sc"},
      {"pd", "Pd"},    {"dashpunctuation", "Pd"},
      {"nd", "Nd"},    {"decimalnumber", "Nd"},
      {"me", "Me"},    {"enclosingmark", "Me"},
      {"pf", "Pf"},    {"finalpunctuation", "Pf"},
      {"cf", "Cf"},    {"format", "Cf"},
      {"pi", "Pi"},    {"initialpunctuation", "Pi"},
      {"l", "L"},      {"letter", "L"},
      {"nl", "Nl"},    {"letternumber", "Nl"},
      {"zl", "Zl"},    {"lineseparator", "Zl"},
      {"ll", "Ll"},    {"lowercaseletter", "Ll"},
      {"m", "M"},      {"mark", "M"},
      {"sm", "Sm"},    {"mathsymbol", "Sm"},
      {"lm", "Lm"},    {"modifierletter", "Lm"},
      {"sk", "Sk"},    {"modifiersymbol", "Sk"},
      {"mn", "Mn"},    {"nonspacingmark", "Mn"},
      {"n", "N"},      {"number", "N"},
      {"ps", "Ps"},    {"openpunctuation", "Ps"},
      {"c", "C"},      {"other", "C"},
      {"lo", "Lo"},    {"otherletter", "Lo"},
      {"no", "No"},    {"othernumber", "No"},
      {"po", "Po"},    {"otherpunctuation", "Po"},
      {"so", "So"},    {"othersymbol", "So"},
      {"zp", "Zp"},    {"paragraphseparator", "Zp"},
      {"co", "Co"},    {"privateuse", "Co"},
      {"p", "P"},      {"punctuation", "P"},
      {"z", "Z"},      {"separator", "Z"},
      {"zs", "Zs"},    {"spaceseparator", "Zs"},
      {"mc", "Mc"},    {"spacingmark", "Mc"},
      {"s", "S"},      {"symbol", "S"},
      {"lt", "Lt"},    {"titlecaseletter", "Lt"},
      {"cn", "Cn"},    {"unassigned", "Cn"},
      {"lu", "Lu"},    {"uppercaseletter", "Lu"},
      {"l&", "L&"},    {"combiningmark", "M"},
      {"cntrl", "Cc"}, {"digit", "Nd"},
      {"punct", "P"},  {"surrogate", "Cs"},
      {"cs", "Cs"},
  });
  const auto known = names.find(name);
  return known == names.end() ? "" : known->second;
}

// The name as PCRE2 may spell it, the most likely first.
std::vector<std::string> SpelledForPcre2(absl::string_view name) {
  std::string plain;
  for (char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    if (c == ':') c = '=';
    if (!absl::ascii_isalnum(c) && c != '=' && c != '&') return {};
    plain.push_back(absl::ascii_tolower(c));
  }
  if (const size_t equals = plain.find('='); equals != plain.npos) {
    const std::string kind = plain.substr(0, equals), value = plain.substr(equals + 1);
    if (kind == "sc" || kind == "script") return {absl::StrCat("sc:", value)};
    if (kind == "scx" || kind == "scriptextensions") return {absl::StrCat("scx:", value)};
    const bool is_category = kind == "gc" || kind == "generalcategory";
    const absl::string_view category = is_category ? GeneralCategory(value) : "";
    if (category.empty()) return {};
    return {std::string(category)};
  }
  if (const absl::string_view category = GeneralCategory(plain); !category.empty()) {
    return {std::string(category)};
  }
  if (plain == "assigned") return {"^Cn"};
  // A script alone is Script, as in most engines; PCRE2's own reading is Script_Extensions.
  return {absl::StrCat("sc:", plain), plain};
}

// A character that has others, which differ from it in case alone.
struct Cased {
  uint32_t character;
  std::vector<uint32_t> others;
};

// Sorted.
absl::StatusOr<std::vector<Cased>> FindCased() {
  CodePointSet candidates;
  for (const char* property : {"Changes_When_Casemapped", "Changes_When_Casefolded"}) {
    ASSIGN_OR_RETURN(const CodePointSet* set, UnicodeProperty(property));
    candidates.Add(*set);
  }
  std::vector<Cased> cased;
  std::vector<size_t> places;  // in `text`
  std::string text;
  HashMap<size_t, size_t> number_at;
  for (const CodePointSet::Range& range : candidates.ranges()) {
    for (uint32_t c = range.low; c <= range.high; ++c) {
      number_at[text.size()] = cased.size();
      places.push_back(text.size());
      cased.push_back({c, {}});
      AppendUtf8(c, &text);
    }
  }
  std::vector<size_t> same;
  for (size_t i = 0; i < cased.size(); ++i) {
    RETURN_IF_ERROR(Checkpoint());
    if (!cased[i].others.empty()) continue;  // found with one before it
    ASSIGN_OR_RETURN(Expression either,
                     Expression::Create(absl::StrCat("\\x{", absl::Hex(cased[i].character), "}"),
                                        PCRE2_CASELESS));
    same.clear();
    for (size_t at = places[i]; at < text.size();) {
      size_t begin = 0, end = 0;
      bool group = false;
      ASSIGN_OR_RETURN(const bool found, either.Find(text, at, &begin, &end, &group));
      if (!found) break;
      same.push_back(number_at.at(begin));
      at = end;
    }
    for (const size_t one : same) {
      for (const size_t other : same) {
        if (one != other) cased[one].others.push_back(cased[other].character);
      }
    }
  }
  std::erase_if(cased, [](const Cased& one) { return one.others.empty(); });
  return cased;
}

// What was read of PCRE2's tables.
struct Known {
  absl::Mutex mutex;
  // By PCRE2's spelling of the name. There are about a thousand.
  HashMap<std::string, std::unique_ptr<const CodePointSet>> properties ABSL_GUARDED_BY(mutex);
  std::unique_ptr<const std::vector<Cased>> cased ABSL_GUARDED_BY(mutex);
};

Known& TheKnown() {
  static Known& known = *new Known;
  return known;
}

}  // namespace

absl::StatusOr<const CodePointSet*> UnicodeProperty(absl::string_view name) {
  Known& known = TheKnown();
  for (const std::string& spelled : SpelledForPcre2(name)) {
    {
      absl::MutexLock lock(&known.mutex);
      const auto at = known.properties.find(spelled);
      if (at != known.properties.end()) return at->second.get();
    }
    absl::StatusOr<CodePointSet> set = Enumerate(spelled);
    if (absl::IsNotFound(set.status())) continue;
    RETURN_IF_ERROR(set.status());
    auto kept = std::make_unique<const CodePointSet>(*std::move(set));
    kept->ranges();  // in order from now on
    absl::MutexLock lock(&known.mutex);
    return known.properties.try_emplace(spelled, std::move(kept)).first->second.get();
  }
  return absl::NotFoundError("no property of that name is known");
}

absl::StatusOr<CodePointSet> FoldCase(const CodePointSet& set) {
  Known& known = TheKnown();
  const std::vector<Cased>* cased = nullptr;
  {
    absl::MutexLock lock(&known.mutex);
    cased = known.cased.get();
  }
  if (cased == nullptr) {
    ASSIGN_OR_RETURN(std::vector<Cased> found, FindCased());
    auto kept = std::make_unique<const std::vector<Cased>>(std::move(found));
    absl::MutexLock lock(&known.mutex);
    if (known.cased == nullptr) known.cased = std::move(kept);
    cased = known.cased.get();
  }
  CodePointSet folded = set;
  for (const CodePointSet::Range& range : set.ranges()) {
    auto at = std::lower_bound(cased->begin(), cased->end(), range.low,
                               [](const Cased& one, uint32_t c) { return one.character < c; });
    for (; at != cased->end() && at->character <= range.high; ++at) {
      for (const uint32_t other : at->others) {
        if ((other < 0x80) == (at->character < 0x80)) folded.Add(other);
      }
    }
  }
  return folded;
}

}  // namespace lm
