// A chat template as a tree: what template_parser.h makes and template_renderer.h walks.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_TREE_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_TREE_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/base/hash_map.h"
#include "engine/text/template/template_call.h"
#include "engine/text/template/template_value.h"

namespace lm {

struct TemplateExpression {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       // key, value, key, value, ...
    kAttribute,  // operand.name
    kSubscript,  // operand[key]
    kSlice,      // operand[begin:end:step]; null where left out
    kCall,       // callee, arguments
    kFilter,     // operand | name(arguments); no operand at the head of a filter block
    kTest,       // operand is name(arguments)
    kNot,
    kNegative,
    kPositive,
    kArithmetic,   // operands from left to right, an operator between each two
    kConcatenate,  // ~
    kCompare,      // a < b <= c, with an operator between each two
    kAnd,
    kOr,
    kConditional,  // value if condition else other (or null): condition, value, other
  };
  enum class Operator : uint8_t {
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kPower,
    kEqual,
    kNotEqual,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kIn,
    kNotIn,
  };

  Kind kind;
  bool negated = false;  // kTest
  uint8_t depth = 1;     // levels of operands, this one included
  int32_t name = -1;     // kName, kAttribute, kFilter, kTest: in TemplateTree::names
  int line = 0;
  TemplateValue constant;
  const TemplateMethod* method = nullptr;  // kAttribute; null if no type has one of that name
  TemplateFilter* filter = nullptr;        // kFilter; null if there is none of that name
  TemplateTest* test = nullptr;            // kTest; the same
  std::vector<std::unique_ptr<TemplateExpression>> operands;
  std::vector<Operator> operators;
  std::vector<std::string> keywords;  // of the last arguments
};
using TemplateExpressionPtr = std::unique_ptr<TemplateExpression>;

struct TemplateStatement;
using TemplateBlock = std::vector<std::unique_ptr<TemplateStatement>>;

// What is assigned to: a name, or a member of a namespace.
struct TemplateTarget {
  int32_t name = -1;
  int32_t member = -1;
};

struct TemplateStatement {
  enum class Kind : uint8_t {
    kText,
    kOutput,
    kIf,        // conditions and blocks; one block more where there is an else
    kFor,       // targets in expressions[0] if expressions[1]: blocks[0], else blocks[1]
    kSet,       // targets = expressions[0]
    kSetBlock,  // targets = blocks[0], through the filters of expressions[0]
    kMacro,     // targets[0]: parameters with expressions as defaults (or null): blocks[0]
    kFilter,    // blocks[0] through the filters of expressions[0]
    kScope,     // blocks[0], with variables of its own
    kBreak,
    kContinue,
  };

  Kind kind;
  bool is_tuple = false;  // of the targets: (a, b), or (a,)
  int line = 0;
  TemplateValue text;
  std::vector<TemplateExpressionPtr> expressions;
  std::vector<TemplateBlock> blocks;
  std::vector<TemplateTarget> targets;
  std::vector<int32_t> parameters;
};

// Immutable once parsed; thread-safe.
struct TemplateTree {
  TemplateBlock body;
  std::vector<std::string> names;
  HashMap<std::string, int32_t> name_ids;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_TREE_H_
