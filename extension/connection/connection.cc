#include "extension/connection/connection.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/grammar.h"
#include "engine/model/adapter_file.h"
#include "engine/remote/remote_generator.h"
#include "engine/runtime/generator_registry.h"
#include "extension/connection/absolute_path.h"
#include "extension/host/aside.h"
#include "extension/host/ask_authorizer.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/statement.h"
#include "extension/memo/memo_file.h"

namespace lm {
namespace {

// The source's generator; reading gigabytes takes a while. Cancelled where the statement on
// the owner's connection, or the loading, is interrupted meanwhile.
absl::StatusOr<std::shared_ptr<Generator>> LoadGenerator(const WorkOwner& owner,
                                                         const ModelSource& source,
                                                         Patience patience) {
  const std::shared_ptr<RunningWork> statement = StatementCall::Work();
  const WaitingFor load(statement.get(), "load");
  const std::shared_ptr<RunningWork> work = RunningWork::Begin(WorkKind::kLoad, owner, source.path);
  const CancelFlagScope flag(&work->cancelled());
  absl::StatusOr<std::shared_ptr<Generator>> generator =
      RunAside(owner.db, [source, patience](std::atomic<bool>& cancel) {
        return source.is_remote()
                   ? GetRemoteGenerator(source.path, source.remote_options, patience, cancel)
                   : GetGenerator(source.path, source.options, cancel);
      });
  if (!absl::IsCancelled(generator.status()) || !work->cancelled()) return generator;
  if (statement != nullptr) statement->CancelWith(*work);
  return work->CancelledStatus();
}

// "a, b, c and 4 more".
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 8;
  const size_t named = std::min(names.size(), kNamed);
  const std::string more =
      named < names.size() ? absl::StrCat(" and ", names.size() - named, " more") : "";
  return absl::StrJoin(names.begin(), names.begin() + named, ", ") + more;
}

uint64_t NextNumber() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Connection::Connection(sqlite3* db)
    : db_(db),
      progress_poll_(db),
      number_(NextNumber()),
      number_salt_(absl::StrCat("connection:", number_)) {}

Connection::~Connection() { ForgetSalt(number_salt_); }

void Connection::SetSettings(Settings settings) {
  if (settings.memo != settings_.memo) memo_.reset();
  settings_ = std::move(settings);
  DropUnnamed();
}

void Connection::SetNames(ModelNames names) {
  names_ = std::move(names);
  DropUnnamed();
}

void Connection::DropUnnamed() {
  std::erase_if(loaded_, [this](const LoadedModel& loaded) {
    absl::StatusOr<ModelSource> now = names_.Resolve(loaded.reference, settings_);
    return !now.ok() || *now != loaded.source;
  });
}

absl::StatusOr<std::shared_ptr<const ModelUse>> Connection::Use(absl::string_view reference) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  ASSIGN_OR_RETURN(ModelSource source, names_.Resolve(reference, settings_));
  if (source.is_remote() && settings_.network == "off") {
    return absl::PermissionDeniedError(absl::StrCat(
        "the model '", source.name, "' is on the network, and lm_settings has network 'off'"));
  }
  auto known = std::find_if(loaded_.begin(), loaded_.end(), [&](const LoadedModel& loaded) {
    return loaded.reference == reference;
  });
  // A file that cannot be looked at any more is still in memory.
  absl::StatusOr<ModelIdentity> identity = IdentifyFiles(source.path, source.options);
  if (known == loaded_.end() || known->source.path != source.path ||
      (identity.ok() && IsReplaced(known->identity, *identity)) || IsLost(*known->generator)) {
    if (known != loaded_.end() && IsLost(*known->generator)) {  // gives back what it has first
      loaded_.erase(known);
      known = loaded_.end();
    }
    ASSIGN_OR_RETURN(std::shared_ptr<Generator> generator,
                     LoadGenerator(work_owner(), source, patience_));
    const absl::Status absence = generator->absence();
    // What only counts has no rows that may fail.
    if (only_counts()) RETURN_IF_ERROR(absence);
    if (!absence.ok()) return UseOf(std::move(generator), {}, source);
    // Whole before it is among them: it may want memory.
    LoadedModel loaded = {std::string(reference), source, identity.value_or(ModelIdentity()),
                          std::move(generator)};
    if (known == loaded_.end()) {
      known = loaded_.insert(known, std::move(loaded));
    } else {
      *known = std::move(loaded);
    }
  }
  std::shared_ptr<const ModelUse> use = UseOf(known->generator, known->strayed, source);
  known->source.prices = use->prices;
  return use;
}

std::shared_ptr<const ModelUse> Connection::UseOf(std::shared_ptr<Generator> generator,
                                                  std::shared_ptr<std::atomic<bool>> strayed,
                                                  const ModelSource& source) {
  const ModelInfo& info = generator->info();
  const Prices prices = source.is_remote() ? Prices{info.price_in, info.price_out} : source.prices;
  Session session(std::move(generator), Salt(), AccessToMemo());
  if (tally_ != nullptr) session.set_tally(tally_);
  session.set_strayed(std::move(strayed));
  return std::make_shared<const ModelUse>(
      ModelUse{std::move(session), settings_.OptionsJson(), settings_.system.value_or(""), prices});
}

