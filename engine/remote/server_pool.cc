#include "engine/remote/server_pool.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "engine/base/random.h"
#include "engine/remote/network.h"

namespace lm {
namespace {

constexpr absl::Duration kFirstFailurePause = absl::Milliseconds(100);
// A server that refuses one of many has room again soon, and the row may be its statement's last.
constexpr absl::Duration kFirstRefusalPause = absl::Milliseconds(25);
constexpr absl::Duration kLongestServerPause = absl::Seconds(30);
constexpr int kSeemsDead = 3;     // failures in a row
constexpr double kNewest = 0.05;  // what an answer weighs in Endpoint::refused
constexpr double kCrowded = 0.3;  // of that
constexpr size_t kMostPrefixes = 1024;
// The first row's server may hang, or its prompt be long.
constexpr absl::Duration kLongestAlone = absl::Seconds(5);
constexpr absl::Duration kLongestElsewhere = absl::Seconds(5);  // a request waits for another one
constexpr absl::Duration kShortRest = absl::Seconds(1);

// A half to the whole of base * 2^n, so that those who failed together do not come back together.
absl::Duration PauseOf(absl::Duration base, int n, uint64_t dice) {
  const absl::Duration whole = std::min(base * std::exp2(std::min(n, 20)), kLongestServerPause);
  return whole * (0.5 + 0.5 * RandomUniform(dice, static_cast<uint64_t>(n)));
}

// What waits for a connection is under way for nobody. Behind https one may carry many (HTTP/2).
int64_t MostAt(absl::string_view url, int64_t concurrency) {
  const bool one_each = absl::StartsWithIgnoreCase(url, "http:");
  return one_each ? std::min<int64_t>(concurrency, Network::kMostConnections) : concurrency;
}

}  // namespace

ServerPool::ServerPool(const std::vector<std::string>& urls, const RemoteOptions& options)
    : requests_(options.rpm), tokens_(options.tpm) {
  for (const std::string& url : urls) {
    const auto most = static_cast<double>(MostAt(url, options.concurrency));
    endpoints_.push_back({.url = url, .most = most, .limit = most});
  }
}

std::optional<size_t> ServerPool::Choose(uint64_t prefix, const Shunned& shunned, MonotonicTime now,
                                         MonotonicTime* next) {
  const std::optional<size_t> place = Fitting(prefix, shunned, now, next);
  const bool may = place.has_value() && requests_.HasOne(now, next) && tokens_.HasOne(now, next);
  return may ? place : std::nullopt;
}

// One that has answered may fail now and then.
bool ServerPool::Works(const Endpoint& endpoint) {
  return endpoint.failures < (endpoint.answers ? kSeemsDead : 1);
}

bool ServerPool::HasOther(const std::set<size_t>& places, MonotonicTime now) const {
  for (size_t place = 0; place < size(); ++place) {
    const Endpoint& endpoint = endpoints_[place];
    if (Works(endpoint) && !Rests(endpoint, now) && places.count(place) == 0) return true;
  }
  return false;
}

bool ServerPool::Rests(const Endpoint& endpoint, MonotonicTime now) {
  return endpoint.not_before > now + kShortRest;
}

int ServerPool::HopeOf(size_t place, const Shunned& shunned, MonotonicTime now) const {
  const Endpoint& endpoint = endpoints_[place];
  if (shunned.places.empty() || !Works(endpoint) || Rests(endpoint, now)) return 0;
  const bool avoided = shunned.places.count(place) > 0 && now < shunned.since + kLongestElsewhere;
  return avoided ? 1 : 2;
}

bool ServerPool::HasRoom(MonotonicTime now, MonotonicTime* next) {
  bool takes = false;
  for (const Endpoint& endpoint : endpoints_) takes = Takes(endpoint, now, next) || takes;
  return takes && requests_.HasOne(now, next) && tokens_.HasOne(now, next);
}

bool ServerPool::Takes(const Endpoint& endpoint, MonotonicTime now, MonotonicTime* next) {
  if (endpoint.not_before > now) {
    *next = std::min(*next, endpoint.not_before);
    return false;
  }
  // Else one at a time until it answers.
  return endpoint.active + 1 <= (Works(endpoint) ? std::max(endpoint.limit, 1.0) : 1);
}

// Of those that may take one more the one that has its prefix, or else the one with the fewest.
std::optional<size_t> ServerPool::Fitting(uint64_t prefix, const Shunned& shunned,
                                          MonotonicTime now, MonotonicTime* next) const {
  int most_hope = 0;
  for (size_t i = 0; i < size(); ++i) most_hope = std::max(most_hope, HopeOf(i, shunned, now));
  if (now < shunned.since + kLongestElsewhere) {
    *next = std::min(*next, shunned.since + kLongestElsewhere);
  }
  MonotonicTime first =
      MonotonicTime::InfiniteFuture();  // when it was first sent where it is not yet
  bool is_warm = false;
  for (const Endpoint& endpoint : endpoints_) {
    const auto own = endpoint.warming.find(prefix);
    if (own != endpoint.warming.end()) first = std::min(first, own->second);
    is_warm = is_warm || endpoint.warm.count(prefix) > 0;
  }
  const bool is_new = first != MonotonicTime::InfiniteFuture();
  const bool alone = is_new && now < first + kLongestAlone;
  const bool one_each = is_new && now < first + (size() > 1 ? 2 : 1) * kLongestAlone;
  if (one_each) *next = std::min(*next, first + (alone ? 1 : 2) * kLongestAlone);
  const Endpoint* best = nullptr;
  bool best_warm = false;
  for (size_t place = 0; place < size(); ++place) {
    const Endpoint& endpoint = endpoints_[place];
    // Where another one has it who is slow with it may hang.
    if ((is_warm || one_each) && endpoint.warming.count(prefix) > 0) continue;
    if (HopeOf(place, shunned, now) < most_hope || !Takes(endpoint, now, next)) continue;
    const bool warm = endpoint.warm.count(prefix) > 0;
    if (best == nullptr || warm > best_warm ||
        (warm == best_warm && endpoint.active < best->active)) {
      best = &endpoint;
      best_warm = warm;
    }
  }
  // Where its prefix is about to be, it goes soon.
  if (best == nullptr || (alone && !best_warm)) return std::nullopt;
  return static_cast<size_t>(best - endpoints_.data());
}

void ServerPool::Sent(size_t place, uint64_t prefix, int64_t tokens, MonotonicTime now) {
  Endpoint& endpoint = endpoints_[place];
  const bool cold = prefix != 0 && endpoint.warm.count(prefix) == 0;
  if (endpoint.warm.size() > kMostPrefixes) endpoint.warm.clear();
  if (cold) endpoint.warming.emplace(prefix, now);
  ++endpoint.active;
  requests_.Take(1);
  tokens_.Take(static_cast<double>(tokens));
}

void ServerPool::Begun(size_t place, uint64_t prefix) {
  if (prefix == 0) return;
  endpoints_[place].warming.erase(prefix);
  endpoints_[place].warm.insert(prefix);
}

void ServerPool::Over(size_t place, uint64_t prefix, int64_t unused) {
  --endpoints_[place].active;
  endpoints_[place].warming.erase(prefix);
  tokens_.GiveBack(static_cast<double>(unused));
}

void ServerPool::Heard(size_t place) { endpoints_[place].failures = endpoints_[place].doubts = 0; }

void ServerPool::Answered(size_t place) {
  Endpoint& endpoint = endpoints_[place];
  endpoint.failures = endpoint.doubts = 0;
  endpoint.answers = true;
  endpoint.limit = std::min(endpoint.most, endpoint.limit + 1 / std::max(endpoint.limit, 1.0));
  endpoint.refused -= kNewest * endpoint.refused;
}

void ServerPool::Doubted(size_t place, bool is_servers, MonotonicTime now) {
  const bool others_answer =
      std::any_of(endpoints_.begin(), endpoints_.end(), [&](const Endpoint& other) {
        return &other != &endpoints_[place] && other.answers && Works(other);
      });
  const bool always = ++endpoints_[place].doubts >= kSeemsDead || !Works(endpoints_[place]);
  if (always || (is_servers && others_answer)) Failed(place, /*reached=*/true, now);
}

void ServerPool::Failed(size_t place, bool reached, MonotonicTime now) {
  Endpoint& endpoint = endpoints_[place];
  const bool has_others = endpoints_.size() > 1;
  if (reached && !has_others) return;
  if (endpoint.not_before > now) return;  // those sent together fail together
  const absl::Duration pause = PauseOf(kFirstFailurePause, endpoint.failures++, ++dice_);
  if (has_others) endpoint.not_before = now + pause;
}

absl::Duration ServerPool::Refused(size_t place, int refusals, absl::Duration wanted,
                                   MonotonicTime now) {
  Endpoint& endpoint = endpoints_[place];
  absl::Duration pause = PauseOf(kFirstRefusalPause, refusals, ++dice_);
  if (wanted > absl::ZeroDuration()) pause = wanted;
  endpoint.refused += kNewest * (1 - endpoint.refused);
  const bool crowded = endpoint.refused > kCrowded;
  // Where there are others, the request goes to one of them.
  const bool rests = crowded || endpoints_.size() > 1;
  if (rests) endpoint.not_before = std::max(endpoint.not_before, now + pause);
  if (crowded && now - endpoint.cut > absl::Seconds(1)) {  // once for those sent together
    endpoint.limit = std::max(1.0, endpoint.limit / 2);
    endpoint.cut = now;
  }
  return endpoints_.size() > 1 ? absl::ZeroDuration() : pause;
}

// Most often it was this one connection: the first time there is nothing to wait for.
absl::Duration ServerPool::PauseAfter(int failures) {
  return failures <= 1 ? absl::ZeroDuration() : PauseOf(kFirstFailurePause, failures - 1, ++dice_);
}

}  // namespace lm
