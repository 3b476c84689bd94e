#include "engine/text/template/template_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/printed.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;

std::string Escaped(uint32_t c) {
  if (c < 0x10000) return Printed("\\u%04x", c);
  return Printed("\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                 0xdc00 + ((c - 0x10000) & 0x3ff));
}

class Writer {
 public:
  Writer(const TemplateJsonForm& form, TemplateBudget* budget, TemplateText* out)
      : form_(form), budget_(*budget), out_(*out) {}

  absl::Status Write(const TemplateValue& value, int level) {
    RETURN_IF_ERROR(budget_.Steps(1));
    RETURN_IF_ERROR(budget_.Bytes(16));
    switch (value.kind()) {
      case Kind::kNone:
        Plain("null");
        return absl::OkStatus();
      case Kind::kBool:
        Plain(value.integer() != 0 ? "true" : "false");
        return absl::OkStatus();
      case Kind::kInteger:
        Plain(absl::StrCat(value.integer()));
        return absl::OkStatus();
      case Kind::kFloat:
        return WriteFloat(value);
      case Kind::kString:
        return WriteString(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value, level);
      case Kind::kDict:
        return WriteDict(value, level);
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("a '", value.TypeName(), "' cannot be written as JSON"));
    }
  }

 private:
  void Plain(absl::string_view text) { out_.Append(text, TextKind::kInput); }

  absl::Status WriteFloat(const TemplateValue& value) {
    const std::string repr = value.FloatText();
    RETURN_IF_ERROR(budget_.Bytes(repr.size()));
    Plain(repr == "nan" ? "NaN" : repr == "inf" ? "Infinity" : repr == "-inf" ? "-Infinity" : repr);
    return absl::OkStatus();
  }

  absl::Status NewLine(int level) {
    if (!form_.is_indented) return absl::OkStatus();
    RETURN_IF_ERROR(budget_.Bytes(1 + level * form_.indent.size()));
    Plain("\n");
    for (; level > 0; --level) Plain(form_.indent);
    return absl::OkStatus();
  }

  absl::Status WriteString(const TemplateText& text) {
    const absl::string_view bytes = text.bytes();
    RETURN_IF_ERROR(budget_.Bytes(2 * bytes.size()));
    Plain("\"");
    size_t copied = 0;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t begin = pos;
      const unsigned char byte = bytes[pos];
      if (byte >= ' ' && byte != '"' && byte != '\\' && (byte < 0x7f || !form_.ensure_ascii)) {
        ++pos;
        continue;
      }
      const uint32_t c = DecodeUtf8(bytes, &pos);
      static constexpr absl::string_view kNamed = "\"\\\n\r\t\b\f";
      const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : absl::string_view::npos;
      out_.Append(text, copied, begin);
      if (named != absl::string_view::npos) {
        out_.Append(absl::StrCat("\\", absl::string_view("\"\\nrtbf").substr(named, 1)),
                    text.KindAt(begin));
      } else {
        out_.Append(Escaped(c), text.KindAt(begin));
      }
      copied = pos;
    }
    out_.Append(text, copied, bytes.size());
    Plain("\"");
    return absl::OkStatus();
  }

  absl::Status WriteList(const TemplateValue& value, int level) {
    if (value.list().empty()) {
      Plain("[]");
      return absl::OkStatus();
    }
    absl::string_view before = "[";
    for (const TemplateValue& element : value.list()) {
      RETURN_IF_ERROR(budget_.Bytes(before.size()));
      Plain(before);
      before = form_.item_separator;
      RETURN_IF_ERROR(NewLine(level + 1));
      RETURN_IF_ERROR(Write(element, level + 1));
    }
    RETURN_IF_ERROR(NewLine(level));
    Plain("]");
    return absl::OkStatus();
  }

  absl::Status WriteKey(const TemplateValue& key) {
    if (key.Is(Kind::kString)) return WriteString(key.text());
    Plain("\"");
    RETURN_IF_ERROR(Write(key, 0));
    Plain("\"");
    return absl::OkStatus();
  }

  absl::Status WriteDict(const TemplateValue& value, int level) {
    if (value.entries().empty()) {
      Plain("{}");
      return absl::OkStatus();
    }
    std::vector<const std::pair<TemplateValue, TemplateValue>*> entries;
    for (const auto& entry : value.entries()) entries.push_back(&entry);
    if (form_.sort_keys) {
      absl::Status status;
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        absl::StatusOr<int> order = CompareValues(a->first, b->first, &budget_);
        if (!order.ok()) status = order.status();
        return order.ok() && *order < 0;
      });
      RETURN_IF_ERROR(status);
    }
    absl::string_view before = "{";
    for (const auto* entry : entries) {
      RETURN_IF_ERROR(budget_.Bytes(before.size() + form_.key_separator.size()));
      Plain(before);
      before = form_.item_separator;
      RETURN_IF_ERROR(NewLine(level + 1));
      RETURN_IF_ERROR(WriteKey(entry->first));
      Plain(form_.key_separator);
      RETURN_IF_ERROR(Write(entry->second, level + 1));
    }
    RETURN_IF_ERROR(NewLine(level));
    Plain("}");
    return absl::OkStatus();
  }

  const TemplateJsonForm& form_;
  TemplateBudget& budget_;
  TemplateText& out_;
};

}  // namespace

absl::Status AppendJson(const TemplateValue& value, const TemplateJsonForm& form,
                        TemplateBudget* budget, TemplateText* out) {
  return Writer(form, budget, out).Write(value, 0);
}

}  // namespace lm
