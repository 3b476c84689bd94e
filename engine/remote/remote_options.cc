#include "engine/remote/remote_options.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr std::pair<absl::string_view, Dialect> kDialects[] = {
    {"auto", Dialect::kAuto},     {"openai", Dialect::kOpenAi},
    {"vllm", Dialect::kVllm},     {"sglang", Dialect::kSglang},
    {"ollama", Dialect::kOllama}, {"llama-server", Dialect::kLlamaServer},
    {"trtllm", Dialect::kTrtllm}};

bool IsAddress(absl::string_view text) {
  return absl::StartsWithIgnoreCase(text, "http://") ||
         absl::StartsWithIgnoreCase(text, "https://");
}

absl::Status CheckHost(absl::string_view host) {
  const char* network = std::getenv("LM_NETWORK");
  if (network != nullptr && absl::EqualsIgnoreCase(network, "off")) {
    return absl::PermissionDeniedError("the network is locked: LM_NETWORK=off");
  }
  const char* hosts = std::getenv("LM_HOSTS");
  if (hosts == nullptr) return absl::OkStatus();
  for (absl::string_view allowed : absl::StrSplit(hosts, ',')) {
    if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(allowed), host)) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("'", host, "' is none of the hosts that LM_HOSTS allows: ", hosts));
}

// Of what stands between the scheme and the path.
absl::string_view HostOf(absl::string_view url) {
  const absl::string_view rest = url.substr(url.find("://") + 3);
  const absl::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  if (absl::StartsWith(host, "[")) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

absl::StatusOr<std::string> ParseAddress(absl::string_view url) {
  RETURN_IF_ERROR(CheckMaySpeakTo(url));
  if (absl::StrContains(url, '?') || absl::StrContains(url, '#')) {
    return absl::InvalidArgumentError(
        absl::StrCat("path: '", url, "' must be an address as in http://host:8000/v1"));
  }
  while (absl::ConsumeSuffix(&url, "/")) {
  }
  return std::string(url);
}

// The options as they are read, one after the other.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  void Text(absl::string_view key, std::string* value) {
    const Json* member = Take(key);
    if (member == nullptr) return;
    if (!member->is_string()) return Refuse(key, "a text", *member);
    *value = member->string();
  }
  void Integer(absl::string_view key, int64_t least, int64_t most, int64_t* value) {
    const Json* member = Take(key);
    if (member == nullptr) return;
    if (!member->is_integer() || member->number() < static_cast<double>(least) ||
        member->number() > static_cast<double>(most)) {
      return Refuse(key, absl::StrCat("an integer from ", least, " to ", most), *member);
    }
    *value = member->integer();
  }
  void Price(absl::string_view key, std::optional<double>* value) {
    const Json* member = Take(key);
    if (member == nullptr) return;
    if (!member->is_number() || !(member->number() >= 0)) {
      return Refuse(key, "a number that is not negative", *member);
    }
    *value = member->number();
  }
  void Bool(absl::string_view key, bool* value) {
    const Json* member = Take(key);
    if (member == nullptr) return;
    if (!member->is_boolean()) return Refuse(key, "true or false", *member);
    *value = member->boolean();
  }
  void Marks(absl::string_view key, std::optional<NamedMarks>* value) {
    const Json* member = Take(key);
    if (member == nullptr) return;
    absl::StatusOr<NamedMarks> read = ReadNamedMarks(*member);
    status_.Update(read.status());
    if (read.ok()) *value = *std::move(read);
  }
  const Json* Object(absl::string_view key) {
    const Json* member = Take(key);
    if (member == nullptr || member->is_object()) return member;
    Refuse(key, "an object", *member);
    return nullptr;
  }
  void Refuse(absl::string_view key, absl::string_view wanted, const Json& got) {
    Fail(absl::StrCat(key, " must be ", wanted, ", got ", got.Dump()));
  }
  void Fail(absl::string_view why) { status_.Update(absl::InvalidArgumentError(why)); }
  template <typename T>
  void Update(T* value, absl::StatusOr<T> read) {
    status_.Update(read.status());
    if (read.ok()) *value = *std::move(read);
  }
  absl::Status Finish() {
    for (const auto& [name, value] : json_.members()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
        status_.Update(absl::InvalidArgumentError(
            absl::StrCat("unknown option '", name, "' of a model on the network; there are ",
                         absl::StrJoin(known_, ", "))));
      }
    }
    return status_;
  }

 private:
  const Json* Take(absl::string_view key) {
    known_.push_back(key);
    return json_.Find(key);
  }

  const Json& json_;
  std::vector<absl::string_view> known_;
  absl::Status status_;
};

}  // namespace

absl::string_view DialectName(Dialect dialect) {
  return std::find_if(std::begin(kDialects), std::end(kDialects),
                      [dialect](const auto& known) { return known.second == dialect; })
      ->first;
}

