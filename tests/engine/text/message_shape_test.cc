// Whatever a template makes of roles and contents, no text of a conversation is lost in silence.
#include "engine/text/chat/message_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/text/chat/conversation.h"
#include "engine/text/template/json_value.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

ChatTemplate Chat(const std::string& source) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  vocabulary.chat_template = source;
  return ChatTemplate::CreateOrRefuse(vocabulary);
}

std::string Told(const absl::StatusOr<RenderedChat>& rendered) {
  return rendered.ok() ? rendered->Text() : std::string(rendered.status().message());
}

// What a template makes of a system prompt and a prompt, or why nothing.
std::string Asked(const std::string& source, const ChatOptions& options = {}) {
  return Told(Chat(source).Render("Be brief.", "Hi?", options));
}

std::string Talk(const std::string& source, const std::string& json) {
  const auto messages = ReadConversation(json, "", /*is_messages=*/true);
  EXPECT_TRUE(messages.ok()) << messages.status();
  return Told(Chat(source).Render(*messages, {}));
}

// Writes the roles that are named, and nothing of others.
std::string Knows(const std::string& roles, const std::string& content = "m.content") {
  return "{% for m in messages if m.role in [" + roles + "] %}<{{ m.role }}>{{ " + content +
         " }}{% endfor %}";
}

TEST(MessageShapeTest, WhatATemplateWritesIsLeftAsItIs) {
  EXPECT_EQ(Asked(Knows("'system', 'user'")), "<system>Be brief.<user>Hi?");
  // Without white space around it, too.
  EXPECT_EQ(Told(Chat(Knows("'user'", "m.content | trim")).Render("", " Hi?\n", {})), "<user>Hi?");
}

TEST(MessageShapeTest, AContentMayStandWhereAPartWould) {
  EXPECT_EQ(Asked("{% for m in messages %}{'text': '{{ m.content }}'}{% endfor %}"),
            "{'text': 'Be brief.'}{'text': 'Hi?'}");
  // Or be written for what it says.
  EXPECT_EQ(Asked("{% for m in messages if 'i' in m.content %}{{ m.content }}{% endfor %}"),
            "Be brief.Hi?");
  EXPECT_THAT(Asked("{% for m in messages if 'H' in m.content %}{{ m.content }}{% endfor %}"),
              HasSubstr("leaves out what message 1 of 2 says"));
}

TEST(MessageShapeTest, ASystemPromptWithoutAPlaceStandsInFrontOfThePrompt) {
  const std::string wanted = "<user>Be brief.\n\nHi?";
  EXPECT_EQ(Asked(Knows("'user'")), wanted);  // drops it
  const std::string refuses =
      "{% if messages[0].role == 'system' %}{{ raise_exception('No system role!') }}{% endif %}";
  EXPECT_EQ(Asked(refuses + Knows("'user'")), wanted);
  // Takes it from elsewhere.
  EXPECT_EQ(Asked("{{ system_message | default('') }}" + Knows("'user'")), wanted);
  // Writes one only where more than one other message comes.
  EXPECT_EQ(
      Asked("{% if messages | length > 2 %}{{ messages[0].content }}{% endif %}" + Knows("'user'")),
      wanted);
}

TEST(MessageShapeTest, ContentsArePartsWhereATemplateReadsThoseOnly) {
  const std::string parts =
      "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}"
      "{{ p.text }}{% endif %}{% endfor %}{% endfor %}";
  EXPECT_EQ(Asked(parts), "<system>Be brief.<user>Hi?");
  const std::string first =
      "{% for m in messages %}<{{ m.role }}>{{ m.content[0]['text'] }}{% endfor %}";
  EXPECT_EQ(Asked(first), "<system>Be brief.<user>Hi?");
  // Of users only.
  const std::string mixed =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'system' %}{{ m.content + '!' }}"
      "{% else %}{{ m.content[0].text }}{% endif %}{% endfor %}";
  EXPECT_EQ(Asked(mixed), "<system>Be brief.!<user>Hi?");
  // And no system prompt.
  EXPECT_EQ(Asked("{% for m in messages if m.role == 'user' %}{{ m.content[0].text }}{% endfor %}"),
            "Be brief.\n\nHi?");
}

