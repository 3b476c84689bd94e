#include "engine/cache/prefix_store.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/own_thread.h"
#include "engine/base/sha256.h"

namespace lm {
namespace {

int64_t CommonTokens(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

std::vector<std::shared_ptr<const StoredFile>> StoredPrefix::Files() const {
  std::vector<std::shared_ptr<const StoredFile>> files;
  for (const Part& part : parts) {
    if (files.empty() || files.back() != part.file) files.push_back(part.file);
  }
  return files;
}

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

PrefixKey PrefixStore::KeyOf(absl::string_view salt, absl::string_view adapters) {
  // The number of a connection means another database in the next process.
  if (!absl::StartsWith(salt, "file:") && !absl::StartsWith(salt, "salt:")) return {};
  Sha256 hash;
  hash.Add(salt);
  return {.owner = hash.Hex(), .adapters = std::string(adapters)};
}

std::string PrefixStore::PathOf(const PrefixDescription& description) const {
  const absl::string_view tokens(reinterpret_cast<const char*>(description.tokens.data()),
                                 description.tokens.size() * sizeof(int32_t));
  const Digest digest =
      DigestOf(absl::StrCat(description.model, "\n", description.owner, "\n", description.adapters,
                            "\n", description.begin, "\n", tokens));
  return (std::filesystem::path(options_.folder) / PrefixFileName(digest)).string();
}

void PrefixStore::Note(const absl::Status& status) { refusal_ = std::string(status.message()); }

int64_t PrefixStore::FirstInWindow(int64_t window, int64_t tokens) const {
  return window == 0 ? 0 : std::max<int64_t>(tokens - window + 1, 0) / options_.block_tokens;
}

std::vector<PrefixStore::Piece> PrefixStore::Layout(int64_t begin, int64_t tokens) const {
  std::vector<Piece> pieces;
  for (size_t c = 0; c < options_.classes.size(); ++c) {
    const auto& [window, bytes] = options_.classes[c];
    if (bytes == 0) continue;
    const int64_t first = c == 0 ? begin / options_.block_tokens : FirstInWindow(window, tokens);
    for (int64_t i = first; i < Blocks(tokens); ++i) {
      pieces.push_back({static_cast<int32_t>(c), i, bytes});
    }
  }
  if (options_.state_bytes > 0) pieces.push_back({kState, 0, options_.state_bytes});
  return pieces;
}

// Whether a file can be one of this model's.
bool PrefixStore::Fits(const PrefixHead& head) const {
  const PrefixDescription& description = head.description;
  const auto tokens = static_cast<int64_t>(description.tokens.size());
  if (description.model != options_.model || description.begin % options_.block_tokens != 0) {
    return false;
  }
  // Not before its size is known to be in proportion.
  if (Blocks(tokens) > (int64_t{1} << 24)) return false;
  const std::vector<Piece> pieces = Layout(description.begin, tokens);
  return std::equal(pieces.begin(), pieces.end(), head.pieces.begin(), head.pieces.end(),
                    [](const Piece& wanted, const PrefixPiece& there) {
                      return static_cast<uint64_t>(wanted.bytes) == there.bytes;
                    });
}

void PrefixStore::Look() {
  HashSet<std::string> known;
  {
    absl::MutexLock lock(&mutex_);
    auto found_out = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !looking_; };
    while (looking_ && looked_ == MonotonicTime::InfinitePast()) {  // nothing is known without it
      done_.AwaitFor(mutex_, absl::Condition(&found_out), absl::Milliseconds(10));
      if (!Checkpoint().ok()) return;
    }
    if (looking_ || MonotonicTime::Now() < looked_ + absl::Milliseconds(200)) return;
    looking_ = true;
    for (const auto& [path, entry] : entries_) known.insert(path);
    for (const std::string& path : refused_) known.insert(path);
  }
  bool found_all = false;
  absl::Cleanup looked = [this, &found_all] {
    absl::MutexLock lock(&mutex_);
    looking_ = false;
    done_.SignalAll();
    if (found_all) looked_ = MonotonicTime::Now();
  };
  // Without the lock: others need not wait for the disk.
  HashSet<std::string> there;
  std::vector<std::unique_ptr<Entry>> found;
  std::vector<std::pair<std::string, absl::Status>> refused;  // OK: another model's
  for (const std::string& path : ListPrefixFiles(options_.folder)) {
    there.insert(path);
    if (known.contains(path)) continue;
    absl::StatusOr<PrefixHead> head = ReadPrefixHead(path);
    if (absl::IsNotFound(head.status())) continue;  // just gone
    if (absl::IsCancelled(head.status())) return;   // the next one looks again
    if (!head.ok() || !Fits(*head)) {
      refused.emplace_back(path, head.status());
      continue;
    }
    found.push_back(std::make_unique<Entry>());
    found.back()->file =
        std::make_shared<StoredFile>(StoredFile{.path = path, .head = *std::move(head)});
  }
  found_all = true;
  for (const auto& [path, status] : refused) {
    if (absl::IsDataLoss(status)) unlink(path.c_str());
  }
  absl::MutexLock lock(&mutex_);
  for (const auto& [path, status] : refused) {
    if (!status.ok()) Note(status);
    refused_.insert(path);
  }
  for (std::unique_ptr<Entry>& entry : found) {
    const std::string path = entry->file->path;
    entries_.try_emplace(path, std::move(entry));  // unless it was written meanwhile
  }
  std::erase_if(entries_, [&](const auto& entry) {
    return !entry.second->pending && known.contains(entry.first) && !there.contains(entry.first);
  });
  std::erase_if(refused_, [&there](const std::string& path) { return !there.contains(path); });
}

// The files that have the blocks of all layers that see everything, of as many tokens as there are.
std::vector<PrefixStore::Link> PrefixStore::Chain(const PrefixKey& key,
                                                  absl::Span<const int32_t> tokens, bool pending) {
  std::vector<Link> chain;
  for (int64_t reached = 0;;) {
    Link best = {nullptr, reached};
    for (const auto& [path, entry] : entries_) {
      const PrefixDescription& description = entry->description();
      if (description.begin > reached || (entry->pending && !pending)) continue;
      if (description.owner != key.owner || description.adapters != key.adapters) continue;
      const int64_t common = CommonTokens(tokens, description.tokens);
      const bool whole = common == static_cast<int64_t>(description.tokens.size());
      const int64_t end = whole ? common : WholeBlocks(common);
      if (end > best.end) best = {entry.get(), end};
    }
    if (best.entry == nullptr) return chain;
    chain.push_back(best);
    reached = best.end;
  }
}

// The longest file that the tokens begin with.
const PrefixStore::Entry* PrefixStore::Longest(const PrefixKey& key,
                                               absl::Span<const int32_t> tokens, bool pending) {
  const Entry* longest = nullptr;
  for (const auto& [path, entry] : entries_) {
    const PrefixDescription& description = entry->description();
    const size_t size = description.tokens.size();
    if (description.owner != key.owner || description.adapters != key.adapters) continue;
    if ((entry->pending && !pending) || size > tokens.size()) continue;
    if (longest != nullptr && size <= longest->description().tokens.size()) continue;
    if (tokens.subspan(0, size) == absl::MakeConstSpan(description.tokens)) longest = entry.get();
  }
  return longest;
}

// The longest file that the tokens begin with, and before it what it goes on from; empty: none of
// which all of that is there.
std::vector<PrefixStore::Link> PrefixStore::ChainToAnEnd(const PrefixKey& key,
                                                         absl::Span<const int32_t> tokens,
                                                         bool pending) {
  while (const Entry* last = Longest(key, tokens, pending)) {
    const int64_t begin = last->description().begin;
    const auto end = static_cast<int64_t>(last->description().tokens.size());
    std::vector<Link> chain = Chain(key, tokens.subspan(0, begin), pending);
    const int64_t reached = chain.empty() ? 0 : chain.back().end;
    if (reached >= begin) {
      chain.push_back({last, end});
      return chain;
    }
    tokens = tokens.subspan(0, end - 1);
  }
  return {};
}

// Where the blocks of the full class are.
void PrefixStore::AddParts(absl::Span<const Link> chain, StoredPrefix* stored) const {
  if (options_.classes[0].block_bytes == 0) return;
  int64_t reached = 0;
  for (const Link& link : chain) {
    const int64_t first = reached / options_.block_tokens;
    // A block that the file before has begun is whole, or longer, in this one.
    std::erase_if(stored->parts,
                  [first](const StoredPrefix::Part& part) { return part.index >= first; });
    const int64_t begin = link.entry->description().begin / options_.block_tokens;
    for (int64_t i = first; i < Blocks(link.end); ++i) {
      stored->parts.push_back({link.entry->file, static_cast<size_t>(i - begin), 0, i});
    }
    reached = link.end;
  }
}

int64_t PrefixStore::MostTokens() {
  absl::MutexLock lock(&mutex_);
  size_t most = 0;
  for (const auto& [path, entry] : entries_) {
    if (!entry->pending) most = std::max(most, entry->description().tokens.size());
  }
  return static_cast<int64_t>(most);
}

std::shared_ptr<const StoredPrefix> PrefixStore::Find(const PrefixKey& key,
                                                      absl::Span<const int32_t> tokens) {
  if (key.owner.empty() || tokens.empty()) return nullptr;
  tokens = tokens.subspan(0, tokens.size() - 1);
  auto stored = std::make_shared<StoredPrefix>();
  absl::MutexLock lock(&mutex_);
  if (!ends_with_files()) {
    const std::vector<Link> chain = Chain(key, tokens, /*pending=*/false);
    if (chain.empty()) return nullptr;
    stored->tokens = chain.back().end;
    AddParts(chain, stored.get());
    return stored;
  }
  const std::vector<Link> chain = ChainToAnEnd(key, tokens, /*pending=*/false);
  if (chain.empty()) return nullptr;
  const auto& [last, end] = chain.back();
  stored->tokens = end;
  AddParts(chain, stored.get());
  const std::vector<Piece> pieces = Layout(last->description().begin, end);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].cache_class == 0) continue;
    stored->parts.push_back({last->file, i, pieces[i].cache_class, pieces[i].index});
  }
  return stored;
}

