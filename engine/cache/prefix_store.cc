#include "engine/cache/prefix_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/sha256.h"

namespace lm {
namespace {

constexpr char kExtension[] = ".prefix";

int64_t CommonTokens(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

PrefixStore::PrefixStore(PrefixStoreOptions options) : options_(std::move(options)) {
  absl::MutexLock lock(&mutex_);
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) trouble_ = absl::StrCat("'", options_.folder, "': ", error.message());
  RemoveLeftovers(options_.folder);
}

PrefixStore::~PrefixStore() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (writer_.joinable()) writer_.join();
}

// The number of a connection means another database in the next process.
bool PrefixStore::Keeps(absl::string_view salt) const {
  return absl::StartsWith(salt, "file:") || absl::StartsWith(salt, "salt:");
}

std::string PrefixStore::OwnerOf(absl::string_view salt) const {
  Sha256 hash;
  hash.Add(salt);
  return hash.Hex();
}

std::string PrefixStore::PathOf(const PrefixDescription& description) const {
  const absl::string_view tokens(reinterpret_cast<const char*>(description.tokens.data()),
                                 description.tokens.size() * sizeof(int32_t));
  const std::string name = DigestOf(absl::StrCat(description.model, "\n", description.owner, "\n",
                                                 description.begin, "\n", tokens))
                               .Hex();
  return (std::filesystem::path(options_.folder) / absl::StrCat(name, kExtension)).string();
}

void PrefixStore::Note(const absl::Status& status) { trouble_ = std::string(status.message()); }

// Finds out which files have come and gone.
void PrefixStore::Look() {
  const absl::Time now = absl::Now();
  if (now < looked_ + absl::Milliseconds(200)) return;
  looked_ = now;
  HashSet<std::string> there;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
    if (entry.path().extension() != kExtension) continue;
    const std::string path = entry.path().string();
    there.insert(path);
    if (entries_.contains(path) || refused_.contains(path)) continue;
    absl::StatusOr<PrefixHead> head = ReadPrefixHead(path);
    if (absl::IsNotFound(head.status())) continue;  // just gone
    if (!head.ok()) {
      Note(head.status());
      refused_.insert(path);
      if (absl::IsDataLoss(head.status())) unlink(path.c_str());
      continue;
    }
    const PrefixDescription& description = head->description;
    const auto tokens = static_cast<int64_t>(description.tokens.size());
    const int64_t blocks = Blocks(tokens - description.begin);
    const bool fits = description.model == options_.model &&
                      description.begin % options_.block_tokens == 0 &&
                      head->data_bytes == static_cast<uint64_t>(blocks * options_.block_bytes);
    if (!fits) {
      refused_.insert(path);  // another model's
      continue;
    }
    auto known = std::make_unique<Entry>();
    known->head = *std::move(head);
    known->path = path;
    entries_.emplace(path, std::move(known));
  }
  std::erase_if(entries_, [&there](const auto& entry) {
    return !entry.second->pending && !there.contains(entry.first);
  });
  std::erase_if(refused_, [&there](const std::string& path) { return !there.contains(path); });
}

// The files that make up the longest stored prefix of the tokens.
std::vector<PrefixStore::Piece> PrefixStore::Pieces(const std::string& owner,
                                                    absl::Span<const int32_t> tokens,
                                                    bool pending) {
  std::vector<Piece> pieces;
  for (int64_t reached = 0;;) {
    Piece best = {nullptr, reached};
    for (const auto& [path, entry] : entries_) {
      const PrefixDescription& description = entry->head.description;
      if (description.owner != owner || description.begin > reached) continue;
      if (entry->pending && !pending) continue;
      const int64_t common = CommonTokens(tokens, description.tokens);
      const bool whole = common == static_cast<int64_t>(description.tokens.size());
      const int64_t end = whole ? common : WholeBlocks(common);
      if (end > best.end) best = {entry.get(), end};
    }
    if (best.entry == nullptr) return pieces;
    pieces.push_back(best);
    reached = best.end;
  }
}

