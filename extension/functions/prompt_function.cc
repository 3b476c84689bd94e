// lm_prompt(template, fields [, order])   TEXT: a prompt made of a template and a row's fields
// lm_field_order(fields)                  aggregate: JSON, the order that shares most
//
//   SELECT lm_prompt('{{*}}' || char(10) || 'Is it good value?',
//                    json_object('shop', shop, 'product', product, 'review', body)) FROM reviews;
//     shop: Moth & Son
//     product: A lamp that ...
//     review: Too bright.
//     Is it good value?
//
// {{name}} is a field of the JSON object `fields`, {{*}} all fields that the template does not
// name, a line "name: value" each (engine/text/chat/prompt_form.h). Where rows have fields in
// common, what they begin with alike is computed once: so those that are repeated most are best put
// first. `order`, a JSON array of names, says which come first at {{*}}; without it they come as in
// `fields`. A row's prompt depends on these arguments alone, so its answer never does on other
// rows. Which order shares most is a question to a table, and lm_field_order() answers it:
//
//   SELECT generate(lm_prompt(:t, fields, (SELECT lm_field_order(fields) FROM asked))) FROM asked;
//   SELECT tokens, tokens_shared, tokens_shared_ordered, field_order          -- what it would save
//     FROM lm_explain('SELECT generate(lm_prompt(..., json_object(...))) FROM reviews');
//
// The order of engine/text/chat/field_order.h: the best one that is the same for all rows. The
// order is that of the rows as they are now: to keep prompts, and the answers remembered for them,
// while rows are added, keep the order in a table. A NULL argument gives NULL; lm_field_order
// passes over NULLs, and over no other rows. Both are functions of their arguments, for views,
// triggers and indexes, too.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/text/chat/field_order.h"
#include "engine/text/chat/prompt_form.h"
#include "extension/binding/aggregate_function.h"
#include "extension/binding/scalar_function.h"
#include "extension/functions/functions.h"
#include "extension/host/flat_array.h"

namespace lm {
namespace {

absl::StatusOr<std::vector<std::string>> ReadNames(absl::string_view json) {
  constexpr absl::string_view kName = "a field's name";
  std::vector<std::string> names;
  RETURN_IF_ERROR(
      ReadFlatArray(json, "order", kName, [&](int64_t index, ArrayElement element) -> absl::Status {
        if (element.kind != ArrayElement::Kind::kString) {
          return absl::InvalidArgumentError(
              absl::StrCat("order[", index, "] must be ", kName, ", got ",
                           element.kind == ArrayElement::Kind::kNull ? "null" : element.text));
        }
        names.push_back(std::move(element.text));
        return absl::OkStatus();
      }));
  return names;
}

// For lm_explain: takes note of the fields that have no place of their own, and has them in the
// order that it wants to know about.
void TakePart(FieldCensus* census, const std::string& text, const PromptForm& form,
              const PromptFields& fields, std::vector<std::string>* order) {
  CountedForm& counted = (*census)[text];
  if (counted.order.has_value()) {
    *order = *counted.order;
    return;
  }
  PromptFields others;
  for (const PromptField& field : fields) {
    if (!form.Names(field.name)) others.push_back(field);
  }
  counted.fields.Add(others);
}

absl::Status Prompt(Call& call) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, call.Text(0, "template"));
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(1, "fields"));
  ASSIGN_OR_RETURN(const std::optional<std::string> given, call.Text(2, "order"));
  if (!text.has_value() || !json.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const PromptForm form, PromptForm::Parse(*text));
  ASSIGN_OR_RETURN(const PromptFields fields, ReadPromptFields(*json));
  std::vector<std::string> order;
  if (given.has_value()) {
    ASSIGN_OR_RETURN(order, ReadNames(*given));
  }
  FieldCensus* const census = call.connection().field_census();
  if (census != nullptr && form.has_others()) TakePart(census, *text, form, fields, &order);
  ASSIGN_OR_RETURN(const std::string prompt, form.Fill(fields, order));
  ResultText(call.context(), prompt);
  return absl::OkStatus();
}

class OrderOfFields : public Aggregate {
 public:
  absl::Status Step(Call& row) override {
    ASSIGN_OR_RETURN(const std::optional<std::string> json, row.Text(0, "fields"));
    if (!json.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const PromptFields fields, ReadPromptFields(*json));
    order_.Add(fields);
    return absl::OkStatus();
  }

  absl::Status Final(Call& call) override {
    if (order_.empty()) return absl::OkStatus();  // NULL
    Json names = Json::MakeArray();
    for (std::string& name : order_.Best().names) names.Append(std::move(name));
    ResultJson(call.context(), names.Dump());
    return absl::OkStatus();
  }

 private:
  FieldOrder order_;
};

}  // namespace

int RegisterPrompt(const std::shared_ptr<Connection>& connection) {
  const int code = RegisterScalar<&Prompt>(connection, {"lm_prompt", 2, 3, kPure});
  if (code != SQLITE_OK) return code;
  return RegisterAggregate<OrderOfFields>(connection,
                                          {"lm_field_order", 1, 1, kPure | kReturnsJson});
}

}  // namespace lm