void PrefixStore::Refuse(const std::shared_ptr<const StoredFile>& file, const absl::Status& why) {
  std::shared_ptr<const StoredFile> other;  // in its place
  if (absl::IsDataLoss(why)) {
    absl::StatusOr<PrefixHead> head = ReadPrefixHead(file->path);
    if (head.ok() && Fits(*head) && head->pieces != file->head.pieces) {
      other =
          std::make_shared<StoredFile>(StoredFile{.path = file->path, .head = *std::move(head)});
    } else if (head.ok() || absl::IsDataLoss(head.status())) {
      unlink(file->path.c_str());
    }
  }
  absl::MutexLock lock(&mutex_);
  const auto entry = entries_.find(file->path);
  const bool is_known = entry != entries_.end() && entry->second->file == file;
  if (other != nullptr) {
    if (is_known) entry->second->file = std::move(other);
    return;
  }
  if (is_known) entries_.erase(entry);
  if (!absl::IsNotFound(why)) Note(why);
  if (absl::IsFailedPrecondition(why)) refused_.insert(file->path);
}

std::optional<int64_t> PrefixStore::Wants(const PrefixKey& key, absl::Span<const int32_t> tokens,
                                          bool asked) {
  const auto end = static_cast<int64_t>(tokens.size());
  const int64_t least = asked ? 1 : kLeastTokens;  // beyond what is there
  if (key.owner.empty() || end < kLeastTokens) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  if (stopping_ || MonotonicTime::Now() < writes_again_) return std::nullopt;
  const std::vector<Link> chain = Chain(key, tokens, /*pending=*/true);
  const int64_t reached = chain.empty() ? 0 : chain.back().end;
  int64_t known = reached;
  if (ends_with_files()) {
    const std::vector<Link> whole = ChainToAnEnd(key, tokens, /*pending=*/true);
    known = whole.empty() ? 0 : whole.back().end;
  }
  // Without layers that see everything a file has all that is needed at its end.
  const int64_t begin = options_.classes[0].block_bytes > 0 ? WholeBlocks(reached) : 0;
  int64_t bytes = 0;
  for (const Piece& piece : Layout(begin, end)) bytes += piece.bytes;
  const bool worth = end - known >= least && bytes <= options_.max_bytes / 2 &&
                     queued_bytes_ + bytes <= kMostQueued;
  return worth ? std::optional(begin) : std::nullopt;
}