absl::StatusOr<Dialect> ParseDialect(absl::string_view name) {
  for (const auto& [known, dialect] : kDialects) {
    if (known == name) return dialect;
  }
  const std::string names = absl::StrJoin(kDialects, ", ", [](std::string* out, const auto& known) {
    absl::StrAppend(out, known.first);
  });
  return absl::InvalidArgumentError(
      absl::StrCat("dialect must be one of ", names, "; got ", JsonString(name)));
}

absl::Status CheckMaySpeakTo(absl::string_view url) {
  if (!IsAddress(url)) {
    return absl::InvalidArgumentError(
        absl::StrCat("path: '", url, "' is no http:// or https:// address"));
  }
  // First, as a password is in no message.
  const absl::string_view rest = url.substr(url.find("://") + 3);
  if (absl::StrContains(rest.substr(0, rest.find_first_of("/?#")), '@')) {
    return absl::InvalidArgumentError(
        "path: no user or password in an address; key_env names a variable with a key");
  }
  const absl::string_view host = HostOf(url);
  const bool odd =
      std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c == 0x7f; });
  if (odd || host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("path: '", url, "' must be an address as in http://host:8000/v1"));
  }
  return CheckHost(host);
}

bool IsRemotePath(absl::string_view path) { return IsAddress(path) || absl::StartsWith(path, "["); }

absl::StatusOr<std::vector<std::string>> ParseRemotePath(absl::string_view path) {
  std::vector<std::string> urls;
  if (!absl::StartsWith(path, "[")) {
    ASSIGN_OR_RETURN(urls.emplace_back(), ParseAddress(path));
    return urls;
  }
  const std::optional<Json> list = Json::Parse(path);
  if (!list.has_value() || !list->is_array() || list->size() == 0) {
    return absl::InvalidArgumentError("path must be an address, or a JSON array of addresses");
  }
  for (const Json& url : list->array()) {
    if (!url.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("path: an address must be a text, got ", url.Dump()));
    }
    ASSIGN_OR_RETURN(urls.emplace_back(), ParseAddress(url.string()));
  }
  return urls;
}

bool AreOpenAis(const std::vector<std::string>& urls) {
  return std::all_of(urls.begin(), urls.end(), [](const std::string& url) {
    const std::string host = absl::AsciiStrToLower(HostOf(url));
    return host == "api.openai.com" || absl::EndsWith(host, ".openai.azure.com");
  });
}

absl::StatusOr<RemoteOptions> ParseRemoteOptions(absl::string_view text) {
  RemoteOptions options;
  if (text.empty()) return options;
  const std::optional<Json> json = Json::Parse(text);
  if (!json.has_value() || !json->is_object()) {
    return absl::InvalidArgumentError("options must be a JSON object");
  }
  Reader reader(*json);
  std::string dialect = "auto";
  reader.Text("model", &options.model);
  reader.Text("dialect", &dialect);
  reader.Update(&options.dialect, ParseDialect(dialect));
  reader.Text("key_env", &options.key_env);
  if (const Json* headers = reader.Object("headers")) {
    for (const auto& [name, value] : headers->members()) {
      const bool plain = value.is_string() && !name.empty() &&
                         !absl::StrContains(value.string(), '\n') &&
                         !absl::StrContains(value.string(), '\r') &&
                         name.find_first_of(": \r\n") == std::string::npos;
      if (!plain) {
        // Without what it is, or the others are: they may be keys.
        reader.Fail(absl::StrCat("headers must be an object of names and texts of one line, and ",
                                 JsonString(name), " is none"));
        break;
      }
      options.headers.emplace_back(name, value.string());
    }
  }
  if (const Json* extra = reader.Object("extra")) options.extra = *extra;
  reader.Integer("concurrency", 1, 1024, &options.concurrency);
  reader.Integer("rpm", 0, 100'000'000, &options.rpm);
  reader.Integer("tpm", 0, 100'000'000'000, &options.tpm);
  reader.Price("price_in", &options.price_in);
  reader.Price("price_out", &options.price_out);
  reader.Text("tokenizer", &options.tokenizer);
  reader.Text("affinity_header", &options.affinity_header);
  if (options.affinity_header.find_first_of(": \r\n") != std::string::npos) {
    reader.Refuse("affinity_header", "the name of a header", Json(options.affinity_header));
  }
  reader.Integer("timeout_ms", 1, 86'400'000, &options.timeout_ms);
  reader.Integer("retries", 0, 100, &options.retries);
  reader.Integer("context_length", 0, 1 << 30, &options.context_length);
  reader.Marks("thinking_marks", &options.thinking_marks);
  reader.Bool("check", &options.check);
  std::string pooling;
  reader.Text("pooling", &pooling);
  options.ranks = pooling == "rank";
  if (!options.ranks && json->Find("pooling") != nullptr) {
    reader.Refuse("pooling", R"("rank", as the server pools as it was started to)",
                  *json->Find("pooling"));
  }
  RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace lm
