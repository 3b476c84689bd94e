#include "extension/binding/aggregate_function.h"

#include <new>
#include <utility>

namespace lm {
namespace {

struct AggregateFunction {
  const char* name;
  std::shared_ptr<Connection> connection;
  AggregateFactory factory;
};

struct GroupState {
  std::unique_ptr<Aggregate> aggregate;
  std::shared_ptr<RunningWork> work;  // of the statement; a result is asked for without auxdata
};

// What SQLite keeps for a group, zeroed at first.
struct Group {
  GroupState* state;
  bool failed;
};

AggregateFunction* FunctionOf(sqlite3_context* context) {
  return static_cast<AggregateFunction*>(sqlite3_user_data(context));
}

void Step(sqlite3_context* context, int num_args, sqlite3_value** args) noexcept {
  AggregateFunction* function = FunctionOf(context);
  auto* group = static_cast<Group*>(sqlite3_aggregate_context(context, sizeof(Group)));
  if (group == nullptr) return sqlite3_result_error_nomem(context);
  if (group->failed) return;
  absl::Status status = RunForStatement(
      *function->connection, function->name,
      [context](bool make) { return KeptWork(context, make); },
      [&] {
        if (group->state == nullptr) group->state = new GroupState{function->factory(), nullptr};
        Call call(context, function->connection, num_args, args);
        const absl::Status stepped = group->state->aggregate->Step(call);
        group->state->work = StatementCall::Work();
        return stepped;
      });
  if (status.ok()) return;
  group->failed = true;
  ResultError(context, function->name, status);
}

void Final(sqlite3_context* context) noexcept {
  AggregateFunction* function = FunctionOf(context);
  auto* group = static_cast<Group*>(sqlite3_aggregate_context(context, 0));
  const bool empty = group == nullptr;
  std::unique_ptr<GroupState> state(empty ? nullptr : std::exchange(group->state, nullptr));
  if (!empty && (state == nullptr || group->failed)) return;
  std::shared_ptr<RunningWork> none;
  absl::Status status = RunForStatement(
      *function->connection, function->name,
      [&](bool) { return state != nullptr ? &state->work : &none; },
      [&] {
        if (empty) state.reset(new GroupState{function->factory(), nullptr});
        Call call(context, function->connection, 0, nullptr);
        return state->aggregate->Final(call);
      });
  if (!status.ok()) ResultError(context, function->name, status);
}

}  // namespace

int RegisterAggregate(const std::shared_ptr<Connection>& connection, const ScalarSpec& spec,
                      AggregateFactory factory) {
  for (int num_args = spec.min_args; num_args <= spec.max_args; ++num_args) {
    auto* data = new (std::nothrow) AggregateFunction{spec.name, connection, factory};
    if (data == nullptr) return SQLITE_NOMEM;
    int code = sqlite3_create_function_v2(
        connection->db(), spec.name, num_args, SQLITE_UTF8 | spec.flags, data, nullptr, Step, Final,
        [](void* p) { delete static_cast<AggregateFunction*>(p); });
    if (code != SQLITE_OK) return code;
  }
  return SQLITE_OK;
}

}  // namespace lm
