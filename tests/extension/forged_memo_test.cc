// A memo file that somebody else wrote, with every seal made right: whatever its rows hold, no
// statement fails, and no answer is one that could not have been given.
//
//   forged_memo_test              # 100 forgeries
//   FORGERIES=1000 forged_memo_test
#include <gtest/gtest.h>
#include <regex.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/digest.h"
#include "engine/base/utf8.h"
#include "lm/sqlite.h"
#include "tests/testdata.h"

namespace {

constexpr char kSchema[] = R"({"type":"object","properties":{"wet":{"type":"boolean"}},)"
                           R"("required":["wet"],"additionalProperties":false})";

// A statement, and what any answer to it looks like.
struct Question {
  std::string sql;
  std::function<bool(const std::string&)> valid;
};

bool IsWetJson(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() && json.size() == 1 && json.contains("wet") && json["wet"].is_boolean();
}

std::vector<Question> Questions() {
  auto is_text = [](const std::string& text) {
    return lm::ValidUtf8Prefix(text) == text.size() && text.find('\0') == std::string::npos;
  };
  auto is_probability = [](const std::string& text) {
    const double score = std::strtod(text.c_str(), nullptr);
    return std::isfinite(score) && score >= 0 && score <= 1;
  };
  auto matches = [](const std::string& pattern) {
    return [pattern](const std::string& text) {
      regex_t regex;  // of POSIX: <regex> takes half a minute to compile
      const std::string whole = "^(" + pattern + ")$";
      if (regcomp(&regex, whole.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
      const bool all =
          text.find('\0') == text.npos && regexec(&regex, text.c_str(), 0, nullptr, 0) == 0;
      regfree(&regex);
      return all;
    };
  };
  const std::string schema = kSchema;
  return {
      {"SELECT lm_score('rain', 'It is wet.')", is_probability},
      {"SELECT lm_if('rain', 'Is it wet?')", matches("[01]")},
      {R"(SELECT lm_classify('rain', '["wet","dry","neither of them"]'))",
       matches("wet|dry|neither of them")},
      {"SELECT generate_json('rain', '" + schema + "')", IsWetJson},
      {"SELECT lm_extract('rain', '" + schema + "')",
       [](const std::string& text) {
         return nlohmann::json::parse(text, nullptr, false).is_object();
       }},
      {R"(SELECT generate('rain', NULL, '{"regex":"[a-f]{3,5}","max_tokens":9}'))",
       matches("[a-f]{3,5}")},
      {R"(SELECT generate('rain', NULL, '{"choices":["a","bb","ccc"],"max_tokens":9}'))",
       matches("a|bb|ccc")},
      {R"(SELECT generate('rain', NULL, '{"max_tokens":5}'))", is_text},
      {R"(SELECT generate('rain', NULL, '{"max_tokens":40,"stop":["a","e"]}'))",
       [is_text](const std::string& text) {
         return is_text(text) && text.find_first_of("ae") == std::string::npos;
       }},
      {R"(SELECT lm_try('rain', NULL, '{"max_tokens":6}') ->> 'tokens_out')", matches("[0-6]")},
  };
}

class Connection {
 public:
  explicit Connection(const std::string& path) {
    Check(sqlite3_open(path.c_str(), &db_) == SQLITE_OK);
  }
  ~Connection() { sqlite3_close(db_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // With lm's functions, and a memo.
  void UseMemo(const std::string& path) {
    Check((sqlite3_lm_init(db_, nullptr, nullptr) & 0xff) == SQLITE_OK);
    Rows("INSERT OR REPLACE INTO temp.lm_settings VALUES ('model', '" LM_TESTDATA
         "/models/llama-q8_0.gguf'), ('memo', '" +
         path + "')");
  }

  // Values as bytes; parameters are bound as BLOBs, or as text where their column is one.
  std::vector<std::vector<std::string>> Rows(const std::string& sql,
                                             const std::vector<std::string>& texts = {},
                                             const std::vector<std::string>& blobs = {}) {
    sqlite3_stmt* statement = nullptr;
    Check(sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
    int at = 0;
    for (const std::string& text : texts) {
      sqlite3_bind_text(statement, ++at, text.data(), static_cast<int>(text.size()),
                        SQLITE_TRANSIENT);
    }
    for (const std::string& blob : blobs) {
      sqlite3_bind_blob(statement, ++at, blob.data(), static_cast<int>(blob.size()),
                        SQLITE_TRANSIENT);
    }
    std::vector<std::vector<std::string>> rows;
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
      rows.emplace_back();
      for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, i));
        const int size = sqlite3_column_bytes(statement, i);
        rows.back().emplace_back(bytes == nullptr ? "" : std::string(bytes, size));
      }
    }
    const std::string message = sqlite3_errmsg(db_);
    sqlite3_finalize(statement);
    if (code != SQLITE_DONE) throw std::runtime_error(sql + ": " + message);
    return rows;
  }

 private:
  void Check(bool good) {
    if (!good) throw std::runtime_error(sqlite3_errmsg(db_));
  }

  sqlite3* db_ = nullptr;
};

// A row of the file: its fields as bytes.
struct Row {
  std::string id, model, options, prompt, answer, tokens, finish, choices, tokens_in, tokens_out;

  // As memo_file.cc computes it.
  int64_t Seal() const {
    std::string all;
    for (const std::string& field :
         {model, options, prompt, answer, tokens, finish, choices, tokens_in, tokens_out}) {
      absl::StrAppend(&all, field.size(), ":", field);
    }
    return static_cast<int64_t>(lm::DigestOf(all).low);
  }
};

template <typename T>
void Replace(std::string* bytes, size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof(T));
}

class Forger {
 public:
  explicit Forger(uint32_t seed) : random_(seed) {}

