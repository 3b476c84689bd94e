#include "extension/batch/map_reduce.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/text_chunks.h"

namespace lm {
namespace {

// An answer about a part has at most a quarter of what a part may have: so each stage's text is
// shorter than that of the stage before.
constexpr int32_t kAnswersPerPart = 4;
// What a prompt may have more than its pieces, where they are joined.
constexpr int32_t kSlack = 8;
constexpr int32_t kLeastPart = 32;
// Thousands of millions of tokens; beyond that, the model answers with more than it was asked.
constexpr size_t kMostStages = 24;

}  // namespace

MapReduce::MapReduce(sqlite3* db, MapReduceTask task)
    : db_(db),
      task_(std::move(task)),
      context_(task_.options.generator().max_sequence_tokens()),
      answer_tokens_(std::min(std::max(task_.options.generation.max_tokens, 1), context_ / 2)) {
  total_.finish = FinishReason::kStop;
}

absl::StatusOr<std::unique_ptr<MapReduce>> MapReduce::Create(sqlite3* db, MapReduceTask task) {
  if (task.options.generation.n > 0) {
    return absl::InvalidArgumentError(
        "n is for generate() and its like: a text that is read in parts has one answer");
  }
  std::unique_ptr<MapReduce> work(new MapReduce(db, std::move(task)));
  ASSIGN_OR_RETURN(const int32_t room, work->RoomFor(work->task_.combine));
  CallOptions options = work->task_.options;
  options.generation.max_tokens =
      std::min(options.generation.max_tokens, std::max(room / kAnswersPerPart, 1));
  options.generation.on_overflow = OnOverflow::kError;
  work->part_options_ = std::make_shared<const CallOptions>(std::move(options));
  ASSIGN_OR_RETURN(std::unique_ptr<Stage> first, work->MakeStage(0));
  work->stages_.push_back(std::move(first));
  return work;
}

absl::StatusOr<int32_t> MapReduce::RoomFor(const std::string& system) const {
  ASSIGN_OR_RETURN(const int64_t frame, CountTokens("", system));
  const int64_t room = int64_t{context_} - answer_tokens_ - frame - kSlack;
  if (room >= kLeastPart) return static_cast<int32_t>(room);
  return absl::OutOfRangeError(absl::StrCat(
      "the instruction and the template have ", frame, " tokens, the answer up to ", answer_tokens_,
      ": too little of the context's ", context_, " is left for the text"));
}

absl::StatusOr<int64_t> MapReduce::CountTokens(absl::string_view prompt,
                                               absl::string_view system) const {
  return task_.options.generator().CountTokens(
      {.prompt = prompt, .system = system, .options = task_.options.generation});
}

absl::StatusOr<int32_t> MapReduce::CountTokens(absl::string_view text) const {
  ASSIGN_OR_RETURN(const int64_t tokens,
                   task_.options.generator().CountTokens({.task = Task::kScore, .prompt = text}));
  return static_cast<int32_t>(tokens);
}

absl::StatusOr<std::unique_ptr<MapReduce::Stage>> MapReduce::MakeStage(size_t number) const {
  auto stage = std::make_unique<Stage>();
  stage->system = number == 0 ? task_.instruction : task_.combine;
  ASSIGN_OR_RETURN(stage->part_tokens, RoomFor(stage->system));
  if (number == 0 && task_.part_tokens > 0) {
    stage->part_tokens = std::min(stage->part_tokens, task_.part_tokens);
  }
  return stage;
}

absl::Status MapReduce::Add(absl::string_view text) {
  return total_.status.ok() ? AddTo(0, text) : absl::OkStatus();
}

absl::Status MapReduce::AddTo(size_t number, absl::string_view text) {
  if (number == stages_.size()) {
    if (number == kMostStages) {
      total_.status = absl::OutOfRangeError(
          "the model's answers about the parts are as long as the parts: they cannot be combined");
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, MakeStage(number));
    stages_.push_back(std::move(stage));
  }
  Stage& stage = *stages_[number];
  ASSIGN_OR_RETURN(const int32_t tokens, CountTokens(text));
  stage.tokens += tokens;
  absl::StrAppend(&stage.text, stage.text.empty() ? "" : "\n\n", text);
  return stage.tokens > stage.part_tokens ? SubmitParts(number, /*rest=*/false) : absl::OkStatus();
}

absl::StatusOr<size_t> MapReduce::PartEnd(const Stage& stage, absl::string_view text) const {
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, task_.options.tokenizer());
  for (ChunkLimits limits = {.tokens = stage.part_tokens};;) {
    ASSIGN_OR_RETURN(const TextChunk part,
                     NextChunk(TokenizerSizes(*tokenizer), text, TextChunk(), limits));
    // The same text may have a few tokens more between the template's words.
    ASSIGN_OR_RETURN(const int64_t prompt, CountTokens(part.Of(text), stage.system));
    const int64_t excess = prompt + answer_tokens_ - context_;
    if (excess <= 0 || limits.tokens == 1) return part.end;
    limits.tokens = static_cast<int32_t>(std::max<int64_t>(limits.tokens - excess, 1));
  }
}

