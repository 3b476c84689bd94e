// What was typed behind the name of a command: options, and what is left.
//
//   ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Parse(command.options, words));
//   const std::string into = arguments.Get("into", "label");
#ifndef LM_EXTENSION_CLI_ARGUMENTS_H_
#define LM_EXTENSION_CLI_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm::cli {

struct Option {
  const char* name;   // without the dashes
  const char* value;  // what its value is called; nullptr: it has none
  const char* help;
};

class Arguments {
 public:
  // "--name value", "--name=value", "--flag"; all behind "--" are no options. InvalidArgument for
  // an option that is not among them, names the nearest one.
  static absl::StatusOr<Arguments> Parse(const std::vector<Option>& options,
                                         const std::vector<std::string>& words);

  bool Has(absl::string_view name) const { return values_.find(name) != values_.end(); }
  std::string Get(absl::string_view name, absl::string_view otherwise = "") const;
  // InvalidArgument where it is missing, or no whole number of at least `least` and at most
  // `most`.
  absl::StatusOr<std::string> Required(absl::string_view name) const;
  absl::StatusOr<int64_t> Integer(absl::string_view name, int64_t otherwise, int64_t least,
                                  int64_t most) const;

  void Set(absl::string_view name, std::string value) {
    values_[std::string(name)] = std::move(value);
  }
  const std::vector<std::string>& rest() const { return rest_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> rest_;
};

// The name among `known` that was probably meant; empty where none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& known);

}  // namespace lm::cli

#endif  // LM_EXTENSION_CLI_ARGUMENTS_H_
