// MapReduce: an instruction carried out over a text of any length, of which nothing is left out.
//
//   ASSIGN_OR_RETURN(auto work, MapReduce::Create({.options = options, .instruction = ...}));
//   for (...) RETURN_IF_ERROR(work->Add(db, row));
//   ASSIGN_OR_RETURN(Generation answer, work->Finish(db));
//
// A text that fits the model's context is one prompt, with the instruction as its system prompt:
// the answer is that of generate(text, instruction). A longer one is cut into parts, at paragraphs
// and sentences; the instruction is carried out over each (the parts decode together), and the
// answers, in order and a blank line apart, are a text again, over which a second instruction
// combines them: in one prompt where they fit, else part by part, and so on.
//
//   rows     r1 r2 r3 r4 r5 r6 r7 r8 ...      Add()
//   stage 0  [part] [part] [part] [part]      under way as soon as it is whole
//   stage 1  [answers     ] [answers    ]     as soon as enough have come
//   stage 2  [answers                   ]     -> the answer
//
// A text that is there as a whole can be read without waiting in between, as PendingAnswer does
// beside others:
//
//   ASSIGN_OR_RETURN(const bool is_long, work->Begin(text));   // else it is one prompt
//   while (!work->Advance()) ...                               // as often as answers may have come
//   Use(work->result());
#ifndef LM_EXTENSION_BATCH_MAP_REDUCE_H_
#define LM_EXTENSION_BATCH_MAP_REDUCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/runtime/generator_sizes.h"
#include "extension/batch/answer_queue.h"
#include "extension/batch/read_in_parts.h"
#include "extension/connection/call_options.h"
#include "extension/host/sqlite_api.h"

namespace lm {

struct MapReduceTask {
  CallOptions options;      // on_overflow is not looked at: nothing overflows
  std::string instruction;  // what to do with the text
  ReadInParts parts = {};
};

// InvalidArgument where options want several answers.
absl::Status CheckOneAnswer(const GenerationOptions& options);

// Not thread-safe. Destroying it cancels what is under way.
class MapReduce {
 public:
  // OutOfRange where the instructions leave no room for a text in the model's context.
  static absl::StatusOr<std::unique_ptr<MapReduce>> Create(MapReduceTask task);

  // Adds a piece of the text, a blank line apart from the one before. Whole parts are submitted;
  // where many are under way, this waits for the first of them. An error is an interrupt.
  absl::Status Add(sqlite3* db, absl::string_view text);

  // The answer, with the tokens of all prompts and answers that were needed; where a part failed,
  // its status. An error is an interrupt. Call once, last.
  absl::StatusOr<Generation> Finish(sqlite3* db);

  // Begins with the whole text, instead of Add(). False where it is one prompt: then nothing is
  // asked, and nothing else is to be called.
  absl::StatusOr<bool> Begin(absl::string_view text);
  // Takes the answers that have come, and submits what can be asked by now. Whether that was all:
  // then result() is as Finish() has it, but for an interrupt, which is its status.
  // REQUIRES: Begin() has returned true.
  bool Advance();
  const Generation& result() const { return total_; }

  // After Advance() has returned false: waits for the answer that it needs next, as
  // AnswerQueue::AwaitFront() does.
  absl::Status AwaitNext(sqlite3* db,
                         absl::FunctionRef<absl::Status()> meanwhile = NothingMeanwhile);
  // Waits for that answer at most this long, whatever happens meanwhile.
  void WaitForNext(absl::Duration wait);
  // Whether the prompt of that answer is not submitted yet, and why a budget is in its way, if one
  // is.
  bool stuck() const;
  const absl::Status& over_budget() const;

 private:
  // What is done with one text: stage 0 with the rows', stage n + 1 with the answers of stage n.
  struct Stage {
    std::string system;
    int32_t part_tokens;  // most of a part, the template and the system prompt not counted
    std::string text;     // what is not under way yet
    int64_t tokens = 0;   // of `text`, about
    int64_t num_parts = 0;
    AnswerQueue answers;
  };

  explicit MapReduce(MapReduceTask task);

  // A beginning of a text.
  struct Part {
    size_t end;      // byte
    int64_t tokens;  // at most, the template not counted
  };

  // The tokens that a part of a text may have beside this system prompt.
  absl::StatusOr<int32_t> RoomFor(const std::string& system) const;
  // What is around a text, at most.
  absl::StatusOr<int64_t> FrameOf(const std::string& system) const;
  // Of a prompt with all that is around it. REQUIRES: sizes_.exact().
  absl::StatusOr<int64_t> CountTokens(absl::string_view prompt, absl::string_view system) const;
  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(size_t number) const;
  // Without a `db` nothing is waited for, here and below.
  absl::Status AddTo(sqlite3* db, size_t stage, absl::string_view text);
  // Submits parts as long as there is more text than one, and of stage 0 room for another; with
  // `rest`, what is left as well.
  absl::Status SubmitParts(sqlite3* db, size_t stage, bool rest);
  void SubmitPart(Stage* stage, absl::string_view text);
  // The first part of `text`; it ends with that where all of it is one.
  absl::StatusOr<Part> FirstPart(const Stage& stage, absl::string_view text) const;
  // Gives the next stage the first answer of this one.
  absl::Status PassOn(sqlite3* db, size_t stage);
  // Advance(), but for its errors.
  absl::Status Work();
  // Submits the whole text of a stage as the last prompt.
  void Conclude(Stage* stage);
  // Adds the answer's counts; false where it failed, and then so has everything.
  bool Account(const Generation& generation);

  const MapReduceTask task_;
  const GeneratorSizes sizes_;
  const std::string combine_;
  const int32_t context_;
  const int32_t answer_tokens_;  // room for the last answer beside its prompt
  std::shared_ptr<const CallOptions> part_options_;
  std::vector<std::unique_ptr<Stage>> stages_;
  // Of those, the first that is not done with, once the text has its end: all that is before it has
  // been passed on.
  size_t draining_ = 0;
  bool concluding_ = false;  // its last prompt is under way
  bool over_ = false;
  Generation total_;  // its status is that of the first part that failed
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_MAP_REDUCE_H_