std::shared_ptr<MemoFile> Connection::MemoInUse() {
  if (memo_ == nullptr && settings_.memo.has_value()) memo_ = MemoFile::Of(*settings_.memo);
  if (memo_ != nullptr) {
    memo_->set_max_bytes(settings_.memo_bytes.value_or(MemoFile::kDefaultBytes));
  }
  return memo_;
}

MemoAccess Connection::AccessToMemo() {
  const std::shared_ptr<MemoFile> memo = MemoInUse();
  return {memo != nullptr ? memo->owner() : Salt(), memo};
}

absl::StatusOr<std::string> Connection::CheckMemo(const std::string& path) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  // Names that are something else where SQLite opens a database.
  const bool no_path =
      path == ":memory:" || absl::StartsWith(path, "file:") || path.find('\0') != std::string::npos;
  if (no_path) {
    return absl::InvalidArgumentError(absl::StrCat("memo must be the path of a file, got '",
                                                   path.substr(0, path.find('\0')),
                                                   "' (NULL keeps answers in memory)"));
  }
  ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath("memo", path));
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(absolute, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("memo: ", error.message()));
  ASSIGN_OR_RETURN(Statement databases, Statement::Prepare(db_, "PRAGMA database_list"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, databases.Step());
    if (!row) break;
    ASSIGN_OR_RETURN(const std::string schema, databases.Text(1));
    const char* file = sqlite3_db_filename(db_, schema.c_str());
    if (file == nullptr || !std::filesystem::equivalent(real, file, error)) continue;
    const std::string which =
        schema == "main" ? "this database" : absl::StrCat("the attached database ", schema);
    return absl::FailedPreconditionError(
        absl::StrCat("memo: '", path, "' is ", which, "; the memo is a file of its own"));
  }
  RETURN_IF_ERROR(CheckMayAttach(db_, real.string()));
  RETURN_IF_ERROR(MemoFile::Of(real.string())->Open());
  return real.string();
}

const Generator* Connection::FindLoaded(const ModelSource& source) const {
  for (const LoadedModel& loaded : loaded_) {
    if (loaded.source == source) {
      return loaded.generator.get();
    }
  }
  return nullptr;
}

absl::Status Connection::RegisterPure(sqlite3* db) const {
  if (register_pure_ == nullptr) return absl::OkStatus();
  auto connection = std::make_shared<Connection>(db);
  connection->SetSettings(settings_);
  connection->SetNames(names_);
  if (register_pure_(connection) == SQLITE_OK) return absl::OkStatus();
  return absl::InternalError(sqlite3_errmsg(db));
}

std::string Connection::NameOf(const Generator& generator) const {
  for (const LoadedModel& loaded : loaded_) {
    if (loaded.generator.get() == &generator) return loaded.source.name;
  }
  return "";
}

Prices Connection::PricesOf(const Generator& generator) const {
  for (const LoadedModel& loaded : loaded_) {
    const Prices& prices = loaded.source.prices;
    if (loaded.generator.get() == &generator && prices.known()) return prices;
  }
  return {generator.info().price_in, generator.info().price_out};
}

std::string Connection::DisplayNameOf(const Generator& generator) const {
  std::string name = NameOf(generator);
  return name.empty() ? generator.info().name : name;
}

bool Connection::HasStrayed(const Generator& generator) const {
  return std::any_of(loaded_.begin(), loaded_.end(), [&](const LoadedModel& loaded) {
    return loaded.generator.get() == &generator && *loaded.strayed;
  });
}

void Connection::NoteSchema(const AnswerConstraint& constraint) {
  using Kind = AnswerConstraint::Kind;
  if (constraint.kind != Kind::kSchema && constraint.kind != Kind::kExtraction) return;
  if (constraint.text == noted_schema_) return;
  noted_schema_ = constraint.text;
  const std::vector<std::string> keywords = IgnoredKeywords(constraint.text);
  const std::vector<std::string> formats = IgnoredFormats(constraint.text);
  schema_hint_.clear();
  if (keywords.empty() && formats.empty()) return;
  if (!keywords.empty()) {
    absl::StrAppend(&schema_hint_, "the schema's ", FirstOf(keywords),
                    keywords.size() == 1 ? " is no keyword" : " are no keywords",
                    " of JSON Schema and ignored; ");
  }
  if (!formats.empty()) {
    absl::StrAppend(&schema_hint_, "the schema's format", formats.size() == 1 ? " " : "s ",
                    FirstOf(formats), formats.size() == 1 ? " is" : " are",
                    " not known and ignored; ");
  }
  schema_hint_ += "{\"strict_schema\":true} makes that an error";
}

std::string Connection::Salt() const {
  return settings_.salt.has_value() ? absl::StrCat("salt:", *settings_.salt) : OwnSalt();
}

std::string Connection::OwnSalt() const {
  const char* name = sqlite3_db_filename(db_, "main");
  // SQLite's own names are absolute; others belong to databases in memory, and so do all of
  // memdb's.
  sqlite3_vfs* vfs = nullptr;
  sqlite3_file_control(db_, "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  const bool in_memory = vfs != nullptr && absl::string_view(vfs->zName) == "memdb";
  if (name == nullptr || *name != '/' || in_memory) return number_salt_;
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(name, error);
  return absl::StrCat("file:", error ? std::string(name) : path.string());
}

}  // namespace lm
