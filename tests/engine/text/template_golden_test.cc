// What jinja2 3.1.2 makes of each construct and of the usual shapes of chat templates; see
// tests/parity/chat_templates.py, which wrote testdata/templates/expected.jsonl.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/template/json_value.h"
#include "template_cases.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

std::vector<TemplateValue> Expected() {
  std::vector<TemplateValue> lines;
  for (const std::string& line : TestDataLines("templates/expected.jsonl")) {
    auto value = ParseJsonValue(line);
    EXPECT_TRUE(value.ok()) << value.status();
    if (value.ok()) lines.push_back(*std::move(value));
  }
  return lines;
}

TEST(TemplateGoldenTest, GivesWhatJinjaGives) {
  const std::vector<TemplateValue> lines = Expected();
  ASSERT_GT(lines.size(), 100u);
  const TemplateValue& job = lines[0];
  const TemplateValue::List& cases = MemberOf(job, "cases")->list();
  int texts = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const TemplateValue::List& results = MemberOf(lines[i], "results")->list();
    const auto chat = TemplateOf(job, MemberOf(lines[i], "source")->text().bytes());
    for (size_t n = 0; n < results.size(); ++n) {
      SCOPED_TRACE(testing::Message() << MemberOf(lines[i], "name")->text().bytes() << ", case "
                                      << n + MemberOf(lines[i], "first")->integer());
      const TemplateValue& one = cases[n + MemberOf(lines[i], "first")->integer()];
      const auto text =
          chat.ok() ? RenderCase(*chat, job, one) : absl::StatusOr<std::string>(chat.status());
      if (const TemplateValue* wanted = MemberOf(results[n], "text"); wanted != nullptr) {
        ++texts;
        ASSERT_TRUE(text.ok()) << text.status();
        EXPECT_EQ(*text, wanted->text().bytes());
      } else {
        EXPECT_FALSE(text.ok()) << "jinja2 says " << MemberOf(results[n], "error")->text().bytes();
      }
    }
  }
  EXPECT_GT(texts, 150);
}

}  // namespace
}  // namespace lm
