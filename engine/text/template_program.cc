#include "engine/text/template_program.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/text/template_expression.h"
#include "engine/text/template_lexer.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

// Far more than the longest known template takes for two messages.
constexpr int kMaxSteps = 10000;

struct Instruction {
  enum class Kind { kText, kOutput, kSet, kBranch, kJump, kFor, kEndFor };
  Kind kind;
  std::string text;      // the text; the expression; kFor: the list
  std::string variable;  // kSet, kFor
  size_t target = 0;     // kBranch (condition false), kJump, kFor (empty list), kEndFor (its kFor)
};

absl::Status Unknown(absl::string_view what, absl::string_view where) {
  return absl::UnimplementedError(absl::StrCat(what, " ", QuoteName(where)));
}

absl::string_view TakeWord(absl::string_view* text) {
  *text = absl::StripLeadingAsciiWhitespace(*text);
  size_t size = 0;
  while (size < text->size() && (absl::ascii_isalnum((*text)[size]) || (*text)[size] == '_'))
    ++size;
  const absl::string_view word = text->substr(0, size);
  text->remove_prefix(size);
  *text = absl::StripLeadingAsciiWhitespace(*text);
  return word;
}

// Turns nested statements into branches and jumps.
class Compiler {
 public:
  absl::StatusOr<std::vector<Instruction>> Run(absl::string_view source) {
    ASSIGN_OR_RETURN(std::vector<TemplateNode> nodes, LexTemplate(source));
    for (TemplateNode& node : nodes) {
      switch (node.kind) {
        case TemplateNode::Kind::kText:
          code_.push_back({Instruction::Kind::kText, std::move(node.content), "", 0});
          break;
        case TemplateNode::Kind::kOutput:
          code_.push_back({Instruction::Kind::kOutput, std::move(node.content), "", 0});
          break;
        case TemplateNode::Kind::kStatement:
          RETURN_IF_ERROR(Statement(node.content));
          break;
      }
    }
    if (!open_.empty()) return absl::UnimplementedError("a block that is not closed");
    return std::move(code_);
  }

 private:
  struct Block {
    bool loop;
    size_t head;  // the kBranch whose condition may still fail, or the kFor
    bool has_else = false;
    std::vector<size_t> jumps;  // from the ends of branches to the end of the block
  };

  absl::Status Statement(absl::string_view statement) {
    absl::string_view rest = statement;
    const absl::string_view word = TakeWord(&rest);
    if (word == "if") {
      open_.push_back({false, code_.size(), false, {}});
      code_.push_back({Instruction::Kind::kBranch, std::string(rest), "", 0});
    } else if (word == "elif" || word == "else") {
      if (open_.empty() || open_.back().loop || open_.back().has_else) {
        return Unknown("the statement", statement);
      }
      Block& block = open_.back();
      block.jumps.push_back(code_.size());
      code_.push_back({Instruction::Kind::kJump, "", "", 0});
      code_[block.head].target = code_.size();
      block.has_else = word == "else";
      if (!block.has_else) {
        block.head = code_.size();
        code_.push_back({Instruction::Kind::kBranch, std::string(rest), "", 0});
      }
    } else if (word == "endif") {
      if (open_.empty() || open_.back().loop) return Unknown("the statement", statement);
      const Block& block = open_.back();
      if (!block.has_else) code_[block.head].target = code_.size();
      for (size_t jump : block.jumps) code_[jump].target = code_.size();
      open_.pop_back();
    } else if (word == "for") {
      const std::string variable(TakeWord(&rest));
      if (variable.empty() || TakeWord(&rest) != "in") return Unknown("the statement", statement);
      open_.push_back({true, code_.size(), false, {}});
      code_.push_back({Instruction::Kind::kFor, std::string(rest), variable, 0});
    } else if (word == "endfor") {
      if (open_.empty() || !open_.back().loop) return Unknown("the statement", statement);
      const size_t head = open_.back().head;
      code_.push_back({Instruction::Kind::kEndFor, "", "", head});
      code_[head].target = code_.size();
      open_.pop_back();
    } else if (word == "set") {
      const std::string variable(TakeWord(&rest));
      if (variable.empty() || !absl::ConsumePrefix(&rest, "=")) {
        return Unknown("the statement", statement);
      }
      code_.push_back({Instruction::Kind::kSet, std::string(rest), variable, 0});
    } else {
      return Unknown("the statement", statement);
    }
    return absl::OkStatus();
  }