  // Changes one thing of a row, or a few things that agree with each other.
  void Forge(std::vector<Row>* rows) {
    Row& row = (*rows)[Below(rows->size())];
    const Row& other = (*rows)[Below(rows->size())];
    switch (Below(13)) {
      case 0:  // another row's answer, whole
        row.answer = other.answer, row.tokens = other.tokens, row.finish = other.finish;
        if (Below(2) == 0) row.choices = other.choices;
        if (Below(2) == 0) row.tokens_out = other.tokens_out;
        break;
      case 1:
        row.answer = Pick({"a lie", "", "wet and dry", "{\"wet\":1}", "{}", "\xff\xfe",
                           "\xed\xa0\x80", std::string("a\0b", 3), std::string(10000, 'x')});
        break;
      case 2:
        row.tokens = row.tokens.substr(0, 4 * Below(row.tokens.size() / 4 + 1));
        break;
      case 3:
        for (size_t n = 1 + Below(4); n > 0; --n) Append(&row.tokens, Token());
        break;
      case 4:
        if (!row.tokens.empty()) Replace(&row.tokens, 4 * Below(row.tokens.size() / 4), Token());
        break;
      case 5:
        row.finish = Pick({"stop", "length", "context", "error", "whenever"});
        break;
      case 6:
        if (!row.choices.empty()) Replace(&row.choices, Choice(row.choices), Token());
        break;
      case 7:
        if (!row.choices.empty()) {
          Replace(&row.choices, Choice(row.choices) + 4, Logprob());
        }
        break;
      case 8:
        for (size_t n = 1 + Below(3); n > 0; --n) {
          const std::string text = Pick({"y", "n", "yes", "", "\xff", std::string(300, 'y')});
          Append(&row.choices, static_cast<uint32_t>(text.size()));
          Append(&row.choices, Logprob());
          row.choices += text;
        }
        break;
      case 9:
        row.choices = row.choices.substr(
            0, Below(2) == 0 ? Choice(row.choices) : Below(row.choices.size() + 1));
        break;
      case 10: {  // any tokens
        row.tokens.clear();
        for (size_t n = Below(50); n > 0; --n)
          Append(&row.tokens, static_cast<int32_t>(Below(400)));
        break;
      }
      case 11:
        (Below(2) == 0 ? row.tokens_in : row.tokens_out) = std::to_string(Token());
        break;
      default: {  // any bytes
        std::string& field = *Pick({&row.tokens, &row.choices, &row.answer});
        if (!field.empty()) field[Below(field.size())] = static_cast<char>(Below(256));
      }
    }
  }

