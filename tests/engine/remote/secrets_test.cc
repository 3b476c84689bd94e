#include "engine/remote/secrets.h"

#include "engine/remote/chat_api.h"
#include "gtest/gtest.h"

namespace lm {
namespace {

TEST(SecretsTest, HidesWhatAServerWasTold) {
  const Secrets key({"Content-Type: application/json", "Expect:", "Authorization: Bearer sk-1234"});
  EXPECT_EQ(key.Without("no key sk-1234 (Bearer sk-1234), application/json"),
            "no key *** (***), application/json");
  const Secrets basic({"Authorization: Basic dXNlcjpwYXNz"});
  EXPECT_EQ(basic.Without("bad credentials dXNlcjpwYXNz"), "bad credentials ***");
  const Secrets cookies({"Cookie: session=0123456789; theme=dark"});
  EXPECT_EQ(cookies.Without("no session 0123456789"), "no session ***");
  EXPECT_EQ(Secrets({"X-Key: short"}).Without("too short"), "too short");
  EXPECT_EQ(Secrets().Without("a word"), "a word");
}

TEST(SecretsTest, ASchemeAloneIsNoSecret) {
  const Secrets key({"Authorization: Bearer sk-1234"});
  for (const char* words : {"the Authorization scheme must be Bearer", "token type: Bearer "}) {
    EXPECT_EQ(key.Without(words), words);
  }
  EXPECT_EQ(key.Without("no key Bearer s"), "no key ***");
  EXPECT_EQ(Secrets({"X-Key: secret "}).Without("no key secret "), "no key ***");
}

TEST(SecretsTest, HidesWhatIsCutWithinAsWell) {
  const Secrets key({"Authorization: Bearer sk-123456789"});
  EXPECT_EQ(key.Without("no key sk-123456789", 12), "no key ***");
  EXPECT_EQ(key.Without("no key sk-12345"), "no key ***");
  EXPECT_EQ(key.Without("no key sk-12"), "no key sk-12");
  for (size_t before = 380; before < 402; ++before) {
    const std::string words(before, 'x');
    const std::string shown = ErrorText(words + "sk-123456789", key);
    EXPECT_EQ(shown, before < 400 ? words + "***" : words.substr(0, 400)) << before;
  }
}

}  // namespace
}  // namespace lm
