#include "extension/memo_file.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/digest.h"
#include "engine/base/status_macros.h"
#include "extension/sqlite_value.h"

namespace lm {
namespace {

// In the file's header, where file(1) and SQLite's tools look: "LMmo", and the version of what
// follows.
constexpr int kApplicationId = 0x4c4d6d6f;
constexpr int kVersion = 2;
constexpr char kTable[] =
    "CREATE TABLE generations(id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, model TEXT NOT NULL, "
    "options TEXT NOT NULL, prompt BLOB NOT NULL, answer TEXT NOT NULL, tokens BLOB NOT NULL, "
    "finish TEXT NOT NULL, seal INTEGER NOT NULL, choices BLOB NOT NULL)";
constexpr char kIndex[] = "CREATE INDEX generations_by_hash ON generations(hash)";
// The columns that ReadEntry reads.
constexpr char kFind[] =
    "SELECT id, model, options, prompt, answer, tokens, finish, seal, choices FROM generations "
    "WHERE hash = ?1";
constexpr char kList[] =
    "SELECT id, model, options, prompt, answer, tokens, finish, seal, choices FROM generations "
    "ORDER BY id";
constexpr char kGet[] =
    "SELECT id, model, options, prompt, answer, tokens, finish, seal, choices FROM generations "
    "WHERE id = ?1";
constexpr char kInsert[] =
    "INSERT INTO generations(hash, model, options, prompt, answer, tokens, finish, seal, choices) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
// Of one key there is one row: another one could not be believed, or was another process's.
constexpr char kReplace[] =
    "DELETE FROM generations WHERE hash = ?1 AND model = ?2 AND options = ?3 AND prompt = ?4";
constexpr char kDelete[] = "DELETE FROM generations WHERE id = ?1";

constexpr int kBusyMs = 100;
constexpr absl::Duration kBusyPause = absl::Seconds(1);
constexpr size_t kMostPending = 100000;

template <typename T>
absl::string_view AsBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The fields' digest, each with its length, so that no two lists of fields read the same.
int64_t Hash(std::initializer_list<absl::string_view> fields) {
  std::string all;
  for (absl::string_view field : fields) absl::StrAppend(&all, field.size(), ":", field);
  return static_cast<int64_t>(DigestOf(all).low);
}

int64_t HashOf(const MemoKey& key) { return Hash({key.model, key.options, AsBytes(key.prompt)}); }

int64_t SealOf(const MemoKey& key, const RememberedAnswer& answer) {
  return Hash({key.model, key.options, AsBytes(key.prompt), answer.text, AsBytes(answer.tokens),
               FinishReasonName(answer.finish), AsBytes(answer.first_choices)});
}

absl::string_view BytesAt(sqlite3_stmt* row, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(row, column));
  return {data, data == nullptr ? 0 : static_cast<size_t>(sqlite3_column_bytes(row, column))};
}

template <typename T>
bool ReadValues(sqlite3_stmt* row, int column, std::vector<T>* values) {
  const absl::string_view bytes = BytesAt(row, column);
  if (sqlite3_column_type(row, column) != SQLITE_BLOB || bytes.size() % sizeof(T) != 0) {
    return false;
  }
  values->resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values->data(), bytes.data(), bytes.size());
  return true;
}

bool ReadText(sqlite3_stmt* row, int column, std::string* text) {
  if (sqlite3_column_type(row, column) != SQLITE_TEXT) return false;
  *text = std::string(BytesAt(row, column));
  return CheckText(*text, "").ok();
}