 private:
  // Where one of the choices begins: the size of its text, its logprob, its text.
  size_t Choice(const std::string& choices) {
    std::vector<size_t> begins = {0};
    for (size_t at = 0; choices.size() - at > 8;) {
      uint32_t size = 0;
      std::memcpy(&size, &choices[at], sizeof(size));
      if (choices.size() - at - 8 <= size) break;
      at += 8 + size;
      begins.push_back(at);
    }
    return begins[Below(begins.size())];
  }
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }
  template <typename T>
  T Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }
  std::string Pick(const std::vector<std::string>& from) { return from[Below(from.size())]; }
  std::string* Pick(const std::vector<std::string*>& from) { return from[Below(from.size())]; }

  int32_t Token() {
    const std::vector<int32_t> strange = {0x40000000, -1, 0, 1, 2, 255, 300, INT32_MIN, INT32_MAX};
    return Below(2) == 0 ? strange[Below(strange.size())] : static_cast<int32_t>(Below(1000));
  }
  float Logprob() {
    const std::vector<float> strange = {NAN, INFINITY, -INFINITY, 0, 1, 88, 1e30f, -1e30f, -0.5f};
    return strange[Below(strange.size())];
  }
  template <typename T>
  void Append(std::string* bytes, T value) {
    bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  std::mt19937 random_;
};

class ForgedMemoTest : public testing::Test {
 protected:
  void SetUp() override {
    static int num_tests = 0;  // the process remembers what it has read from a path
    folder_ = std::filesystem::temp_directory_path() /
              absl::StrCat("forged_memo_test.", getpid(), ".", ++num_tests);
    std::filesystem::create_directory(folder_);
    const std::string path = folder_ / "memo.db";
    {
      Connection user(":memory:");
      user.UseMemo(path);
      for (const Question& question : Questions()) {
        answers_.push_back(user.Rows(question.sql).at(0).at(0));
        ASSERT_TRUE(question.valid(answers_.back())) << question.sql << ": " << answers_.back();
      }
    }
    Connection file(path);
    for (auto& v : file.Rows("SELECT id, model, options, prompt, answer, tokens, finish, choices, "
                             "tokens_in, tokens_out FROM generations")) {
      rows_.push_back({v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]});
    }
    ASSERT_EQ(rows_.size(), answers_.size());
    file.Rows("PRAGMA journal_mode = DELETE");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A memo that holds these rows, under a name of its own: the process remembers nothing of it.
  std::string Write(const std::vector<Row>& rows) {
    const std::string path = folder_ / absl::StrCat("forged", ++num_files_, ".db");
    std::filesystem::copy_file(folder_ / "memo.db", path);
    Connection file(path);
    file.Rows("PRAGMA synchronous = OFF");
    file.Rows("BEGIN");
    for (const Row& row : rows) {
      file.Rows(absl::StrCat("UPDATE generations SET seal = ", row.Seal(),
                             ", tokens_in = ", row.tokens_in, ", tokens_out = ", row.tokens_out,
                             ", answer = CAST(?1 AS TEXT), finish = ?2, tokens = ?3, choices = ?4 "
                             "WHERE id = ",
                             row.id),
                {row.answer, row.finish}, {row.tokens, row.choices});
    }
    file.Rows("COMMIT");
    return path;
  }

  std::filesystem::path folder_;
  std::vector<std::string> answers_;
  std::vector<Row> rows_;
  int num_files_ = 0;
};

