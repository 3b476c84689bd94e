// Which chat template a model has: its file's, or the one that its options name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/model/adapter_file.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

// What "Hi" becomes with the option, or why nothing.
std::string Rendered(const SmallModel& small, const std::string& option) {
  const auto model = small.Load({.kv_bytes = 1 << 20, .chat_template = option});
  if (!model.ok()) return std::string(model.status().message());
  const auto rendered = (*model)->chat_template().Render("", "Hi", {});
  return rendered.ok() ? rendered->Text() : std::string(rendered.status().message());
}

TEST(ModelTemplateTest, TheOptionsStandForTheFiles) {
  SmallModel small;
  EXPECT_EQ(Rendered(small, ""), "Hi");
  small.Set("tokenizer.chat_template", std::string("<{{ messages[0].content }}>"));
  EXPECT_EQ(Rendered(small, ""), "<Hi>");
  EXPECT_EQ(Rendered(small, "[{{ messages[0].content }}]"), "[Hi]");
  const std::string name = "model_template_test.jinja";
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << "({{ messages[0].content }})";
  EXPECT_EQ(Rendered(small, path), "(Hi)");
  EXPECT_EQ(Rendered(small, name), "(Hi)");  // from the model's folder
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  EXPECT_THAT(Rendered(small, path), HasSubstr("at most 1048576 bytes, not 1048577"));
  std::filesystem::remove(path);
  EXPECT_THAT(Rendered(small, path), HasSubstr("neither Jinja ({{ or {%) nor a file's path"));
}

TEST(ModelTemplateTest, AModelWhoseTemplateIsNotUnderstoodLoads) {
  SmallModel small;
  small.Set("tokenizer.chat_template", std::string("{% include 'other' %}"));
  ASSERT_TRUE(small.Load().ok());
  EXPECT_THAT(Rendered(small, ""), HasSubstr("chat template, which begins \"{% include"));
  EXPECT_EQ(Rendered(small, "{{ messages[0].content }}!"), "Hi!");
}

TEST(ModelTemplateTest, AnotherFileOfItIsAnotherModel) {
  const std::string model = testing::TempDir() + "/model_template_test.gguf";
  SmallModel().Write(model);
  const ModelOptions options = {.chat_template = "model_template_test_2.jinja"};
  const std::string path = testing::TempDir() + "/" + options.chat_template;
  EXPECT_FALSE(IdentifyFiles(model, options).ok());
  std::ofstream(path) << "{{ 1 }}";
  const auto first = IdentifyFiles(model, options);
  std::ofstream(path) << "{{ 1 }}{{ 2 }}";
  const auto second = IdentifyFiles(model, options);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status();
  EXPECT_FALSE(*first == *second);
  std::filesystem::remove(path);
  std::filesystem::remove(model);
}

}  // namespace
}  // namespace lm
