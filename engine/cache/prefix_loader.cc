#include "engine/cache/prefix_loader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/own_thread.h"

namespace lm {

PrefixLoader::PrefixLoader(int threads, std::function<void()> wake)
    : num_threads_(threads), wake_(std::move(wake)) {}

PrefixLoader::~PrefixLoader() {
  Drain();
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void PrefixLoader::StartThreads() {
  threads_.reserve(num_threads_);  // a thread that runs must have its place
  while (static_cast<int>(threads_.size()) < num_threads_) {
    threads_.push_back(StartThread([this] { Run(); }));
  }
}

void PrefixLoader::Prepare(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  work_ = std::move(work);
  try {
    StartThreads();
  } catch (const std::system_error&) {  // the first load tries again
  }
}

void PrefixLoader::Begin(int64_t number, std::vector<Read> reads,
                         std::vector<std::shared_ptr<const StoredFile>> used) {
  auto load = std::make_unique<Load>();
  load->reads = std::move(reads);
  for (const auto& file : used) load->used.push_back(file->path);
  load->done.number = number;
  absl::MutexLock lock(&mutex_);
  done_.reserve(done_.size() + loads_.size() + 1);  // so that threads which read need not
  try {
    StartThreads();
  } catch (const std::system_error& e) {
    if (threads_.empty() && !load->reads.empty()) {
      load->done.file = load->reads[0].file;
      load->done.status = absl::UnavailableError(absl::StrCat("no thread that reads: ", e.what()));
    }
  }
  if (load->reads.empty() || !load->done.status.ok()) {
    done_.push_back(std::move(load->done));
  } else {
    loads_.push_back(std::move(load));
  }
}

void PrefixLoader::Run() {
  ReadyToThrow();
  absl::MutexLock lock(&mutex_);
  for (;;) {
    auto more = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || work_ != nullptr ||
             std::any_of(loads_.begin(), loads_.end(),
                         [](const auto& load) { return load->next < load->reads.size(); });
    };
    mutex_.Await(absl::Condition(&more));
    if (stopping_) return;
    if (const std::function<void()> work = std::exchange(work_, nullptr)) {
      mutex_.Unlock();
      try {
        work();
      } catch (...) {  // memory
      }
      mutex_.Lock();
      continue;
    }
    Load* load = std::find_if(loads_.begin(), loads_.end(), [](const auto& load) {
                   return load->next < load->reads.size();
                 })->get();
    const bool first = load->next == 0;
    const Read& read = load->reads[load->next++];
    const bool wanted = load->done.status.ok();
    mutex_.Unlock();
    absl::Status status;
    if (wanted) {
      try {
        if (first) TouchPrefixFiles(load->used);
        status = ReadPrefixPiece(read.file->path, read.file->head.pieces[read.piece], read.out);
      } catch (...) {  // memory
        status = OutOfMemory();
      }
    }
    mutex_.Lock();
    if (!status.ok() && load->done.status.ok()) {
      load->done.status = std::move(status);
      load->done.file = read.file;
    }
    if (++load->finished < load->reads.size()) continue;
    done_.push_back(std::move(load->done));
    std::erase_if(loads_, [load](const auto& other) { return other.get() == load; });
    mutex_.Unlock();
    wake_();
    mutex_.Lock();
  }
}

std::vector<PrefixLoader::Done> PrefixLoader::TakeDone() {
  absl::MutexLock lock(&mutex_);
  std::vector<Done> taken;
  taken.reserve(done_.size());
  for (Done& done : done_) taken.push_back(std::move(done));
  done_.clear();  // and keeps its room
  return taken;
}

void PrefixLoader::Drain() noexcept {
  absl::MutexLock lock(&mutex_);
  auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return loads_.empty(); };
  mutex_.Await(absl::Condition(&none));
  done_.clear();
}

}  // namespace lm
