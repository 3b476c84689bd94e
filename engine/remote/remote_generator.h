// The generators whose models are on the network.
#ifndef LM_ENGINE_REMOTE_REMOTE_GENERATOR_H_
#define LM_ENGINE_REMOTE_REMOTE_GENERATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/generator.h"

namespace lm {

struct RemoteStats {
  int64_t running = 0;  // now
  int64_t queued = 0;   // now
  int64_t retries = 0;  // requests sent again, for whatever reason
  LatencySummary time_to_first_token;
};

// What is known of whether a server keeps to a kind of constraint.
struct ConstraintProof {
  absl::string_view kind;  // as ConstraintName has it
  std::string words = {};  // "kept", or why it is not; empty: nothing is known yet
};

class RemoteGenerator : public Generator {
 public:
  virtual RemoteStats Stats() const = 0;
  virtual RequestCounts CountsOf(absl::string_view salt) const = 0;
  // Of each kind. It is found out before the first answer of the kind is asked for; or now, by the
  // questions that Prove begins to ask, whose tokens are counted for `salt`.
  virtual std::vector<ConstraintProof> Proofs() const = 0;
  virtual std::vector<std::shared_ptr<Request>> Prove(absl::string_view salt) = 0;
};

// Whether this build can ask models elsewhere at all (LM_NETWORK).
bool HasNetwork();

// How long servers that are away, or fail, are looked for.
enum class Patience {
  kOfARow,  // as a row would be sent again (the option `retries`); those that load, for minutes
  kNone,    // once
};

// The process's generator for the servers at `path` (remote_options.h) under these options; asks
// one of them for its models where it is not there yet. ParseRemotePath's and ParseRemoteOptions'
// errors; FailedPrecondition where this build, or this machine, has no network library, in a forked
// child, and once exit() has begun; Unavailable where what answers has no list of models; NotFound
// where it has no such model; Cancelled, soon, once `cancel` is set. Where no server is reached, or
// it fails, the generator is one that stands in for it: absence() says why. So it does for who else
// asks with a row's patience within the next second, for some hundred rows.
absl::StatusOr<std::shared_ptr<Generator>> GetRemoteGenerator(const std::string& path,
                                                              const std::string& options,
                                                              Patience patience,
                                                              std::atomic<bool>& cancel);

// Those that are in use; none in a forked child.
std::vector<std::shared_ptr<RemoteGenerator>> RunningRemoteGenerators();

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REMOTE_GENERATOR_H_
