// What a server elsewhere answers: any bytes are refused with a message, or are an answer. The
// first byte says what was asked.
#include <string>
#include <vector>

#include "engine/remote/chat_api.h"
#include "engine/remote/embedding_api.h"
#include "engine/remote/event_stream.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

void ReadStream(absl::string_view body, size_t piece) {
  EventStream events;
  ChatAnswer answer;
  while (!body.empty()) {
    const size_t bytes = body.size() < piece ? body.size() : piece;
    const bool goes_on = events.Append(body.substr(0, bytes), [&](const std::string& event) {
      if (event == "[DONE]") return false;
      const absl::Status status = answer.Append(event);
      if (!status.ok()) Require(!status.message().empty(), "an error has a text");
      return status.ok();
    });
    if (!goes_on) break;
    body.remove_prefix(bytes);
  }
  Require(answer.pieces >= 0, "pieces are counted");
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      "sdata: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\",\"reasoning_content\":\"b\"},"
      "\"finish_reason\":null}]}\n\n"
      "data: "
      "{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_"
      "details\":{\"cached_tokens\":2}}}\n\n"
      "data: [DONE]\n\n",
      "sdata: "
      "{\"choices\":[{\"delta\":{\"content\":\"Yes\"},\"logprobs\":{\"content\":[{\"token\":"
      "\"Yes\",\"logprob\":-0.25,"
      "\"top_logprobs\":[{\"token\":\"No\",\"logprob\":-1.5}]}]},\"finish_reason\":\"stop\"}]}"
      "\r\n\r\n",
      "w{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"length\"}],\"usage\":{"
      "\"completion_tokens\":1}}",
      "m{\"data\":[{\"id\":\"tiny\",\"owned_by\":\"vllm\",\"max_model_len\":4096}]}",
      "e{\"data\":[{\"embedding\":[1,2.5,-3e-2]}]}",
      "r{\"results\":[{\"index\":0,\"relevance_score\":0.5}]}",
      "x{\"error\":{\"message\":\"maximum context length is 10 tokens\",\"code\":400}}",
  };
}

std::vector<std::string> FuzzWords() {
  return {"\"choices\":",
          "\"delta\":",
          "\"content\":",
          "\"logprobs\":",
          "\"usage\":",
          "\"error\":",
          "null",
          "data:",
          "data: [DONE]\n\n",
          "\n\n",
          "1e999",
          "-1",
          "\"\\ud800\"",
          "[]",
          "{}",
          "\"finish_reason\":",
          "\"embedding\":",
          "\"relevance_score\":",
          "\"id\":",
          "\xff"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  absl::Status status;
  switch (data[0]) {
    case 's':
      lm::ReadStream(body, body.size());
      lm::ReadStream(body, 7);
      break;
    case 'w':
      status = lm::ChatAnswer().Append(body);
      break;
    case 'm':
      status = lm::ReadModelList(body, "").status();
      break;
    case 'e':
      status = lm::ReadEmbedding(body).status();
      break;
    case 'r':
      status = lm::ReadScore(body, lm::Dialect::kOpenAi).status();
      break;
    default:
      lm::SaysTooLong(400, lm::ErrorText(body, lm::Secrets()));
  }
  if (!status.ok()) lm::RequireShowable(status);
  return 0;
}
