#include "engine/text/template/template_renderer.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/template_functions.h"
#include "engine/text/template/template_operators.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Result = absl::StatusOr<TemplateValue>;

// Values and bytes that the template is given.
void CountInput(const Value& value, int64_t* values, int64_t* bytes) {
  ++*values;
  if (value.Is(Kind::kString)) *bytes += static_cast<int64_t>(value.text().size());
  if (value.is_sequence()) {
    for (const Value& element : value.list()) CountInput(element, values, bytes);
  }
  if (!value.Is(Kind::kDict)) return;
  for (const auto& [key, element] : value.entries()) {
    CountInput(key, values, bytes);
    CountInput(element, values, bytes);
  }
}

TemplateBudget BudgetFor(const TemplateInput& input) {
  int64_t values = 0;
  int64_t bytes = 0;
  for (const auto& [name, value] : input.variables) CountInput(value, &values, &bytes);
  return TemplateBudget(values, bytes);
}

// The variables of a block, a round of a loop or a call; those outside are looked up behind them.
struct Frame {
  Frame* outer = nullptr;
  bool captured = false;  // by a macro, which may be called later
  std::vector<std::pair<int32_t, Value>, CountedAllocator<std::pair<int32_t, Value>>> variables;
};

struct Loop {
  Value::List items;
  size_t round = 0;
  bool active = false;
};

struct Macro {
  const Statement* statement;
  Frame* frame;
};

class Renderer {
 public:
  Renderer(const TemplateTree& tree, const TemplateInput& input)
      : tree_(tree), input_(input), budget_(BudgetFor(input)) {}

  absl::StatusOr<TemplateText> Run() {
    PushFrame(nullptr);
    for (int64_t i = 0; i < kNumTemplateFunctions; ++i) {
      RETURN_IF_ERROR(Define(TemplateFunctionName(i), Value::Of(Kind::kFunction, i)));
    }
    for (const auto& [name, value] : input_.variables) {
      if (value.depth() > Value::kMaxDepth) return TemplateError("the input is nested too deep");
      RETURN_IF_ERROR(Define(name, value));
    }
    TemplateText output;
    out_ = &output;
    RETURN_IF_ERROR(Run(tree_.body));
    return output;
  }

 private:
  enum class Flow { kOn, kBreak, kContinue };

  // ---- variables ----

  Frame* PushFrame(Frame* outer) {
    if (free_frames_.empty()) {
      frame_ = &frames_.emplace_back();
    } else {
      frame_ = free_frames_.back();
      free_frames_.pop_back();
    }
    frame_->outer = outer;
    return frame_;
  }

  // Goes back to `outer`.
  void PopFrame(Frame* outer) {
    if (!frame_->captured) {
      frame_->variables.clear();
      free_frames_.push_back(frame_);
    }
    frame_ = outer;
  }

  absl::Status Define(const std::string& name, const Value& value) {
    // Names that the template does not have need no place.
    auto it = tree_.name_ids.find(name);
    return it == tree_.name_ids.end() ? absl::OkStatus() : Set(it->second, value);
  }

  // A step is this many variables that are looked at: templates have few.
  static constexpr size_t kVariablesPerStep = 16;

  absl::Status Set(int32_t name, Value value) {
    RETURN_IF_ERROR(budget_.Steps(frame_->variables.size() / kVariablesPerStep));
    for (auto& [id, old] : frame_->variables) {
      if (id != name) continue;
      old = std::move(value);
      return absl::OkStatus();
    }
    frame_->variables.emplace_back(name, std::move(value));
    return absl::OkStatus();
  }

  // The variable, or nullptr.
  absl::StatusOr<const Value*> Find(int32_t name) {
    for (const Frame* frame = frame_; frame != nullptr; frame = frame->outer) {
      RETURN_IF_ERROR(budget_.Steps(frame->variables.size() / kVariablesPerStep));
      for (const auto& [id, value] : frame->variables) {
        if (id == name) return &value;
      }
    }
    return nullptr;
  }

