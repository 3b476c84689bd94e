// ChatGenerator: the generator over servers that speak OpenAI's API.
#ifndef LM_ENGINE_REMOTE_CHAT_GENERATOR_H_
#define LM_ENGINE_REMOTE_CHAT_GENERATOR_H_

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "engine/model/model_text.h"
#include "engine/remote/network.h"
#include "engine/remote/remote_generator.h"
#include "engine/remote/remote_server.h"

namespace lm {

class ChatGenerator : public RemoteGenerator {
 public:
  // `text` is the model's tokenizer, or null; so it is where the server's model is not known, of
  // which `absence` says why.
  ChatGenerator(absl::string_view path, std::vector<std::string> urls, RemoteOptions options,
                std::unique_ptr<const ModelText> text, Network* network,
                std::shared_ptr<RemoteServer> server, absl::Status absence);

  absl::Status absence() const override { return absence_; }
  const ModelInfo& info() const override { return info_; }
  std::string identity() const override { return info_.identity; }
  int32_t max_sequence_tokens() const override;
  size_t most_under_way() const override { return server_->most_under_way(); }
  absl::StatusOr<RequestSpec> Prepare(const TextRequest& request) const override;
  absl::StatusOr<std::string> Render(const TextRequest& request) const override;
  absl::StatusOr<int64_t> CountTokens(const TextRequest& request) const override;
  absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener = nullptr) override;
  absl::Status Validate(const RequestSpec& spec) const override;
  absl::StatusOr<AdapterSet> AdaptersOf(const GenerationOptions& options) const override;
  absl::Status CheckConstraint(const GenerationOptions& options) const override;
  bool CanBeAnswer(const RequestSpec& spec, const RememberedAnswer& answer) const override;
  absl::StatusOr<const Tokenizer*> tokenizer() const override;
  const std::shared_ptr<Engine>& engine() const override { return no_engine_; }

  RemoteStats Stats() const override { return server_->Stats(); }
  RequestCounts CountsOf(absl::string_view salt) const override { return server_->CountsOf(salt); }
  std::vector<ConstraintProof> Proofs() const override { return server_->Proofs(); }
  std::vector<std::shared_ptr<Request>> Prove(absl::string_view salt) override {
    return server_->Prove(salt);
  }

 private:
  // Whether the server can have given it as one answer.
  bool CanBeOne(const RequestSpec& spec, const RememberedAnswer& answer) const;
  // Null where there is no constraint.
  absl::StatusOr<std::shared_ptr<const Grammar>> GrammarOf(
      const AnswerConstraint& constraint) const;
  // How many tokens a plain text has, as the server says, or has said before; nullopt where it does
  // not tell.
  absl::StatusOr<std::optional<int64_t>> Told(absl::string_view text) const;
  // Counts the tokens, and cuts what is too long. REQUIRES: text_ != nullptr.
  absl::Status Fit(RequestSpec* spec) const;

  const std::vector<std::string> urls_;
  const RemoteOptions options_;
  const std::unique_ptr<const ModelText> text_;
  Network* const network_;
  ModelInfo info_;
  const std::shared_ptr<RemoteServer> server_;
  const absl::Status absence_;
  const std::shared_ptr<Engine> no_engine_;
  mutable absl::Mutex mutex_;
  // Compiled constraints, the last used first.
  mutable std::list<std::pair<AnswerConstraint, std::shared_ptr<const Grammar>>> grammars_
      ABSL_GUARDED_BY(mutex_);
  mutable std::map<std::string, int64_t> told_ ABSL_GUARDED_BY(mutex_);  // by the texts' digests
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CHAT_GENERATOR_H_
