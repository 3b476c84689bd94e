#include "engine/grammar/schema/schema_document.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/schema_keywords.h"

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

// With %41 as A.
std::string Unescaped(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           absl::ascii_isxdigit(text[i + 1]) && absl::ascii_isxdigit(text[i + 2]);
    if (is_escape) {
      result += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

// Where the scheme of a URI ends, with its colon; 0 if there is none.
size_t SchemeLength(absl::string_view uri) {
  const size_t colon = uri.find(':');
  const size_t other = uri.find_first_of("/?#");
  return colon == uri.npos || other < colon ? 0 : colon + 1;
}

// RFC 3986, section 5.2, without a base that has no path.
std::string ResolveUri(absl::string_view base, absl::string_view ref) {
  if (SchemeLength(ref) > 0 || base.empty()) return std::string(ref);
  const size_t scheme = SchemeLength(base);
  if (absl::StartsWith(ref, "//")) return absl::StrCat(base.substr(0, scheme), ref);
  size_t path = scheme;
  if (absl::StartsWith(base.substr(scheme), "//")) {
    path = std::min(base.find('/', scheme + 2), base.size());
  }
  if (absl::StartsWith(ref, "/")) return absl::StrCat(base.substr(0, path), ref);
  const size_t slash = base.substr(0, base.find_first_of("?#")).rfind('/');
  const bool has_slash = slash != base.npos && slash >= path;
  std::string joined = absl::StrCat(base.substr(0, has_slash ? slash + 1 : path),
                                    has_slash || path == scheme ? "" : "/");
  absl::string_view rest = ref;
  while (absl::ConsumePrefix(&rest, "./")) {
  }
  while (absl::ConsumePrefix(&rest, "../") && joined.size() > path + 1) {
    joined.resize(joined.rfind('/', joined.size() - 2) + 1);
  }
  return absl::StrCat(joined, rest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(
    absl::string_view text, const SchemaOptions& options) {
  if (text.size() > kMaxGrammarText) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: too large: ", text.size(), " bytes, limit ", kMaxGrammarText));
  }
  std::unique_ptr<SchemaDocument> document(new SchemaDocument);
  int depth = 0;
  std::optional<Json> root = Json::Parse(text, &depth);
  bool is_within = root.has_value() && depth <= kMaxGrammarDepth;
  if (is_within) {
    document->root_ = *std::move(root);
    document->options_ = options;
    is_within = document->FindPlaces();
  }
  RETURN_IF_ERROR(Checkpoint());
  if (!is_within) {
    LimitCheck check;
    if (ReadJson(text, &check)) return absl::CancelledError("interrupted");
    return absl::InvalidArgumentError(absl::StrCat("schema: ", check.error()));
  }
  document->FindIds();
  return document;
}

bool SchemaDocument::FindPlaces() {
  std::vector<const SchemaJson*> open = {&root_};
  std::vector<absl::string_view> names;
  while (!open.empty()) {
    const SchemaJson* value = open.back();
    open.pop_back();
    auto add = [&](const SchemaJson& part, size_t number) {
      places_[&part] = {value, number};
      if (part.size() > 0) open.push_back(&part);
    };
    if (value->is_array()) {
      for (size_t i = 0; i < value->size(); ++i) add(value->array()[i], i);
    } else if (value->is_object()) {
      if (value->size() > kMaxSchemaMembers) return false;
      names.clear();
      for (size_t i = 0; i < value->size(); ++i) {
        names.push_back(value->members()[i].first);
        add(value->members()[i].second, i);
      }
      std::sort(names.begin(), names.end());
      if (std::adjacent_find(names.begin(), names.end()) != names.end()) return false;
    }
  }
  return true;
}

void SchemaDocument::FindIds() {
  const SchemaJson* draft = root_.Find("$schema");
  if (draft != nullptr && draft->is_string()) {
    for (absl::string_view old : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"}) {
      ref_stands_alone_ = ref_stands_alone_ || absl::StrContains(draft->string(), old);
    }
  }
  bases_[&root_] = "";
  // Outer schemas come before inner ones. Under keywords that nobody knows (OpenAPI's `components`)
  // there may be more, to which a $ref leads: they come last.
  std::vector<const SchemaJson*> unknown;
  auto visit = [&](const SchemaJson& schema) {
    if (!schema.is_object()) return;
    for (const auto& [name, value] : schema.members()) {
      if (value.is_structured() && FindKeyword(name) == nullptr) unknown.push_back(&value);
    }
    if (RefStandsAlone(schema)) return;
    for (absl::string_view name : {"unevaluatedProperties", "unevaluatedItems"}) {
      const SchemaJson* asked = schema.Find(name);
      const bool is_true = asked != nullptr && asked->is_boolean() && asked->boolean();
      has_unevaluated_ = has_unevaluated_ || (asked != nullptr && !is_true);
    }
    constexpr size_t kFewValues = 8;
    const SchemaJson* values = schema.Find("enum");
    if (values != nullptr && values->is_array() && values->size() > kFewValues) {
      ValueSet& set = enums_[values];
      for (const SchemaJson& value : values->array()) set.insert(&value);
    }
    for (absl::string_view name : {"$id", "id"}) {
      const SchemaJson* id = schema.Find(name);
      if (id == nullptr || !id->is_string() || id->string().empty()) continue;
      if (id->string()[0] == '#') {  // drafts 4 to 7: an anchor
        targets_.try_emplace(absl::StrCat(bases_[BaseOf(schema)], id->string()), &schema);
        continue;
      }
      std::string base = ResolveUri(bases_[BaseOf(schema)], id->string());
      if (size_t fragment = base.find('#'); fragment != base.npos) base.resize(fragment);
      targets_.try_emplace(base, &schema);
      bases_[&schema] = std::move(base);
    }
    for (absl::string_view name : {"$anchor", "$dynamicAnchor"}) {
      const SchemaJson* anchor = schema.Find(name);
      if (anchor == nullptr || !anchor->is_string()) continue;
      targets_.try_emplace(absl::StrCat(bases_[BaseOf(schema)], "#", anchor->string()), &schema);
    }
  };
  ForEachSchema(root_, visit);
  for (size_t i = 0; i < unknown.size(); ++i) {
    const SchemaJson& value = *unknown[i];
    if (value.is_object()) {
      ForEachSchema(value, visit);
      continue;
    }
    for (const SchemaJson& element : value.array()) {
      if (element.is_structured()) unknown.push_back(&element);
    }
  }
}

const ValueSet* SchemaDocument::EnumOf(const SchemaJson& argument) const {
  const auto at = enums_.find(&argument);
  return at == enums_.end() ? nullptr : &at->second;
}

const SchemaJson* SchemaDocument::BaseOf(const SchemaJson& where) const {
  const SchemaJson* at = &where;
  while (!bases_.contains(at)) at = places_.find(at)->second.parent;
  return at;
}

const SchemaJson* SchemaDocument::Follow(const SchemaJson& from, absl::string_view pointer) const {
  const SchemaJson* target = &from;
  for (absl::string_view escaped : absl::StrSplit(pointer, '/')) {
    const std::string token = absl::StrReplaceAll(escaped, {{"~1", "/"}, {"~0", "~"}});
    size_t index;
    if (const SchemaJson* member = target->Find(token); member != nullptr) {
      target = member;
    } else if (target->is_array() && absl::SimpleAtoi(token, &index) && index < target->size()) {
      target = &target->array()[index];
    } else {
      return nullptr;
    }
  }
  return target;
}

absl::StatusOr<const SchemaJson*> SchemaDocument::Resolve(const SchemaJson& where,
                                                          absl::string_view ref) const {
  const std::string shown = absl::StrCat("$ref \"", Printable(ref.substr(0, 200)), "\"");
  const size_t hash = std::min(ref.find('#'), ref.size());
  const std::string fragment = Unescaped(ref.substr(std::min(hash + 1, ref.size())));
  const SchemaJson* base = BaseOf(where);
  if (hash > 0) {
    const std::string uri = ResolveUri(bases_.find(base)->second, ref.substr(0, hash));
    const auto at = targets_.find(uri);
    if (at == targets_.end()) {
      return Error(where, absl::StrCat(shown, " is outside of this schema: not supported"));
    }
    base = at->second;
  }
  if (fragment.empty()) return base;
  if (fragment[0] == '/') {
    const SchemaJson* target = Follow(*base, absl::string_view(fragment).substr(1));
    if (target == nullptr) return Error(where, absl::StrCat(shown, " leads nowhere"));
    return target;
  }
  const auto at = targets_.find(absl::StrCat(bases_.find(base)->second, "#", fragment));
  if (at == targets_.end()) return Error(where, absl::StrCat(shown, " leads to no anchor here"));
  return at->second;
}

absl::StatusOr<const SchemaJson*> SchemaDocument::ResolveBy(absl::string_view keyword,
                                                            const SchemaJson& where,
                                                            absl::string_view ref) const {
  ASSIGN_OR_RETURN(const SchemaJson* target, Resolve(where, ref));
  if (keyword == "$ref" || !target->is_object()) return target;
  const char* name = keyword == "$dynamicRef" ? "$dynamicAnchor" : "$recursiveAnchor";
  const SchemaJson* anchor = target->Find(name);
  if (anchor == nullptr) return target;
  // Of all that stands in the document, whether it is a schema or not.
  auto has_anchor = [&](const SchemaJson& value) {
    const SchemaJson* other = value.is_object() ? value.Find(name) : nullptr;
    return other != nullptr && *other == *anchor;
  };
  auto count = static_cast<int64_t>(has_anchor(root_));
  for (const auto& [value, place] : places_) count += value != &root_ && has_anchor(*value);
  if (count <= 1) return target;
  return Error(where, absl::StrCat(keyword, " \"", Printable(ref.substr(0, 200)), "\" where ",
                                   count, " schemas have that ", name, " is not supported"));
}

std::string SchemaDocument::PointerOf(const SchemaJson& value) const {
  std::vector<std::string> tokens;
  for (auto at = places_.find(&value); at != places_.end(); at = places_.find(at->second.parent)) {
    const Place& place = at->second;
    tokens.push_back(place.parent->is_array()
                         ? absl::StrCat(place.number)
                         : absl::StrReplaceAll(place.parent->members()[place.number].first,
                                               {{"~", "~0"}, {"/", "~1"}}));
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
