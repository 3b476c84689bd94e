#include "engine/text/text_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/text/unicode_supplement.h"

namespace lm {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

absl::Status Pcre2Error(absl::string_view what, int code) {
  PCRE2_UCHAR message[128] = {};
  pcre2_get_error_message(code, message, sizeof(message));
  return absl::InternalError(
      absl::StrCat("PCRE2 ", what, ": ", reinterpret_cast<const char*>(message)));
}

}  // namespace

struct TextSplitter::Pattern {
  std::unique_ptr<pcre2_code, FreeCode> code;
};

TextSplitter::TextSplitter() = default;
TextSplitter::~TextSplitter() = default;

absl::StatusOr<std::unique_ptr<TextSplitter>> TextSplitter::Create(
    absl::Span<const char* const> patterns) {
  auto splitter = std::unique_ptr<TextSplitter>(new TextSplitter);
  for (const char* pattern : patterns) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
    if (code == nullptr) return Pcre2Error(absl::StrCat("pattern, at ", offset), error);
    splitter->patterns_.push_back({std::unique_ptr<pcre2_code, FreeCode>(code)});
    // Where there is no JIT (another processor, a hardened kernel) the interpreter does the same.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  return splitter;
}

absl::Status TextSplitter::Split(absl::string_view text, std::vector<Piece>* pieces) const {
  pieces->clear();
  if (text.empty()) return absl::OkStatus();
  std::string buffer;
  const absl::string_view subject = ReplaceYoungCodePoints(text, &buffer);

  std::unique_ptr<pcre2_match_data, FreeMatchData> data(pcre2_match_data_create(1, nullptr));
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context(
      pcre2_match_context_create(nullptr));
  if (data == nullptr || context == nullptr) {
    return absl::ResourceExhaustedError("out of memory for splitting a text");
  }
  // The limits count backtracks to contain exponential patterns; ours are linear, and a long run
  // of spaces may take one for each of them.
  pcre2_set_match_limit(context.get(), UINT32_MAX);
  const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());

  pieces->push_back({0, static_cast<uint32_t>(text.size())});
  constexpr size_t kCheckedMatches = 1024;  // between two checkpoints
  size_t matches = 0;
  std::vector<Piece> coarser;
  for (const Pattern& pattern : patterns_) {
    std::swap(coarser, *pieces);
    pieces->clear();
    for (const Piece& whole : coarser) {
      // Patterns look at their piece only: its ends are the ends of the subject.
      const auto* begin = reinterpret_cast<PCRE2_SPTR>(subject.data()) + whole.begin;
      const PCRE2_SIZE size = whole.end - whole.begin;
      PCRE2_SIZE pos = 0;
      while (pos < size) {
        if (++matches % kCheckedMatches == 0) RETURN_IF_ERROR(Checkpoint());
        int rc = pcre2_match(pattern.code.get(), begin, size, pos, PCRE2_NO_UTF_CHECK, data.get(),
                             context.get());
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
          rc = pcre2_match(pattern.code.get(), begin, size, pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           data.get(), context.get());
        }
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return Pcre2Error("match", rc);
        if (match[1] <= pos) return absl::InternalError("PCRE2 match: empty");
        auto add = [&](PCRE2_SIZE from, PCRE2_SIZE to) {
          pieces->push_back(
              {whole.begin + static_cast<uint32_t>(from), whole.begin + static_cast<uint32_t>(to)});
        };
        if (match[0] > pos) add(pos, match[0]);
        add(match[0], match[1]);
        pos = match[1];
      }
      if (pos < size) pieces->push_back({whole.begin + static_cast<uint32_t>(pos), whole.end});
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
