#include "extension/batch/program_calls.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/batch/noticeable.h"

namespace lm {
namespace {

// Those of fts5, for its tables alone.
constexpr absl::string_view kOfFullText[] = {"bm25", "highlight", "snippet"};

bool IsOneOf(absl::string_view name, absl::Span<const absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsOwnCollation(absl::string_view name) {
  return name.empty() || name == "B" || name == "BINARY" || name == "NOCASE" || name == "RTRIM";
}

// The fourth operand of an instruction, where it has collations: k(2,B,-NOCASE) or NOCASE-8.
absl::Status CheckCollations(absl::string_view opcode, absl::string_view operand) {
  constexpr absl::string_view kComparing[] = {"Eq", "Ne", "Lt", "Le", "Gt", "Ge", "CollSeq"};
  if (opcode == "String8") return absl::OkStatus();
  std::vector<absl::string_view> names;
  size_t first = 0;
  if (absl::ConsumePrefix(&operand, "k(") && absl::ConsumeSuffix(&operand, ")")) {
    names = absl::StrSplit(operand, ',');
    first = 1;  // behind their number
  } else if (IsOneOf(opcode, kComparing)) {
    for (absl::string_view encoding : {"-8", "-16LE", "-16BE"}) {
      if (absl::ConsumeSuffix(&operand, encoding)) names = {operand};
    }
  }
  for (size_t i = first; i < names.size(); ++i) {
    absl::string_view name = names[i];
    absl::ConsumePrefix(&name, "-");   // descending
    absl::ConsumePrefix(&name, "N.");  // NULLS in the other place
    if (IsOwnCollation(name)) continue;
    return Noticeable(absl::StrCat("it uses the collation ", name, ", which is not built in"));
  }
  return absl::OkStatus();
}

// Where in a program something is, by the numbers of its instructions.
class ProgramPlaces {
 public:
  void AddSite(int64_t at) { sites_.push_back(at); }
  void AddExit(int64_t at) { exits_.push_back(at); }
  void AddLoop(int64_t first, int64_t last) { parts_.push_back({first, last, /*loops=*/true}); }
  void AddSubroutine(int64_t first, int64_t last) { parts_.push_back({first, last}); }
  // The next row of a coroutine, and the jump back there: the loop of those who read it. What else
  // jumps back is the recursion's own loop.
  void AddYield(int64_t at) { yields_.insert(at); }
  void AddJump(int64_t from, int64_t to) {
    if (yields_.contains(to)) reading_.push_back({to, from, /*loops=*/true});
  }
  // Where a row is sorted if it is among the first so many.
  void AddSort(int64_t at) { sorts_.push_back(at); }

  // Exits of loops in which there are sites. That of (SELECT 1) is of no loop.
  size_t NumLeftEarly() const {
    return std::count_if(exits_.begin(), exits_.end(), [this](int64_t exit) {
      const Part* loop = LoopAround(exit);
      return loop != nullptr && std::any_of(sites_.begin(), sites_.end(),
                                            [loop](int64_t site) { return loop->Has(site); });
    });
  }

  bool LeavesLoops() const {
    std::vector<Part> parts = parts_;
    parts.insert(parts.end(), reading_.begin(), reading_.end());
    return std::any_of(exits_.begin(), exits_.end(),
                       [&](int64_t exit) { return LoopAround(exit, parts) != nullptr; });
  }

  bool SortsAll() const {
    return !sites_.empty() && std::any_of(sorts_.begin(), sorts_.end(), [this](int64_t sort) {
      const Part* loop = LoopAround(sort);
      return loop != nullptr && std::all_of(sites_.begin(), sites_.end(),
                                            [loop](int64_t site) { return loop->Has(site); });
    });
  }

 private:
  struct Part {
    int64_t first;
    int64_t last;
    bool loops = false;

    bool Has(int64_t at) const { return first <= at && at <= last; }
  };

  // The innermost part around an instruction; null where that is no loop.
  const Part* LoopAround(int64_t at) const { return LoopAround(at, parts_); }
  static const Part* LoopAround(int64_t at, const std::vector<Part>& parts) {
    const Part* innermost = nullptr;
    for (const Part& part : parts) {
      if (!part.Has(at)) continue;
      if (innermost == nullptr || part.first > innermost->first) innermost = &part;
    }
    return innermost != nullptr && innermost->loops ? innermost : nullptr;
  }

  std::vector<int64_t> sites_;
  std::vector<int64_t> exits_;
  std::vector<int64_t> sorts_;
  std::vector<Part> parts_;
  std::set<int64_t> yields_;
  std::vector<Part> reading_;  // loops that read coroutines
};

}  // namespace

bool RanksColumns(const std::vector<SqlToken>& tokens) {
  bool ranks = false;
  for (size_t i = 0; i + 3 < tokens.size(); ++i) {
    const bool call = std::any_of(std::begin(kOfFullText), std::end(kOfFullText),
                                  [&](absl::string_view name) { return tokens[i].Names(name); });
    if (!call || !tokens[i + 1].Is("(")) continue;
    ranks = true;
    const bool column =
        !tokens[i + 2].Name().empty() && (tokens[i + 3].Is(",") || tokens[i + 3].Is(")"));
    if (!column) return false;
  }
  return ranks;
}

absl::StatusOr<ProgramCalls> CallsOf(Statement& program, ShadowFunctions* functions, bool ranks) {
  constexpr int kAddress = 0, kOpcode = 1, kP1 = 2, kP2 = 3, kP3 = 4, kP4 = 5;  // of EXPLAIN
  ProgramCalls calls;
  ProgramPlaces places;
  std::map<int64_t, std::string> tables;  // virtual ones, by their cursors
  // The instruction before, where it reads a column of a virtual table: whose, and the register.
  std::string read_of;
  int64_t read = 0;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Readable(program.Step()));
    if (!row) {
      calls.left_early = places.NumLeftEarly();
      calls.may_stop = places.LeavesLoops();
      calls.sorts_all = places.SortsAll();
      return calls;
    }
    const int64_t address = program.Integer(kAddress);
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    ASSIGN_OR_RETURN(const std::string operand, program.Text(kP4));
    const std::string table = std::exchange(read_of, "");
    if (opcode == "DecrJumpZero") places.AddExit(address);
    if (opcode == "Yield") places.AddYield(address);
    if (opcode == "Goto") places.AddJump(address, program.Integer(kP2));
    if (opcode == "IfNotZero") places.AddSort(address);
    if (opcode == "Next" || opcode == "Prev" || opcode == "VNext") {
      places.AddLoop(program.Integer(kP2), address);
    } else if (opcode == "Return" && program.Integer(kP2) > 0) {
      places.AddSubroutine(program.Integer(kP2), address);
    }
    if (opcode == "VOpen") tables[program.Integer(kP1)] = operand;
    if (opcode == "VColumn") {
      read_of = tables[program.Integer(kP1)];
      read = program.Integer(kP3);
    }
    if (absl::StrContains(opcode, "Func") || absl::StartsWith(opcode, "Agg")) {
      if (operand.empty()) continue;
      if (operand.rfind('(') == std::string::npos)
        return Noticeable("its program could not be read");
      const std::string name = operand.substr(0, operand.rfind('('));
      if (IsForeseen(name)) {
        ++calls.sites;
        places.AddSite(address);
      }
      if (ranks && !table.empty() && IsOneOf(name, kOfFullText) && program.Integer(kP2) == read) {
        calls.ranked.insert(table);
        continue;
      }
      RETURN_IF_ERROR(functions->Check(operand, absl::StartsWith(opcode, "Agg")));
    } else {
      RETURN_IF_ERROR(CheckCollations(opcode, operand));
    }
  }
}

}  // namespace lm
