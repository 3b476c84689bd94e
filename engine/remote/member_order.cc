#include "engine/remote/member_order.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/schema/schema_document.h"

namespace lm {
namespace {

constexpr size_t kMostParts = 64;   // schemas that speak of one value
constexpr int kDeepest = 32;        // of those that lead from one to the next
constexpr int kMostWork = 1 << 18;  // schemas looked at; then the order stays

class MemberOrder {
 public:
  explicit MemberOrder(const SchemaDocument& document) : document_(document) {}

  Json Of(const Json& value, const std::vector<const Json*>& schemas) {
    if (!value.is_structured() || schemas.empty()) return value;
    Parts parts;
    for (const Json* schema : schemas) AddParts(*schema, value, 0, &parts);
    return value.is_array() ? OfArray(value, parts) : OfObject(value, parts);
  }

 private:
  using Parts = std::vector<const Json*>;
  struct Property {
    size_t position;
    const Json* schema;
  };
  using Properties = HashMap<std::string, Property>;

  // Null where it names none. Each list is read once.
  const Properties* PropertiesOf(const Json& schema) {
    const Json* list = schema.Find("properties");
    if (list == nullptr || !list->is_object()) return nullptr;
    const auto known = known_.find(list);
    if (known != known_.end()) return &known->second;
    Properties properties;
    for (const auto& [name, property] : list->members()) {
      properties.try_emplace(name, Property{properties.size(), &property});
    }
    return &known_.emplace(list, std::move(properties)).first->second;
  }

  // What the schema leads to stands before it, and alternatives behind it: the grammar's order.
  void AddParts(const Json& schema, const Json& value, int depth, Parts* parts) {
    const bool seen = std::find(parts->begin(), parts->end(), &schema) != parts->end();
    if (!schema.is_object() || seen || depth > kDeepest || parts->size() >= kMostParts) return;
    if (++work_ > kMostWork) return;
    if (const Json* target = Target(schema)) AddParts(*target, value, depth + 1, parts);
    for (const Json* one : ListAt(schema, "allOf")) AddParts(*one, value, depth + 1, parts);
    parts->push_back(&schema);
    for (const char* keyword : {"anyOf", "oneOf"}) {
      for (const Json* branch : ListAt(schema, keyword)) {
        Parts of_branch;
        AddParts(*branch, value, depth + 1, &of_branch);
        if (!SpeakOf(of_branch, value)) continue;
        parts->insert(parts->end(), of_branch.begin(), of_branch.end());
        break;
      }
    }
  }

  const Json* Target(const Json& schema) const {
    const Json* ref = schema.Find("$ref");
    if (ref == nullptr || !ref->is_string()) return nullptr;
    return document_.Resolve(schema, ref->string()).value_or(nullptr);
  }

  static Parts ListAt(const Json& schema, absl::string_view keyword) {
    Parts list;
    const Json* value = schema.Find(keyword);
    if (value == nullptr || !value->is_array()) return list;
    for (const Json& one : value->array()) list.push_back(&one);
    return list;
  }

  bool SpeakOf(const Parts& parts, const Json& value) {
    if (value.is_array()) {
      return std::any_of(parts.begin(), parts.end(),
                         [](const Json* part) { return part->Has("items"); });
    }
    return std::all_of(value.members().begin(), value.members().end(), [&](const auto& member) {
      return std::any_of(parts.begin(), parts.end(), [&](const Json* part) {
        const Properties* properties = PropertiesOf(*part);
        return properties != nullptr && properties->contains(member.first);
      });
    });
  }

  Json OfArray(const Json& value, const Parts& parts) {
    Parts items;
    for (const Json* part : parts) {
      if (const Json* item = part->Find("items")) items.push_back(item);
    }
    Json array = Json::MakeArray();
    for (const Json& element : value.array()) array.Append(Of(element, items));
    return array;
  }

  Json OfObject(const Json& value, const Parts& parts) {
    struct Member {
      std::pair<size_t, size_t> position;  // of its first part, and in that
      const std::string* name;
      Json value;
    };
    std::vector<Member> members;
    for (const auto& [name, member] : value.members()) {
      Parts schemas;
      std::pair<size_t, size_t> position = {parts.size(), 0};
      for (size_t i = 0; i < parts.size(); ++i) {
        const Properties* properties = PropertiesOf(*parts[i]);
        if (properties == nullptr) continue;
        const auto at = properties->find(name);
        if (at == properties->end()) continue;
        schemas.push_back(at->second.schema);
        position = std::min(position, {i, at->second.position});
      }
      members.push_back({position, &name, Of(member, schemas)});
    }
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.position < b.position; });
    Json object = Json::MakeObject();
    for (Member& member : members) object.Add(*member.name, std::move(member.value));
    return object;
  }

  const SchemaDocument& document_;
  HashMap<const Json*, Properties> known_;  // by the value of `properties`
  int work_ = 0;
};

}  // namespace

Json InMemberOrder(const Json& value, absl::string_view schema) {
  const absl::StatusOr<std::unique_ptr<SchemaDocument>> document = SchemaDocument::Parse(schema);
  if (!document.ok()) return value;
  return MemberOrder(**document).Of(value, {&(*document)->root()});
}

}  // namespace lm
