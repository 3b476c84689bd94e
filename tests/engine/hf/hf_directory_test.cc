// How the opening of a directory is given up. What directories mean: tests/extension/hf_test.py.
#include "engine/hf/hf_directory.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/engine/hf/hf_folder.h"

namespace lm {
namespace {

TEST(HfDirectoryTest, ACancelledOneIsNotReadToItsEnd) {
  const HfFolder folder;
  folder.Write("config.json",
               R"({"model_type":"llama","hidden_size":32,"num_hidden_layers":1,)"
               R"("num_attention_heads":2,"intermediate_size":64,"vocab_size":600000,)"
               R"("max_position_embeddings":64})");
  std::string vocabulary;  // takes longer to read than the time between two looks at `cancel`
  for (int i = 0; i < 600000; ++i) {
    absl::StrAppend(&vocabulary, i == 0 ? "" : ",", "\"token", i, "\":", i);
  }
  folder.Write("tokenizer.json",
               absl::StrCat(R"({"pre_tokenizer":{"type":"ByteLevel"},"model":)",
                            R"({"type":"BPE","merges":[],"vocab":{)", vocabulary, "}}}"));
  std::atomic<bool> cancel{false};
  // There are no weights: what is read to its end finds none.
  EXPECT_TRUE(absl::IsNotFound(OpenModelFile(folder.path(), &cancel).status()));
  cancel = true;
  EXPECT_TRUE(absl::IsCancelled(OpenModelFile(folder.path(), &cancel).status()));
}

}  // namespace
}  // namespace lm