void PrefixStore::Write(const PrefixKey& key, absl::Span<const int32_t> tokens, int64_t begin,
                        std::vector<char> data) {
  Job job;
  job.description = {.model = options_.model,
                     .owner = key.owner,
                     .adapters = key.adapters,
                     .begin = begin,
                     .tokens = {tokens.begin(), tokens.end()}};
  job.path = PathOf(job.description);
  job.data = std::move(data);
  auto entry = std::make_unique<Entry>();
  entry->file = std::make_shared<StoredFile>(
      StoredFile{.path = job.path, .head = {.description = job.description}});
  entry->pending = true;
  absl::MutexLock lock(&mutex_);
  if (stopping_ || entries_.contains(job.path)) return;
  if (!writer_.joinable()) {
    try {
      writer_ = StartThread([this] { Run(); });
    } catch (const std::system_error& e) {
      trouble_ = absl::StrCat("no thread that writes: ", e.what());
      return;
    }
  }
  for (const Link& link : Chain(key, tokens.subspan(0, begin), /*pending=*/true)) {
    job.goes_on_from.push_back(link.entry->file->path);
  }
  const auto bytes = static_cast<int64_t>(job.data.size());
  jobs_.push_back(std::move(job));
  queued_bytes_ += bytes;
  const std::string path = entry->file->path;
  entries_.emplace(path, std::move(entry));
}