std::shared_ptr<const StoredPrefix> PrefixStore::Load(absl::string_view salt,
                                                      absl::Span<const int32_t> tokens) {
  if (!Keeps(salt) || tokens.empty()) return nullptr;
  tokens = tokens.subspan(0, tokens.size() - 1);
  const std::string owner = OwnerOf(salt);
  struct Wanted {
    std::string path;
    PrefixHead head;
    int64_t begin, end;  // of its tokens
  };
  std::vector<Wanted> wanted;
  {
    absl::MutexLock lock(&mutex_);
    Look();
    const std::vector<Piece> pieces = Pieces(owner, tokens, /*pending=*/false);
    if (pieces.empty()) return nullptr;
    const absl::Time now = absl::Now();
    const bool given = std::all_of(pieces.begin(), pieces.end(), [now](const Piece& piece) {
      return now < piece.entry->given + absl::Minutes(1);
    });
    if (given) {
      const bool same =
          last_owner_ == owner && static_cast<int64_t>(last_tokens_.size()) <= pieces.back().end &&
          CommonTokens(last_tokens_, tokens) == static_cast<int64_t>(last_tokens_.size());
      return same ? last_.lock() : nullptr;
    }
    int64_t begin = 0;
    for (const Piece& piece : pieces) {
      piece.entry->given = now;
      wanted.push_back({piece.entry->path, piece.entry->head, begin, piece.end});
      begin = piece.end;
    }
  }
  auto stored = std::make_shared<StoredPrefix>();
  absl::Status status;
  for (const Wanted& file : wanted) {
    absl::StatusOr<std::vector<char>> data = ReadPrefixData(file.path, file.head);
    status = data.status();
    if (!status.ok()) {
      absl::MutexLock lock(&mutex_);
      entries_.erase(file.path);
      if (!absl::IsNotFound(status)) Note(status);
      if (absl::IsDataLoss(status)) unlink(file.path.c_str());
      break;
    }
    // A block that the file before has begun is whole, or longer, in this one.
    const int64_t before = WholeBlocks(file.begin);
    const int64_t first = (before - file.head.description.begin) / options_.block_tokens;
    const int64_t blocks = Blocks(file.end - before);
    stored->tokens = file.end;
    if (stored->data.empty() && first == 0) {
      data->resize(blocks * options_.block_bytes);
      stored->data = *std::move(data);
      continue;
    }
    stored->data.resize(before / options_.block_tokens * options_.block_bytes);
    const auto at = data->begin() + first * options_.block_bytes;
    stored->data.insert(stored->data.end(), at, at + blocks * options_.block_bytes);
  }
  if (stored->tokens == 0) return nullptr;
  absl::MutexLock lock(&mutex_);
  last_ = stored;
  last_owner_ = owner;
  last_tokens_.assign(tokens.begin(), tokens.begin() + stored->tokens);
  return stored;
}

std::optional<int64_t> PrefixStore::Wants(absl::string_view salt,
                                          absl::Span<const int32_t> tokens) {
  const auto end = static_cast<int64_t>(tokens.size());
  if (!Keeps(salt) || end < kLeastTokens) return std::nullopt;
  const std::string owner = OwnerOf(salt);
  absl::MutexLock lock(&mutex_);
  if (stopping_ || absl::Now() < writes_again_) return std::nullopt;
  Look();
  const std::vector<Piece> pieces = Pieces(owner, tokens, /*pending=*/true);
  const int64_t known = pieces.empty() ? 0 : pieces.back().end;
  const int64_t begin = WholeBlocks(known);
  const int64_t bytes = Blocks(end - begin) * options_.block_bytes;
  const bool worth = end - known >= kLeastTokens && bytes <= options_.max_bytes / 2 &&
                     queued_bytes_ + bytes <= kMostQueued;
  return worth ? std::optional(begin) : std::nullopt;
}

