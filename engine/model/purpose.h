// Purpose: what a model was made for, where that is one thing. A small model gives words to
// whatever it is asked, and nobody can see that they mean nothing; its file can say so:
//
//   general.description       "Synopsis, section and tags of package descriptions"
//   sqlite_lm.purpose.words   ["summar", "section", "tag", ...]: how the words of its tasks begin
//
// A file without these words is for anything.
#ifndef LM_ENGINE_MODEL_PURPOSE_H_
#define LM_ENGINE_MODEL_PURPOSE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/gguf/metadata.h"

namespace lm {

struct Purpose {
  std::string text = {};                // as a message shows it
  std::vector<std::string> words = {};  // empty: it is for anything

  // Whether a call with these texts (system prompt, prompt, labels, ...) asks for what the model
  // was made for: one of the words begins a word near either end of a text, where instructions
  // stand. Upper case is lower case. Of wordings of ours, which have such words whatever is asked,
  // what the caller has written (TextRequest::asked).
  bool Covers(absl::Span<const absl::string_view> texts) const;
};

// InvalidArgument, naming the key, for words that are none.
absl::StatusOr<Purpose> ReadPurpose(const Metadata& metadata);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_PURPOSE_H_