  // An undefined value knows its name, for messages.
  static constexpr int64_t kMember = int64_t{1} << 32;
  static Value Missing(int32_t name) { return Value::Of(Kind::kUndefined, name + 1); }
  static Value MissingMember(int32_t name) {
    return Value::Of(Kind::kUndefined, name < 0 ? kMember : kMember + name + 1);
  }
  absl::Status UndefinedError(const Value& value) const {
    const int64_t name = (value.integer() & (kMember - 1)) - 1;
    if (name < 0) return TemplateError("a value that is not there is used");
    const std::string quoted = QuoteName(tree_.names[name]);
    return TemplateError(value.integer() >= kMember ? absl::StrCat("there is no member ", quoted)
                                                    : absl::StrCat(quoted, " is undefined"));
  }

  absl::StatusOr<Value> Checked(Value value) const {
    if (value.depth() > Value::kMaxDepth) {
      return TemplateError(
          absl::StrCat("a value nested too deep: more than ", Value::kMaxDepth, " levels"));
    }
    return value;
  }

  // ---- statements ----

  absl::Status Run(const TemplateBlock& block) {
    RETURN_IF_ERROR(budget_.CheckStack());
    for (const auto& statement : block) {
      absl::Status status = Run(*statement);
      if (!status.ok()) return At(statement->line, std::move(status));
      if (flow_ != Flow::kOn) break;
    }
    return absl::OkStatus();
  }

  // The innermost line is the one that is named.
  static absl::Status At(int line, absl::Status status) {
    if (status.code() != absl::StatusCode::kInvalidArgument ||
        absl::StartsWith(status.message(), "line ")) {
      return status;
    }
    return TemplateError(absl::StrCat("line ", line, ": ", status.message()));
  }

