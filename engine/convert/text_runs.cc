#include "engine/convert/text_runs.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "engine/backend/registry.h"
#include "engine/base/status_macros.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/cache_spec.h"
#include "engine/model/load_vocabulary.h"
#include "engine/model/model_spec.h"
#include "engine/model/transformer.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

constexpr int32_t kPieceTokens = 512;
constexpr int32_t kStepTokens = 64;  // so that it can be cancelled soon

class TextRunner {
 public:
  static absl::StatusOr<TextRunner> Load(const std::string& path, int num_threads, bool observes,
                                         const std::atomic<bool>& cancel) {
    TextRunner runner;
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> gguf, OpenModelFile(path, &cancel));
    ASSIGN_OR_RETURN(ModelSpec spec, DescribeModel(*gguf));
    spec.context_length = std::min<int64_t>(spec.context_length, kPieceTokens);
    spec.LeaveOutMtp();
    runner.causal_ = spec.causal;
    ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(gguf->metadata()));
    ASSIGN_OR_RETURN(runner.tokenizer_, Tokenizer::Create(std::move(vocabulary)));
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                     CreateBackend({.device = "cpu", .threads = num_threads}));
    if (observes) {
      auto observing = std::make_unique<ObservingBackend>(std::move(backend));
      runner.observing_ = observing.get();
      gguf->set_observer([to = observing.get()](const TensorInfo& info) { to->Note(info.name); });
      backend = std::move(observing);
    }
    std::vector<Transformer::Part> parts;
    parts.push_back({std::move(backend), 0, spec.num_layers()});
    // As models on a CPU have them.
    const DType kv_type = KvTypeOf(spec, /*on_gpu=*/false, DType::kI16);
    ASSIGN_OR_RETURN(runner.model_,
                     Transformer::Load(*gguf, spec, /*kv_bytes=*/0, kv_type, std::move(parts)));
    return runner;
  }

  bool causal() const { return causal_; }
  Importance Observed() const { return observing_->Observed(); }

  // visit(tokens of a piece, the first one of a step, that step's results), step by step; with the
  // logits of all of them, if wanted.
  using Visit = absl::FunctionRef<void(absl::Span<const int32_t> piece, int32_t first,
                                       const StepResults& results)>;
  absl::Status Run(const std::vector<std::string>& texts, bool logits,
                   const std::atomic<bool>& cancel, Visit visit) {
    bool any = false;
    for (const std::string& text : texts) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer_->EncodePlain(text));
      for (absl::Span<const int32_t> rest = ids; rest.size() > 1;) {
        const absl::Span<const int32_t> piece = rest.subspan(0, model_->context_length());
        RETURN_IF_ERROR(RunPiece(piece, logits, cancel, visit));
        rest.remove_prefix(piece.size());
        any = true;
      }
    }
    return any ? absl::OkStatus() : absl::InvalidArgumentError("no text has two tokens");
  }

 private:
  absl::Status RunPiece(absl::Span<const int32_t> piece, bool logits,
                        const std::atomic<bool>& cancel, Visit visit) {
    const CacheShape& cache = model_->cache();
    const int32_t count = static_cast<int32_t>(piece.size());
    const int32_t most = cache.whole_sequences ? count : kStepTokens;
    for (int32_t first = 0; first < count; first += most) {
      const int32_t tokens = std::min(most, count - first);
      ModelStep step;
      step.tables.blocks.resize(cache.classes.size());
      step.tables.Append(piece.data() + first, tokens, first, cache.recurrent() ? 0 : -1);
      for (std::vector<int32_t>& blocks : step.tables.blocks) {
        blocks.resize(BlocksFor(first + tokens));
        std::iota(blocks.begin(), blocks.end(), 0);
      }
      if (logits) {
        step.logit_rows.resize(tokens);
        std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
      } else {
        step.hidden_rows = {tokens - 1};
      }
      StepResults results;
      RETURN_IF_ERROR(model_->Run(std::move(step), cancel, &results));
      visit(piece, first, results);
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Transformer> model_;
  ObservingBackend* observing_ = nullptr;  // the model's
  bool causal_ = true;
};

// -log softmax(logits)[token]
double Surprise(absl::Span<const float> logits, int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) + most - logits[token];
}

}  // namespace

absl::StatusOr<double> MeasurePerplexity(const std::string& model,
                                         const std::vector<std::string>& texts, int num_threads,
                                         const std::atomic<bool>& cancel) {
  ASSIGN_OR_RETURN(TextRunner runner, TextRunner::Load(model, num_threads, false, cancel));
  if (!runner.causal()) {
    return absl::InvalidArgumentError("an encoder has no perplexity: it writes no text");
  }
  double sum = 0;
  int64_t tokens = 0;
  auto add = [&](absl::Span<const int32_t> piece, int32_t first, const StepResults& results) {
    absl::Span<const float> rest = results.logits;
    const size_t end = std::min<size_t>(piece.size() - 1, first + kStepTokens);
    const size_t vocab = rest.size() / std::min<size_t>(piece.size() - first, kStepTokens);
    for (size_t i = first; i < end; ++i, ++tokens) {
      sum += Surprise(rest.subspan(0, vocab), piece[i + 1]);
      rest.remove_prefix(vocab);
    }
  };
  RETURN_IF_ERROR(runner.Run(texts, /*logits=*/true, cancel, add));
  return std::exp(sum / static_cast<double>(tokens));
}

absl::StatusOr<Importance> MeasureImportance(const std::string& model,
                                             const std::vector<std::string>& texts, int num_threads,
                                             const std::atomic<bool>& cancel) {
  ASSIGN_OR_RETURN(TextRunner runner, TextRunner::Load(model, num_threads, true, cancel));
  RETURN_IF_ERROR(runner.Run(texts, /*logits=*/false, cancel,
                             [](absl::Span<const int32_t>, int32_t, const StepResults&) {}));
  return runner.Observed();
}

}  // namespace lm