// A job's data, by pieces.
std::vector<absl::Span<const char>> PrefixStore::Cut(const Job& job) const {
  std::vector<absl::Span<const char>> pieces;
  absl::Span<const char> rest = job.data;
  const auto tokens = static_cast<int64_t>(job.description.tokens.size());
  for (const Piece& piece : Layout(job.description.begin, tokens)) {
    pieces.push_back(rest.subspan(0, piece.bytes));
    rest.remove_prefix(piece.bytes);
  }
  return pieces;
}

void PrefixStore::Run() {
  ReadyToThrow();
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
    absl::Status status;
    std::shared_ptr<const StoredFile> file;
    try {
      status = WritePrefixFile(job->path, job->description, Cut(*job));
      if (status.ok()) {
        absl::StatusOr<PrefixHead> head = ReadPrefixHead(job->path);
        status = head.status();
        if (head.ok()) {
          file =
              std::make_shared<StoredFile>(StoredFile{.path = job->path, .head = *std::move(head)});
        }
      }
      if (status.ok()) {
        TouchPrefixFiles(job->goes_on_from);
        MakeRoom(static_cast<int64_t>(file->head.bytes));
      }
    } catch (...) {  // memory
      status = OutOfMemory();
    }
    // Nothing below may want memory: no caller could be told that there is none.
    absl::MutexLock lock(&mutex_);
    const auto entry = entries_.find(job->path);
    if (!status.ok()) {
      try {
        trouble_ = std::string(status.message());
      } catch (...) {
        trouble_.clear();
      }
      writes_again_ = MonotonicTime::Now() + absl::Minutes(1);
      if (entry != entries_.end()) entries_.erase(entry);
    } else {
      trouble_.clear();
      if (entry != entries_.end()) {
        entry->second->file = std::move(file);
        entry->second->pending = false;
      }
    }
    queued_bytes_ -= static_cast<int64_t>(job->data.size());
    jobs_.pop_front();
    done_.SignalAll();
  }
}

bool PrefixStore::Flush(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_.empty(); };
  return done_.AwaitFor(mutex_, absl::Condition(&written), timeout);
}

// Where the folder holds more than it may, removes what was used longest ago. All files are looked
// at, for others write to it, too: so not for each one that is written, and some room is made in
// advance.
void PrefixStore::MakeRoom(int64_t written) {
  constexpr int64_t kMostWritten = 64, kInAdvance = 16;  // parts of all
  room_ -= written;
  if (room_ >= 0) return;
  RemoveLeftovers(options_.folder);
  std::vector<PrefixFileUse> files = ListPrefixUse(options_.folder);
  std::sort(files.begin(), files.end(),
            [](const PrefixFileUse& a, const PrefixFileUse& b) { return a.used < b.used; });
  int64_t bytes = 0;
  for (const PrefixFileUse& file : files) bytes += file.bytes;
  const int64_t most = options_.max_bytes;
  const int64_t wanted = bytes > most ? most - most / kInAdvance : most;
  for (size_t i = 0; i < files.size() && bytes > wanted; ++i) {
    if (unlink(files[i].path.c_str()) == 0) bytes -= files[i].bytes;
  }
  room_ = std::min(most - bytes, most / kMostWritten);
}

std::vector<PrefixStore::Listed> PrefixStore::List(absl::string_view salt) {
  const PrefixKey key = KeyOf(salt);
  if (key.owner.empty()) return {};
  Look();
  absl::MutexLock lock(&mutex_);
  std::vector<Listed> listed;
  for (const auto& [path, entry] : entries_) {
    const PrefixDescription& description = entry->description();
    if (entry->pending || description.owner != key.owner) continue;
    listed.push_back({description.tokens, description.begin,
                      static_cast<int64_t>(entry->file->head.bytes), description.adapters});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.tokens < b.tokens; });
  return listed;
}

std::string PrefixStore::state() {
  Look();
  absl::MutexLock lock(&mutex_);
  const auto written = std::count_if(entries_.begin(), entries_.end(),
                                     [](const auto& entry) { return !entry.second->pending; });
  std::string state = absl::StrCat(written, written == 1 ? " prefix" : " prefixes");
  for (const std::string& wrong : {trouble_, refusal_}) {
    if (!wrong.empty()) absl::StrAppend(&state, "; ", wrong);
  }
  return state;
}

}  // namespace lm
