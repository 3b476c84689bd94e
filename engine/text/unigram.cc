#include "engine/text/unigram.h"

#include <algorithm>
#include <cfloat>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/text/growing_array.h"

namespace lm {
namespace {

constexpr absl::string_view kUnigramSpace = "\xe2\x96\x81";
constexpr size_t kNodesBetweenCheckpoints = 16384;
constexpr float kUnknownPenalty = 10;

// Bytes of the character that this byte begins.
size_t CharacterSize(char byte) {
  const uint8_t lead = static_cast<uint8_t>(byte);
  return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

}  // namespace

// The best ways to the places of a text. Places that no token crosses cut it into stretches, which
// are decided one by one: memory is needed for one of them.
class Unigram::Lattice {
 public:
  Lattice(const Unigram& model, absl::string_view text) : model_(model), text_(text) {}

  absl::Status Encode(std::vector<int32_t>* ids) {
    Restart(0, 0);
    size_t steps = 0;
    for (size_t at = 0; at < text_.size();) {
      if (at == reached_ && at > 0) {
        Emit(ids);
        Restart(at, Best(at).score);
      }
      const size_t size = std::min(CharacterSize(text_[at]), text_.size() - at);
      steps += Extend(at, size);
      at += size;
      if (steps >= kNodesBetweenCheckpoints) {
        RETURN_IF_ERROR(Checkpoint());
        steps = 0;
      }
    }
    Emit(ids);
    return absl::OkStatus();
  }

 private:
  // The best way to a place: its last token, which begins at `from`, and the sum of scores.
  struct Way {
    int32_t token;
    uint32_t from;
    double score;
  };

  Way& Best(size_t at) { return ways_[at - begin_]; }

  // A new stretch begins at `at`.
  void Restart(size_t at, double score) {
    begin_ = reached_ = at;
    ways_.clear();
    ways_.push_back({-1, static_cast<uint32_t>(at), score});
  }

  void Offer(size_t from, size_t to, int32_t token, double score) {
    while (ways_.size() <= to - begin_) ways_.push_back({-1, 0, -DBL_MAX});
    reached_ = std::max(reached_, to);
    if (score > Best(to).score) Best(to) = {token, static_cast<uint32_t>(from), score};
  }

  // Offers all tokens that begin at `at`, with a character of `size` bytes. Returns the work.
  size_t Extend(size_t at, size_t size) {
    const double score = Best(at).score;
    bool is_known = false;
    size_t i = at;
    for (int32_t node = NameTrie::kRoot; i < text_.size(); ++i) {
      node = model_.names_.Next(node, text_[i]);
      if (node < 0) break;
      const int32_t id = model_.names_.IdAt(node);
      if (id < 0) continue;
      is_known = is_known || i + 1 - at == size;
      Offer(at, i + 1, id, score + double{model_.vocabulary_.scores[id]});
    }
    if (!is_known) {
      Offer(at, at + size, model_.vocabulary_.unknown, score + model_.unknown_score_);
    }
    return i + 1 - at;
  }

  // Appends the best way to the stretch's end.
  void Emit(std::vector<int32_t>* ids) {
    const size_t first = ids->size();
    for (size_t at = reached_; at > begin_; at = Best(at).from) ids->push_back(Best(at).token);
    std::reverse(ids->begin() + first, ids->end());
    // Unknown neighbours are one, also across the stretches.
    auto end = ids->begin() + first;
    for (auto id = end; id != ids->end(); ++id) {
      const bool is_unknown = *id == model_.vocabulary_.unknown;
      if (!(is_unknown && last_is_unknown_)) *end++ = *id;
      last_is_unknown_ = is_unknown;
    }
    ids->erase(end, ids->end());
  }

  const Unigram& model_;
  const absl::string_view text_;
  GrowingArray<Way> ways_;  // to the places [begin_, reached_]
  size_t begin_ = 0;
  size_t reached_ = 0;
  bool last_is_unknown_ = false;
};

absl::StatusOr<std::unique_ptr<Unigram>> Unigram::Create(const Vocabulary& vocabulary,
                                                         const TokenIndex& index) {
  if (vocabulary.unknown < 0) {
    return absl::InvalidArgumentError("there is no tokenizer.ggml.unknown_token_id");
  }
  auto model = std::unique_ptr<Unigram>(new Unigram(vocabulary));
  if (!vocabulary.character_map.empty()) {
    ASSIGN_OR_RETURN(model->character_map_, CharacterMap::Create(vocabulary.character_map));
  }
  std::vector<std::pair<absl::string_view, int32_t>> names;
  float least = std::numeric_limits<float>::max();
  for (const std::string& name : vocabulary.tokens) {
    const int32_t id = index.FindPlain(name);
    if (id < 0 || vocabulary.types[id] == TokenType::kUserDefined) continue;  // found before
    names.emplace_back(name, id);
    if (vocabulary.types[id] == TokenType::kNormal) {
      least = std::min(least, vocabulary.scores[id]);
    }
  }
  model->names_.Build(std::move(names));
  model->unknown_score_ = least - kUnknownPenalty;
  return model;
}

absl::StatusOr<std::string> Unigram::Normalise(absl::string_view text, bool begins) const {
  std::string out;
  bool in_word = !begins, prefixed = !begins;
  size_t steps = 0;
  auto append = [&](absl::string_view piece) {
    for (char c : piece) {
      if (c == ' ') {
        in_word = false;
        if (!vocabulary_.merge_spaces) out.append(kUnigramSpace.data(), kUnigramSpace.size());
        continue;
      }
      if (!in_word && ((vocabulary_.add_space_prefix && !prefixed) || vocabulary_.merge_spaces)) {
        out.append(kUnigramSpace.data(), kUnigramSpace.size());
        prefixed = true;
      }
      in_word = true;
      out.push_back(c);
    }
  };
  while (!text.empty()) {
    const CharacterMap::Replacement replacement = character_map_.Find(text);
    const size_t size =
        replacement.size > 0 ? replacement.size : std::min(CharacterSize(text[0]), text.size());
    append(replacement.size > 0 ? replacement.by : text.substr(0, size));
    text.remove_prefix(size);
    if (out.size() >= kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the normalised text has ", kMaxTextBytes,
                                                     " bytes or more, too many to be encoded"));
    }
    if (++steps % 4096 == 0) RETURN_IF_ERROR(Checkpoint());
  }
  return out;
}

absl::Status Unigram::Encode(absl::string_view text, bool begins, std::vector<int32_t>* ids) const {
  ASSIGN_OR_RETURN(const std::string normalised, Normalise(text, begins));
  return Lattice(*this, normalised).Encode(ids);
}

std::string Unigram::DecodeName(absl::string_view name) const {
  return absl::StrReplaceAll(name, {{kUnigramSpace, " "}});
}

}  // namespace lm
