// Files of answers to a job's batch, from whoever has written them: each line is taken or refused
// with a message, a row that is done has one of the job's choices, and the database is whole.
//
// LM_MODEL is a model; what the job's rows are answered with comes from the files alone.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lm/sqlite.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

constexpr int kRows = 3;

// A database with a job that was exported, and the folder of the files.
class Job {
 public:
  Job() {
    Require(std::getenv("LM_MODEL") != nullptr, "LM_MODEL");
    Require(sqlite3_open(":memory:", &db_) == SQLITE_OK, "a database opens");
    const int rc = sqlite3_lm_init(db_, nullptr, nullptr);
    Require(rc == SQLITE_OK || rc == SQLITE_OK_LOAD_PERMANENTLY, "the extension starts");
    Run("CREATE TABLE notes(id INTEGER PRIMARY KEY, body TEXT, kind TEXT)");
    Run("INSERT INTO notes(body) VALUES ('rain all day'), ('a new bicycle'), ('snow')");
    Run("INSERT INTO lm_jobs(name, query, target, options) VALUES ('sort', "
        "'SELECT id, body FROM notes', 'UPDATE notes SET kind = :value WHERE id = :id', "
        "'{\"choices\":[\"weather\",\"other\"]}')");
    Run("SELECT * FROM lm_batch_export('sort', '{\"model\":\"m\",\"dialect\":\"vllm\",\"path\":\"" +
        folder_.PathOf("notes") + "\"}')");
    std::ifstream file(folder_.PathOf("notes-00001.jsonl"));
    for (std::string line; std::getline(file, line);) {
      ids_.push_back(nlohmann::json::parse(line).at("custom_id"));
    }
    Require(ids_.size() == kRows, "every row was exported");
    Require(sqlite3_open(":memory:", &as_exported_) == SQLITE_OK, "a database opens");
    Copy(db_, as_exported_);
  }
  ~Job() {
    sqlite3_close(db_);
    sqlite3_close(as_exported_);
  }

  const std::vector<std::string>& ids() const { return ids_; }

  void Import(const std::string& bytes) {
    Run("SELECT * FROM lm_batch_import('sort', '" + folder_.Write("answers.jsonl", bytes) + "')");
    Require(Count("SELECT count(*) FROM lm_job_rows AS r JOIN notes USING (id) WHERE r.state = "
                  "'done' AND (kind IS NULL OR kind NOT IN ('weather', 'other') OR kind <> "
                  "r.value)") == 0,
            "a row that is done has one of the choices");
    Require(Count("SELECT count(*) FROM lm_job_rows") == kRows, "there are the job's rows");
    if (Count("SELECT total_changes()") != changes_) {
      Copy(as_exported_, db_);
      changes_ = Count("SELECT total_changes()");
    }
  }

 private:
  // Runs it to its end, well or with an error that can be shown.
  void Run(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    int rc = sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
      rc = sqlite3_step(statement);
      for (int i = 0; rc == SQLITE_ROW && i < sqlite3_column_count(statement); ++i) {
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
        if (text != nullptr && *text != '\0') RequireShowable(absl::UnknownError(text));
      }
    }
    if (rc != SQLITE_DONE) RequireShowable(absl::UnknownError(sqlite3_errmsg(db_)));
    sqlite3_finalize(statement);
  }
  int64_t Count(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    Require(sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK &&
                sqlite3_step(statement) == SQLITE_ROW,
            "the database answers");
    const int64_t count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return count;
  }
  static void Copy(sqlite3* from, sqlite3* to) {
    sqlite3_backup* backup = sqlite3_backup_init(to, "main", from, "main");
    Require(backup != nullptr && sqlite3_backup_step(backup, -1) == SQLITE_DONE, "a copy is made");
    sqlite3_backup_finish(backup);
  }

  FuzzFolder folder_{"batch_fuzz"};
  sqlite3* db_ = nullptr;
  sqlite3* as_exported_ = nullptr;
  int64_t changes_ = -1;
  std::vector<std::string> ids_;
};

Job& TheJob() {
  static Job job;
  return job;
}

std::string Answer(const std::string& id, const std::string& content) {
  const nlohmann::json line = {
      {"id", "batch_1"},
      {"custom_id", id},
      {"response",
       {{"status_code", 200},
        {"request_id", "r"},
        {"body",
         {{"id", "c"},
          {"object", "chat.completion"},
          {"model", "m"},
          {"choices",
           {{{"index", 0},
             {"message", {{"role", "assistant"}, {"content", content}}},
             {"finish_reason", "stop"}}}},
          {"usage", {{"prompt_tokens", 9}, {"completion_tokens", 2}, {"total_tokens", 11}}}}}}},
      {"error", nullptr}};
  return line.dump() + "\n";
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::vector<std::string>& ids = TheJob().ids();
  return {
      Answer(ids[0], "weather") + Answer(ids[1], "other") + Answer(ids[2], "weather"),
      Answer(ids[2], "other") + Answer(ids[2], "weather") + Answer("nobody", "other"),
      Answer(ids[0], "fog") + "\n\n" + Answer(ids[1], "") + "{\"custom_id\":\"" + ids[1] + "\"}",
      "{\"custom_id\":\"" + ids[0] +
          "\",\"response\":null,\"error\":{\"code\":\"server_error\",\"message\":\"no\"}}\n",
      "{\"custom_id\":\"" + ids[1] +
          "\",\"response\":{\"status_code\":429,\"body\":{\"error\":{\"message\":\"slow\"}}}}\r\n",
  };
}

std::vector<std::string> FuzzWords() {
  std::vector<std::string> words = {"\"custom_id\":",
                                    "\"response\":",
                                    "\"status_code\":",
                                    "\"body\":",
                                    "\"choices\":",
                                    "\"message\":",
                                    "\"content\":",
                                    "\"error\":",
                                    "\"weather\"",
                                    "\"other\"",
                                    "null",
                                    "\n",
                                    "\r\n",
                                    "\\u0000",
                                    "\\ud800",
                                    "1e999",
                                    "-1",
                                    "[[[[[[[[",
                                    "\xef\xbb\xbf",
                                    "\"finish_reason\":"};
  for (const std::string& id : TheJob().ids()) words.push_back(id);
  return words;
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lm::TheJob().Import(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