TEST_F(ForgedMemoTest, RowsWithTheRightSealAreRead) {
  const std::string path = Write(rows_);
  Connection user(":memory:");
  user.UseMemo(path);
  const auto before = user.Rows("SELECT coalesce(sum(requests), 0) FROM lm_stats");
  for (size_t i = 0; i < answers_.size(); ++i) {
    EXPECT_EQ(user.Rows(Questions()[i].sql).at(0).at(0), answers_[i]);
  }
  EXPECT_EQ(user.Rows("SELECT coalesce(sum(requests), 0) FROM lm_stats"), before);
}

TEST_F(ForgedMemoTest, NoForgeryCrashesOrGivesAnImpossibleAnswer) {
  const char* wanted = std::getenv("FORGERIES");
  const int forgeries = wanted != nullptr ? std::atoi(wanted) : 100;
  const std::vector<Question> questions = Questions();
  Connection keeper(":memory:");  // of the model, which is loaded once
  keeper.UseMemo(folder_ / "keeper.db");
  keeper.Rows(questions[0].sql);
  for (int i = 0; i < forgeries; ++i) {
    SCOPED_TRACE(testing::Message() << "forgery " << i);
    Forger forger(i);
    std::vector<Row> rows = rows_;
    for (int n = 0; n < 1 + i % 8; ++n) forger.Forge(&rows);
    const std::string path = Write(rows);
    Connection user(":memory:");
    user.UseMemo(path);
    for (const Question& question : questions) {
      const std::string answer = user.Rows(question.sql).at(0).at(0);
      EXPECT_TRUE(question.valid(answer)) << question.sql << ": " << answer;
    }
    std::filesystem::remove(path);
  }
}

// What is generated in the place of a forgery takes its place in the file as well.
TEST_F(ForgedMemoTest, AForgeryIsReplaced) {
  std::vector<Row> rows = rows_;
  for (Row& row : rows) row.answer += "!";
  const std::string path = Write(rows);
  {
    Connection user(":memory:");
    user.UseMemo(path);
    for (size_t i = 0; i < answers_.size(); ++i) {
      EXPECT_EQ(user.Rows(Questions()[i].sql).at(0).at(0), answers_[i]);
    }
  }
  Connection file(path);
  EXPECT_EQ(file.Rows("SELECT count(*) FROM generations").at(0).at(0),
            std::to_string(answers_.size()));
  EXPECT_EQ(file.Rows("SELECT count(*) FROM generations WHERE answer LIKE '%!'").at(0).at(0), "0");
}

// Has the first two rows of a table change places in its file.
void SwapFirstRows(const std::string& path, int root, size_t page_size) {
  constexpr char kLeaf = 13;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string page(page_size, 0);
  auto read = [&](size_t number) {
    file.seekg(static_cast<std::streamoff>((number - 1) * page_size));
    file.read(page.data(), static_cast<std::streamsize>(page_size));
  };
  auto big_endian = [&page](size_t at, size_t bytes) {
    size_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint8_t>(page[at + i]);
    return value;
  };
  size_t number = root;
  for (read(number); page[0] != kLeaf; read(number)) number = big_endian(big_endian(12, 2), 4);
  ASSERT_GE(big_endian(3, 2), 2u) << "rows of the first leaf";
  for (const size_t at : {0, 1}) std::swap(page[8 + at], page[10 + at]);
  file.seekp(static_cast<std::streamoff>((number - 1) * page_size));
  file.write(page.data(), static_cast<std::streamsize>(page_size));
}

// Rows that lead back to others would be listed for ever.
TEST_F(ForgedMemoTest, RowsThatAreOutOfOrderAreADamagedFile) {
  const std::string path = Write(rows_);
  int root = 0;
  size_t page_size = 0;
  {
    Connection file(path);
    root =
        std::stoi(file.Rows("SELECT rootpage FROM sqlite_master WHERE name = 'generations'")[0][0]);
    page_size = std::stoul(file.Rows("PRAGMA page_size")[0][0]);
  }
  SwapFirstRows(path, root, page_size);
  Connection user(":memory:");
  user.UseMemo(path);
  try {
    user.Rows("SELECT count(*) FROM lm_memo");
    FAIL() << "it was listed";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("malformed"), std::string::npos) << error.what();
  }
}

}  // namespace
