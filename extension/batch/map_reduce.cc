#include "extension/batch/map_reduce.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/model.h"
#include "engine/text/text_chunks.h"

namespace lm {
namespace {

// An answer about a part has at most a quarter of what a part may have: so each stage's text is
// shorter than that of the stage before.
constexpr int32_t kAnswersPerPart = 4;
constexpr char kCombine[] =
    "Combine these answers about the parts of one text into one answer. The instruction was: ";
// What a prompt may have more than its pieces, where they are joined.
constexpr int32_t kSlack = 8;
constexpr int32_t kLeastPart = 32;
// What the template has around the messages of a server whose template is not known here; around
// each of them it is less.
constexpr int64_t kUnseenTemplate = 64;
constexpr int64_t kUnseenMessage = 16;
// A server is not asked how many tokens fewer bytes have.
constexpr int64_t kShort = 256;
// Thousands of millions of tokens; beyond that, the model answers with more than it was asked.
constexpr size_t kMostStages = 24;

// An error of an answer about a part that names `most`, where the call names others.
absl::Status OfPart(const absl::Status& status, int32_t most, int32_t asked) {
  if (most == asked || !absl::StrContains(status.message(), absl::StrCat("max_tokens = ", most))) {
    return status;
  }
  return absl::Status(
      status.code(),
      absl::StrCat("of the max_tokens = ", asked, " an answer about a part of the text has ", most,
                   ", a quarter of what a part may have; ", status.message()));
}

}  // namespace

absl::Status CheckOneAnswer(const GenerationOptions& options) {
  if (options.n == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "n is for generate() and its like: a text that is read in parts has one answer");
}

MapReduce::MapReduce(MapReduceTask task)
    : task_(std::move(task)),
      sizes_(task_.options.generator()),
      combine_(task_.parts.combine.has_value() ? *task_.parts.combine
                                               : absl::StrCat(kCombine, task_.instruction)),
      context_(task_.options.generator().max_sequence_tokens()),
      answer_tokens_(static_cast<int32_t>(std::min<int64_t>(
          std::max<int64_t>(TokensBesidePrompt(task_.options.generation), 1), context_ / 2))) {
  total_.finish = FinishReason::kStop;
  total_.remembered = true;  // unless one is not
}

absl::StatusOr<std::unique_ptr<MapReduce>> MapReduce::Create(MapReduceTask task) {
  RETURN_IF_ERROR(CheckGenerates(task.options.generator().info()));
  RETURN_IF_ERROR(CheckOneAnswer(task.options.generation));
  std::unique_ptr<MapReduce> work(new MapReduce(std::move(task)));
  ASSIGN_OR_RETURN(const int32_t room, work->RoomFor(work->combine_));
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
  ASSIGN_OR_RETURN(const int64_t frame, FrameOf(system));
  const int64_t room = int64_t{context_} - answer_tokens_ - frame - kSlack;
  if (room >= kLeastPart) return static_cast<int32_t>(room);
  return absl::OutOfRangeError(absl::StrCat(
      "the instruction and the template have ", frame, " tokens, the answer up to ", answer_tokens_,
      ": too little of the context's ", context_, " is left for the text"));
}

absl::StatusOr<int64_t> MapReduce::FrameOf(const std::string& system) const {
  if (sizes_.exact()) return CountTokens("", system);
  ASSIGN_OR_RETURN(int64_t frame, sizes_.AtMost(system, kShort));
  for (const Example& example : task_.options.generation.examples) {
    for (const std::string& text : {example.prompt, example.answer}) {
      ASSIGN_OR_RETURN(const int64_t tokens, sizes_.AtMost(text, kShort));
      frame += tokens + kUnseenMessage;
    }
  }
  sizes_.Forget();
  return frame + kUnseenTemplate;
}

absl::StatusOr<int64_t> MapReduce::CountTokens(absl::string_view prompt,
                                               absl::string_view system) const {
  return task_.options.generator().CountTokens(
      {.prompt = prompt, .system = system, .options = task_.options.generation});
}

absl::StatusOr<std::unique_ptr<MapReduce::Stage>> MapReduce::MakeStage(size_t number) const {
  auto stage = std::make_unique<Stage>();
  stage->system = number == 0 ? task_.instruction : combine_;
  ASSIGN_OR_RETURN(stage->part_tokens, RoomFor(stage->system));
  if (number == 0 && task_.parts.part_tokens > 0) {
    stage->part_tokens = std::min(stage->part_tokens, task_.parts.part_tokens);
  }
  return stage;
}

absl::Status MapReduce::Add(sqlite3* db, absl::string_view text) {
  return total_.status.ok() ? AddTo(db, 0, text) : absl::OkStatus();
}

absl::StatusOr<bool> MapReduce::Begin(absl::string_view text) {
  if (text.empty()) return false;
  Stage& stage = *stages_[0];
  ASSIGN_OR_RETURN(const Part part, FirstPart(stage, text));
  if (part.end == text.size()) return false;
  SubmitPart(&stage, text.substr(0, part.end));
  stage.text = std::string(text.substr(part.end));
  return true;
}

absl::Status MapReduce::AddTo(sqlite3* db, size_t number, absl::string_view text) {
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
  absl::StrAppend(&stage.text, stage.text.empty() ? "" : "\n\n", text);
  // Where tokens are counted here, piece by piece; else by the bytes, of all at once.
  ASSIGN_OR_RETURN(const int64_t tokens, sizes_.About(sizes_.exact() ? text : stage.text));
  stage.tokens = sizes_.exact() ? stage.tokens + tokens : tokens;
  if (!sizes_.IsMore(stage.tokens, stage.part_tokens)) return absl::OkStatus();
  return SubmitParts(db, number, /*rest=*/false);
}

absl::StatusOr<MapReduce::Part> MapReduce::FirstPart(const Stage& stage,
                                                     absl::string_view text) const {
  const int64_t bytes = static_cast<int64_t>(text.size());
  if (!sizes_.exact() && bytes <= stage.part_tokens) return Part{text.size(), bytes};
  for (ChunkLimits limits = {.tokens = stage.part_tokens};;) {
    ASSIGN_OR_RETURN(const TextChunk part, NextChunk(sizes_, text, TextChunk(), limits));
    if (!sizes_.exact()) return Part{part.end, part.tokens};
    // The same text may have a few tokens more between the template's words.
    ASSIGN_OR_RETURN(const int64_t prompt, CountTokens(part.Of(text), stage.system));
    const int64_t excess = prompt + answer_tokens_ - context_;
    if (excess <= 0 || limits.tokens == 1) return Part{part.end, part.tokens};
    limits.tokens = static_cast<int32_t>(std::max<int64_t>(limits.tokens - excess, 1));
  }
}

absl::Status MapReduce::SubmitParts(sqlite3* db, size_t number, bool rest) {
  Stage& stage = *stages_[number];
  absl::string_view text = stage.text;
  while (total_.status.ok() && !text.empty()) {
    if (!rest && !sizes_.exact()) {
      ASSIGN_OR_RETURN(stage.tokens, sizes_.About(text));
      if (!sizes_.IsMore(stage.tokens, stage.part_tokens)) break;
    }
    const bool full = !stage.answers.HasRoom();
    // Answers are a quarter of what they are about at most: they may all be under way.
    if (full && db == nullptr && number == 0) break;
    ASSIGN_OR_RETURN(const Part part, FirstPart(stage, text));
    if (part.end == text.size() && !rest) {
      stage.tokens = part.tokens;
      break;
    }
    if (full && db != nullptr) RETURN_IF_ERROR(PassOn(db, number));
    SubmitPart(&stage, text.substr(0, part.end));
    text.remove_prefix(part.end);
  }
  stage.text.erase(0, stage.text.size() - text.size());
  if (text.empty()) stage.tokens = 0;
  return absl::OkStatus();
}

void MapReduce::SubmitPart(Stage* stage, absl::string_view text) {
  stage->answers.Push(
      {.prompt = std::string(text), .system = stage->system, .options = part_options_});
  ++stage->num_parts;
}

bool MapReduce::Account(const Generation& generation) {
  total_.tokens_in += generation.tokens_in;
  total_.tokens_cached += generation.tokens_cached;
  total_.tokens_out += generation.tokens_out;
  total_.remembered = total_.remembered && generation.remembered;
  if (total_.status.ok()) total_.status = generation.status;
  return generation.status.ok();
}

absl::Status MapReduce::PassOn(sqlite3* db, size_t number) {
  AnswerQueue& answers = stages_[number]->answers;
  RETURN_IF_ERROR(answers.AwaitFront(db));
  Generation generation = answers.front().generation;
  answers.Pop();
  generation.status = OfPart(generation.status, part_options_->generation.max_tokens,
                             task_.options.generation.max_tokens);
  return Account(generation) ? AddTo(db, number + 1, generation.text) : absl::OkStatus();
}

void MapReduce::Conclude(Stage* stage) {
  CallOptions options = *part_options_;
  options.generation.max_tokens = task_.options.generation.max_tokens;
  stage->answers.Push({.prompt = std::exchange(stage->text, ""),
                       .system = stage->system,
                       .options = std::make_shared<const CallOptions>(std::move(options))});
  concluding_ = true;
}

bool MapReduce::Advance() {
  total_.status.Update(Work());
  return over_ || !total_.status.ok();
}

absl::Status MapReduce::Work() {
  while (total_.status.ok() && !over_) {
    Stage& stage = *stages_[draining_];
    if (stage.num_parts == 0 && !concluding_) {
      Part part = {0, 0};
      if (!stage.text.empty()) {
        ASSIGN_OR_RETURN(part, FirstPart(stage, stage.text));
      }
      if (part.end == stage.text.size()) Conclude(&stage);
    }
    RETURN_IF_ERROR(SubmitParts(nullptr, draining_, /*rest=*/true));
    if (!stage.answers.empty()) {
      if (!stage.answers.IsFrontDone()) return absl::OkStatus();
      if (!concluding_) {
        RETURN_IF_ERROR(PassOn(nullptr, draining_));
        continue;
      }
      RETURN_IF_ERROR(stage.answers.AwaitFront(nullptr));
      const Generation& last = stage.answers.front().generation;
      Account(last);
      total_.text = last.text;
      total_.finish = last.finish;
      over_ = true;
    } else if (stage.text.empty()) {
      ++draining_;
    }
  }
  return absl::OkStatus();
}

absl::Status MapReduce::AwaitNext(sqlite3* db, absl::FunctionRef<absl::Status()> meanwhile) {
  return stages_[draining_]->answers.AwaitFront(db, meanwhile);
}

void MapReduce::WaitForNext(absl::Duration wait) { stages_[draining_]->answers.WaitForFront(wait); }

bool MapReduce::stuck() const { return !stages_[draining_]->answers.front_row().submitted(); }

const absl::Status& MapReduce::over_budget() const {
  return stages_[draining_]->answers.front_row().over_budget();
}

absl::StatusOr<Generation> MapReduce::Finish(sqlite3* db) {
  while (!Advance()) RETURN_IF_ERROR(AwaitNext(db));
  if (absl::IsCancelled(total_.status)) return total_.status;
  return total_;
}

}  // namespace lm