  std::vector<Instruction> code_;
  std::vector<Block> open_;
};

class Machine {
 public:
  explicit Machine(bool with_system) {
    if (with_system) scope_.is_system.push_back(true);
    scope_.is_system.push_back(false);
    TemplateValue messages;
    messages.kind = TemplateValue::Kind::kMessages;
    messages.end = static_cast<int64_t>(scope_.is_system.size());
    TemplateValue none;
    none.kind = TemplateValue::Kind::kNone;
    scope_.variables = {{"messages", messages},
                        {"add_generation_prompt", BoolValue(true)},
                        {"tools", none},
                        {"documents", none},
                        {"bos_token", SegmentValue(TemplateSegment::Kind::kBos)},
                        {"eos_token", SegmentValue(TemplateSegment::Kind::kEos)}};
  }

  absl::StatusOr<std::vector<TemplateSegment>> Run(const std::vector<Instruction>& code) {
    int steps = 0;
    for (size_t at = 0; at < code.size();) {
      if (++steps > kMaxSteps) return absl::UnimplementedError("a template that takes this long");
      ASSIGN_OR_RETURN(at, Step(code[at], at));
    }
    return std::move(output_);
  }

 private:
  struct Loop {
    std::string variable;
    TemplateValue list;
    int64_t round;
    TemplateScope outer;  // a round's variables are gone after it
  };

  // Returns the position of the next instruction.
  absl::StatusOr<size_t> Step(const Instruction& instruction, size_t at) {
    switch (instruction.kind) {
      case Instruction::Kind::kText:
        RETURN_IF_ERROR(AppendSegments(TextValue(instruction.text).text, &output_));
        return at + 1;
      case Instruction::Kind::kOutput: {
        ASSIGN_OR_RETURN(TemplateValue value, EvaluateExpression(instruction.text, scope_));
        if (value.kind == TemplateValue::Kind::kUndefined) return at + 1;
        if (value.kind != TemplateValue::Kind::kString) {
          return Unknown("the output of what is not a string,", instruction.text);
        }
        RETURN_IF_ERROR(AppendSegments(value.text, &output_));
        return at + 1;
      }
      case Instruction::Kind::kSet: {
        ASSIGN_OR_RETURN(scope_.variables[instruction.variable],
                         EvaluateExpression(instruction.text, scope_));
        return at + 1;
      }
      case Instruction::Kind::kBranch: {
        ASSIGN_OR_RETURN(TemplateValue value, EvaluateExpression(instruction.text, scope_));
        ASSIGN_OR_RETURN(bool truth, Truth(value));
        return truth ? at + 1 : instruction.target;
      }
      case Instruction::Kind::kJump:
        return instruction.target;
      case Instruction::Kind::kFor: {
        ASSIGN_OR_RETURN(TemplateValue list, EvaluateExpression(instruction.text, scope_));
        if (list.kind != TemplateValue::Kind::kMessages) {
          return Unknown("a loop over", instruction.text);
        }
        if (list.begin == list.end) return instruction.target;
        loops_.push_back({instruction.variable, list, 0, scope_});
        Enter(instruction.variable);
        return at + 1;
      }
      case Instruction::Kind::kEndFor:
        break;
    }
    Loop& loop = loops_.back();
    scope_ = loop.outer;
    if (++loop.round == loop.list.end - loop.list.begin) {
      loops_.pop_back();
      return at + 1;
    }
    Enter(loop.variable);
    return instruction.target + 1;
  }

  void Enter(const std::string& variable) {
    const Loop& loop = loops_.back();
    TemplateValue message;
    message.kind = TemplateValue::Kind::kMessage;
    message.integer = loop.list.begin + loop.round;
    TemplateValue state;
    state.kind = TemplateValue::Kind::kLoop;
    state.integer = loop.round;
    state.end = loop.list.end - loop.list.begin;
    scope_.variables[variable] = message;
    scope_.variables["loop"] = state;
  }

  TemplateScope scope_;
  std::vector<Loop> loops_;
  std::vector<TemplateSegment> output_;
};

}  // namespace

absl::StatusOr<std::vector<TemplateSegment>> RunTemplate(absl::string_view source,
                                                         bool with_system) {
  ASSIGN_OR_RETURN(std::vector<Instruction> code, Compiler().Run(source));
  return Machine(with_system).Run(code);
}

}  // namespace lm
