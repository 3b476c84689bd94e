// Options that only one function knows, taken out of its options object before the rest goes to
// ParseGenerationOptions.
//
//   ASSIGN_OR_RETURN(OwnOptions own, OwnOptions::TakeOfCall(json, {"dimensions", "pooling"}));
//   ASSIGN_OR_RETURN(int64_t dimensions, own.Integer("dimensions", 0, 1, 10000));
//   ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
#ifndef LM_EXTENSION_CONNECTION_OWN_OPTIONS_H_
#define LM_EXTENSION_CONNECTION_OWN_OPTIONS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"

namespace lm {

// InvalidArgument where what stands in the place of `what`, a text for the model, is a JSON object
// of nothing but options and settings: they are one argument too early.
absl::Status CheckNotOptions(absl::string_view text, absl::string_view what);

// A value type.
class OwnOptions {
 public:
  // InvalidArgument where one of `keys` is there twice. What is no JSON object is left to whoever
  // reads the rest.
  static absl::StatusOr<OwnOptions> Take(const std::optional<std::string>& json,
                                         std::initializer_list<absl::string_view> keys);

  // The same where the rest are generate()'s options: another key is InvalidArgument, which names
  // the nearest of both.
  static absl::StatusOr<OwnOptions> TakeOfCall(const std::optional<std::string>& json,
                                               std::initializer_list<absl::string_view> keys);

  // The object without those keys; what was given, where it had none of them.
  const std::optional<std::string>& rest() const { return rest_; }

  // InvalidArgument, naming the key, for a value of another type or out of range. null is as good
  // as no value.
  absl::StatusOr<int64_t> Integer(const std::string& key, int64_t otherwise, int64_t least,
                                  int64_t most) const;
  absl::StatusOr<double> Number(const std::string& key, double otherwise, double least,
                                double most) const;
  absl::StatusOr<bool> Bool(const std::string& key, bool otherwise) const;
  absl::StatusOr<std::optional<std::string>> Text(const std::string& key) const;
  // What was given, whatever it is; null where nothing was, or null.
  const Json* Value(const std::string& key) const { return Find(key); }
  // A number that is not negative.
  absl::StatusOr<std::optional<double>> Amount(const std::string& key) const;

  // InvalidArgument, naming it, where there is any other key, or no object. For functions that take
  // none of generate()'s options.
  absl::Status CheckNoOthers() const;

  bool Has(const std::string& key) const { return taken_.Has(key); }

 private:
  // nullptr where the key is not there, or null.
  const Json* Find(const std::string& key) const;

  std::vector<std::string> keys_;
  Json taken_ = Json::MakeObject();
  std::optional<std::string> rest_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_OWN_OPTIONS_H_
