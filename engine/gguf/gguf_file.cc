#include "engine/gguf/gguf_file.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/cancellable_file.h"
#include "engine/base/digest.h"
#include "engine/base/first_error.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/gguf/content_digest.h"
#include "engine/gguf/gguf_part.h"
#include "engine/gguf/message.h"
#include "engine/gguf/ollama_names.h"
#include "engine/gguf/read_ahead.h"
#include "engine/gguf/split_files.h"

namespace lm {
namespace {

std::string InQuotes(const RandomAccessFile& file) { return absl::StrCat("'", file.path(), "'"); }

}  // namespace

GgufFile::Source GgufFile::MakeSource(std::shared_ptr<const RandomAccessFile> file,
                                      const std::atomic<bool>* cancel) {
  if (cancel == nullptr) return Source{file, file};
  return Source{file, MakeCancellable(file, *cancel)};
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path,
                                                         const std::atomic<bool>* cancel) {
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenFile(path));
  Source source = MakeSource(std::move(file), cancel);
  ASSIGN_OR_RETURN(GgufPart part, ReadGgufPart(*source.reader, 0));
  absl::StatusOr<SplitPosition> position = SplitPositionOf(part.metadata);
  if (!position.ok()) return InContext(InQuotes(*source.file), position.status());
  if (position->count == 1) {
    auto gguf = std::unique_ptr<GgufFile>(new GgufFile);
    RETURN_IF_ERROR(gguf->AddPart(std::move(source), std::move(part), 1));
    RETURN_IF_ERROR(gguf->Finish());
    return gguf;
  }
  ASSIGN_OR_RETURN(std::vector<std::string> paths, SplitPaths(path, *position));
  part = GgufPart();  // read again below, in its turn
  std::vector<Source> sources;
  for (size_t i = 0; i < paths.size(); ++i) {
    absl::StatusOr<std::unique_ptr<RandomAccessFile>> opened = OpenFile(paths[i]);
    if (!opened.ok()) {
      return InContext(absl::StrCat("part ", i + 1, " of ", paths.size()), opened.status());
    }
    sources.push_back(MakeSource(*std::move(opened), cancel));
  }
  return OpenAll(std::move(sources));
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(
    std::vector<std::unique_ptr<RandomAccessFile>> files, const std::atomic<bool>* cancel) {
  std::vector<Source> sources;
  for (std::unique_ptr<RandomAccessFile>& file : files) {
    sources.push_back(MakeSource(std::move(file), cancel));
  }
  return OpenAll(std::move(sources));
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::OpenAll(std::vector<Source> sources) {
  const int num_parts = static_cast<int>(sources.size());
  if (num_parts == 0) return absl::InvalidArgumentError("no file given");
  auto gguf = std::unique_ptr<GgufFile>(new GgufFile);
  for (int i = 0; i < num_parts; ++i) {
    ASSIGN_OR_RETURN(GgufPart part, ReadGgufPart(*sources[i].reader, i));
    RETURN_IF_ERROR(gguf->AddPart(std::move(sources[i]), std::move(part), num_parts));
  }
  RETURN_IF_ERROR(gguf->Finish());
  return gguf;
}

absl::Status GgufFile::AddPart(Source source, GgufPart part, int num_parts) {
  const RandomAccessFile* const file = source.file.get();
  absl::StatusOr<SplitPosition> position = SplitPositionOf(part.metadata);
  if (!position.ok()) return InContext(InQuotes(*file), position.status());
  const int index = static_cast<int>(files_.size());
  if (position->index != index || position->count != num_parts) {
    return absl::InvalidArgumentError(absl::StrCat(
        InQuotes(*file), ": wanted part ", index + 1, " of ", num_parts,
        ", but its metadata says part ", position->index + 1, " of ", position->count));
  }
  if (part.tensors.size() > kMaxTensors - tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(InQuotes(*file), ": more than ", kMaxTensors,
                                                   " tensors in the parts of the model"));
  }
  if (index == 0) {
    version_ = part.version;
    metadata_ = std::move(part.metadata);
  }
  files_.push_back(std::move(source));
  std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(tensors_));
  return absl::OkStatus();
}

absl::Status GgufFile::Finish() {
  if (files_.size() > 1) {
    absl::Status status = CheckSplitTensors(metadata_, tensors_.size());
    if (!status.ok()) return InContext(InQuotes(*files_[0].file), status);
  }
  UseLlamaCppNames(&metadata_, &tensors_);
  index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.try_emplace(tensors_[i].name, i).second) {
      return absl::InvalidArgumentError(absl::StrCat(InQuotes(*files_[tensors_[i].split].file),
                                                     ": tensor ", Quoted(tensors_[i].name),
                                                     " appears twice"));
    }
  }
  return absl::OkStatus();
}

const TensorInfo* GgufFile::FindTensor(absl::string_view name) const {
  auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::Status GgufFile::ReadTensor(const TensorInfo& info, absl::Span<char> out,
                                  uint64_t begin) const {
  assert(begin <= info.bytes && out.size() <= info.bytes - begin);
  if (observer_) observer_(info);
  absl::Status status;
  if (info.form == StoredForm::kPlain) {
    status = files_[info.split].reader->Read(info.offset + begin, out);
  } else {
    std::string stored(StoredBytes(info.form, out.size()), '\0');
    status = files_[info.split].reader->Read(info.offset + StoredBytes(info.form, begin),
                                             absl::MakeSpan(stored.data(), stored.size()));
    if (status.ok()) ReadStored(info.form, stored, out);
  }
  if (!status.ok()) return InContext(absl::StrCat("tensor ", Quoted(info.name)), status);
  return absl::OkStatus();
}

uint64_t GgufFile::bytes() const {
  uint64_t sum = 0;
  for (const Source& source : files_) sum += source.file->Size();
  return sum;
}

ModelFiles GgufFile::files() const {
  ModelFiles files;
  for (const Source& source : files_) files.push_back(source.file);
  return files;
}

absl::StatusOr<std::string> GgufFile::Digest(int num_threads) const {
  ModelFiles readers;
  for (const Source& source : files_) readers.push_back(source.reader);
  return DigestFiles(readers, num_threads);
}

}  // namespace lm