// A row of kFind, kList or kGet; nullopt for one that we did not write, or that has changed since.
std::optional<std::pair<MemoKey, RememberedAnswer>> ReadEntry(sqlite3_stmt* row) {
  MemoKey key;
  RememberedAnswer answer;
  std::string finish;
  if (!ReadText(row, 1, &key.model) || !ReadText(row, 2, &key.options) ||
      !ReadValues(row, 3, &key.prompt) || !ReadText(row, 4, &answer.text) ||
      !ReadValues(row, 5, &answer.tokens) || !ReadText(row, 6, &finish) ||
      !ReadValues(row, 8, &answer.first_choices)) {
    return std::nullopt;
  }
  for (FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kContext}) {
    if (finish != FinishReasonName(reason)) continue;
    answer.finish = reason;
    if (sqlite3_column_int64(row, 7) != SealOf(key, answer)) return std::nullopt;
    return std::pair(std::move(key), std::move(answer));
  }
  return std::nullopt;
}

void BindText(sqlite3_stmt* statement, int i, absl::string_view text) {
  sqlite3_bind_text64(statement, i, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
}

// Zero bytes are a BLOB too.
void BindBlob(sqlite3_stmt* statement, int i, absl::string_view bytes) {
  sqlite3_bind_blob64(statement, i, bytes.empty() ? "" : bytes.data(), bytes.size(), SQLITE_STATIC);
}

// Resets at the end of its scope a statement that is kept.
class Resetter {
 public:
  explicit Resetter(sqlite3_stmt* statement) : statement_(statement) {}
  ~Resetter() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }

 private:
  sqlite3_stmt* const statement_;
};

// The process's open files.
struct OpenFiles {
  absl::Mutex mutex;
  absl::flat_hash_map<std::string, std::weak_ptr<MemoFile>> by_path ABSL_GUARDED_BY(mutex);
};
OpenFiles& AllOpen() {
  static OpenFiles* const files = new OpenFiles();
  return *files;
}

}  // namespace

absl::StatusOr<std::shared_ptr<MemoFile>> MemoFile::Open(const std::string& path) {
  std::error_code error;
  const std::string real = std::filesystem::weakly_canonical(path, error).string();
  if (error) return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", error.message()));
  OpenFiles& files = AllOpen();
  absl::MutexLock lock(&files.mutex);
  if (std::shared_ptr<MemoFile> known = files.by_path[real].lock()) {
    absl::MutexLock known_lock(&known->mutex_);
    if (known->broken_.ok()) return known;
  }
  std::shared_ptr<MemoFile> file(new MemoFile(real));
  {
    absl::MutexLock file_lock(&file->mutex_);
    RETURN_IF_ERROR(file->Prepare());
  }
  files.by_path[real] = file;
  return file;
}

MemoFile::MemoFile(std::string path) : path_(std::move(path)), owner_("memo:" + path_) {}

MemoFile::~MemoFile() {
  if (fork_guard_.forked()) {  // the parent's connection, and its locks
    find_.release();
    replace_.release();
    insert_.release();
    db_.release();
    return;
  }
  absl::MutexLock lock(&mutex_);
  next_write_ = absl::InfinitePast();
  WritePending();
  find_.reset();
  replace_.reset();
  insert_.reset();
}

absl::Status MemoFile::Error(int code) {
  const absl::string_view message =
      db_ != nullptr ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code);
  const std::string text = absl::StrCat("the memo '", path_, "': ", message);
  const int primary = code & 0xff;
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED) return absl::UnavailableError(text);
  return absl::FailedPreconditionError(text);
}

