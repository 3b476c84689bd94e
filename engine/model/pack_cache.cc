#include "engine/model/pack_cache.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/list_folder.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr char kNothingToKeep[] = "no matrix is on the CPU";

// A different arrangement of matrices, or of what is in their names here, is another version. So is
// another release, which may read files in another way.
constexpr absl::string_view kVersion = LM_VERSION ".1";

// The numbers of the version that a layout begins with; empty where it begins with none.
std::vector<int> VersionOf(absl::string_view layout) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(layout.substr(0, layout.find(' ')), '.')) {
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) return {};
  }
  return numbers;
}

// Whether only an older release would use them. One that is newer may be run beside this one.
bool IsOfOlderRelease(const PackedSource& source) {
  const std::vector<int> version = VersionOf(source.layout);
  return !version.empty() && version < VersionOf(kVersion);
}

// Pages from all over a file: they differ where two versions of a model do.
absl::StatusOr<std::string> SampleOf(const RandomAccessFile& file) {
  constexpr uint64_t kPages = 64, kPageBytes = 4096;
  std::string sampled;
  std::string page(kPageBytes, '\0');
  for (uint64_t i = 0; i < kPages; ++i) {
    const uint64_t begin = file.Size() / kPages * i;
    const uint64_t bytes = std::min(kPageBytes, file.Size() - begin);
    RETURN_IF_ERROR(file.Read(begin, absl::MakeSpan(page.data(), bytes)));
    absl::StrAppend(&sampled, DigestOf(absl::string_view(page).substr(0, bytes)).Hex());
  }
  return DigestOf(sampled).Hex();
}

}  // namespace

PackCache::PackCache(const std::string& folder, const std::string& path, const GgufFile& gguf,
                     const std::string& plan, bool adopts, int num_threads,
                     const std::atomic<bool>& cancel)
    : folder_(folder), model_path_(path), gguf_(gguf), plan_(plan), num_threads_(num_threads) {
  Prepare(adopts, cancel);
}

absl::StatusOr<PackedSource> PackCache::Identify() const {
  PackedSource source;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(model_path_, error);
  if (error) return absl::UnavailableError(error.message());
  source.path = Printable(whole.string());
  source.layout = absl::StrCat(kVersion, " ", plan_);
  for (const auto& file : gguf_.files()) {
    const absl::StatusOr<FileIdentity> identity = IdentifyFile(file->path());
    if (!identity.ok() || identity->bytes != file->Size()) {
      return absl::UnimplementedError("only of GGUF files are packed weights kept");
    }
    ASSIGN_OR_RETURN(const std::string sample, SampleOf(*file));
    absl::StrAppend(&source.contents, source.contents.empty() ? "" : " ", identity->bytes, "@",
                    identity->modified_ns, ":", sample);
  }
  return source;
}

bool PackCache::OpenPacked() {
  absl::StatusOr<std::shared_ptr<PackedFile>> packed =
      PackedFile::Open(path_, source_, num_threads_);
  if (!packed.ok()) return false;
  packed_ = *std::move(packed);
  state_ = packed_->is_mapped() ? "mapped" : "read";
  return true;
}

// Who packed beside another would keep matrices of its own as long as it lives: so it waits for the
// other's, about as long as these may take on a slow disk.
absl::StatusOr<std::unique_ptr<PackedFileWriter>> PackCache::BeginWriting(
    const std::atomic<bool>& cancel) const {
  constexpr uint64_t kBytesASecond = 128 << 20;
  const auto seconds = static_cast<int64_t>(2 + gguf_.bytes() / kBytesASecond);
  const MonotonicTime until = MonotonicTime::Now() + absl::Seconds(seconds);
  for (;;) {
    absl::StatusOr<std::unique_ptr<PackedFileWriter>> writer = PackedFileWriter::Create(path_);
    const bool may_wait = absl::IsAlreadyExists(writer.status()) && !cancel;
    if (!may_wait || MonotonicTime::Now() >= until) return writer;
    absl::SleepFor(absl::Milliseconds(10));
  }
}

void PackCache::Prepare(bool adopts, const std::atomic<bool>& cancel) {
  if (!adopts) {
    state_ = kNothingToKeep;
    return;
  }
  absl::StatusOr<PackedSource> source = Identify();
  if (!source.ok()) {
    state_ = std::string(source.status().message());
    return;
  }
  source_ = *std::move(source);
  const std::string key =
      DigestOf(absl::StrCat(source_.path, "\n", source_.contents, "\n", source_.layout)).Hex();
  const std::string stem = std::filesystem::path(source_.path).stem().string();
  path_ = (std::filesystem::path(folder_) / absl::StrCat(stem, "-", key.substr(0, 16), ".pack"))
              .string();
  if (OpenPacked()) return;
  absl::StatusOr<std::unique_ptr<PackedFileWriter>> writer = BeginWriting(cancel);
  if (!writer.ok()) {
    state_ = std::string(writer.status().message());
    return;
  }
  if (OpenPacked()) return;  // another has written it meanwhile
  writer_ = *std::move(writer);
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> PackCache::Load(const std::string& name, DType dtype,
                                                              int64_t rows, int64_t cols,
                                                              RowReader read, Backend* backend) {
  if (backend->adopts_matrices() && packed_ != nullptr) {
    if (std::optional<Buffer> buffer = PackedFile::Find(packed_, name)) {
      absl::StatusOr<std::unique_ptr<WeightMatrix>> matrix =
          backend->AdoptMatrix(dtype, rows, cols, *std::move(buffer));
      if (matrix.ok()) return matrix;
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<WeightMatrix> matrix,
                   backend->LoadMatrix(dtype, rows, cols, read));
  if (backend->adopts_matrices() && writer_ != nullptr && added_.insert(name).second) {
    writer_->Add(name, matrix->packed());
    if (!writer_->status().ok()) {  // whoever waits for it waits in vain
      state_ = std::string(writer_->status().message());
      writer_.reset();
    }
  }
  return matrix;
}

std::optional<std::string> PackCache::digest() const {
  if (packed_ == nullptr) return std::nullopt;
  return packed_->source().digest;
}

void PackCache::Finish(const std::string& digest) {
  if (writer_ == nullptr) return;
  const std::unique_ptr<PackedFileWriter> writer = std::move(writer_);
  if (added_.empty()) {
    state_ = kNothingToKeep;
    return;
  }
  // The model as it was read, from the first byte to the last.
  const absl::StatusOr<PackedSource> source = Identify();
  if (!source.ok() || !source->Matches(source_)) {
    state_ = "the model changed while it was loaded";
    return;
  }
  source_.digest = digest;
  const absl::Status written = writer->Finish(source_);
  state_ = written.ok() ? "written" : std::string(written.message());
  if (written.ok()) RemoveOthers();
}

void PackCache::RemoveOthers() const {
  for (const std::string& other : ListFolder(folder_).value_or(std::vector<std::string>())) {
    if (!absl::EndsWith(other, ".pack") || other == path_) continue;
    const std::optional<PackedSource> source = PackedFile::SourceOf(other);
    if (!source || source->path != source_.path) continue;
    if (source->contents != source_.contents || IsOfOlderRelease(*source)) unlink(other.c_str());
  }
}

}  // namespace lm
