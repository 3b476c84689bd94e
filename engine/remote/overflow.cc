#include "engine/remote/overflow.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/remote/embedding_api.h"

namespace lm {
namespace {

constexpr double kUnknownShare = 0.75;
constexpr double kMargin = 0.98;  // tokens are not spread evenly over a text

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The number at or behind `at`, and where it ends; 0 where there is none.
int64_t NextNumber(absl::string_view words, size_t* at) {
  size_t begin = *at;
  while (begin < words.size() && !absl::ascii_isdigit(words[begin])) ++begin;
  size_t end = begin;
  while (end < words.size() && absl::ascii_isdigit(words[end])) ++end;
  *at = end;
  int64_t number = 0;
  return absl::SimpleAtoi(words.substr(begin, end - begin), &number) ? number : 0;
}

absl::string_view Shorter(absl::string_view text, OnOverflow how, double share) {
  const size_t keep =
      std::min(static_cast<size_t>(static_cast<double>(text.size()) * share), text.size() - 1);
  if (how == OnOverflow::kTruncateEnd) {
    size_t end = keep;
    while (end > 0 && IsContinuation(text[end])) --end;
    return text.substr(0, end);
  }
  size_t begin = text.size() - keep;
  while (begin < text.size() && IsContinuation(text[begin])) ++begin;
  return text.substr(begin);
}

// The members of the last message, with another content.
Json WithContent(const Json& message, std::string content) {
  Json changed = Json::MakeObject();
  for (const auto& [name, value] : message.members()) {
    if (name != "content") changed.Add(name, value);
  }
  changed.Add("content", std::move(content));
  return changed;
}

}  // namespace

double ShareThatFits(int64_t context, int64_t tokens, int64_t answer_tokens) {
  if (context <= 0 || tokens <= 0) return kUnknownShare;
  const int64_t most =
      context - std::clamp<int64_t>(answer_tokens, 1, std::max<int64_t>(context / 2, 1));
  return kMargin * std::min(1.0, static_cast<double>(most) / static_cast<double>(tokens));
}

// "... maximum context length is 4096 tokens. However, you requested 5000 tokens ...", "request
// (5000 tokens) exceeds the available context size (4096 tokens)"
double ShareThatFits(absl::string_view words, int64_t answer_tokens) {
  size_t at = words.find("context");
  if (at == words.npos) return kUnknownShare;
  const int64_t context = NextNumber(words, &at);
  int64_t tokens = 0;
  for (at = 0; at < words.size();) tokens = std::max(tokens, NextNumber(words, &at));
  if (tokens <= context) return kUnknownShare;
  return ShareThatFits(context, tokens, answer_tokens);
}

std::optional<std::string> CutText(const RequestSpec& spec, absl::string_view text, double share) {
  const OnOverflow how = spec.options.on_overflow;
  if (how == OnOverflow::kError || !spec.kept_end.has_value()) return std::nullopt;
  if (spec.embed.has_value() && !spec.ranks) {
    const size_t kept = static_cast<size_t>(*spec.kept_end);
    if (text.size() <= kept) return std::nullopt;
    return absl::StrCat(text.substr(0, kept), Shorter(text.substr(kept), how, share));
  }
  const std::optional<Json> json = Json::Parse(text);
  if (!json.has_value() || !json->is_array() || json->size() == 0) return std::nullopt;
  const Json& last = json->array().back();
  const Json* content = spec.ranks ? &last : last.Find("content");
  if (content == nullptr || !content->is_string()) return std::nullopt;
  const absl::string_view whole = content->string();
  const size_t kept = std::min(whole.size(), static_cast<size_t>(*spec.kept_end));
  const absl::string_view body = whole.substr(0, whole.size() - kept);
  if (body.empty()) return std::nullopt;
  std::string rest = absl::StrCat(Shorter(body, how, share), whole.substr(whole.size() - kept));
  if (spec.ranks) return RankedPair(json->array()[0].string(), rest);
  Json messages = Json::MakeArray();
  for (size_t i = 0; i + 1 < json->size(); ++i) messages.Append(json->array()[i]);
  messages.Append(WithContent(last, std::move(rest)));
  return messages.Dump();
}

}  // namespace lm
