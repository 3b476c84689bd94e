#include "engine/text/template/template_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/template_lexer.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using ExpressionKind = TemplateExpression::Kind;
using Operator = TemplateExpression::Operator;
using TokenKind = TemplateToken::Kind;
using Ptr = TemplateExpressionPtr;
using Parsed = absl::StatusOr<Ptr>;

// Both kinds of nesting use the stack: here and in the renderer.
constexpr int kMaxBlocks = 40;
constexpr int kMaxLevels = 32;

struct NamedOperator {
  absl::string_view name;
  Operator op;
};
constexpr NamedOperator kSums[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr NamedOperator kProducts[] = {{"*", Operator::kMultiply},
                                       {"/", Operator::kDivide},
                                       {"//", Operator::kFloorDivide},
                                       {"%", Operator::kModulo}};
constexpr NamedOperator kPowers[] = {{"**", Operator::kPower}};
constexpr NamedOperator kComparisons[] = {
    {"==", Operator::kEqual},       {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessOrEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterOrEqual}};

// A recursive descent over the tokens; each level of the grammar is a function.
class Parser {
 public:
  explicit Parser(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<TemplateTree> Run() {
    ASSIGN_OR_RETURN(tree_.body, Block({}));
    if (Peek().kind != TokenKind::kEnd) return Unexpected();
    return std::move(tree_);
  }

 private:
  // ---- tokens ----

  const TemplateToken& Peek() const { return tokens_[pos_]; }
  bool At(TokenKind kind, absl::string_view text) const {
    return Peek().kind == kind && Peek().text == text;
  }
  bool AtOperator(absl::string_view text) const { return At(TokenKind::kOperator, text); }
  bool AtWord(absl::string_view text) const { return At(TokenKind::kName, text); }
  bool Take(TokenKind kind, absl::string_view text) {
    if (!At(kind, text)) return false;
    ++pos_;
    return true;
  }
  bool TakeOperator(absl::string_view text) { return Take(TokenKind::kOperator, text); }
  bool TakeWord(absl::string_view text) { return Take(TokenKind::kName, text); }
  absl::Status Expect(TokenKind kind, absl::string_view text) {
    return Take(kind, text) ? absl::OkStatus() : Unexpected();
  }
  absl::Status ExpectOperator(absl::string_view text) { return Expect(TokenKind::kOperator, text); }

  absl::Status Error(absl::string_view what) const {
    return absl::UnimplementedError(absl::StrCat("line ", Peek().line, ": ", what));
  }
  absl::Status Unexpected() const {
    switch (Peek().kind) {
      case TokenKind::kEnd:
        return Error("a block that is not closed");
      case TokenKind::kOutputEnd:
      case TokenKind::kStatementEnd:
        return Error("a tag ends too early");
      case TokenKind::kStatementBegin:
        return Error(absl::StrCat("the statement ", QuoteName(tokens_[pos_ + 1].text), " there"));
      default:
        return Error(absl::StrCat(QuoteName(Peek().text), " there"));
    }
  }

  absl::StatusOr<int32_t> Name() {
    if (Peek().kind != TokenKind::kName) return Unexpected();
    return Intern(tokens_[pos_++].text);
  }
  int32_t Intern(const std::string& name) {
    const auto [it, is_new] =
        tree_.name_ids.try_emplace(name, static_cast<int32_t>(tree_.names.size()));
    if (is_new) tree_.names.push_back(name);
    return it->second;
  }

  // ---- statements ----

  // The statements up to one of `ends`, which is left to be read: its name at pos_.
  absl::StatusOr<TemplateBlock> Block(std::initializer_list<absl::string_view> ends) {
    if (++blocks_ > kMaxBlocks) {
      return Error(absl::StrCat("statements nested too deep: more than ", kMaxBlocks, " levels"));
    }
    TemplateBlock block;
    for (;;) {
      const TemplateToken& token = Peek();
      if (token.kind == TokenKind::kEnd) break;
      auto statement = std::make_unique<TemplateStatement>();
      statement->line = token.line;
      ++pos_;
      if (token.kind == TokenKind::kText) {
        statement->kind = TemplateStatement::Kind::kText;
        statement->text = TemplateValue::Template(token.text);
      } else if (token.kind == TokenKind::kOutputBegin) {
        statement->kind = TemplateStatement::Kind::kOutput;
        ASSIGN_OR_RETURN(Ptr value, Tuple(/*conditional=*/true));
        statement->expressions.push_back(std::move(value));
        RETURN_IF_ERROR(Expect(TokenKind::kOutputEnd, ""));
      } else {
        const bool ended = std::any_of(ends.begin(), ends.end(),
                                       [this](absl::string_view end) { return AtWord(end); });
        if (ended) {
          --blocks_;
          return block;
        }
        RETURN_IF_ERROR(Statement(*statement));
      }
      block.push_back(std::move(statement));
    }
    if (ends.size() > 0) return Unexpected();
    --blocks_;
    return block;
  }

  absl::Status EndTag() { return Expect(TokenKind::kStatementEnd, ""); }

  // A block up to `end`, and that statement.
  absl::Status Body(absl::string_view end, TemplateStatement& statement) {
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(TemplateBlock body, Block({end}));
    statement.blocks.push_back(std::move(body));
    ++pos_;
    return EndTag();
  }

  absl::Status Statement(TemplateStatement& statement) {
    if (TakeWord("if")) return If(statement);
    if (TakeWord("for")) return For(statement);
    if (TakeWord("set")) return Set(statement);
    if (TakeWord("macro")) return Macro(statement);
    if (TakeWord("filter")) {
      statement.kind = TemplateStatement::Kind::kFilter;
      ASSIGN_OR_RETURN(Ptr filter, Filter(nullptr));
      ASSIGN_OR_RETURN(filter, Filters(std::move(filter)));
      statement.expressions.push_back(std::move(filter));
      return Body("endfilter", statement);
    }
    if (TakeWord("generation")) {
      statement.kind = TemplateStatement::Kind::kScope;
      const int loops = std::exchange(loops_, 0);
      RETURN_IF_ERROR(Body("endgeneration", statement));
      loops_ = loops;
      return absl::OkStatus();
    }
    if (AtWord("break") || AtWord("continue")) {
      if (loops_ == 0) return Unexpected();
      statement.kind =
          TakeWord("break") ? TemplateStatement::Kind::kBreak : TemplateStatement::Kind::kContinue;
      if (statement.kind == TemplateStatement::Kind::kContinue) ++pos_;
      return EndTag();
    }
    return Error(absl::StrCat("the statement ", QuoteName(Peek().text)));
  }

  absl::Status If(TemplateStatement& statement) {
    statement.kind = TemplateStatement::Kind::kIf;
    for (;;) {
      ASSIGN_OR_RETURN(Ptr condition, Tuple(/*conditional=*/false));
      statement.expressions.push_back(std::move(condition));
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(TemplateBlock block, Block({"elif", "else", "endif"}));
      statement.blocks.push_back(std::move(block));
      if (TakeWord("elif")) continue;
      if (!TakeWord("else")) break;
      return Body("endif", statement);
    }
    ++pos_;
    return EndTag();
  }

  absl::Status For(TemplateStatement& statement) {
    statement.kind = TemplateStatement::Kind::kFor;
    RETURN_IF_ERROR(Targets(/*members=*/false, statement));
    if (!TakeWord("in")) return Unexpected();
    ASSIGN_OR_RETURN(Ptr iterable, Tuple(/*conditional=*/false));
    statement.expressions.push_back(std::move(iterable));
    Ptr condition;
    if (TakeWord("if")) {
      ASSIGN_OR_RETURN(condition, Expression());
    }
    statement.expressions.push_back(std::move(condition));
    if (AtWord("recursive")) return Error("a recursive loop");
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    ASSIGN_OR_RETURN(TemplateBlock body, Block({"else", "endfor"}));
    --loops_;
    statement.blocks.push_back(std::move(body));
    if (TakeWord("else")) return Body("endfor", statement);
    ++pos_;
    return EndTag();
  }

  // The names before `in` and `=`.
  absl::Status Targets(bool members, TemplateStatement& statement) {
    const bool parentheses = TakeOperator("(");
    for (;;) {
      TemplateTarget target;
      ASSIGN_OR_RETURN(target.name, Name());
      if (members && TakeOperator(".")) {
        ASSIGN_OR_RETURN(target.member, Name());
      }
      statement.targets.push_back(target);
      if (!TakeOperator(",")) break;
      statement.is_tuple = true;
      if (Peek().kind != TokenKind::kName || AtWord("in")) break;
    }
    return parentheses ? ExpectOperator(")") : absl::OkStatus();
  }

  absl::Status Set(TemplateStatement& statement) {
    RETURN_IF_ERROR(Targets(/*members=*/true, statement));
    if (TakeOperator("=")) {
      statement.kind = TemplateStatement::Kind::kSet;
      ASSIGN_OR_RETURN(Ptr value, Tuple(/*conditional=*/true));
      statement.expressions.push_back(std::move(value));
      return EndTag();
    }
    statement.kind = TemplateStatement::Kind::kSetBlock;
    Ptr filters;
    if (AtOperator("|")) {
      ASSIGN_OR_RETURN(filters, Filters(nullptr));
    }
    statement.expressions.push_back(std::move(filters));
    return Body("endset", statement);
  }

  absl::Status Macro(TemplateStatement& statement) {
    statement.kind = TemplateStatement::Kind::kMacro;
    TemplateTarget target;
    ASSIGN_OR_RETURN(target.name, Name());
    statement.targets.push_back(target);
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!TakeOperator(")")) {
      if (!statement.parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(const int32_t parameter, Name());
      Ptr value;
      if (TakeOperator("=")) {
        ASSIGN_OR_RETURN(value, Expression());
      } else if (!statement.expressions.empty() && statement.expressions.back() != nullptr) {
        return Error("a parameter without a default behind one with a default");
      }
      statement.parameters.push_back(parameter);
      statement.expressions.push_back(std::move(value));
    }
    const int loops = std::exchange(loops_, 0);
    RETURN_IF_ERROR(Body("endmacro", statement));
    loops_ = loops;
    return absl::OkStatus();
  }

  // ---- expressions ----

  // Adds an operand; "too deep" where the tree would be.
  absl::Status AddOperand(Ptr operand, TemplateExpression& expression) {
    if (operand != nullptr) {
      if (operand->depth >= kMaxLevels) return TooDeep();
      expression.depth = std::max<uint8_t>(expression.depth, operand->depth + 1);
    }
    expression.operands.push_back(std::move(operand));
    return absl::OkStatus();
  }
  absl::Status TooDeep() const {
    return Error(absl::StrCat("an expression nested too deep: more than ", kMaxLevels, " levels"));
  }
  Ptr New(ExpressionKind kind) const {
    auto expression = std::make_unique<TemplateExpression>();
    expression->kind = kind;
    expression->line = Peek().line;
    return expression;
  }
  Ptr Constant(TemplateValue value) const {
    Ptr expression = New(ExpressionKind::kConstant);
    expression->constant = std::move(value);
    return expression;
  }

  // a, b, c without parentheses, or one expression.
  Parsed Tuple(bool conditional) {
    ASSIGN_OR_RETURN(Ptr first, conditional ? Expression() : Or());
    if (!AtOperator(",")) return first;
    Ptr tuple = New(ExpressionKind::kTuple);
    RETURN_IF_ERROR(AddOperand(std::move(first), *tuple));
    while (TakeOperator(",")) {
      if (Peek().kind == TokenKind::kOutputEnd || Peek().kind == TokenKind::kStatementEnd) break;
      ASSIGN_OR_RETURN(Ptr next, conditional ? Expression() : Or());
      RETURN_IF_ERROR(AddOperand(std::move(next), *tuple));
    }
    return tuple;
  }

  // a if c else b
  Parsed Expression() {
    if (++levels_ > kMaxLevels) return TooDeep();
    ASSIGN_OR_RETURN(Ptr value, Or());
    while (TakeWord("if")) {
      Ptr conditional = New(ExpressionKind::kConditional);
      ASSIGN_OR_RETURN(Ptr condition, Or());
      Ptr other;
      if (TakeWord("else")) {
        ASSIGN_OR_RETURN(other, Expression());
      }
      RETURN_IF_ERROR(AddOperand(std::move(condition), *conditional));
      RETURN_IF_ERROR(AddOperand(std::move(value), *conditional));
      RETURN_IF_ERROR(AddOperand(std::move(other), *conditional));
      value = std::move(conditional);
    }
    --levels_;
    return value;
  }

  Parsed Or() { return Words("or", ExpressionKind::kOr, &Parser::And); }
  Parsed And() { return Words("and", ExpressionKind::kAnd, &Parser::Not); }

  Parsed Words(absl::string_view word, ExpressionKind kind, Parsed (Parser::*next)()) {
    ASSIGN_OR_RETURN(Ptr first, (this->*next)());
    if (!AtWord(word)) return first;
    Ptr all = New(kind);
    RETURN_IF_ERROR(AddOperand(std::move(first), *all));
    while (TakeWord(word)) {
      ASSIGN_OR_RETURN(Ptr operand, (this->*next)());
      RETURN_IF_ERROR(AddOperand(std::move(operand), *all));
    }
    return all;
  }

  Parsed Not() {
    int count = 0;
    while (TakeWord("not")) ++count;
    ASSIGN_OR_RETURN(Ptr value, Comparison());
    // An even number of them still makes a bool.
    for (count = count > 2 ? 2 - count % 2 : count; count > 0; --count) {
      Ptr negation = New(ExpressionKind::kNot);
      RETURN_IF_ERROR(AddOperand(std::move(value), *negation));
      value = std::move(negation);
    }
    return value;
  }

  Parsed Comparison() {
    ASSIGN_OR_RETURN(Ptr value, Sum());
    Ptr chain;
    Operator op;
    while (TakeComparison(&op)) {
      if (chain == nullptr) {
        chain = New(ExpressionKind::kCompare);
        RETURN_IF_ERROR(AddOperand(std::move(value), *chain));
      }
      chain->operators.push_back(op);
      ASSIGN_OR_RETURN(Ptr operand, Sum());
      RETURN_IF_ERROR(AddOperand(std::move(operand), *chain));
    }
    if (chain != nullptr) return chain;
    return value;
  }

  bool TakeComparison(Operator* op) {
    if (TakeOneOf(kComparisons, op)) return true;
    *op = Operator::kIn;
    if (TakeWord("in")) return true;
    const bool not_in = AtWord("not") && tokens_[pos_ + 1].kind == TokenKind::kName &&
                        tokens_[pos_ + 1].text == "in";
    if (not_in) pos_ += 2;
    *op = Operator::kNotIn;
    return not_in;
  }

  bool TakeOneOf(absl::Span<const NamedOperator> operators, Operator* op) {
    for (const NamedOperator& candidate : operators) {
      if (!TakeOperator(candidate.name)) continue;
      *op = candidate.op;
      return true;
    }
    return false;
  }

  Parsed Chain(absl::Span<const NamedOperator> operators, Parsed (Parser::*next)()) {
    ASSIGN_OR_RETURN(Ptr value, (this->*next)());
    Ptr chain;
    Operator op;
    while (TakeOneOf(operators, &op)) {
      if (chain == nullptr) {
        chain = New(ExpressionKind::kArithmetic);
        RETURN_IF_ERROR(AddOperand(std::move(value), *chain));
      }
      chain->operators.push_back(op);
      ASSIGN_OR_RETURN(Ptr operand, (this->*next)());
      RETURN_IF_ERROR(AddOperand(std::move(operand), *chain));
    }
    if (chain != nullptr) return chain;
    return value;
  }

  Parsed Sum() { return Chain(kSums, &Parser::Concatenation); }

  Parsed Concatenation() {
    ASSIGN_OR_RETURN(Ptr first, Product());
    if (!AtOperator("~")) return first;
    Ptr all = New(ExpressionKind::kConcatenate);
    RETURN_IF_ERROR(AddOperand(std::move(first), *all));
    while (TakeOperator("~")) {
      ASSIGN_OR_RETURN(Ptr operand, Product());
      RETURN_IF_ERROR(AddOperand(std::move(operand), *all));
    }
    return all;
  }

  Parsed Product() { return Chain(kProducts, &Parser::Power); }
  Parsed Power() { return Chain(kPowers, &Parser::FilteredUnary); }
  Parsed FilteredUnary() { return Unary(/*filtered=*/true); }

  Parsed Unary(bool filtered) {
    Ptr value;
    if (AtOperator("-") || AtOperator("+")) {
      if (++levels_ > kMaxLevels) return TooDeep();
      Ptr sign = New(AtOperator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive);
      ++pos_;
      ASSIGN_OR_RETURN(value, Unary(/*filtered=*/false));
      RETURN_IF_ERROR(AddOperand(std::move(value), *sign));
      value = std::move(sign);
      --levels_;
    } else {
      ASSIGN_OR_RETURN(value, Primary());
    }
    ASSIGN_OR_RETURN(value, Postfix(std::move(value)));
    if (!filtered) return value;
    return Filters(std::move(value));
  }

  Parsed Primary() {
    const TemplateToken& token = Peek();
    switch (token.kind) {
      case TokenKind::kName: {
        ++pos_;
        if (token.text == "true" || token.text == "True")
          return Constant(TemplateValue::Bool(true));
        if (token.text == "false" || token.text == "False") {
          return Constant(TemplateValue::Bool(false));
        }
        if (token.text == "none" || token.text == "None") return Constant(TemplateValue::None());
        Ptr name = New(ExpressionKind::kName);
        name->name = Intern(token.text);
        return name;
      }
      case TokenKind::kString: {
        std::string text;
        while (Peek().kind == TokenKind::kString) text += tokens_[pos_++].text;
        return Constant(TemplateValue::Template(text));
      }
      case TokenKind::kInteger: {
        int64_t value = 0;
        if (!absl::SimpleAtoi(token.text, &value)) return Error("a number of this size");
        ++pos_;
        return Constant(TemplateValue::Integer(value));
      }
      case TokenKind::kFloat: {
        double value = 0;
        if (!absl::SimpleAtod(token.text, &value)) return Error("a number of this form");
        ++pos_;
        return Constant(TemplateValue::Float(value));
      }
      default:
        break;
    }
    if (TakeOperator("(")) return Parenthesised();
    if (TakeOperator("[")) {
      Ptr list = New(ExpressionKind::kList);
      RETURN_IF_ERROR(Elements("]", *list));
      return list;
    }
    if (TakeOperator("{")) return Dict();
    return Unexpected();
  }

  // Expressions between commas, and `close`; one comma may be too many.
  absl::Status Elements(absl::string_view close, TemplateExpression& expression) {
    while (!TakeOperator(close)) {
      ASSIGN_OR_RETURN(Ptr element, Expression());
      RETURN_IF_ERROR(AddOperand(std::move(element), expression));
      if (!AtOperator(close)) RETURN_IF_ERROR(ExpectOperator(","));
    }
    return absl::OkStatus();
  }

  Parsed Parenthesised() {
    Ptr tuple = New(ExpressionKind::kTuple);
    if (TakeOperator(")")) return tuple;
    ASSIGN_OR_RETURN(Ptr first, Expression());
    if (TakeOperator(")")) return first;
    RETURN_IF_ERROR(ExpectOperator(","));
    RETURN_IF_ERROR(AddOperand(std::move(first), *tuple));
    RETURN_IF_ERROR(Elements(")", *tuple));
    return tuple;
  }

  Parsed Dict() {
    Ptr dict = New(ExpressionKind::kDict);
    while (!TakeOperator("}")) {
      ASSIGN_OR_RETURN(Ptr key, Expression());
      RETURN_IF_ERROR(ExpectOperator(":"));
      ASSIGN_OR_RETURN(Ptr value, Expression());
      RETURN_IF_ERROR(AddOperand(std::move(key), *dict));
      RETURN_IF_ERROR(AddOperand(std::move(value), *dict));
      if (!AtOperator("}")) RETURN_IF_ERROR(ExpectOperator(","));
    }
    return dict;
  }

  Parsed Postfix(Ptr value) {
    for (;;) {
      if (TakeOperator(".")) {
        ASSIGN_OR_RETURN(value, Member(std::move(value)));
      } else if (TakeOperator("[")) {
        ASSIGN_OR_RETURN(value, Subscript(std::move(value)));
      } else if (AtOperator("(")) {
        ASSIGN_OR_RETURN(value, Call(std::move(value)));
      } else {
        return value;
      }
    }
  }

  Parsed Member(Ptr value) {
    Ptr member;
    if (Peek().kind == TokenKind::kInteger) {
      member = New(ExpressionKind::kSubscript);
      RETURN_IF_ERROR(AddOperand(std::move(value), *member));
      ASSIGN_OR_RETURN(Ptr index, Primary());
      RETURN_IF_ERROR(AddOperand(std::move(index), *member));
      return member;
    }
    member = New(ExpressionKind::kAttribute);
    RETURN_IF_ERROR(AddOperand(std::move(value), *member));
    ASSIGN_OR_RETURN(member->name, Name());
    member->method = FindTemplateMethod(tree_.names[member->name]);
    return member;
  }

  // value[key] or value[begin:end:step], behind the bracket.
  Parsed Subscript(Ptr value) {
    Ptr parts[3];
    int colons = 0;
    for (;;) {
      if (AtOperator("]") && colons > 0) break;
      if (TakeOperator(":")) {
        if (++colons > 2) return Unexpected();
        continue;
      }
      if (parts[colons] != nullptr) break;
      ASSIGN_OR_RETURN(parts[colons], Expression());
    }
    RETURN_IF_ERROR(ExpectOperator("]"));
    Ptr subscript = New(colons > 0 ? ExpressionKind::kSlice : ExpressionKind::kSubscript);
    RETURN_IF_ERROR(AddOperand(std::move(value), *subscript));
    for (int i = 0; i < (colons > 0 ? 3 : 1); ++i) {
      RETURN_IF_ERROR(AddOperand(std::move(parts[i]), *subscript));
    }
    return subscript;
  }

  Parsed Call(Ptr callee) {
    Ptr call = New(ExpressionKind::kCall);
    RETURN_IF_ERROR(AddOperand(std::move(callee), *call));
    RETURN_IF_ERROR(Arguments(*call));
    return call;
  }

  // (a, b, name=c)
  absl::Status Arguments(TemplateExpression& call) {
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!TakeOperator(")")) {
      if (AtOperator("*") || AtOperator("**")) return Error("unpacked arguments");
      const bool keyword = Peek().kind == TokenKind::kName &&
                           tokens_[pos_ + 1].kind == TokenKind::kOperator &&
                           tokens_[pos_ + 1].text == "=";
      if (keyword) {
        call.keywords.push_back(Peek().text);
        pos_ += 2;
      } else if (!call.keywords.empty()) {
        return Error("an argument without a name behind one with a name");
      }
      ASSIGN_OR_RETURN(Ptr argument, Expression());
      RETURN_IF_ERROR(AddOperand(std::move(argument), call));
      if (!AtOperator(")")) RETURN_IF_ERROR(ExpectOperator(","));
    }
    return absl::OkStatus();
  }

  // | filters, `is` tests and calls behind an expression, or behind nothing.
  Parsed Filters(Ptr value) {
    for (;;) {
      if (TakeOperator("|")) {
        ASSIGN_OR_RETURN(value, Filter(std::move(value)));
      } else if (value != nullptr && TakeWord("is")) {
        ASSIGN_OR_RETURN(value, Test(std::move(value)));
      } else if (value != nullptr && AtOperator("(")) {
        ASSIGN_OR_RETURN(value, Call(std::move(value)));
      } else {
        return value;
      }
    }
  }

  // The name of a filter or test, dots included.
  absl::StatusOr<int32_t> DottedName() {
    if (Peek().kind != TokenKind::kName) return Unexpected();
    std::string name = tokens_[pos_++].text;
    while (TakeOperator(".")) {
      if (Peek().kind != TokenKind::kName) return Unexpected();
      absl::StrAppend(&name, ".", tokens_[pos_++].text);
    }
    return Intern(name);
  }

  Parsed Filter(Ptr value) {
    Ptr filter = New(ExpressionKind::kFilter);
    RETURN_IF_ERROR(AddOperand(std::move(value), *filter));
    ASSIGN_OR_RETURN(filter->name, DottedName());
    filter->filter = FindTemplateFilter(tree_.names[filter->name]);
    if (AtOperator("(")) RETURN_IF_ERROR(Arguments(*filter));
    return filter;
  }

  Parsed Test(Ptr value) {
    Ptr test = New(ExpressionKind::kTest);
    RETURN_IF_ERROR(AddOperand(std::move(value), *test));
    test->negated = TakeWord("not");
    ASSIGN_OR_RETURN(test->name, DottedName());
    test->test = FindTemplateTest(tree_.names[test->name]);
    if (AtOperator("(")) {
      RETURN_IF_ERROR(Arguments(*test));
    } else if (BeginsTestArgument()) {
      ASSIGN_OR_RETURN(Ptr argument, Primary());
      ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
      RETURN_IF_ERROR(AddOperand(std::move(argument), *test));
    }
    return test;
  }

  bool BeginsTestArgument() const {
    switch (Peek().kind) {
      case TokenKind::kName:
        return !AtWord("else") && !AtWord("or") && !AtWord("and") && !AtWord("is");
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return AtOperator("[") || AtOperator("{");
    }
  }

  const std::vector<TemplateToken> tokens_;
  size_t pos_ = 0;
  int blocks_ = 0;
  int levels_ = 0;
  int loops_ = 0;
  TemplateTree tree_;
};

}  // namespace

absl::StatusOr<TemplateTree> ParseTemplate(absl::string_view source) {
  ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexTemplate(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace lm
