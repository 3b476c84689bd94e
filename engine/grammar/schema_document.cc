#include "engine/grammar/schema_document.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/grammar.h"

namespace lm {
namespace {

// Looks a text over before it is read into memory.
class LimitCheck : public JsonEvents {
 public:
  const std::string& error() const { return error_; }

  bool Null() override { return true; }
  bool Bool(bool) override { return true; }
  bool Integer(int64_t) override { return true; }
  bool Unsigned(uint64_t) override { return true; }
  bool Real(double, const std::string&) override { return true; }
  bool String(std::string) override { return true; }
  bool BeginArray() override { return Open(); }
  bool EndArray() override { return Close(); }
  bool BeginObject() override { return Open(); }
  bool EndObject() override { return Close(); }

  bool Key(std::string name) override {
    HashSet<std::string>& keys = keys_.back();
    if (!keys.insert(name).second) {
      return Fail(
          absl::StrCat("the key \"", Printable(name.substr(0, 100)), "\" is twice in an object"));
    }
    if (keys.size() > kMaxSchemaMembers) {
      return Fail(
          absl::StrCat("too large: an object with more than ", kMaxSchemaMembers, " members"));
    }
    return true;
  }

  void SyntaxError(size_t, absl::string_view what) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (size_t bracket = what.find("] "); bracket != what.npos) what.remove_prefix(bracket + 2);
    Fail(absl::StrCat("not JSON: ", Printable(what.substr(0, 200))));
  }

 private:
  bool Fail(std::string what) {
    error_ = std::move(what);
    return false;
  }
  bool Open() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxGrammarDepth) return true;
    return Fail(
        absl::StrCat("too deep: objects and arrays within each other, limit ", kMaxGrammarDepth));
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  std::vector<HashSet<std::string>> keys_;  // of the objects that are open
  std::string error_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(absl::string_view text) {
  if (text.size() > kMaxGrammarText) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: too large: ", text.size(), " bytes, limit ", kMaxGrammarText));
  }
  LimitCheck check;
  if (!ReadJson(text, &check)) {
    return absl::InvalidArgumentError(absl::StrCat("schema: ", check.error()));
  }
  std::unique_ptr<SchemaDocument> document(new SchemaDocument);
  std::optional<Json> root = Json::Parse(text);
  if (!root.has_value()) return absl::CancelledError("interrupted");
  document->root_ = *std::move(root);
  std::vector<const SchemaJson*> open = {&document->root_};
  while (!open.empty()) {
    const SchemaJson* value = open.back();
    open.pop_back();
    auto add = [&](const SchemaJson& part, std::string token) {
      document->places_[&part] = {value, std::move(token)};
      open.push_back(&part);
    };
    if (value->is_array()) {
      for (size_t i = 0; i < value->size(); ++i) add(value->array()[i], absl::StrCat(i));
    } else if (value->is_object()) {
      for (const auto& [name, member] : value->members()) {
        add(member, absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}}));
      }
    }
  }
  return document;
}

absl::StatusOr<const SchemaJson*> SchemaDocument::Resolve(const SchemaJson& where,
                                                          absl::string_view ref) const {
  const std::string shown = absl::StrCat("$ref \"", Printable(ref.substr(0, 200)), "\"");
  if (ref.empty() || ref[0] != '#') {
    return Error(where, absl::StrCat(shown, " is outside of this schema: not supported"));
  }
  ref.remove_prefix(1);
  if (ref.empty()) return &root_;
  if (ref[0] != '/') return Error(where, absl::StrCat(shown, " to an anchor is not supported"));
  std::string pointer;
  for (size_t i = 0; i < ref.size(); ++i) {
    const bool is_escape = ref[i] == '%' && i + 2 < ref.size() &&
                           absl::ascii_isxdigit(ref[i + 1]) && absl::ascii_isxdigit(ref[i + 2]);
    if (is_escape) {
      pointer += absl::HexStringToBytes(ref.substr(i + 1, 2));
      i += 2;
    } else {
      pointer.push_back(ref[i]);
    }
  }
  const SchemaJson* target = &root_;
  for (absl::string_view escaped : absl::StrSplit(absl::string_view(pointer).substr(1), '/')) {
    const std::string token = absl::StrReplaceAll(escaped, {{"~1", "/"}, {"~0", "~"}});
    size_t index;
    if (const SchemaJson* member = target->Find(token); member != nullptr) {
      target = member;
    } else if (target->is_array() && absl::SimpleAtoi(token, &index) && index < target->size()) {
      target = &target->array()[index];
    } else {
      return Error(where, absl::StrCat(shown, " leads nowhere"));
    }
  }
  return target;
}

std::string SchemaDocument::PointerOf(const SchemaJson& value) const {
  std::vector<absl::string_view> tokens;
  for (auto at = places_.find(&value); at != places_.end(); at = places_.find(at->second.parent)) {
    tokens.push_back(at->second.token);
  }
  std::string pointer = "#";
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    absl::StrAppend(&pointer, "/", *token);
  }
  return pointer;
}

absl::Status SchemaDocument::Error(const SchemaJson& where, absl::string_view what) const {
  std::string pointer = PointerOf(where);
  if (pointer.size() > 400) pointer = absl::StrCat("...", pointer.substr(pointer.size() - 400));
  return absl::InvalidArgumentError(absl::StrCat("schema: ", what, ", at ", Printable(pointer)));
}

}  // namespace lm
