// Chat templates of untrusted models: any text is refused with a message that can be shown, or
// renders a conversation, in bounded time, of which no character passes for the template's.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/text/chat/chat_template.h"
#include "engine/text/template/json_value.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

// A character that no template has (inputs that do are left out).
constexpr char kRow[] = "\ue123";

void RenderOnce(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                const ChatOptions& options) {
  const auto shaped = chat.Render(messages, options);
  const auto given = chat.RenderAsGiven(messages, options);
  for (const auto& rendered : {shaped, given}) {
    if (!rendered.ok()) {
      RequireShowable(rendered.status());
      continue;
    }
    for (const TextPiece& piece : rendered->pieces) {
      Require(piece.kind != TextKind::kMarkup || !absl::StrContains(piece.text, kRow),
              "a row's characters are plain");
    }
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + "
      "'<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}",
      "{%- set ns = namespace(i=0, x='') -%}{% for m in messages[::-1] if m.role != 'tool' %}"
      "{% set ns.i = ns.i + loop.index0 %}{% if loop.last %}{% break %}{% endif %}{% set ns.x = "
      "ns.x ~ m.content.split('a')[-1].replace('b', 'cc') %}{% endfor %}{{ ns.x[1:-1:2] }}",
      "{% macro f(t, n=2) -%}{% if t is mapping %}{% for k, v in t.items() %}{{ k }}={{ f(v) }}"
      "{% endfor %}{% else %}{{ t | string | indent(n) }}{% endif %}{%- endmacro %}"
      "{% for t in tools %}{{ f(t) }}{{ t | tojson(indent=2) }}{% endfor %}",
      "{% set x | upper %} {{ messages | map(attribute='content') | join(', ') }} {% endset %}"
      "{{ x }}{{ '%5s|%-3d' % (x, 7) }}{{ '{}{a}'.format(1, a=x) }}{{ messages | tojson }}",
      "{{ (1 + 2.5 * 3 // 2 - 4 % 3) ** 2 }}{{ [3, 1, 2] | sort | first }}{{ {'a': (1,)} }}"
      "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
      "{{ 'x' if a is not defined else b['c'] }}{# c #}{% raw %}{{ {% endraw %}",
      "{% filter title %}{{ messages[0].content.strip('x').lower().partition('b') }}"
      "{% endfilter %}{{ range(2, 9, 3) | list }}{{ strftime_now('%d %B %Y') }}"
      "{% if 'a' in messages[0].content %}{{ raise_exception('no ' ~ messages) }}{% endif %}",
  };
}

std::vector<std::string> FuzzWords() {
  return {"{% for x in messages %}",
          "{% endfor %}",
          "{% if ",
          "{% elif x %}",
          "{% else %}",
          "{% endif %}",
          "{% set x = ",
          "{% macro f(x) %}",
          "{% endmacro %}",
          "{% call f() %}",
          "{% endcall %}",
          "{% generation %}",
          "{% break %}",
          "{{",
          "}}",
          "%}",
          "loop.index",
          "namespace()",
          "range(99999)",
          " * 99999",
          "| tojson",
          "| join(x)",
          "| map(",
          "| sort",
          "| groupby('role')",
          "| dictsort",
          "| batch(3)",
          "| indent(9999)",
          "| replace('', x)",
          "| format",
          "| default(",
          "messages",
          "raise_exception(",
          " is ",
          "is defined",
          " not in ",
          " recursive ",
          "[::-1]",
          ".split()",
          "{#",
          "#}",
          "~"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& options = *[] {
    auto* made = new lm::ChatOptions;
    made->now = absl::CivilSecond(2026, 1, 2, 3, 4, 5);
    made->tools =
        *lm::ParseJsonValue("[{\"name\":\"f\",\"p\":{\"q\":[1,2.5,null,true,\"\ue123\"]}}]");
    return made;
  }();
  static const auto& messages = *new std::vector<lm::ChatMessage>{
      {"user", lm::TemplateValue::Input("\ue123 ab\n\ue123Xé\"\\ "), {}},
      {"\ue123", lm::TemplateValue::Input("\ue123b"), {}},
      {"user", lm::TemplateValue::Input(""), {}},
  };
  lm::Vocabulary vocabulary;
  vocabulary.chat_template.assign(reinterpret_cast<const char*>(data), size);
  if (absl::StrContains(vocabulary.chat_template, lm::kRow)) return 0;
  const auto chat = lm::ChatTemplate::Create(vocabulary);
  if (!chat.ok()) {
    lm::RequireShowable(chat.status());
    return 0;
  }
  lm::RenderOnce(*chat, messages, options);
  lm::RenderOnce(*chat, {messages[0]}, options);
  return 0;
}
