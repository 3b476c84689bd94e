#include "engine/text/answer_ends.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"

namespace lm {
namespace {

// Where a vocabulary has this, "</s>" is HTML's strike-through.
constexpr absl::string_view kToolResponse = "<|tool_response>";

// The end of a turn, an answer or a text.
constexpr absl::string_view kAnswerEnds[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<eos>",
    "<turn|>",
    "[e~[",
    kToolResponse,
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
};

// Fill-in-the-middle: padding, repository and file separators, after which nothing useful comes.
constexpr absl::string_view kFillInEnds[] = {
    "<|fim_pad|>",   "<fim-pad>",  "<fim_pad>", "<PAD>",      "[PAD]",        "<|fim_repo|>",
    "<|repo_name|>", "<fim-repo>", "<REPO>",    "<reponame>", "<|file_sep|>",
};

// Fill-in-the-middle: the parts of the prompt.
constexpr absl::string_view kFillInParts[] = {
    "<|fim_prefix|>",  "<fim-prefix>",    "<fim_prefix>",    "<｜fim▁begin｜>", "<PRE>",
    "▁<PRE>",          "<|code_prefix|>", "<|prefix|>",      "<|fim_suffix|>",  "<fim-suffix>",
    "<fim_suffix>",    "<｜fim▁hole｜>",  "<SUF>",           "▁<SUF>",          "<|suffix|>",
    "<|code_suffix|>", "<|fim_middle|>",  "<fim-middle>",    "<fim_middle>",    "<MID>",
    "<｜fim▁end｜>",   "▁<MID>",          "<|code_middle|>", "<|middle|>",
};

template <typename Visit>
void ForEach(const TokenIndex& index, absl::Span<const absl::string_view> names, Visit visit) {
  for (absl::string_view name : names) {
    if (int32_t id = index.Find(name); id >= 0) visit(id);
  }
}

}  // namespace

void MarkConventionalControls(const TokenIndex& index, Vocabulary* vocabulary) {
  auto mark = [vocabulary](int32_t id) { vocabulary->types[id] = TokenType::kControl; };
  ForEach(index, kAnswerEnds, mark);
  ForEach(index, kFillInEnds, mark);
  ForEach(index, kFillInParts, mark);
  const int32_t strike = index.Find("</s>");
  if (strike >= 0 && strike != vocabulary->eos && index.Find(kToolResponse) >= 0) {
    vocabulary->types[strike] = TokenType::kNormal;
  }
}

std::vector<int32_t> FindAnswerEnds(const TokenIndex& index, const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  auto add = [&ids](int32_t id) { ids.push_back(id); };
  ForEach(index, kAnswerEnds, add);
  ForEach(index, kFillInEnds, add);

  auto has = [&index](absl::string_view name) { return index.Find(name) >= 0; };
  auto remove = [&](absl::string_view name) {
    ids.erase(std::remove(ids.begin(), ids.end(), index.Find(name)), ids.end());
  };
  // Where a vocabulary has a token for the end of the whole answer, "<|end|>" ends only a part.
  if ((has("<|return|>") && has("<|call|>")) ||
      (has("<|flush|>") && (has("<|call|>") || has("<|calls|>")))) {
    remove("<|end|>");
  }
  if (has(kToolResponse)) remove("</s>");

  std::vector<int32_t> stated = vocabulary.more_eos;
  stated.insert(stated.end(), {vocabulary.eos, vocabulary.eot, vocabulary.eom});
  std::copy_if(stated.begin(), stated.end(), std::back_inserter(ids),
               [](int32_t id) { return id >= 0; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace lm
