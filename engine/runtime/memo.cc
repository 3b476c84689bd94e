#include "engine/runtime/memo.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/vote.h"

namespace lm {
namespace {

constexpr int64_t kProcessMemoBytes = 64 << 20;
constexpr int64_t kProcessVectorBytes = 16 << 20;  // 8,000 of 384 numbers and a sentence

Generation ResultOf(const RememberedAnswer& answer) {
  Generation result;
  result.text = answer.text;
  result.finish = answer.finish;
  result.tokens = answer.tokens;
  result.first_choices = answer.first_choices;
  result.embedding = answer.embedding;
  result.remembered = true;
  result.tokens_in = answer.tokens_in;
  result.tokens_cached = result.tokens_in;  // none of them was computed for this
  result.tokens_out = answer.tokens_out;
  return result;
}

// Finishes a request on a thread that must go on whatever happens. `shared`: its answer is that of
// another one, and nothing was computed for it.
void FinishWith(Request& request, const Generation& result, bool shared) noexcept {
  Generation copy;
  try {
    copy = result;
    if (shared) {
      copy.remembered = true;
      copy.tokens_cached = copy.tokens_in;
    }
  } catch (...) {
    copy.status = OutOfMemory();
  }
  request.Finish(std::move(copy));
}

}  // namespace

// One generation under way, and those who wait for it. It listens to the generator's request.
class Memo::Flight : public RequestListener, public std::enable_shared_from_this<Flight> {
 public:
  Flight(Memo* memo, const Generator* generator, FlightKey key, std::shared_ptr<MemoStore> store,
         std::shared_ptr<MemoScan> scan)
      : memo_(memo),
        generator_(generator),
        key_(std::move(key)),
        scan_(std::move(scan)),
        store_(std::move(store)) {}

  // The generator has taken the work, which may be over by now. Everybody may have left meanwhile.
  void Begin(std::shared_ptr<Request> work) noexcept {
    bool wanted = false, interactive = false;
    {
      absl::MutexLock lock(&memo_->mutex_);
      submitted_ = true;
      memo_->decided_.SignalAll();
      if (finished_) return;
      wanted = !waiting_.empty();
      for (const std::shared_ptr<Request>& request : waiting_) {
        interactive |= request->priority() == Priority::kInteractive;
      }
      if (wanted) work_ = work;
    }
    if (!wanted) work->Cancel();
    if (interactive) work->Raise();
  }

  // The generator has refused the work.
  void Refuse(absl::Status status) noexcept {
    Generation result;
    result.status = std::move(status);
    Finish(result);
  }

