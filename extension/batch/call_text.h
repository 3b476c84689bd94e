// CallText: all that the answer to a call of generate() or one of its sisters depends on. Calls
// with equal texts have equal answers.
#ifndef LM_EXTENSION_BATCH_CALL_TEXT_H_
#define LM_EXTENSION_BATCH_CALL_TEXT_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "extension/batch/row_prompt.h"

namespace lm {

struct CallText {
  std::string prompt;
  std::string system;
  std::string question;
  bool chooses;
  std::string begun;
  std::optional<EmbedTask> embed;
  bool weighs;
  std::shared_ptr<const Escalation> escalation;
  std::shared_ptr<const ReadInParts> parts;
  std::shared_ptr<const CallOptions> options;
  size_t hash;  // of the others; equal texts have equal ones

  // REQUIRES: the row has a prompt, and neither that nor the system prompt is an error.
  explicit CallText(const RowPrompt& row);

  size_t bytes() const { return prompt.size() + system.size() + question.size() + begun.size(); }
  bool operator==(const CallText& other) const;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_CALL_TEXT_H_
