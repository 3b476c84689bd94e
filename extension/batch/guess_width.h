// GuessWidth: how many calls ahead of its statement a look-ahead guesses, and how that adapts.
//
//   width.Begin({.most_under_way = 64, .to_its_end = true, .limit = shadow.limit, ...});
//   calls.Submit(width.size(), width.MostOfPlace());
//   ...
//   width.CountHit(site);                              // the statement has made a foreseen call
//   if (width.num_wrong() > wrong) width.Narrow();     // and has passed others over
//   if (width.IsMostlyWrong()) Stop(...);
//
// A guess that is wrong costs the model's time. So few are made at first: each right one doubles
// the width, each right one that came behind wrong ones halves it. A SELECT may be left after any
// row, and begins with two. A statement that writes and has no LIMIT runs to its end: it begins
// with eight, or, where its calls depend on no answer, with as many as there may be. Where there is
// a LIMIT, a place in the statement has no more guesses than the LIMIT allows rows yet: none while
// the last of these may be the one that is asked about. Where that many rows were not enough, it
// has as many as there were rows.
#ifndef LM_EXTENSION_BATCH_GUESS_WIDTH_H_
#define LM_EXTENSION_BATCH_GUESS_WIDTH_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/base/hash_map.h"

namespace lm {

// Not thread-safe.
class GuessWidth {
 public:
  // What is known of the statement when guessing begins.
  struct Bounds {
    size_t most_under_way = 0;         // as many rows as the generator decodes together
    bool to_its_end = false;           // it has to read all its rows
    bool independent = false;          // its calls depend on no answers
    std::optional<size_t> limit = {};  // of its rows
    size_t num_sites = 0;              // places in its shadow's program that make calls
    int64_t num_calls = 0;             // that it has made, the one that it makes now among them
  };
  void Begin(const Bounds& bounds);

  // How many calls are to be under way, and the most that may ever be.
  size_t size() const { return width_; }
  size_t most() const { return bounds_.most_under_way; }

  // How many foreseen calls there may be that the statement has not made: of one place, of all, and
  // of all in a step of the shadow that does not end by itself. `dependent`: the statement makes
  // calls that depend on answers.
  size_t MostOfPlace() const;
  size_t MostAhead(bool dependent) const;
  size_t MostInStep(bool dependent) const;
  // How many calls of any kind a step may make beyond where the statement may be.
  int64_t MostCallsOfStep() const;

  // The statement makes a call that was foreseen; with its place, where that is known.
  void CountHit(const void* site = nullptr);
  // A foreseen call was under way, and the statement has passed it over.
  void CountWrong() { ++num_wrong_; }
  // The statement makes a call that was not foreseen; `missing`: it asks the model, and the shadow
  // has looked for it.
  void CountMiss(bool missing);
  // A step was ended because it had gone far enough. The next one may go twice as far.
  void CountFullStep() { ++num_full_steps_; }
  void Narrow();

  int64_t num_hits() const { return num_hits_; }
  int64_t num_wrong() const { return num_wrong_; }
  int64_t num_missing() const { return num_missing_; }
  bool IsMostlyWrong() const;
  bool IsMostlyMissing() const;

 private:
  int64_t NumRows() const;

  Bounds bounds_;
  size_t width_ = 0;
  int64_t num_hits_ = 0;
  int64_t num_wrong_ = 0;
  int64_t num_missing_ = 0;
  int num_full_steps_ = 0;
  HashMap<const void*, int64_t> num_hits_of_;  // by their places
  int64_t most_hits_ = 0;                      // of these
  int64_t num_placeless_ = 0;                  // calls whose place is not known
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_GUESS_WIDTH_H_
