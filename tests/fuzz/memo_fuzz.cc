// Files of a memo with damaged bytes: they are refused with a message that names them, or every
// answer is the right one, found or generated anew. (Rows that somebody forged: forged_memo_test.)
//
// LM_MODEL is a model.
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/extension/sql_connection.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

constexpr std::array<const char*, 3> kQuestions = {
    "SELECT generate('rain', NULL, '{\"max_tokens\":3}')",
    "SELECT generate('snow', NULL, '{\"choices\":[\"weather\",\"other\"]}')",
    "SELECT lm_try('hail', NULL, '{\"max_tokens\":2}') ->> 'value'",
};

const FuzzFolder& Folder() {
  static const FuzzFolder folder("memo_fuzz");
  return folder;
}

class User : public SqlConnection {
 public:
  User() : SqlConnection(":memory:") {
    const char* model = std::getenv("LM_MODEL");
    Require(model != nullptr, "LM_MODEL");
    Set("model", model);
  }
};

// Of a connection that stays, so that the model is loaded once.
const std::vector<std::string>& RightAnswers() {
  static const auto& answers = *new std::vector<std::string>([] {
    static User& keeper = *new User;
    keeper.Set("memo", Folder().PathOf("seed"));
    std::vector<std::string> right;
    for (const char* question : kQuestions) right.push_back(keeper.Value(question));
    return right;
  }());
  return answers;
}

}  // namespace

// In pages of 512 bytes, so that there is less that is empty.
std::vector<std::string> FuzzSeeds() {
  RightAnswers();
  SqlConnection copy(":memory:");
  copy.Rows("ATTACH '" + Folder().PathOf("seed") + "' AS memo");
  while (copy.Value("SELECT count(*) FROM memo.generations") != "3") {  // they are written behind
  }
  copy.Rows("PRAGMA memo.page_size = 512; VACUUM memo INTO '" + Folder().PathOf("small") + "'");
  return {Folder().Read("small")};
}

std::vector<std::string> FuzzWords() {
  return {"SQLite format 3", "CREATE TABLE ", "CREATE TRIGGER ", "generations", "seal", "meta"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Under a name of its own: the process remembers what it has read from a path.
  static int64_t number = 0;
  const std::string name = "memo" + std::to_string(++number);
  const std::string path = lm::Folder().Write(name, {reinterpret_cast<const char*>(data), size});
  {
    lm::User user;
    try {
      user.Set("memo", path);
    } catch (const lm::SqlError& error) {
      lm::RequireShowable(absl::InternalError(error.what()));
      lm::Require(std::string(error.what()).find(path) != std::string::npos, "the file's name");
    }
    for (size_t i = 0; i < lm::kQuestions.size(); ++i) {
      lm::Require(user.Value(lm::kQuestions[i]) == lm::RightAnswers()[i], "the right answer");
    }
  }
  for (const char* end : {"", "-wal", "-shm", "-journal"}) unlink((path + end).c_str());
  return 0;
}
