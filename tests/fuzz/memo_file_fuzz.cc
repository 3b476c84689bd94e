// Files of a memo with damaged bytes, as MemoFile takes them, without a model: each is refused with
// a message that names it, or has the very answers that were put into it, or fewer. (Through
// statements, which then generate: memo_fuzz. Rows that somebody forged: forged_memo_test.)
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
// Before the extension's headers, behind which SQLite's functions are those of a host.
#include "tests/extension/sql_connection.h"

#include "extension/memo/memo_file.h"
#include "extension/memo/memo_listing.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

const FuzzFolder& Folder() {
  static const FuzzFolder folder("memo_file_fuzz");
  return folder;
}

// All of an answer, to compare.
std::string TextOf(const RememberedAnswer& answer) {
  std::string text = absl::StrCat(answer.text, "\n", static_cast<int>(answer.finish), "\n",
                                  absl::StrJoin(answer.tokens, ","), "\n", answer.tokens_in, " ",
                                  answer.tokens_out);
  for (const FirstChoice& choice : answer.first_choices) {
    absl::StrAppend(&text, "\n", choice.text, " ", choice.logprob);
  }
  return text;
}

const std::array<MemoRow, 4>& Rows() {
  static const auto& rows = *new std::array<MemoRow, 4>{
      MemoRow(
          MemoKey{.model = "a model", .options = "{}", .prompt = "rain"},
          RememberedAnswer{.text = "wet", .tokens = {7, 300, 2}, .tokens_in = 4, .tokens_out = 3}),
      MemoRow(
          MemoKey{
              .model = "a model", .options = R"({"choices":["weather","other"]})", .prompt = "a"},
          RememberedAnswer{.text = "other",
                           .finish = FinishReason::kLength,
                           .tokens = {1},
                           .first_choices = {{.text = "other", .logprob = -0.5f},
                                             {.text = "weather", .logprob = -3}},
                           .tokens_in = 1,
                           .tokens_out = 1}),
      MemoRow(
          MemoKey{.model = "another", .options = "{}", .prompt = std::string(700, 'x')},
          RememberedAnswer{.text = std::string(900, 'y'), .tokens = std::vector<int32_t>(200, 5)}),
      // which the file does not have
      MemoRow(MemoKey{.model = "a model", .options = "{}", .prompt = "snow"},
              RememberedAnswer{.text = "white", .tokens = {8}})};
  return rows;
}

// Whether it is there. REQUIRES: if so it is right.
bool Finds(MemoFile& file, const MemoRow& row) {
  const std::optional<RememberedAnswer> found = file.Find(row.first);
  if (!found) return false;
  Require(TextOf(*found) == TextOf(row.second), "the right answer");
  return true;
}

void CheckEntries(const std::shared_ptr<MemoFile>& file) {
  MemoListing listing(file, file->owner(), /*texts=*/true);
  for (;;) {
    const absl::StatusOr<std::vector<MemoEntryInfo>> page = listing.NextPage();
    if (!page.ok()) return RequireShowable(page.status());
    if (page->empty()) return;
    for (const MemoEntryInfo& entry : *page) {
      bool known = entry.model.empty() && entry.prompt.empty() && entry.answer.empty();
      for (const auto& [key, answer] : Rows()) {
        known = known || (entry.prompt == key.prompt && entry.answer == answer.text);
      }
      Require(known, "an entry that was put into the file, or nothing but its number");
    }
  }
}

}  // namespace

// In pages of 512 bytes, so that there is less that is empty.
std::vector<std::string> FuzzSeeds() {
  const SqlConnection starts_the_extension(":memory:");
  const std::string path = Folder().PathOf("seed"), small = Folder().PathOf("small");
  {
    const std::shared_ptr<MemoFile> file = MemoFile::Of(path);
    Require(file->Open().ok(), "a memo");
    for (size_t i = 0; i + 1 < Rows().size(); ++i) file->Add(Rows()[i].first, Rows()[i].second);
    file->Flush();
    for (size_t i = 0; i + 1 < Rows().size(); ++i) Require(Finds(*file, Rows()[i]), "an answer");
  }
  SqlConnection(path).Rows("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM INTO '" +
                           small + "'");
  return {Folder().Read("small"), Folder().Read("seed")};
}

std::vector<std::string> FuzzWords() {
  return {"SQLite format 3", "CREATE TABLE ", "CREATE TRIGGER ", "generations", "seal", "LMmo"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = lm::Folder().Write("memo", {reinterpret_cast<const char*>(data), size});
  {
    const std::shared_ptr<lm::MemoFile> file = lm::MemoFile::Of(path);
    const absl::Status opened = file->Open();
    if (!opened.ok()) {
      lm::RequireShowable(opened);
      lm::Require(opened.message().find(path) != absl::string_view::npos, "the file's name");
    }
    for (const lm::MemoRow& row : lm::Rows()) lm::Finds(*file, row);
    const lm::MemoRow& fresh = lm::Rows().back();
    file->Add(fresh.first, fresh.second);
    file->Flush();
    lm::Finds(*file, fresh);
    lm::CheckEntries(file);
    if (const std::string trouble = file->Trouble(); !trouble.empty()) {
      lm::RequireShowable(absl::UnknownError(trouble));
    }
  }
  for (const char* end : {"", "-wal", "-shm", "-journal"}) unlink((path + end).c_str());
  return 0;
}
