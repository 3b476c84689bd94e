// StoredPrefixes: an engine's dealings with its prefix store (engine/cache/prefix_store.h). It
// decides which computed prefixes are written, copies them out of the model's blocks, has stored
// ones read into blocks, and tells what is stored.
//
//   StoredPrefixes stored(&model, &cancellation, [] { ... wake the engine's thread ... });
//   stored.Describe(&sequence);                   // each new sequence, before it is scheduled
//   stored.BeginLoads(plan);                      // of a step; once woken: EndLoads(&scheduler)
//   stored.WriteFound(plan);                      // once the step's tokens are computed
//
// Where no store was asked for, or it would be of no use (state() says why), nothing is written or
// read. Threads: the first group of methods may be called from any thread, and does nothing in a
// forked child; all others, the constructor and the destructor are for one thread at a time.
#ifndef LM_ENGINE_RUNTIME_STORED_PREFIXES_H_
#define LM_ENGINE_RUNTIME_STORED_PREFIXES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/cache/prefix_loader.h"
#include "engine/cache/prefix_sightings.h"
#include "engine/cache/prefix_store.h"
#include "engine/model/model.h"
#include "engine/runtime/batch_cancellation.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/scheduler.h"

namespace lm {

class StoredPrefixes {
 public:
  // `wake` is called, by a thread that reads, when a load is done. REQUIRES: the model, the
  // cancellation and what `wake` uses outlive this.
  StoredPrefixes(Model* model, const BatchCancellation* cancellation, std::function<void()> wake);
  StoredPrefixes(const StoredPrefixes&) = delete;
  StoredPrefixes& operator=(const StoredPrefixes&) = delete;

  // From any thread ------------------------------------------------------------------------------

  // Notices what other processes have stored meanwhile: reads the disk, once in a while. Each
  // request has it noticed when it is submitted.
  void Look() const;
  // What is stored of a salt's prompts.
  std::vector<PrefixStore::Listed> List(absl::string_view salt) const;
  // "3 prefixes", what is wrong with the store, or why there is none; empty where none was asked
  // for.
  std::string state() const;
  // How many of a prompt's first tokens, the last one not counted, are stored.
  int64_t TokensOf(absl::string_view salt, const AdapterSet& adapters,
                   absl::Span<const int32_t> prompt) const;
  // Waits, for `timeout` at most, until nothing waits to be written. False where that is not so.
  bool Flush(absl::Duration timeout) const;
  // The bytes of what is computed of a prefix of `tokens` tokens: its blocks, of windows the blocks
  // that are seen from its end, and its state. The same in memory and in a file.
  int64_t BytesOf(int64_t tokens) const;

  // For the engine's thread ----------------------------------------------------------------------

  // The scheduler finds stored prefixes in it; null: there is none.
  PrefixStore* store() const { return store_.get(); }
  // Has a thread read what is stored, and commit the memory that the longest prefix will be read
  // into.
  void Prepare();
  // Tells a sequence its key in the store, and with how many tokens of its prompt an earlier one
  // began too.
  void Describe(Sequence* sequence);
  // Begins to read the plan's stored prefixes into the blocks of their sequences. REQUIRES: the
  // plan's cache operations are done.
  void BeginLoads(const StepPlan& plan);
  // Tells the scheduler which loads are over, and how. Whether any was.
  bool EndLoads(Scheduler* scheduler);
  // Waits until nothing is read any more, and forgets the loads.
  void DrainLoads() noexcept;
  // Writes the prefixes that the plan's sequences found in the cache: they were of use twice.
  void WriteFound(const StepPlan& plan);
  // Writes a sequence's first `tokens` tokens, if they are worth a file. REQUIRES: its blocks and
  // the state in slot `state` (-1: none) are as behind those tokens.
  void Write(const Sequence& sequence, int64_t tokens, int32_t state);

 private:
  std::unique_ptr<PrefixStore> MakeStore() const;
  std::unique_ptr<PrefixLoader> MakeLoader(std::function<void()> wake) const;
  std::string WhyNoStore() const;
  void CommitMemory();

  Model* const model_;
  const BatchCancellation* const cancellation_;
  const ForkGuard fork_guard_;
  const std::string no_store_;                // why there is none, where one was asked for
  const std::unique_ptr<PrefixStore> store_;  // null: none; thread-safe
  PrefixSightings sightings_;
  const std::unique_ptr<PrefixLoader> loader_;  // null: there is no store
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_STORED_PREFIXES_H_
