// Secrets: what a server is told and nobody else is to read, be it that the server repeats it.
//
//   const Secrets secrets(headers);  // that were sent
//   secrets.Without("no such key: sk-123456", 400);  // "no such key: ***"
#ifndef LM_ENGINE_REMOTE_SECRETS_H_
#define LM_ENGINE_REMOTE_SECRETS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lm {

class Secrets {
 public:
  Secrets() = default;
  // Of headers, "Name: value" each, whichever has the key: their values, those behind a scheme
  // (Bearer) and those of cookies by themselves, too. Short ones may be words, and are none.
  explicit Secrets(const std::vector<std::string>& headers);

  // The first `most` bytes of a server's words, with *** for each secret that begins there; be it
  // one that the words break off within.
  std::string Without(absl::string_view words, size_t most = absl::string_view::npos) const;

 private:
  void Add(absl::string_view text);
  // How much of the beginning of the words is a secret.
  size_t LengthAt(absl::string_view words) const;

  struct Text {
    std::string text;
    size_t least;  // bytes that tell something of it
  };
  std::vector<Text> texts_;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_SECRETS_H_
