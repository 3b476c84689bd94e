// Aggregate SQL functions as C++ objects, one for each group of rows.
//
//   class Longest : public Aggregate {
//     absl::Status Step(Call& row) override;    // a row of the group
//     absl::Status Final(Call& call) override;  // sets the result
//   };
//   RegisterAggregate<Longest>(connection, {"longest", 1, 1, kDirectOnly});
#ifndef LM_EXTENSION_BINDING_AGGREGATE_FUNCTION_H_
#define LM_EXTENSION_BINDING_AGGREGATE_FUNCTION_H_

#include <memory>

#include "absl/status/status.h"
#include "extension/binding/scalar_function.h"

namespace lm {

// What has been seen of one group.
class Aggregate {
 public:
  virtual ~Aggregate() = default;

  virtual absl::Status Step(Call& row) = 0;
  // The group's result, from a call without arguments; of one without rows, too: then there was no
  // Step. What sets no result has NULL. Not called after a Step that failed. Where a
  // statement is given up for another reason than an interrupt, SQLite asks for the result
  // nevertheless, and drops it.
  virtual absl::Status Final(Call& call) = 0;
};

using AggregateFactory = std::unique_ptr<Aggregate> (*)();

// It is no window function: SQLite says so itself.
int RegisterAggregate(const std::shared_ptr<Connection>& connection, const ScalarSpec& spec,
                      AggregateFactory factory);

template <typename Kind>
int RegisterAggregate(const std::shared_ptr<Connection>& connection, const ScalarSpec& spec) {
  return RegisterAggregate(connection, spec,
                           []() -> std::unique_ptr<Aggregate> { return std::make_unique<Kind>(); });
}

}  // namespace lm

#endif  // LM_EXTENSION_BINDING_AGGREGATE_FUNCTION_H_