absl::Status MemoFile::Run(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<OwnedStatement> MemoFile::Statement(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return OwnedStatement(statement);
}

absl::Status MemoFile::Prepare() {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(
      path_.c_str(), &db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
      nullptr);
  db_.reset(db);
  if (code != SQLITE_OK) return Error(code);
  sqlite3_busy_timeout(db, kBusyMs);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  RETURN_IF_ERROR(Run("PRAGMA cell_size_check = ON"));
  // Only what is ours, or nobody's yet, is written to.
  RETURN_IF_ERROR(CheckSchema());
  // In WAL mode a commit is an append; at NORMAL, without waiting for the disk. What a dying
  // process has committed is there; losing power may cost the last answers, never the file.
  RETURN_IF_ERROR(Run("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(Run("PRAGMA synchronous = NORMAL"));
  ASSIGN_OR_RETURN(find_, Statement(kFind));
  ASSIGN_OR_RETURN(replace_, Statement(kReplace));
  ASSIGN_OR_RETURN(insert_, Statement(kInsert));
  return absl::OkStatus();
}

// Makes our tables in a file that has nothing in it; else sees that it has them and no others.
absl::Status MemoFile::CheckSchema() {
  ASSIGN_OR_RETURN(OwnedStatement header,
                   Statement("SELECT application_id, user_version, (SELECT count(*) FROM "
                             "sqlite_master) FROM pragma_application_id, pragma_user_version"));
  int code = sqlite3_step(header.get());
  if (code != SQLITE_ROW) return Error(code);
  const int id = sqlite3_column_int(header.get(), 0);
  const int version = sqlite3_column_int(header.get(), 1);
  const int objects = sqlite3_column_int(header.get(), 2);
  header.reset();
  if (id == 0 && version == 0 && objects == 0) {
    const std::string create =
        absl::StrCat("PRAGMA encoding = 'UTF-8'; BEGIN IMMEDIATE; ", kTable, "; ", kIndex,
                     "; PRAGMA application_id = ", kApplicationId,
                     "; PRAGMA user_version = ", kVersion, "; COMMIT");
    const absl::Status created = Run(create.c_str());
    if (created.ok()) return absl::OkStatus();
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    // Another process may have come first.
    ASSIGN_OR_RETURN(header, Statement("SELECT 1 FROM sqlite_master"));
    if (sqlite3_step(header.get()) != SQLITE_ROW) return created;
    header.reset();
    return CheckSchema();
  }
  if (id != kApplicationId || version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", path_, "' is a database, but no memo of this version of sqlite-lm: name a new file"));
  }
  ASSIGN_OR_RETURN(OwnedStatement schema,
                   Statement("SELECT sql FROM sqlite_master ORDER BY rowid"));
  for (const char* expected : {kTable, kIndex}) {
    code = sqlite3_step(schema.get());
    if (code != SQLITE_ROW || BytesAt(schema.get(), 0) != expected) code = SQLITE_MISMATCH;
    if (code == SQLITE_MISMATCH) break;
  }
  if (code == SQLITE_ROW) code = sqlite3_step(schema.get());
  if (code == SQLITE_DONE) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the memo '", path_, "' has another schema than ours: somebody changed it"));
}

absl::StatusOr<std::optional<RememberedAnswer>> MemoFile::Find(const MemoKey& key) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(broken_);
  Resetter resetter(find_.get());
  sqlite3_bind_int64(find_.get(), 1, HashOf(key));
  int code;
  while ((code = sqlite3_step(find_.get())) == SQLITE_ROW) {
    std::optional<Entry> entry = ReadEntry(find_.get());
    if (!entry.has_value()) continue;
    if (entry->first.model == key.model && entry->first.options == key.options &&
        entry->first.prompt == key.prompt) {
      return std::move(entry->second);
    }
  }
  if (code == SQLITE_DONE) return std::nullopt;
  absl::Status error = Error(code);
  if (absl::IsUnavailable(error)) return std::nullopt;  // locked: then it is generated
  broken_ = error;
  return error;
}

void MemoFile::Add(const MemoKey& key, const RememberedAnswer& answer) noexcept {
  try {
    absl::MutexLock lock(&pending_mutex_);
    if (pending_.size() >= kMostPending) return;  // the file has been locked for very long
    pending_.emplace_back(key, answer);
    ++not_written_;
  } catch (...) {  // no memory: then it is generated again next time
  }
}

void MemoFile::Flush() noexcept {
  if (not_written_.load() == 0) return;
  try {
    absl::MutexLock lock(&mutex_);
    WritePending();
  } catch (...) {
  }
}

void MemoFile::WritePending() {
  if (!broken_.ok() || absl::Now() < next_write_) return;
  std::vector<Entry> entries;
  {
    absl::MutexLock lock(&pending_mutex_);
    entries.swap(pending_);
  }
  if (entries.empty()) return;
  const int64_t count = static_cast<int64_t>(entries.size());
  const absl::Status status = Write(entries);
  if (absl::IsUnavailable(status)) {  // another process writes: with the next ones
    next_write_ = absl::Now() + kBusyPause;
    absl::MutexLock lock(&pending_mutex_);
    pending_.insert(pending_.end(), std::make_move_iterator(entries.begin()),
                    std::make_move_iterator(entries.end()));
    return;
  }
  not_written_ -= count;
  if (!status.ok()) broken_ = status;
}

absl::Status MemoFile::Write(const std::vector<Entry>& entries) {
  RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  absl::Status status;
  for (const auto& [key, answer] : entries) {
    sqlite3_stmt* insert = insert_.get();
    Resetter resetter(insert), replace_resetter(replace_.get());
    for (sqlite3_stmt* statement : {replace_.get(), insert}) {
      sqlite3_bind_int64(statement, 1, HashOf(key));
      BindText(statement, 2, key.model);
      BindText(statement, 3, key.options);
      BindBlob(statement, 4, AsBytes(key.prompt));
    }
    if (const int code = sqlite3_step(replace_.get()); code != SQLITE_DONE) {
      status = Error(code);
      break;
    }
    BindText(insert, 5, answer.text);
    BindBlob(insert, 6, AsBytes(answer.tokens));
    BindText(insert, 7, FinishReasonName(answer.finish));
    sqlite3_bind_int64(insert, 8, SealOf(key, answer));
    BindBlob(insert, 9, AsBytes(answer.first_choices));
    if (const int code = sqlite3_step(insert); code != SQLITE_DONE) {
      status = Error(code);
      break;
    }
  }
  if (status.ok()) status = Run("COMMIT");
  if (!status.ok() && sqlite3_get_autocommit(db_.get()) == 0) {
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
  return status;
}

absl::StatusOr<std::vector<MemoEntryInfo>> MemoFile::Entries() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(broken_);
  WritePending();
  ASSIGN_OR_RETURN(OwnedStatement list, Statement(kList));
  std::vector<MemoEntryInfo> infos;
  int code;
  while ((code = sqlite3_step(list.get())) == SQLITE_ROW) {
    std::optional<Entry> entry = ReadEntry(list.get());
    MemoEntryInfo info;
    info.id = sqlite3_column_int64(list.get(), 0);
    if (entry.has_value()) {
      auto& [key, answer] = *entry;
      key.owner = owner_;
      info.model = key.model;
      info.options = key.options;
      info.tokens = static_cast<int64_t>(key.prompt.size() + answer.tokens.size());
      info.hits = ProcessMemo().HitsOf(key);
      info.bytes = key.bytes() + answer.bytes();
    }
    infos.push_back(std::move(info));  // a row that is not ours has nothing but its id
  }
  if (code != SQLITE_DONE) return Error(code);
  return infos;
}

absl::Status MemoFile::Forget(int64_t id) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(broken_);
  ASSIGN_OR_RETURN(OwnedStatement get, Statement(kGet));
  sqlite3_bind_int64(get.get(), 1, id);
  int code = sqlite3_step(get.get());
  if (code == SQLITE_ROW) {
    if (std::optional<Entry> entry = ReadEntry(get.get())) {
      entry->first.owner = owner_;
      ProcessMemo().Forget(entry->first);
    }
    get.reset();
    ASSIGN_OR_RETURN(OwnedStatement remove, Statement(kDelete));
    sqlite3_bind_int64(remove.get(), 1, id);
    code = sqlite3_step(remove.get());
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error(code);
}

}  // namespace lm
