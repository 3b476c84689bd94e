// A GPU that is lost under a statement, and one whose n-th call fails: the statement's error says
// so, or its answer is right; the next one has the model loaded anew where that must be, on the GPU
// where it is back, on the CPU where the device is 'auto'; no memory of the device is kept.
//
// By hand LM_CUDA_FAULTS=all fails each call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/cuda_on_host/device_memory.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"
#include "tests/extension/sql_connection.h"
#include "tests/testdata.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

class Connection : public SqlConnection {
 public:
  explicit Connection(const std::string& device, int max_tokens = 12) : SqlConnection(":memory:") {
    Rows(absl::StrCat("INSERT INTO temp.lm_models(name, path, options) VALUES ('m', '", LM_TESTDATA,
                      "/models/llama-q8_0.gguf', '{\"device\":\"", device,
                      "\",\"kv_bytes\":16777216}')"));
    Rows(absl::StrCat("INSERT INTO temp.lm_settings VALUES ('model', 'm'), ('max_tokens', ",
                      max_tokens, ")"));
  }

  // The value, or the error.
  std::string Answer(const std::string& sql) {
    try {
      return Value(sql);
    } catch (const SqlError& error) {
      EXPECT_EQ(sqlite3_extended_errcode(handle()), SQLITE_ERROR) << error.what();
      return absl::StrCat("error: ", error.what());
    }
  }
  std::string Device() { return Answer("SELECT device FROM temp.lm_models WHERE name = 'm'"); }
};

constexpr char kAsk[] = "SELECT generate('Name a colour.')";
// Asked for in one go.
constexpr char kAskMany[] =
    "SELECT group_concat(generate(value), '|') FROM json_each('[\"a\",\"b\",\"c\",\"d\"]')";

class LostDeviceTest : public testing::Test {
 protected:
  void TearDown() override { on_host::BringDeviceBack(); }
};

TEST_F(LostDeviceTest, IsAnErrorThatSaysSoAndTheNextStatementOpensItAgain) {
  for (const char* device : {"cuda:0", "cuda:0+cuda:1"}) {
    Connection db(device);
    const std::string wanted = db.Answer(kAsk);
    EXPECT_EQ(db.Device(), device);
    on_host::LoseDeviceAfter(3);
    EXPECT_THAT(db.Answer(kAskMany), HasSubstr("device cuda:0 is lost after "));
    // It does not come back.
    EXPECT_THAT(db.Answer(kAsk), HasSubstr("cuda:0 cannot be used: "));
    on_host::BringDeviceBack();
    EXPECT_EQ(db.Answer(kAsk), wanted);
    EXPECT_EQ(db.Device(), device);
  }
}

TEST_F(LostDeviceTest, OneOfSeveralIsTheLossOfAll) {
  Connection db("cuda:0+cuda:1");
  const std::string wanted = db.Answer(kAsk);
  for (const int device : {0, 1}) {
    on_host::LoseDeviceAfter(3, device);
    EXPECT_THAT(db.Answer(kAskMany), HasSubstr(absl::StrCat("device cuda:", device, " is lost")));
    EXPECT_THAT(db.Answer(kAsk), HasSubstr(absl::StrCat("cuda:", device, " cannot be used: ")));
    on_host::BringDeviceBack();
    EXPECT_EQ(db.Answer(kAsk), wanted);
  }
}

TEST_F(LostDeviceTest, DevicesThatCannotReadEachOtherAreAnErrorThatSaysSo) {
  Connection db("cuda:0+cuda:1");
  on_host::SetPeersCanRead(false);
  EXPECT_THAT(db.Answer(kAsk), HasSubstr("cuda:0 cannot read the memory of cuda:1"));
  on_host::SetPeersCanRead(true);
  EXPECT_THAT(db.Answer(kAsk), testing::Not(HasSubstr("error: ")));
}

TEST_F(LostDeviceTest, TheNextStatementIsOnTheCpuWhereTheDeviceIsAuto) {
  Connection db("auto");
  const std::string wanted = db.Answer(kAsk);
  EXPECT_EQ(db.Device(), "cuda:0");
  on_host::LoseDeviceAfter(3);
  EXPECT_THAT(db.Answer(kAskMany), HasSubstr("device cuda:0 is lost after "));
  EXPECT_EQ(db.Answer(kAsk), wanted);
  EXPECT_EQ(db.Device(), "cpu");
}

struct Manner {
  const char* name;
  cudaError_t error;
  bool goes_on;  // all calls from the n-th on
};

class FailingCallTest : public testing::TestWithParam<Manner> {
 protected:
  static constexpr int kMaxTokens = 3;

  void TearDown() override { on_host::BringDeviceBack(); }
};

TEST_P(FailingCallTest, IsAnErrorOrNoneAtAll) {
  const std::vector<std::string> questions = {kAsk, kAskMany, kAsk};
  std::vector<std::string> wanted;
  const int64_t allocations = on_host::NumAllocations(), faults = on_host::NumFaults();
  on_host::FailCalls(0, 0, cudaSuccess);
  {
    Connection db("cuda:0", kMaxTokens);
    for (const std::string& question : questions) wanted.push_back(db.Value(question));
  }
  const int64_t calls = on_host::CallsSeen();
  ASSERT_GT(calls, 100);
  const char* asked = std::getenv("LM_CUDA_FAULTS");
  const bool all = asked != nullptr && std::strcmp(asked, "all") == 0;
  int64_t points = 0, refused = 0;
  for (int64_t n = 1; n <= calls; n += all ? 1 : calls / 8, ++points) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    Connection db("cuda:0", kMaxTokens);
    on_host::FailCalls(n, GetParam().goes_on ? INT64_MAX : n, GetParam().error);
    for (size_t i = 0; i < questions.size(); ++i) {
      const std::string answer = db.Answer(questions[i]);
      if (answer == wanted[i]) continue;
      EXPECT_THAT(answer, HasSubstr("error: ")) << questions[i];
      EXPECT_THAT(answer, testing::AnyOf(HasSubstr("CUDA"), HasSubstr("cuda:0"))) << questions[i];
      ++refused;
    }
    on_host::BringDeviceBack();
    for (size_t i = 0; i < questions.size(); ++i) EXPECT_EQ(db.Answer(questions[i]), wanted[i]);
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(on_host::NumAllocations(), allocations);
  EXPECT_EQ(on_host::NumFaults(), faults);
  std::printf("%s: %lld of %lld points, %lld statements refused\n", GetParam().name,
              static_cast<long long>(points), static_cast<long long>(calls),
              static_cast<long long>(refused));
}

INSTANTIATE_TEST_SUITE_P(Manners, FailingCallTest,
                         testing::Values(Manner{"Refused", cudaErrorUnknown, false},
                                         Manner{"NoMemory", cudaErrorMemoryAllocation, false},
                                         Manner{"Lost", cudaErrorLaunchFailure, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lm
