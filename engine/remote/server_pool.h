// ServerPool: the servers that answer for one model, and which of them is to be asked next.
//
// Each has so many requests under way at most. Where many are refused (429, 503), fewer are sent,
// and none for a while. The rows of a system prompt go where its prefix is; the first of them goes
// alone, so that the prefix is there when the others come, or for a few seconds at most; then each
// server has one of them, for as long. A server that cannot be reached is left out for a while, and
// asked by one request at a time until it answers; so is one of several that fails, or that refuses
// what others answer. What has failed at a server waits for another one that works, some seconds.
#ifndef LM_ENGINE_REMOTE_SERVER_POOL_H_
#define LM_ENGINE_REMOTE_SERVER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/remote/remote_options.h"
#include "engine/remote/token_bucket.h"

namespace lm {

// Of the network's thread. Servers are known by their places in the list.
class ServerPool {
 public:
  ServerPool(const std::vector<std::string>& urls, const RemoteOptions& options);

  const std::string& url(size_t place) const { return endpoints_[place].url; }
  size_t size() const { return endpoints_.size(); }

  // The servers at which a request has failed, and since when it waits for another one. It does so
  // for some seconds at most, and not for one that rests.
  struct Shunned {
    std::set<size_t> places = {};
    MonotonicTime since = MonotonicTime::InfiniteFuture();
  };

  // Who is to have a request whose system prompt has that number (0: none); nullopt where nobody
  // can now, or no more are to be sent this minute: then *next is not later than when to ask again,
  // as far as that is known.
  std::optional<size_t> Choose(uint64_t prefix, const Shunned& shunned, MonotonicTime now,
                               MonotonicTime* next);

  // Whether there is one beside those that works, and does not rest.
  bool HasOther(const std::set<size_t>& places, MonotonicTime now) const;

  // Whether anybody can have any request now; else Choose says so of all, and *next is as it says.
  bool HasRoom(MonotonicTime now, MonotonicTime* next);

  // What becomes of what was chosen: it is sent, and may take so many tokens; its answer begins; it
  // is over, and so many of the tokens were not used (negative: more were).
  void Sent(size_t place, uint64_t prefix, int64_t tokens, MonotonicTime now);
  void Begun(size_t place, uint64_t prefix);
  void Over(size_t place, uint64_t prefix, int64_t unused);

  // And how it ended. The last two return how long the request itself is to wait.
  void Heard(size_t place);  // it was asked what nobody can do
  void Answered(size_t place);
  // It has refused, or not understood, what another one may answer; `is_servers`: it is hardly the
  // request's fault. That counts as a failure where others answer, or once it does so every time.
  void Doubted(size_t place, bool is_servers, MonotonicTime now);
  // No answer of use came. Where there are others that counts, and else where it was not reached.
  void Failed(size_t place, bool reached, MonotonicTime now);
  absl::Duration Refused(size_t place, int refusals, absl::Duration wanted, MonotonicTime now);
  absl::Duration PauseAfter(int failures);

 private:
  struct Endpoint {
    std::string url = {};
    double most = 0;   // requests under way
    double limit = 0;  // likewise, for now
    int active = 0;
    int failures = 0;      // in a row: no answer of use
    int doubts = 0;        // likewise: refusals
    bool answers = false;  // has given one
    double refused = 0;    // of the last answers the share that was 429 or 503
    MonotonicTime not_before = MonotonicTime::InfinitePast();
    MonotonicTime cut = MonotonicTime::InfinitePast();  // when the limit was last lowered
    std::set<uint64_t> warm = {};                 // prefixes
    std::map<uint64_t, MonotonicTime> warming = {};  // and those that are about to be, since when
  };

  static bool Takes(const Endpoint& endpoint, MonotonicTime now, MonotonicTime* next);
  static bool Works(const Endpoint& endpoint);
  // For longer than a moment.
  static bool Rests(const Endpoint& endpoint, MonotonicTime now);
  // The more the better; a request goes where it is highest, or waits.
  int HopeOf(size_t place, const Shunned& shunned, MonotonicTime now) const;
  std::optional<size_t> Fitting(uint64_t prefix, const Shunned& shunned, MonotonicTime now,
                                MonotonicTime* next) const;

  TokenBucket requests_;
  TokenBucket tokens_;
  std::vector<Endpoint> endpoints_;
  uint64_t dice_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_SERVER_POOL_H_
