#include "extension/questions/tournament.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::vector<size_t>> PlayTournament(size_t num_players, size_t most,
                                                   PlayMatches play) {
  // A round's places in pairs, each of which has one place in the next round.
  std::vector<std::vector<std::optional<size_t>>> rounds(1);
  for (size_t i = 0; i < num_players; ++i) rounds[0].emplace_back(i);
  while (rounds.back().size() > 1) rounds.emplace_back((rounds.back().size() + 1) / 2);
  std::map<Match, bool> first_won;
  std::vector<size_t> best;
  while (best.size() < std::min(most, num_players)) {
    for (size_t r = 0; r + 1 < rounds.size(); ++r) {
      const auto& places = rounds[r];
      std::vector<Match> matches;
      for (size_t i = 0; i + 1 < places.size(); i += 2) {
        if (!places[i] || !places[i + 1]) continue;
        const Match match(*places[i], *places[i + 1]);
        if (!first_won.contains(match)) matches.push_back(match);
      }
      if (!matches.empty()) {
        ASSIGN_OR_RETURN(const std::vector<double> results, play(matches));
        for (size_t i = 0; i < matches.size(); ++i) first_won[matches[i]] = results[i] >= 0.5;
      }
      for (size_t i = 0; i < places.size(); i += 2) {
        const std::optional<size_t> other = i + 1 < places.size() ? places[i + 1] : std::nullopt;
        const bool first = !other || (places[i] && first_won[{*places[i], *other}]);
        rounds[r + 1][i / 2] = first ? places[i] : other;
      }
    }
    const size_t winner = *rounds.back()[0];
    best.push_back(winner);
    rounds[0][winner] = std::nullopt;
  }
  return best;
}

}  // namespace lm
