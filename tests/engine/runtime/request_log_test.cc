#include "engine/runtime/request_log.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

TEST(RequestLogTest, KeepsTheLastOnesInOrder) {
  RequestLog log;
  const Request request({.prompt = {1, 2}, .salt = "a"});
  const int64_t count = RequestLog::kRecords + 10;
  for (int64_t i = 1; i <= count; ++i) {
    log.Add(request, {.finish = FinishReason::kStop, .tokens_out = static_cast<int32_t>(i)});
  }
  const std::vector<RequestRecord> records = log.Of("a");
  ASSERT_EQ(records.size(), RequestLog::kRecords);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].number, 11 + static_cast<int64_t>(i));
    EXPECT_EQ(records[i].tokens_out, records[i].number);
  }
}

TEST(RequestLogTest, ShowsASaltItsOwn) {
  RequestLog log;
  log.Add(Request({.prompt = {1}, .salt = "a"}), {});
  log.Add(Request({.prompt = {1}, .salt = "b", .score_prompt = true}), {});
  log.Add(Request({.prompt = {1}, .salt = "b", .embed = Pooling::kMean}), {});
  log.Add(Request({.prompt = {1}, .salt = "b", .stream = true}), {});
  ASSERT_EQ(log.Of("a").size(), 1u);
  EXPECT_EQ(log.Of("a")[0].kind, "generate");
  const std::vector<RequestRecord> records = log.Of("b");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kind, "score");
  EXPECT_EQ(records[1].kind, "embed");
  EXPECT_EQ(records[2].kind, "stream");
  EXPECT_EQ(records[2].number, 4);
  EXPECT_TRUE(log.Of("").empty());
}

TEST(RequestLogTest, AFailureHasFinishErrorAndItsMessage) {
  RequestLog log;
  log.Add(Request({.prompt = {1}}),
          {.status = absl::InternalError("the device failed"), .finish = FinishReason::kStop});
  const RequestRecord record = log.Of("")[0];
  EXPECT_EQ(record.finish, "error");
  EXPECT_EQ(record.error, "the device failed");
}

TEST(RequestLogTest, WhatNobodyWantsAnyMoreIsNoError) {
  RequestLog log;
  log.Add(Request({.prompt = {1}}),
          {.status = absl::CancelledError("the generation was cancelled")});
  const RequestRecord record = log.Of("")[0];
  EXPECT_EQ(record.finish, "cancelled");
  EXPECT_EQ(record.error, "");
}

}  // namespace
}  // namespace lm