  // Whether others may wait for it. Until the generator has taken the work, a refusal may be the
  // submitter's own: the queue is full, or he is interrupted. His own thread may join before; it
  // can ask the same from within, where a host's progress handler generates, and would wait for
  // itself. REQUIRES: the memo's mutex.
  bool MayBeJoined() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return submitted_ || submitter_ == std::this_thread::get_id();
  }
  // Whether it has taken or refused it. REQUIRES: the memo's mutex.
  bool IsDecided() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return submitted_ || finished_; }

  void OnFinished(const Request& work) noexcept override { Finish(work.result()); }

  // Somebody waits for it, and there is a deadline: nobody else looks after the generator's
  // request.
  void KeepDeadline() noexcept {
    std::shared_ptr<Request> work;
    {
      absl::MutexLock lock(&memo_->mutex_);
      work = work_;
    }
    if (work != nullptr) work->KeepDeadline();
  }

  // Nobody waits for `request` any more.
  void Leave(Request& request) noexcept {
    std::shared_ptr<Request> left, stopped;
    std::shared_ptr<MemoStore> store;  // closed on this thread, if it is to be, not the engine's
    {
      absl::MutexLock lock(&memo_->mutex_);
      auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                [&](const auto& waiting) { return waiting.get() == &request; });
      if (found == waiting_.end()) return;  // it has been answered
      left = std::move(*found);
      waiting_.erase(found);
      if (waiting_.empty()) {
        stopped = std::move(work_);
        store.swap(store_);
        Land();
      }
    }
    Generation result;
    try {
      result.status = request.AbandonedStatus();
    } catch (...) {
      result.status = OutOfMemory();
    }
    request.Finish(std::move(result));
    if (stopped != nullptr) stopped->Cancel();
  }

 private:
  friend class Memo;

  void Finish(const Generation& result) noexcept {
    std::vector<std::shared_ptr<Request>> waiting;
    std::shared_ptr<Request> finished;  // this object's last owner, perhaps
    {
      absl::MutexLock lock(&memo_->mutex_);
      finished_ = true;
      memo_->decided_.SignalAll();
      waiting.swap(waiting_);
      finished.swap(work_);
      Land();
      Keep(result);
    }
    bool shared = false;  // by one of them it was asked for
    for (const std::shared_ptr<Request>& request : waiting) {
      FinishWith(*request, result, std::exchange(shared, true));
    }
  }

  // Nobody can join any more.
  void Land() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto found = memo_->flights_.find(key_);
    if (found != memo_->flights_.end() && found->second.get() == this) {
      memo_->flights_.erase(found);
    }
  }

  void Keep(const Generation& result) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!result.status.ok()) return;
    try {
      RememberedAnswer answer{result.text,          result.finish,    result.tokens,
                              result.first_choices, result.tokens_in, result.tokens_out,
                              result.embedding};
      if (store_ != nullptr) store_->Add(key_.answer, answer);
      memo_->Remember(key_.answer, std::move(answer), scan_);
    } catch (...) {  // no memory: then it is not remembered
    }
  }

  Memo* const memo_;
  const Generator* const generator_;  // finishes its requests before it goes
  const FlightKey key_;
  const std::shared_ptr<MemoScan> scan_;  // of who asked first
  const std::thread::id submitter_ = std::this_thread::get_id();
  // Guarded by memo_->mutex_.
  std::shared_ptr<MemoStore> store_;  // null where nobody waits any more
  std::shared_ptr<Request> work_;     // null until it has been submitted, too
  std::vector<std::shared_ptr<Request>> waiting_;
  bool submitted_ = false;
  bool finished_ = false;
};

namespace {

// Listens to the request of one who waits.
template <typename Flight>
class Waiter : public RequestListener {
 public:
  Waiter(std::weak_ptr<Flight> flight, std::shared_ptr<MemoStore> store)
      : flight_(std::move(flight)), store_(std::move(store)) {}

  void OnAbandoned(Request& request) noexcept override {
    if (std::shared_ptr<Flight> flight = flight_.lock()) flight->Leave(request);
  }
  void OnWaiting(Request&) noexcept override {
    if (std::shared_ptr<Flight> flight = flight_.lock()) flight->KeepDeadline();
  }
  void OnCollected(const Request&) noexcept override {
    if (store_ != nullptr) store_->Flush();
  }