TEST(MessageShapeTest, PartsAreATextWhereATemplateReadsThoseOnly) {
  const std::string talk =
      R"([{"role":"user","content":[{"type":"text","text":"Hi?"},{"type":"text","text":"Ho?"}]}])";
  EXPECT_EQ(Talk(Knows("'user'"), talk), "<user>Hi?\nHo?");  // no list as Python writes it
  EXPECT_EQ(Talk(Knows("'user'", "m.content + '!'"), talk), "<user>Hi?\nHo?!");
  EXPECT_EQ(Talk(Knows("'user'", "m.content | tojson"), talk), "<user>\"Hi?\\nHo?\"");
  // The second one too.
  EXPECT_EQ(Talk(Knows("'user'", "m.content if m.content is string else m.content[0].text"), talk),
            "<user>Hi?\nHo?");
  EXPECT_EQ(Talk(Knows("'user'", "m.content | map(attribute='text') | join(' ')"), talk),
            "<user>Hi? Ho?");
}

TEST(MessageShapeTest, ADeveloperIsASystemToWhomDoesNotKnowHim) {
  const std::string talk =
      R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi?"}])";
  EXPECT_EQ(Talk(Knows("'system', 'user'"), talk), "<system>Be brief.<user>Hi?");
  EXPECT_EQ(Talk(Knows("'developer', 'user'"), talk), "<developer>Be brief.<user>Hi?");
  EXPECT_EQ(Talk(Knows("'user'"), talk), "<user>Be brief.\n\nHi?");
}

TEST(MessageShapeTest, SystemsThatAreDroppedBehindTheFirstAreKept) {
  const std::string first =
      "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}{% endif %}" +
      Knows("'user', 'assistant'");
  EXPECT_EQ(Talk(first, R"([{"role":"system","content":"Be brief."},
                            {"role":"developer","content":"Be kind."},
                            {"role":"user","content":"Hi?"},{"role":"assistant","content":"Ho."},
                            {"role":"system","content":"Be quick."},
                            {"role":"user","content":"And?"}])"),
            "<system>Be brief.\n\nBe kind.<user>Hi?<assistant>Ho.<user>Be quick.\n\nAnd?");
}

// Of systems whose contents are lists, too.
TEST(MessageShapeTest, SystemsInFrontOfOthersAreJoinedInTheirOrder) {
  const std::string parts =
      R"({"role":"system","content":[{"type":"text","text":"Be kind."},"C."]})";
  const std::string brief = R"({"role":"system","content":"Be brief."})";
  const std::string user = R"({"role":"user","content":"Hi?"})";
  const std::string list = R"({"role":"user","content":[{"type":"text","text":"Hi?"},"Ho?"]})";
  const std::string other = R"({"role":"system","content":[{"type":"image"}]})";
  const auto talk = [](std::initializer_list<std::string> messages) {
    return Talk(Knows("'user'",
                      "(m.content if m.content is string else (m.content | map("
                      "attribute='text') | join('/'))) | replace('\n', '~')"),
                absl::StrCat("[", absl::StrJoin(messages, ","), "]"));
  };
  EXPECT_EQ(talk({brief, parts, user}), "<user>Be brief.~~~Be kind.~C.~~Hi?");
  EXPECT_EQ(talk({parts, brief, user}), "<user>Be kind.~C.~~Be brief.~~Hi?");
  EXPECT_EQ(talk({brief, brief, user, user, parts, user}),
            "<user>Be brief.~~Be brief.~~Hi?<user>Hi?<user>Be kind.~C.~~Hi?");
  EXPECT_EQ(talk({brief, parts, list}), "<user>Be brief.~~~Be kind.~C.~~~Hi?~Ho?");
  EXPECT_THAT(talk({other, brief, user}), HasSubstr("leaves out what message 2 of 3 says"));
}

