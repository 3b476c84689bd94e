// A GPU that is lost under a statement: the statement's error says so, and the next one has the
// model loaded anew, on the GPU where it is back, on the CPU where the device is 'auto'.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lm/sqlite.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/testdata.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

class LostDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sqlite3_open(":memory:", &db_), SQLITE_OK);
    ASSERT_EQ(sqlite3_lm_init(db_, nullptr, nullptr) & 0xff, SQLITE_OK);
  }
  void TearDown() override {
    on_host::BringDeviceBack();
    EXPECT_EQ(sqlite3_close(db_), SQLITE_OK);
  }

  void Load(const std::string& device) {
    for (const std::string& sql :
         {absl::StrCat("INSERT INTO temp.lm_models(name, path, options) VALUES ('m', '",
                       LM_TESTDATA, "/models/llama-q8_0.gguf', '{\"device\":\"", device,
                       "\",\"kv_bytes\":16777216}')"),
          std::string("INSERT INTO temp.lm_settings VALUES ('model', 'm'), ('max_tokens', 12)")}) {
      ASSERT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
          << sqlite3_errmsg(db_);
    }
  }

  // The first value, or the error.
  std::string Answer(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr), SQLITE_OK);
    std::string text;
    if (sqlite3_step(statement) == SQLITE_ROW) {
      text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    } else {
      EXPECT_EQ(sqlite3_extended_errcode(db_), SQLITE_ERROR);
      text = absl::StrCat("error: ", sqlite3_errmsg(db_));
    }
    sqlite3_finalize(statement);
    return text;
  }
  std::string Device() { return Answer("SELECT device FROM temp.lm_models WHERE name = 'm'"); }

  sqlite3* db_ = nullptr;
};

constexpr char kAsk[] = "SELECT generate('Name a colour.')";
// Asked for in one go; the loss comes in their midst.
constexpr char kAskMany[] =
    "SELECT count(generate(value)) FROM json_each('[\"a\",\"b\",\"c\",\"d\"]')";

TEST_F(LostDeviceTest, IsAnErrorThatSaysSoAndTheNextStatementOpensItAgain) {
  Load("cuda:0");
  const std::string wanted = Answer(kAsk);
  EXPECT_EQ(Device(), "cuda:0");
  on_host::LoseDeviceAfter(3);
  EXPECT_THAT(Answer(kAskMany), HasSubstr("device cuda:0 is lost after "));
  // It does not come back.
  EXPECT_THAT(Answer(kAsk), HasSubstr("cuda:0 cannot be used: "));
  on_host::BringDeviceBack();
  EXPECT_EQ(Answer(kAsk), wanted);
  EXPECT_EQ(Device(), "cuda:0");
}

TEST_F(LostDeviceTest, TheNextStatementIsOnTheCpuWhereTheDeviceIsAuto) {
  Load("auto");
  const std::string wanted = Answer(kAsk);
  EXPECT_EQ(Device(), "cuda:0");
  on_host::LoseDeviceAfter(3);
  EXPECT_THAT(Answer(kAskMany), HasSubstr("device cuda:0 is lost after "));
  EXPECT_EQ(Answer(kAsk), wanted);
  EXPECT_EQ(Device(), "cpu");
}

}  // namespace
}  // namespace lm