 private:
  const std::weak_ptr<Flight> flight_;
  const std::shared_ptr<MemoStore> store_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Request>> Memo::Submit(Generator& generator, RequestSpec spec,
                                                      const MemoAccess& access) {
  RETURN_IF_ERROR(generator.Validate(spec));  // before a prompt of any length becomes a key
  const std::shared_ptr<MemoStore> store = spec.embed.has_value() ? nullptr : access.store;
  ASSIGN_OR_RETURN(std::optional<MemoKey> memo_key,
                   MakeMemoKey(generator, spec, access.owner, store != nullptr));
  if (!memo_key.has_value()) return SubmitRequest(generator, std::move(spec));
  const FlightKey flight_key{*std::move(memo_key), spec.options.timeout_ms};
  const MemoKey& key = flight_key.answer;
  const std::string& model = generator.info().identity;
  const std::string salt = spec.salt;
  std::shared_ptr<Flight> flight;
  std::shared_ptr<Request> waiting;
  std::optional<RememberedAnswer> stored;
  for (bool store_was_asked = store == nullptr; flight == nullptr;) {
    std::shared_ptr<Request> hit;
    std::shared_ptr<Flight> other;
    {
      absl::MutexLock lock(&mutex_);
      if (stored.has_value()) {
        ++stats_[model].Of(salt).hits;
        hit = Hit(std::move(spec), *stored);
        Remember(key, *std::move(stored), access.scan);
      } else if (const RememberedAnswer* answer = Recall(key, access.scan)) {
        ++stats_[model].Of(salt).hits;
        hit = Hit(std::move(spec), *answer);
      } else if (other = FlightOf(flight_key, generator); other != nullptr) {
        if (!other->MayBeJoined()) {
          const absl::Condition decided(other.get(), &Flight::IsDecided);
          decided_.AwaitFor(mutex_, decided, absl::FromChrono(kCheckpointInterval));
        }
        if (other->MayBeJoined() && FlightOf(flight_key, generator) == other) {
          ++stats_[model].Of(salt).shared;
          return Join(other, std::move(spec));
        }
      } else if (store_was_asked) {
        ++stats_[model].Of(salt).misses;
        flight = std::make_shared<Flight>(this, &generator, flight_key, store, access.scan);
        waiting = Join(flight, spec);
        flights_.emplace(flight_key, flight);
      }
    }
    if (hit != nullptr) {
      // Those who waited for it may not have collected it yet.
      if (store != nullptr) store->Flush();
      return hit;
    }
    if (other != nullptr) {
      RETURN_IF_ERROR(Checkpoint());
    } else if (!std::exchange(store_was_asked, true)) {  // which may have to read a file
      stored = store->Find(key);
      if (stored.has_value() && !generator.CanBeAnswer(spec, *stored)) stored.reset();
    }
  }
  // Without the mutex: it may take long, and finish the request before it returns.
  absl::Cleanup refused = [&flight] { flight->Refuse(OutOfMemory()); };
  absl::StatusOr<std::shared_ptr<Request>> work = SubmitRequest(generator, std::move(spec), flight);
  std::move(refused).Cancel();
  if (!work.ok()) {
    flight->Refuse(work.status());
    // Where the queue is full, the caller submits it once more: one miss is not counted twice.
    absl::MutexLock lock(&mutex_);
    int64_t& misses = stats_[model].Of(salt).misses;
    misses -= misses > 0;
    return work.status();
  }
  flight->Begin(*std::move(work));
  return waiting;
}

void Memo::Add(const MemoKey& key, RememberedAnswer answer, const MemoAccess& access) {
  if (access.store != nullptr) access.store->Add(key, answer);
  absl::MutexLock lock(&mutex_);
  Remember(key, std::move(answer), access.scan);
}

std::shared_ptr<Request> Memo::Hit(RequestSpec spec, const RememberedAnswer& answer) {
  Generation result = ResultOf(answer);
  auto request = std::make_shared<Request>(std::move(spec));
  request->Finish(std::move(result));
  return request;
}

std::shared_ptr<Memo::Flight> Memo::FlightOf(const FlightKey& key, const Generator& generator) {
  const auto found = flights_.find(key);
  return found != flights_.end() && found->second->generator_ == &generator ? found->second
                                                                            : nullptr;
}

std::shared_ptr<Request> Memo::Join(const std::shared_ptr<Flight>& flight, RequestSpec spec) {
  auto request = std::make_shared<Request>(std::move(spec));
  request->set_listener(
      std::make_shared<Waiter<Flight>>(std::weak_ptr<Flight>(flight), flight->store_));
  flight->waiting_.push_back(request);
  if (request->priority() == Priority::kInteractive && flight->work_ != nullptr) {
    flight->work_->Raise();
  }
  return request;
}

const RememberedAnswer* Memo::Recall(const MemoKey& key, const std::shared_ptr<MemoScan>& scan) {
  auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  ++found->second.hits;
  found->second.used = absl::Now();
  ShelfOf(found->second.answer).Use(found->second.place, scan);
  return &found->second.answer;
}

void Memo::Remember(const MemoKey& key, RememberedAnswer answer,
                    const std::shared_ptr<MemoScan>& scan) {
  const int64_t bytes = key.bytes() + answer.bytes() + static_cast<int64_t>(sizeof(Entry));
  MemoShelf& shelf = ShelfOf(answer);
  if (!shelf.Fits(bytes) || entries_.contains(key)) return;
  // Every step either throws and has changed nothing, or cannot throw.
  const absl::Time now = absl::Now();
  MemoShelf::Items place = {{nullptr, bytes, scan}};
  const auto by_id = by_id_.emplace(++last_id_, nullptr).first;
  try {
    auto added =
        entries_.emplace(key, Entry{std::move(answer), last_id_, 0, place.begin(), now, now});
    place.front().key = by_id->second = &added.first->first;
  } catch (...) {
    by_id_.erase(by_id);
    throw;
  }
  shelf.Put(std::move(place));
  while (const MemoShelf::Item* item = shelf.NextToGo()) {
    if (item->scan != nullptr) ++item->scan->num_forgotten;
    Drop(entries_.find(*item->key));
  }
}

void Memo::Drop(EntryMap::iterator entry) {
  ShelfOf(entry->second.answer).Remove(entry->second.place);
  by_id_.erase(entry->second.id);
  entries_.erase(entry);
}

std::vector<MemoEntryInfo> Memo::Entries(absl::string_view owner, MemoRange* range,
                                         bool texts) const {
  std::vector<MemoEntryInfo> infos;
  size_t num_seen = 0;
  int64_t bytes = 0;
  absl::MutexLock lock(&mutex_);
  for (auto next = by_id_.upper_bound(range->after); next != by_id_.end(); ++next) {
    const auto& [id, key] = *next;
    if (id > range->last) break;
    if (num_seen == MemoPage::kEntries || bytes >= MemoPage::kBytes) return infos;
    ++num_seen;
    range->after = id;
    if (key->owner != owner) continue;
    const Entry& entry = entries_.find(*key)->second;
    infos.push_back({id, key->model, key->options,
                     int64_t{entry.answer.tokens_in} + entry.answer.tokens_out, entry.hits,
                     entry.place->bytes, entry.created, entry.used});
    infos.back().is_vector = entry.answer.is_vector();
    if (!texts) continue;
    bytes += entry.place->bytes;
    infos.back().prompt = key->prompt;
    infos.back().answer = entry.answer.text;
  }
  range->after = range->last;
  return infos;
}

int64_t Memo::last_id() const {
  absl::MutexLock lock(&mutex_);
  return last_id_;
}

Memo::Known Memo::Find(const MemoKey& key) const {
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(key);
  return found != entries_.end() ? Known{found->second.id, found->second.hits} : Known();
}

std::optional<MemoKey> Memo::Forget(absl::string_view owner, int64_t id) {
  absl::MutexLock lock(&mutex_);
  auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->owner != owner) return std::nullopt;
  MemoKey key = *found->second;
  Drop(entries_.find(key));
  return key;
}

void Memo::Forget(const MemoKey& key) {
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(key);
  if (found != entries_.end()) Drop(found);
}

MemoStats Memo::Stats(const std::string& model, absl::string_view salt) const {
  absl::MutexLock lock(&mutex_);
  auto found = stats_.find(model);
  return found != stats_.end() ? found->second.Get(salt) : MemoStats();
}

Memo::Bytes Memo::bytes() const {
  absl::MutexLock lock(&mutex_);
  return {answers_.bytes(), vectors_.bytes()};
}

int64_t Memo::max_bytes() const {
  absl::MutexLock lock(&mutex_);
  return answers_.max_bytes();
}

Memo& ProcessMemo() {
  static Memo* const memo = new Memo(kProcessMemoBytes, kProcessVectorBytes);
  return *memo;
}

}  // namespace lm
