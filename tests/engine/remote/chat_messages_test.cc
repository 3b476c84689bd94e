#include <gtest/gtest.h>

#include <string>

#include "engine/remote/chat_request.h"

namespace lm {
namespace {

TEST(ChatMessagesTest, ExamplesGoBeforeThePromptWithItsQuestionBehindThem) {
  GenerationOptions options;
  options.examples = Examples(std::vector<Example>{{"It broke.", "yes"}});
  EXPECT_EQ(*ChatMessages({.prompt = "Too bright.",
                           .question = " Is it a complaint?",
                           .system = "You answer.",
                           .options = options}),
            R"([{"role":"system","content":"You answer."},)"
            R"({"role":"user","content":"It broke. Is it a complaint?"},)"
            R"({"role":"assistant","content":"yes"},)"
            R"({"role":"user","content":"Too bright. Is it a complaint?"}])");
  options.examples = Examples::OfSet("mood");
  EXPECT_FALSE(ChatMessages({.prompt = "x", .options = options}).ok());
}

}  // namespace
}  // namespace lm
