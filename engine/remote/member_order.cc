#include "engine/remote/member_order.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/schema/schema_values.h"

namespace lm {
namespace {

constexpr size_t kMostParts = 64;   // schemas that speak of one value
constexpr int kDeepest = 32;        // of those that lead from one to the next
constexpr int kMostWork = 1 << 18;  // schemas looked at; then the order stays

class MemberOrder {
 public:
  MemberOrder(const SchemaDocument& document, bool absent_is_null)
      : document_(document), absent_is_null_(absent_is_null) {}

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

  const Property* PropertyOf(const Json& schema, const std::string& name) {
    const Properties* properties = PropertiesOf(schema);
    if (properties == nullptr) return nullptr;
    const auto at = properties->find(name);
    return at != properties->end() ? &at->second : nullptr;
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
      return std::any_of(parts.begin(), parts.end(), [](const Json* part) {
        return part->Has("items") || part->Has("prefixItems");
      });
    }
    for (const std::string& name : RequiredBy(parts)) {
      if (!value.Has(name)) return false;
    }
    return !ListsOf(parts).empty() &&
           std::all_of(value.members().begin(), value.members().end(), [&](const auto& member) {
             return std::any_of(parts.begin(), parts.end(), [&](const Json* part) {
               const Property* property = PropertyOf(*part, member.first);
               return property != nullptr && MaySpeakOf(*property->schema, member.second);
             });
           });
  }

  // Branches are told apart by members whose values they spell out.
  static bool MaySpeakOf(const Json& property, const Json& value) {
    if (value.is_null()) return true;
    const Json* constant = property.Find("const");
    if (constant != nullptr) return SameValue(*constant, value);
    const Parts values = ListAt(property, "enum");
    return values.empty() || std::any_of(values.begin(), values.end(),
                                         [&](const Json* one) { return SameValue(*one, value); });
  }

  std::vector<const Properties*> ListsOf(const Parts& parts) {
    std::vector<const Properties*> lists;
    for (const Json* part : parts) {
      if (const Properties* list = PropertiesOf(*part)) lists.push_back(list);
    }
    return lists;
  }

  static HashSet<std::string> RequiredBy(const Parts& parts) {
    HashSet<std::string> names;
    for (const Json* part : parts) {
      for (const Json* name : ListAt(*part, "required")) {
        if (name->is_string()) names.insert(name->string());
      }
    }
    return names;
  }

  Json OfArray(const Json& value, const Parts& parts) {
    Json array = Json::MakeArray();
    for (size_t i = 0; i < value.size(); ++i) array.Append(Of(value.array()[i], ItemAt(parts, i)));
    return array;
  }

  static Parts ItemAt(const Parts& parts, size_t i) {
    Parts schemas;
    for (const Json* part : parts) {
      const Json* items = part->Find("items");
      const bool are_listed = items != nullptr && items->is_array();
      const Parts first = ListAt(*part, are_listed ? "items" : "prefixItems");
      if (i < first.size()) {
        schemas.push_back(first[i]);
      } else if (items != nullptr && !are_listed) {
        schemas.push_back(items);
      }
    }
    return schemas;
  }

  Json OfObject(const Json& value, const Parts& parts) {
    struct Member {
      std::pair<size_t, size_t> position;  // of its first part, and in that
      const std::string* name;
      Json value;
    };
    std::vector<Member> members;
    auto add = [&](const std::string& name, const Json& member) {
      Parts schemas;
      std::pair<size_t, size_t> position = {parts.size(), 0};
      for (size_t i = 0; i < parts.size(); ++i) {
        if (const Property* property = PropertyOf(*parts[i], name)) {
          schemas.push_back(property->schema);
          position = std::min(position, {i, property->position});
        } else if (const Json* others = parts[i]->Find("additionalProperties")) {
          schemas.push_back(others);
        }
      }
      members.push_back({position, &name, Of(member, schemas)});
    };
    for (const auto& [name, member] : value.members()) add(name, member);
    if (absent_is_null_) {
      HashSet<std::string> there = RequiredBy(parts);
      for (const auto& [name, member] : value.members()) there.insert(name);
      for (const Properties* list : ListsOf(parts)) {
        for (const auto& [name, property] : *list) {
          if (there.insert(name).second) add(name, Json());
        }
      }
    }
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.position < b.position; });
    Json object = Json::MakeObject();
    for (Member& member : members) object.Add(*member.name, std::move(member.value));
    return object;
  }

  const SchemaDocument& document_;
  const bool absent_is_null_;
  HashMap<const Json*, Properties> known_;  // by the value of `properties`
  int work_ = 0;
};

Json InOrder(const Json& value, absl::string_view schema, bool absent_is_null) {
  const absl::StatusOr<std::unique_ptr<SchemaDocument>> document = SchemaDocument::Parse(schema);
  if (!document.ok()) return value;
  return MemberOrder(**document, absent_is_null).Of(value, {&(*document)->root()});
}

}  // namespace

Json InMemberOrder(const Json& value, absl::string_view schema) {
  return InOrder(value, schema, /*absent_is_null=*/false);
}

Json WithNullsInMemberOrder(const Json& value, absl::string_view schema) {
  return InOrder(value, schema, /*absent_is_null=*/true);
}

}  // namespace lm
