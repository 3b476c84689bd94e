// sqlite-lm bench: how quick a model is here.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

// Rows ?2 to ?3, prompts of ?4 words that share nothing. What was computed for an earlier one is
// not this one's work (a template's first tokens are all rows').
constexpr char kRows[] =
    "WITH RECURSIVE n(i) AS (VALUES (CAST(?2 AS INTEGER)) UNION ALL "
    "SELECT i + 1 FROM n WHERE i < CAST(?3 AS INTEGER)), "
    "w(j) AS (VALUES (1) UNION ALL SELECT j + 1 FROM w WHERE j < CAST(?4 AS INTEGER)), "
    "p(prompt) AS MATERIALIZED (SELECT i || (SELECT group_concat((i * 7919 + j * 104729) % 997, ' "
    "') FROM w) FROM n) "
    "SELECT sum(tokens_in - tokens_cached), sum(tokens_out), count(error), coalesce(min(error), "
    "'') FROM lm_each((SELECT "
    "json_group_array(prompt) FROM p), NULL, ?1)";

constexpr int64_t kMost = 1'000'000;

// With these an answer has other tokens than the model decodes for it one by one, or another number
// of them than is asked for.
constexpr const char* kNotTimed[] = {"choices", "regex",   "schema",     "grammar",        "n",
                                     "vote",    "best_of", "max_tokens", "thinking_tokens"};

absl::Status CheckTimed(const Arguments& arguments) {
  const std::optional<Json> options = Json::Parse(arguments.Get("options"));
  for (const char* name : kNotTimed) {
    if (!options.has_value() || !options->Has(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--options: with ", name,
        " tokens/s would say nothing of the model; --tokens is how many an answer has"));
  }
  return absl::OkStatus();
}

struct Speed {
  double tokens_in = 0, tokens_out = 0, seconds = 0;
};

// The rows [first, first + rows), which no other call has.
absl::StatusOr<Speed> Time(Session& session, int first, int rows, int64_t words, int64_t tokens) {
  ASSIGN_OR_RETURN(const std::string options, session.CallOptions({{"max_tokens", Json(tokens)},
                                                                   {"cache", Json(false)},
                                                                   {"thinking", Json("keep")}}));
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto result,
                   session.Query(kRows, {options, absl::StrCat(first),
                                         absl::StrCat(first + rows - 1), absl::StrCat(words)}));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (result[0][2] != "0") {
    return absl::InternalError(absl::StrCat(
        result[0][2], " of ", rows, rows == 1 ? " row" : " rows", " failed: ", result[0][3]));
  }
  return Speed{std::strtod(result[0][0].c_str(), nullptr),
               std::strtod(result[0][1].c_str(), nullptr), took.count()};
}

absl::Status RunBench(const Arguments& given) {
  // The model may be named without --model.
  if (given.rest().size() > 1) return absl::InvalidArgumentError("one model at a time");
  Arguments arguments = given;
  if (!given.rest().empty()) arguments.Set("model", given.rest()[0]);
  ASSIGN_OR_RETURN(const int64_t tokens, arguments.Integer("tokens", 64, 2, kMost));
  ASSIGN_OR_RETURN(const int64_t words, arguments.Integer("words", 160, 1, kMost));
  RETURN_IF_ERROR(CheckTimed(arguments));
  ASSIGN_OR_RETURN(const auto session, Session::Open(":memory:", arguments));
  const auto began = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(session->Run("SELECT lm_token_count('x')"));
  const std::chrono::duration<double> load = std::chrono::steady_clock::now() - began;
  RETURN_IF_ERROR(Time(*session, 1, 1, 4, 2).status());  // what is made at the first use
  StatusLine line;
  line.Show("prefill ...");
  ASSIGN_OR_RETURN(const Speed prefill, Time(*session, 2, 1, words, 1));
  std::vector<std::vector<std::string>> table = {
      {"", "tokens/s", ""},
      {"prompt", Fixed(prefill.tokens_in / prefill.seconds, 1),
       absl::StrCat(prefill.tokens_in, " tokens, first token after ", Fixed(prefill.seconds, 2),
                    " s")}};
  int first = 3;
  for (int rows : {1, 4, 16}) {
    line.Show(absl::StrCat("answers, ", rows, rows == 1 ? " row ..." : " rows ..."));
    ASSIGN_OR_RETURN(const Speed decode, Time(*session, first, rows, 4, tokens));
    first += rows;
    table.push_back(
        {rows == 1 ? "answer" : absl::StrCat("answers, ", rows, " rows"),
         Fixed(decode.tokens_out / decode.seconds, 1),
         absl::StrCat(Fixed(1000 * decode.seconds * rows / std::max(decode.tokens_out, 1.0), 1),
                      " ms a token of a row")});
  }
  line.Clear();
  std::printf("loaded in %.2f s\n%s", load.count(), Table(table).c_str());
  return absl::OkStatus();
}

}  // namespace

Command BenchCommand() {
  return {
      "bench",
      "[MODEL]",
      "how quick a model is here: prompts, answers, rows together",
      "Quote medians of several runs on a quiet machine; tests/benchmarks has the careful ones.",
      {{"tokens", "N", "of each answer; 64"}, {"words", "N", "of the prompt; 160"}},
      true,
      RunBench};
}

}  // namespace lm::cli