TEST(MessageShapeTest, WhatIsLostInEveryShapeIsAnErrorThatNamesIt) {
  EXPECT_THAT(Asked("Hello{{ 1 }}"),
              HasSubstr("chat template leaves out what message 1 of 2 says (role "
                        "'system'), in each of the forms"));
  EXPECT_THAT(Talk(Knows("'system', 'user', 'assistant'"),
                   R"([{"role":"user","content":"Hi?"},{"role":"tool","content":"7"}])"),
              HasSubstr("leaves out what message 2 of 2 says (role 'tool')"));
  // A system whom no user follows.
  EXPECT_THAT(Talk(Knows("'user', 'assistant'"),
                   R"([{"role":"user","content":"Hi?"},{"role":"system","content":"Be brief."}])"),
              HasSubstr("message 2 of 2 says (role 'system')"));
  // The last message alone.
  EXPECT_THAT(Talk("{{ messages[-1].content }}", R"([{"role":"user","content":"Hi?"},
                   {"role":"assistant","content":"Ho."},{"role":"user","content":"And?"}])"),
              HasSubstr("message 1 of 3 says (role 'user')"));
  EXPECT_THAT(Talk("chatml", R"([{"role":"user","content":" "}])"), HasSubstr("<|im_start|>"));
}

// As some take an answer's reasoning out, of whoever says it.
TEST(MessageShapeTest, ATextThatIsCutAtAMarkIsAnError) {
  const ChatTemplate chat = Chat(Knows("'user'", "m.content.split('</think>')[-1]"));
  EXPECT_EQ(Told(chat.Render("", "What is this?", {})), "<user>What is this?");
  EXPECT_THAT(Told(chat.Render("", "What is </think> for?", {})),
              HasSubstr("leaves out a part of what message 1 of 1 says (role 'user')"));
  EXPECT_EQ(Told(chat.Render("", "What is that?", {})), "<user>What is that?");
  EXPECT_EQ(Told(Chat(Knows("'user'")).Render("", "What is </think> for?", {})),
            "<user>What is </think> for?");
  // An old answer loses its reasoning as it should.
  EXPECT_EQ(Talk(Knows("'user', 'assistant'", "m.content.split('</think>')[-1]"),
                 R"([{"role":"user","content":"Hi?"},
                     {"role":"assistant","content":"<think>so</think>Ho."}])"),
            "<user>Hi?<assistant>Ho.");
}

TEST(MessageShapeTest, ARefusalSaysTheTemplatesOwnWords) {
  const std::string refuses =
      "{% for m in messages if m.role == 'tool' %}{{ raise_exception('No tools!') }}{% endfor %}";
  EXPECT_EQ(Talk(refuses + Knows("'user'"),
                 R"([{"role":"user","content":"Hi?"},{"role":"tool","content":"7"}])"),
            "the model's chat template refuses the conversation: No tools!");
}

TEST(MessageShapeTest, WhatIsSaidBesideToolCallsMayBeLeftOut) {
  EXPECT_EQ(Talk(Knows("'user'") + "{% for m in messages if m.tool_calls %}{{ m.tool_calls[0].n }}"
                                   "{% endfor %}",
                 R"([{"role":"user","content":"Hi?"},
                     {"role":"assistant","content":"Well.","tool_calls":[{"n":3}]}])"),
            "<user>Hi?3");
}