  absl::Status Run(const Statement& statement) {
    RETURN_IF_ERROR(budget_.Steps(1));
    switch (statement.kind) {
      case Statement::Kind::kText:
        return AppendString(statement.text, &budget_, out_);
      case Statement::Kind::kOutput:
        return RunOutput(statement);
      case Statement::Kind::kIf:
        return RunIf(statement);
      case Statement::Kind::kFor:
        return RunFor(statement);
      case Statement::Kind::kSet:
        return RunSet(statement);
      case Statement::Kind::kSetBlock:
      case Statement::Kind::kFilter:
        return RunCapture(statement);
      case Statement::Kind::kMacro:
        for (Frame* frame = frame_; frame != nullptr; frame = frame->outer) frame->captured = true;
        macros_.push_back({&statement, frame_});
        return Set(statement.targets[0].name, Value::Of(Kind::kMacro, macros_.size() - 1));
      case Statement::Kind::kScope:
        return RunScope(statement);
      case Statement::Kind::kBreak:
        flow_ = Flow::kBreak;
        return absl::OkStatus();
      case Statement::Kind::kContinue:
        flow_ = Flow::kContinue;
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status RunOutput(const Statement& statement) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expressions[0]));
    return AppendString(value, &budget_, out_);
  }

  absl::Status RunIf(const Statement& statement) {
    for (size_t i = 0; i < statement.blocks.size(); ++i) {
      if (i < statement.expressions.size()) {
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.expressions[i]));
        if (!condition.Truth()) continue;
      }
      return Run(statement.blocks[i]);
    }
    return absl::OkStatus();
  }

  absl::Status RunScope(const Statement& statement) {
    Frame* const outer = frame_;
    PushFrame(outer);
    RETURN_IF_ERROR(Run(statement.blocks[0]));
    PopFrame(outer);
    return absl::OkStatus();
  }

  // A set block or a filter block.
  absl::Status RunCapture(const Statement& statement) {
    TemplateText text;
    TemplateText* const outer = std::exchange(out_, &text);
    RETURN_IF_ERROR(RunScope(statement));
    out_ = outer;
    Value value = Value::String(std::move(text));
    if (statement.expressions[0] != nullptr) {
      ASSIGN_OR_RETURN(value, Filter(*statement.expressions[0], &value));
    }
    if (statement.kind == Statement::Kind::kFilter) return AppendString(value, &budget_, out_);
    return Assign(statement, std::move(value));
  }

  absl::Status RunSet(const Statement& statement) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expressions[0]));
    return Assign(statement, std::move(value));
  }

  absl::Status Assign(const Statement& statement, Value value) {
    if (!statement.is_tuple) return Assign(statement.targets[0], std::move(value));
    ASSIGN_OR_RETURN(Value::List list, Elements(value, &budget_));
    if (list.size() != statement.targets.size()) {
      return TemplateError(
          absl::StrCat(list.size(), " values for ", statement.targets.size(), " names"));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      RETURN_IF_ERROR(Assign(statement.targets[i], std::move(list[i])));
    }
    return absl::OkStatus();
  }

  absl::Status Assign(const TemplateTarget& target, Value value) {
    if (target.member < 0) return Set(target.name, std::move(value));
    ASSIGN_OR_RETURN(const Value* holder, Find(target.name));
    if (holder == nullptr || !holder->Is(Kind::kNamespace)) {
      return TemplateError("cannot assign attribute on non-namespace object");
    }
    return SetMember(tree_.names[target.member], std::move(value), &namespaces_[holder->integer()]);
  }

  using NamedValue = std::pair<TemplateText, Value>;
  using Namespace = std::vector<NamedValue, CountedAllocator<NamedValue>>;
  absl::Status SetMember(absl::string_view name, Value value, Namespace* members) {
    ASSIGN_OR_RETURN(Value * old, FindMember(name, members));
    if (old != nullptr) {
      *old = std::move(value);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(budget_.Bytes(name.size()));
    members->emplace_back(TemplateText(name, TextKind::kMarkup), std::move(value));
    return absl::OkStatus();
  }

  // The member, or nullptr. What is compared is paid for, as in TemplateValue::Find.
  absl::StatusOr<Value*> FindMember(absl::string_view name, Namespace* members) {
    for (auto& [member, value] : *members) {
      RETURN_IF_ERROR(budget_.Steps(1));
      if (member.size() != name.size()) continue;
      RETURN_IF_ERROR(budget_.Bytes(name.size()));
      if (member.bytes() == name) return &value;
    }
    return nullptr;
  }

  absl::Status RunFor(const Statement& statement) {
    ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.expressions[0]));
    ASSIGN_OR_RETURN(Value::List items, Elements(iterable, &budget_));
    Frame* const outer = frame_;
    if (statement.expressions[1] != nullptr) {
      Value::List chosen;
      for (Value& item : items) {
        PushFrame(outer);
        RETURN_IF_ERROR(Assign(statement, item));
        ASSIGN_OR_RETURN(const Value wanted, Evaluate(*statement.expressions[1]));
        PopFrame(outer);
        if (wanted.Truth()) chosen.push_back(std::move(item));
      }
      items = std::move(chosen);
    }
    if (items.empty())
      return statement.blocks.size() > 1 ? Run(statement.blocks[1]) : absl::OkStatus();

    const size_t level = loop_level_++;
    if (level == loops_.size()) loops_.emplace_back();
    Loop& loop = loops_[level];
    loop = {std::move(items), 0, true};
    const int32_t name = LoopName();
    for (; loop.round < loop.items.size() && flow_ != Flow::kBreak; ++loop.round) {
      RETURN_IF_ERROR(budget_.Steps(1));
      flow_ = Flow::kOn;
      PushFrame(outer);
      RETURN_IF_ERROR(Assign(statement, loop.items[loop.round]));
      if (name >= 0) RETURN_IF_ERROR(Set(name, Value::Of(Kind::kLoop, level)));
      RETURN_IF_ERROR(Run(statement.blocks[0]));
      PopFrame(outer);
    }
    flow_ = Flow::kOn;
    loop.active = false;
    loop.items.clear();
    --loop_level_;
    return absl::OkStatus();
  }

  // The name `loop`, or -1 where the template does not have it.
  int32_t LoopName() const {
    auto it = tree_.name_ids.find("loop");
    return it == tree_.name_ids.end() ? -1 : it->second;
  }

  // ---- expressions ----

  Result Evaluate(const Expression& expression) {
    RETURN_IF_ERROR(budget_.Steps(1));
    if (expression.kind == Expression::Kind::kConstant) return expression.constant;
    if (expression.kind == Expression::Kind::kName) {
      ASSIGN_OR_RETURN(const Value* value, Find(expression.name));
      return value != nullptr ? *value : Missing(expression.name);
    }
    RETURN_IF_ERROR(budget_.CheckStack());
    return EvaluateOperation(expression);
  }

  Result EvaluateOperation(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::kList:
      case Expression::Kind::kTuple:
        return ListOf(expression);
      case Expression::Kind::kDict:
        return DictOf(expression);
      case Expression::Kind::kAttribute:
        return AttributeOf(expression);
      case Expression::Kind::kSubscript:
        return SubscriptOf(expression);
      case Expression::Kind::kSlice:
        return SliceOf(expression);
      case Expression::Kind::kCall:
        return Call(expression);
      case Expression::Kind::kFilter:
        return Filter(expression, nullptr);
      case Expression::Kind::kTest:
        return Test(expression);
      case Expression::Kind::kNot:
      case Expression::Kind::kNegative:
      case Expression::Kind::kPositive:
        return Unary(expression);
      case Expression::Kind::kArithmetic:
        return Arithmetic(expression);
      case Expression::Kind::kConcatenate:
        return Concatenate(expression);
      case Expression::Kind::kCompare:
        return Compare(expression);
      case Expression::Kind::kAnd:
      case Expression::Kind::kOr:
        return AndOr(expression);
      case Expression::Kind::kConditional:
        return Conditional(expression);
      case Expression::Kind::kConstant:
      case Expression::Kind::kName:
        break;
    }
    return absl::InternalError("an expression of no kind");
  }

  Result ListOf(const Expression& expression) {
    Value::List list;
    list.reserve(expression.operands.size());
    for (const auto& operand : expression.operands) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*operand));
      list.push_back(std::move(value));
    }
    const bool tuple = expression.kind == Expression::Kind::kTuple;
    return Checked(Value::Sequence(tuple ? Kind::kTuple : Kind::kList, std::move(list)));
  }

  Result DictOf(const Expression& expression) {
    Value::Entries entries;
    for (size_t i = 0; i < expression.operands.size(); i += 2) {
      ASSIGN_OR_RETURN(Value key, Evaluate(*expression.operands[i]));
      ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[i + 1]));
      RETURN_IF_ERROR(SetEntry(std::move(key), std::move(value), &budget_, &entries));
    }
    return Checked(Value::Dict(std::move(entries)));
  }

  Result AttributeOf(const Expression& expression) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[0]));
    if (expression.method != nullptr && expression.method->Of(value) != nullptr) {
      return Value::Method(expression.method, std::move(value));
    }
    return Member(value, tree_.names[expression.name], expression.name);
  }

  // What is not a method: `id` is the name's in the tree, or -1.
  Result Member(const Value& value, absl::string_view name, int32_t id) {
    switch (value.kind()) {
      case Kind::kUndefined:
        return UndefinedError(value);
      case Kind::kDict: {
        ASSIGN_OR_RETURN(const Value* found, value.Find(name, &budget_));
        return found != nullptr ? *found : MissingMember(id);
      }
      case Kind::kNamespace: {
        ASSIGN_OR_RETURN(const Value* found, FindMember(name, &namespaces_[value.integer()]));
        return found != nullptr ? *found : MissingMember(id);
      }
      case Kind::kLoop:
        return LoopMember(loops_[value.integer()], name, id);
      default:
        return MissingMember(id);
    }
  }

  static Result LoopMember(const Loop& loop, absl::string_view name, int32_t id) {
    if (!loop.active) return TemplateError("a loop that is over");
    const int64_t round = static_cast<int64_t>(loop.round);
    const int64_t length = static_cast<int64_t>(loop.items.size());
    if (name == "index") return Value::Integer(round + 1);
    if (name == "index0") return Value::Integer(round);
    if (name == "revindex") return Value::Integer(length - round);
    if (name == "revindex0") return Value::Integer(length - round - 1);
    if (name == "first") return Value::Bool(round == 0);
    if (name == "last") return Value::Bool(round + 1 == length);
    if (name == "length") return Value::Integer(length);
    if (name == "depth") return Value::Integer(1);
    if (name == "depth0") return Value::Integer(0);
    if (name == "previtem") return round > 0 ? loop.items[round - 1] : MissingMember(id);
    if (name == "nextitem") return round + 1 < length ? loop.items[round + 1] : MissingMember(id);
    if (name == "cycle" || name == "changed") {
      return TemplateError(absl::StrCat("loop.", name, " is not supported"));
    }
    return MissingMember(id);
  }

  Result SubscriptOf(const Expression& expression) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[0]));
    ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[1]));
    if (value.Is(Kind::kUndefined)) return UndefinedError(value);
    if (value.Is(Kind::kDict) && IsHashable(key)) {
      ASSIGN_OR_RETURN(const Value* found, value.Find(key, &budget_));
      if (found != nullptr) return *found;
    }
    const bool indexed = value.Is(Kind::kList) || value.Is(Kind::kTuple) || value.Is(Kind::kString);
    if (indexed && key.is_integer()) return ElementAt(value, key.integer(), &budget_);
    if (!key.Is(Kind::kString)) return MissingMember(-1);
    // Behind members come attributes, the other way round than with a dot.
    const absl::string_view name = key.text().bytes();
    RETURN_IF_ERROR(budget_.Bytes(name.size()));
    const TemplateMethod* method = FindTemplateMethod(name);
    if (method != nullptr && method->Of(value) != nullptr) {
      return Value::Method(method, std::move(value));
    }
    auto it = tree_.name_ids.find(name);
    const int32_t id = it == tree_.name_ids.end() ? -1 : it->second;
    return value.Is(Kind::kDict) ? MissingMember(id) : Member(value, name, id);
  }

  Result SliceOf(const Expression& expression) {
    Value parts[4];
    for (size_t i = 0; i < 4; ++i) {
      if (expression.operands[i] == nullptr) continue;
      ASSIGN_OR_RETURN(parts[i], Evaluate(*expression.operands[i]));
      if (parts[i].Is(Kind::kUndefined)) return UndefinedError(parts[i]);
    }
    return Slice(parts[0], parts[1], parts[2], parts[3], &budget_);
  }

  // The arguments of a call, a filter or a test: all operands but the first.
  absl::StatusOr<TemplateArguments> ArgumentsOf(const Expression& expression) {
    TemplateArguments arguments;
    const size_t by_place = expression.operands.size() - expression.keywords.size();
    for (size_t i = 1; i < expression.operands.size(); ++i) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[i]));
      if (i < by_place) {
        arguments.values.push_back(std::move(value));
      } else {
        arguments.keywords.emplace_back(expression.keywords[i - by_place], std::move(value));
      }
    }
    return arguments;
  }

  Result Filter(const Expression& expression, const Value* input) {
    Value value;
    const Expression* operand = expression.operands[0].get();
    if (operand == nullptr) {  // the first of a block's filters
      if (input != nullptr) value = *input;
    } else if (input != nullptr) {
      ASSIGN_OR_RETURN(value, Filter(*operand, input));
    } else {
      ASSIGN_OR_RETURN(value, Evaluate(*operand));
    }
    if (expression.filter == nullptr) {
      return TemplateError(
          absl::StrCat("No filter named ", QuoteName(tree_.names[expression.name])));
    }
    ASSIGN_OR_RETURN(const TemplateArguments arguments, ArgumentsOf(expression));
    ASSIGN_OR_RETURN(Value result, expression.filter(value, arguments, &budget_));
    return Checked(std::move(result));
  }

  Result Test(const Expression& expression) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
    if (expression.test == nullptr) {
      return TemplateError(absl::StrCat("No test named ", QuoteName(tree_.names[expression.name])));
    }
    ASSIGN_OR_RETURN(const TemplateArguments arguments, ArgumentsOf(expression));
    ASSIGN_OR_RETURN(const bool holds, expression.test(value, arguments, &budget_));
    return Value::Bool(holds != expression.negated);
  }

  Result Unary(const Expression& expression) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
    if (expression.kind == Expression::Kind::kNot) return Value::Bool(!value.Truth());
    if (value.Is(Kind::kUndefined)) return UndefinedError(value);
    if (!value.is_number())
      return TemplateError(absl::StrCat("a sign before a '", value.TypeName(), "'"));
    const int sign = expression.kind == Expression::Kind::kNegative ? -1 : 1;
    return Calculate(Expression::Operator::kMultiply, value, Value::Integer(sign), &budget_);
  }

  Result Arithmetic(const Expression& expression) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[0]));
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[i + 1]));
      const bool formats =
          value.Is(Kind::kString) && expression.operators[i] == Expression::Operator::kModulo;
      if (value.Is(Kind::kUndefined)) return UndefinedError(value);
      if (right.Is(Kind::kUndefined) && !formats) return UndefinedError(right);
      ASSIGN_OR_RETURN(value, Calculate(expression.operators[i], value, right, &budget_));
    }
    return Checked(std::move(value));
  }

  Result Concatenate(const Expression& expression) {
    TemplateText text;
    for (const auto& operand : expression.operands) {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*operand));
      RETURN_IF_ERROR(AppendString(value, &budget_, &text));
    }
    return Value::String(std::move(text));
  }

  Result Compare(const Expression& expression) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1]));
      ASSIGN_OR_RETURN(const bool holds, Holds(expression.operators[i], left, right, &budget_));
      if (!holds) return Value::Bool(false);
      left = std::move(right);
    }
    return Value::Bool(true);
  }

  Result AndOr(const Expression& expression) {
    const bool stop = expression.kind == Expression::Kind::kOr;
    Value value;
    for (const auto& operand : expression.operands) {
      ASSIGN_OR_RETURN(value, Evaluate(*operand));
      if (value.Truth() == stop) break;
    }
    return value;
  }

  Result Conditional(const Expression& expression) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.operands[0]));
    const auto& chosen = expression.operands[condition.Truth() ? 1 : 2];
    if (chosen == nullptr) return MissingMember(-1);
    return Evaluate(*chosen);
  }

  // ---- calls ----

  Result Call(const Expression& expression) {
    const Expression& callee = *expression.operands[0];
    Value value;
    if (callee.kind == Expression::Kind::kAttribute && callee.method != nullptr) {
      // A method is called as it is found, without becoming a value.
      ASSIGN_OR_RETURN(const Value receiver, Evaluate(*callee.operands[0]));
      if (TemplateFilter* method = callee.method->Of(receiver); method != nullptr) {
        return CallMethod(method, receiver, expression);
      }
      ASSIGN_OR_RETURN(value, Member(receiver, tree_.names[callee.name], callee.name));
    } else {
      ASSIGN_OR_RETURN(value, Evaluate(callee));
    }
    switch (value.kind()) {
      case Kind::kUndefined:
        return UndefinedError(value);
      case Kind::kMethod:
        return CallMethod(value.method()->Of(value.receiver()), value.receiver(), expression);
      case Kind::kMacro:
        return CallMacro(macros_[value.integer()], expression);
      case Kind::kFunction:
        return CallFunction(value.integer(), expression);
      default:
        return TemplateError(absl::StrCat("'", value.TypeName(), "' object is not callable"));
    }
  }

  Result CallMethod(TemplateFilter* method, const Value& receiver, const Expression& expression) {
    ASSIGN_OR_RETURN(const TemplateArguments arguments, ArgumentsOf(expression));
    ASSIGN_OR_RETURN(Value result, method(receiver, arguments, &budget_));
    return Checked(std::move(result));
  }

  Result CallMacro(const Macro& macro, const Expression& expression) {
    ASSIGN_OR_RETURN(TemplateArguments arguments, ArgumentsOf(expression));
    const Statement& statement = *macro.statement;
    const size_t count = statement.parameters.size();
    if (arguments.values.size() > count) {
      return TemplateError(absl::StrCat("a macro takes not more than ", count, " arguments"));
    }
    Frame* const outer = frame_;
    TemplateText text;
    TemplateText* const outer_text = std::exchange(out_, &text);
    PushFrame(macro.frame);
    for (size_t i = 0; i < arguments.values.size(); ++i) {
      RETURN_IF_ERROR(Set(statement.parameters[i], std::move(arguments.values[i])));
    }
    std::vector<bool> given(count);
    for (auto& [keyword, value] : arguments.keywords) {
      RETURN_IF_ERROR(budget_.Steps(count));
      size_t place = arguments.values.size();
      while (place < count && tree_.names[statement.parameters[place]] != keyword) ++place;
      if (place == count || given[place]) {
        return TemplateError(
            absl::StrCat("a macro has no use for an argument ", QuoteName(keyword)));
      }
      given[place] = true;
      RETURN_IF_ERROR(Set(statement.parameters[place], std::move(value)));
    }
    for (size_t i = arguments.values.size(); i < count; ++i) {
      if (given[i]) continue;
      Value value = Missing(statement.parameters[i]);
      if (statement.expressions[i] != nullptr) {
        ASSIGN_OR_RETURN(value, Evaluate(*statement.expressions[i]));
      }
      RETURN_IF_ERROR(Set(statement.parameters[i], std::move(value)));
    }
    RETURN_IF_ERROR(Run(statement.blocks[0]));
    PopFrame(outer);
    out_ = outer_text;
    return Value::String(std::move(text));
  }

  Result CallFunction(int64_t function, const Expression& expression) {
    ASSIGN_OR_RETURN(const TemplateArguments arguments, ArgumentsOf(expression));
    if (function != kTemplateNamespace) {
      ASSIGN_OR_RETURN(Value result,
                       CallTemplateFunction(function, arguments, input_.now, &budget_));
      return Checked(std::move(result));
    }
    Namespace members;
    for (const Value& value : arguments.values) {
      if (!value.Is(Kind::kDict)) return TemplateError("namespace takes a dict and names");
      for (const auto& [key, member] : value.entries()) {
        RETURN_IF_ERROR(budget_.Steps(1));
        if (!key.Is(Kind::kString)) continue;
        RETURN_IF_ERROR(SetMember(key.text().bytes(), member, &members));
      }
    }
    for (const auto& [name, value] : arguments.keywords) {
      RETURN_IF_ERROR(SetMember(name, value, &members));
    }
    namespaces_.push_back(std::move(members));
    return Value::Of(Kind::kNamespace, namespaces_.size() - 1);
  }

  const TemplateTree& tree_;
  const TemplateInput& input_;
  TemplateBudget budget_;
  TemplateText* out_ = nullptr;
  Flow flow_ = Flow::kOn;

  // Frames, loops, macros and namespaces stay where they are until the end: values name them by
  // place, and so never own each other in circles.
  std::deque<Frame, CountedAllocator<Frame>> frames_;
  std::vector<Frame*> free_frames_;
  Frame* frame_ = nullptr;
  std::deque<Loop> loops_;
  size_t loop_level_ = 0;
  std::deque<Macro, CountedAllocator<Macro>> macros_;
  std::deque<Namespace, CountedAllocator<Namespace>> namespaces_;
};

}  // namespace

absl::StatusOr<TemplateText> RenderTemplate(const TemplateTree& tree, const TemplateInput& input) {
  return Renderer(tree, input).Run();
}

}  // namespace lm
