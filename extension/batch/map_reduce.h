// MapReduce: an instruction carried out over a text of any length, of which nothing is left out.
//
//   ASSIGN_OR_RETURN(auto work, MapReduce::Create(db, {.options = options, .instruction = ...}));
//   for (...) RETURN_IF_ERROR(work->Add(row));
//   ASSIGN_OR_RETURN(Generation answer, work->Finish());
//
// A text that fits the model's context is one prompt, with the instruction as its system prompt:
// the answer is that of generate(text, instruction). A longer one is cut into parts, at paragraphs
// and sentences; the instruction is carried out over each (the parts decode together), and the
// answers, in order and a blank line apart, are a text again, over which a second instruction
// combines them: in one prompt where they fit, else part by part, and so on.
//
//   rows     r1 r2 r3 r4 r5 r6 r7 r8 ...      Add()
//   stage 0  [part] [part] [part] [part]      under way as soon as it is whole
//   stage 1  [answers     ] [answers    ]     as soon as so many have come
//   stage 2  [answers                   ]     -> the answer
#ifndef LM_EXTENSION_BATCH_MAP_REDUCE_H_
#define LM_EXTENSION_BATCH_MAP_REDUCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/batch/answer_queue.h"
#include "extension/connection/call_options.h"
#include "extension/host/sqlite_api.h"

namespace lm {

struct MapReduceTask {
  CallOptions options;      // on_overflow is not looked at: nothing overflows
  std::string instruction;  // what to do with the text
  std::string combine;      // what to do with the parts' answers
  int32_t part_tokens = 0;  // most of a part of the text; 0: what fits the context
};

// Not thread-safe. Destroying it cancels what is under way.
class MapReduce {
 public:
  // OutOfRange where the instructions leave no room for a text in the model's context.
  static absl::StatusOr<std::unique_ptr<MapReduce>> Create(sqlite3* db, MapReduceTask task);

  // Adds a piece of the text, a blank line apart from the one before. Whole parts are submitted;
  // where many are under way, this waits for the first of them. An error is an interrupt.
  absl::Status Add(absl::string_view text);

  // The answer, with the tokens of all prompts and answers that were needed; where a part failed,
  // its status. An error is an interrupt. Call once, last.
  absl::StatusOr<Generation> Finish();

 private:
  // What is done with one text: stage 0 with the rows', stage n + 1 with the answers of stage n.
  struct Stage {
    std::string system;
    int32_t part_tokens;  // most of a part, the template and the system prompt not counted
    std::string text;     // what is not under way yet
    int64_t tokens = 0;   // about so many
    int64_t num_parts = 0;
    AnswerQueue answers;
  };

  MapReduce(sqlite3* db, MapReduceTask task);

  // The tokens that a part of a text may have beside this system prompt.
  absl::StatusOr<int32_t> RoomFor(const std::string& system) const;
  absl::StatusOr<int32_t> CountTokens(absl::string_view text) const;
  // Of a prompt with all that is around it.
  absl::StatusOr<int64_t> CountTokens(absl::string_view prompt, absl::string_view system) const;
  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(size_t number) const;
  absl::Status AddTo(size_t stage, absl::string_view text);
  // Submits parts as long as there is more text than one; with `rest`, what is left as well.
  absl::Status SubmitParts(size_t stage, bool rest);
  // The end of the first part of `text`; the text's, where all of it is one.
  absl::StatusOr<size_t> PartEnd(const Stage& stage, absl::string_view text) const;
  // Gives the next stage the first answer of this one.
  absl::Status PassOn(size_t stage);
  // The whole text of a stage in one prompt.
  absl::StatusOr<Generation> Conclude(Stage* stage);
  // Adds the answer's counts; false where it failed, and then so has everything.
  bool Account(const Generation& generation);

  sqlite3* const db_;
  const MapReduceTask task_;
  const int32_t context_;
  const int32_t answer_tokens_;  // room for the last answer beside its prompt
  std::shared_ptr<const CallOptions> part_options_;
  std::vector<std::unique_ptr<Stage>> stages_;
  Generation total_;  // its status is that of the first part that failed
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_MAP_REDUCE_H_
