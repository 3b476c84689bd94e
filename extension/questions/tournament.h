// The best of many, where all that is known is which of two is better: a knock-out tournament.
//
//   ASSIGN_OR_RETURN(std::vector<size_t> best, PlayTournament(100, 3, [&](auto matches) {
//     return ...;                                    // of each match how probable the first wins
//   }));
//
// The first of n takes n - 1 matches, all of a round at a time; each further one those that the
// last winner has won, log2(n) or fewer: no match is played twice. What wins is better than all
// that it has met, and the order is the same for the same results.
#ifndef LM_EXTENSION_QUESTIONS_TOURNAMENT_H_
#define LM_EXTENSION_QUESTIONS_TOURNAMENT_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lm {

using Match = std::pair<size_t, size_t>;
// A number for each match: more than a half where the first of the two wins, which also wins a tie.
using PlayMatches = absl::FunctionRef<absl::StatusOr<std::vector<double>>(absl::Span<const Match>)>;

// The best `most` of [0, num_players), the best first.
absl::StatusOr<std::vector<size_t>> PlayTournament(size_t num_players, size_t most,
                                                   PlayMatches play);

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_TOURNAMENT_H_