void PrefixStore::Write(absl::string_view salt, absl::Span<const int32_t> tokens, int64_t begin,
                        std::vector<char> data) {
  Job job;
  job.description = {.model = options_.model,
                     .owner = OwnerOf(salt),
                     .begin = begin,
                     .tokens = {tokens.begin(), tokens.end()}};
  job.path = PathOf(job.description);
  job.data = std::move(data);
  auto entry = std::make_unique<Entry>();
  entry->head.description = job.description;
  entry->path = job.path;
  entry->pending = true;
  absl::MutexLock lock(&mutex_);
  if (stopping_ || entries_.contains(job.path)) return;
  if (!writer_.joinable()) {
    try {
      writer_ = std::thread([this] { Run(); });
    } catch (const std::system_error& e) {
      trouble_ = absl::StrCat("no thread that writes: ", e.what());
      return;
    }
  }
  const auto bytes = static_cast<int64_t>(job.data.size());
  jobs_.push_back(std::move(job));
  queued_bytes_ += bytes;
  entries_.emplace(entry->path, std::move(entry));
}

void PrefixStore::Run() {
  for (;;) {
    Job* job = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      auto more = [this]()
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !jobs_.empty(); };
      mutex_.Await(absl::Condition(&more));
      if (jobs_.empty()) return;
      job = &jobs_.front();  // stays: others only push behind it
    }
    absl::Status status = OutOfMemory();
    absl::StatusOr<PrefixHead> head = status;
    try {
      status = WritePrefixFile(job->path, job->description, job->data);
      if (status.ok()) head = ReadPrefixHead(job->path);
      if (status.ok()) MakeRoom();
    } catch (...) {  // memory
    }
    absl::MutexLock lock(&mutex_);
    if (status.ok()) status = head.status();
    const auto entry = entries_.find(job->path);
    if (!status.ok()) {
      trouble_ = std::string(status.message());
      writes_again_ = absl::Now() + absl::Minutes(1);
      if (entry != entries_.end()) entries_.erase(entry);
    } else if (entry != entries_.end()) {
      entry->second->head = *std::move(head);
      entry->second->pending = false;
      entry->second->given = absl::Now();  // who stored it has it
    }
    queued_bytes_ -= static_cast<int64_t>(job->data.size());
    jobs_.pop_front();
  }
}

void PrefixStore::Flush() {
  absl::MutexLock lock(&mutex_);
  auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_.empty(); };
  mutex_.Await(absl::Condition(&written));
}

// Removes what was used longest ago, until the folder holds what it may.
void PrefixStore::MakeRoom() {
  struct File {
    std::filesystem::file_time_type used;
    std::string path;
    int64_t bytes;
  };
  std::vector<File> files;
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
    if (entry.path().extension() != kExtension) continue;
    std::error_code gone;
    const auto size = static_cast<int64_t>(entry.file_size(gone));
    const auto used = entry.last_write_time(gone);
    if (gone) continue;
    files.push_back({used, entry.path().string(), size});
    bytes += size;
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (size_t i = 0; i < files.size() && bytes > options_.max_bytes; ++i) {
    if (unlink(files[i].path.c_str()) == 0) bytes -= files[i].bytes;
  }
}

std::vector<PrefixStore::Listed> PrefixStore::List(absl::string_view salt) {
  const std::string owner = OwnerOf(salt);
  absl::MutexLock lock(&mutex_);
  Look();
  std::vector<Listed> listed;
  for (const auto& [path, entry] : entries_) {
    const PrefixDescription& description = entry->head.description;
    if (entry->pending || description.owner != owner) continue;
    listed.push_back({description.tokens, description.begin,
                      static_cast<int64_t>(entry->head.data_begin + entry->head.data_bytes)});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.tokens < b.tokens; });
  return listed;
}

std::string PrefixStore::state() {
  absl::MutexLock lock(&mutex_);
  Look();
  const auto written = std::count_if(entries_.begin(), entries_.end(),
                                     [](const auto& entry) { return !entry.second->pending; });
  return absl::StrCat(written, written == 1 ? " prefix" : " prefixes", trouble_.empty() ? "" : "; ",
                      trouble_);
}

}  // namespace lm
