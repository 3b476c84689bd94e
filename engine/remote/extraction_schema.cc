#include "engine/remote/extraction_schema.h"

#include <utility>

namespace lm {
namespace {

Json OrNull(const Json& schema) {
  Json null = Json::MakeObject();
  null.Add("type", "null");
  Json either = Json::MakeObject();
  either.Add("anyOf", Json::MakeArray().Append(schema).Append(std::move(null)));
  return either;
}

}  // namespace

Json ExtractionSchema(const Json& schema) {
  const Json* properties = schema.Find("properties");
  if (properties == nullptr || !properties->is_object()) return schema;
  Json nullable = Json::MakeObject(), required = Json::MakeArray();
  for (const auto& [name, value] : properties->members()) {
    nullable.Add(name, OrNull(value));
    required.Append(name);
  }
  Json changed = Json::MakeObject();
  for (const auto& [name, value] : schema.members()) {
    const bool is_changed =
        name == "properties" || name == "required" || name == "additionalProperties";
    if (!is_changed) changed.Add(name, value);
  }
  changed.Add("properties", std::move(nullable));
  changed.Add("required", std::move(required));
  changed.Add("additionalProperties", false);
  return changed;
}

}  // namespace lm