// One template, asked in turn: each conversation has the shape that it needs.
TEST(MessageShapeTest, ShapesAreRememberedByAllThatTheyDependOn) {
  const ChatTemplate chat = Chat(
      "{% if messages[0].role == 'system' and not bare %}S:{{ messages[0].content }} {% endif %}" +
      Knows("'user'") + "{% if bare %}!{% endif %}");
  ChatOptions bare;
  bare.template_args = {{"bare", *ParseJsonValue("true")}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Told(chat.Render("Be brief.", "Hi?", {})), "S:Be brief. <user>Hi?");
    EXPECT_EQ(Told(chat.Render("Be brief.", "Hi?", bare)), "<user>Be brief.\n\nHi?!");
    EXPECT_EQ(Told(chat.Render("", "Hi?", bare)), "<user>Hi?!");
    const auto parts = ParseJsonValue(R"([{"type":"text","text":"Hi?"}])");
    EXPECT_EQ(Told(chat.Render(std::vector<ChatMessage>{{"user", *parts, {}}}, {})), "<user>Hi?");
  }
}

// Writes texts, and only of users.
absl::StatusOr<std::string> WriteUsers(absl::Span<const ChatMessage> messages) {
  std::string text;
  for (const ChatMessage& message : messages) {
    if (message.role != "user") continue;
    if (!message.content.Is(TemplateValue::Kind::kString)) return absl::FailedPreconditionError("");
    absl::StrAppend(&text, message.content.text().bytes(), "\n");
  }
  return text;
}

// The least of several.
double ShapeSeconds(const std::vector<ChatMessage>& messages) {
  double least = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    const auto shape = FindShape(messages, WriteUsers);
    if (shape.ok()) {
      EXPECT_TRUE(ShapeMessages(messages, *shape).has_value());
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    least = std::min(least, static_cast<double>(end.tv_sec - begin.tv_sec) +
                                1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return least;
}

TEST(MessageShapeTest, TimeGrowsWithAConversationAndNotItsSquare) {
  const TemplateValue text = TemplateValue::Input("What is it that you have to say?");
  const std::function<std::vector<ChatMessage>(size_t)> kinds[] = {
      [&](size_t count) {  // each second one is lost
        std::vector<ChatMessage> messages(count, {"user", text, {}});
        for (size_t i = 1; i < count; i += 2) messages[i].role = "tool";
        return messages;
      },
      [&](size_t count) {
        TemplateValue::List parts(count, text);
        const auto list = TemplateValue::Sequence(TemplateValue::Kind::kList, std::move(parts));
        return std::vector<ChatMessage>{{"user", list, {}}};
      },
      [&](size_t count) {
        std::vector<ChatMessage> messages(count, {"system", text, {}});
        messages.back().role = "user";
        return messages;
      }};
  for (const auto& make : kinds) {
    EXPECT_LT(ShapeSeconds(make(16 * 2000)), 80 * ShapeSeconds(make(2000)));
  }
}

TEST(MessageShapeTest, AnInterruptIsSeenBetweenTheShapes) {
  bool interrupted = false;
  const CheckpointScope scope([&interrupted] { return interrupted; });
  const TemplateValue text = TemplateValue::Input("Hi?");
  const std::vector<ChatMessage> messages = {{"system", text, {}}, {"user", text, {}}};
  int renders = 0;
  const auto shape = FindShape(messages, [&](absl::Span<const ChatMessage>) {
    ++renders;
    interrupted = true;
    absl::SleepFor(2 * absl::FromChrono(kCheckpointInterval));  // it is asked once in that
    return std::string();
  });
  EXPECT_TRUE(absl::IsCancelled(shape.status())) << shape.status();
  EXPECT_EQ(renders, 1);
}

TEST(MessageShapeTest, AllIsWrittenWhereEachTextStandsSomewhere) {
  const auto write = [](std::initializer_list<const char*> texts, absl::string_view rendered) {
    std::vector<ChatMessage> messages;
    for (const char* text : texts) messages.push_back({"user", TemplateValue::Input(text), {}});
    return WritesAll(messages, rendered);
  };
  EXPECT_TRUE(write({"a", " b ", "c", ""}, "<a><b><c>"));
  EXPECT_TRUE(write({"c", "a", "b", "b"}, "<a><b><c>"));
  EXPECT_FALSE(write({"a", "d", "b"}, "<a><b><c>"));
}

}  // namespace
}  // namespace lm