absl::Status MapReduce::SubmitParts(size_t number, bool rest) {
  Stage& stage = *stages_[number];
  absl::string_view text = stage.text;
  while (total_.status.ok() && !text.empty()) {
    ASSIGN_OR_RETURN(const size_t end, PartEnd(stage, text));
    if (end == text.size() && !rest) break;
    if (!stage.answers.HasRoom()) RETURN_IF_ERROR(PassOn(number));
    stage.answers.Push({.prompt = std::string(text.substr(0, end)),
                        .system = stage.system,
                        .options = part_options_});
    ++stage.num_parts;
    text.remove_prefix(end);
  }
  stage.text.erase(0, stage.text.size() - text.size());
  ASSIGN_OR_RETURN(stage.tokens, CountTokens(stage.text));
  return absl::OkStatus();
}

bool MapReduce::Account(const Generation& generation) {
  total_.tokens_in += generation.tokens_in;
  total_.tokens_cached += generation.tokens_cached;
  total_.tokens_out += generation.tokens_out;
  if (total_.status.ok()) total_.status = generation.status;
  return generation.status.ok();
}

absl::Status MapReduce::PassOn(size_t number) {
  AnswerQueue& answers = stages_[number]->answers;
  RETURN_IF_ERROR(answers.AwaitFront(db_));
  const Generation generation = answers.front().generation;
  answers.Pop();
  return Account(generation) ? AddTo(number + 1, generation.text) : absl::OkStatus();
}

absl::StatusOr<Generation> MapReduce::Conclude(Stage* stage) {
  CallOptions options = *part_options_;
  options.generation.max_tokens = task_.options.generation.max_tokens;
  stage->answers.Push({.prompt = std::move(stage->text),
                       .system = stage->system,
                       .options = std::make_shared<const CallOptions>(std::move(options))});
  RETURN_IF_ERROR(stage->answers.AwaitFront(db_));
  const Generation& last = stage->answers.front().generation;
  Account(last);
  total_.text = last.text;
  total_.finish = last.finish;
  return total_;
}

absl::StatusOr<Generation> MapReduce::Finish() {
  for (size_t number = 0; total_.status.ok(); ++number) {
    Stage& stage = *stages_[number];
    if (stage.num_parts == 0) {
      size_t end = 0;
      if (!stage.text.empty()) {
        ASSIGN_OR_RETURN(end, PartEnd(stage, stage.text));
      }
      if (end == stage.text.size()) return Conclude(&stage);
    }
    RETURN_IF_ERROR(SubmitParts(number, /*rest=*/true));
    while (total_.status.ok() && !stage.answers.empty()) RETURN_IF_ERROR(PassOn(number));
  }
  return total_;
}

}  // namespace lm
