#include "engine/hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checked_math.h"
#include "engine/base/checkpoint.h"
#include "engine/base/list_folder.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"
#include "engine/gguf/no_model.h"
#include "engine/gguf/tensor_directory.h"

namespace lm {
namespace {

constexpr char kWhole[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr uint64_t kMaxHeaderBytes = 16 << 20;
constexpr int64_t kMaxHeaderValues = 1 << 20;  // a tensor has 6 and its dimensions
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxShards = 1024;  // each is an open file

struct ElementType {
  absl::string_view name;
  uint64_t bytes;
};
constexpr ElementType kTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

absl::Status Error(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<uint64_t> Unsigned(const Json& value, absl::string_view what) {
  if (value.is_unsigned()) return value.unsigned_integer();
  return Error(absl::StrCat(what, ": wanted a whole number, got ", Excerpt(value.Dump(), 40)));
}

// Sets the type, shape and place of a tensor from its member of the header.
absl::Status ReadEntry(const Json& entry, uint64_t data_begin, uint64_t file_bytes,
                       StoredTensor* tensor) {
  const Json* const type = entry.Find("dtype");
  const Json* const shape = entry.Find("shape");
  const Json* const place = entry.Find("data_offsets");
  if (type == nullptr || !type->is_string() || shape == nullptr || !shape->is_array() ||
      place == nullptr || !place->is_array() || place->size() != 2) {
    return Error("wanted a dtype, a shape and data_offsets of two numbers");
  }
  tensor->type = type->string();
  const ElementType* const known =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const ElementType& t) { return t.name == tensor->type; });
  if (known == std::end(kTypes)) {
    return Error(absl::StrCat("its dtype ", Quoted(tensor->type), " is not known"));
  }
  if (shape->size() > kMaxDims) {
    return Error(absl::StrCat(shape->size(), " dimensions, wanted at most ", kMaxDims));
  }
  std::optional<uint64_t> bytes = known->bytes;
  for (const Json& dim : shape->array()) {
    ASSIGN_OR_RETURN(const uint64_t size, Unsigned(dim, "shape"));
    tensor->shape.push_back(size);
    bytes = bytes ? CheckedMul(*bytes, size) : std::nullopt;
  }
  ASSIGN_OR_RETURN(const uint64_t begin, Unsigned(place->array()[0], "data_offsets"));
  ASSIGN_OR_RETURN(const uint64_t end, Unsigned(place->array()[1], "data_offsets"));
  const uint64_t data_bytes = file_bytes - data_begin;
  if (begin > end || end > data_bytes) {
    return Error(absl::StrCat("its data_offsets ", begin, " to ", end, " are not within the ",
                              data_bytes, " bytes of data; is the file cut short?"));
  }
  if (!bytes || *bytes != end - begin) {
    return Error(absl::StrCat("its shape ", tensor->Description(), " takes ",
                              bytes ? absl::StrCat(*bytes) : "more than 2^64",
                              " bytes, its data_offsets have ", end - begin));
  }
  tensor->offset = data_begin + begin;
  tensor->bytes = *bytes;
  return absl::OkStatus();
}

// JSON of at most so many values, counted before they are made: one stands before each comma, and
// one in each bracket. Commas within strings count too.
absl::StatusOr<Json> ParseJson(absl::string_view text, int64_t most) {
  const int64_t values = std::count_if(text.begin(), text.end(),
                                       [](char c) { return c == ',' || c == '[' || c == '{'; });
  if (values > most) {
    return Error(absl::StrCat("has ", values, " values, at most ", most, " are read"));
  }
  std::optional<Json> json = Json::Parse(text);
  RETURN_IF_ERROR(Checkpoint());  // where the text ends for who reads it
  if (!json) return Error("is not JSON");
  return *std::move(json);
}

// That they lie one behind another, from the header to the end of the file.
absl::Status CheckPlaces(uint64_t data_begin, uint64_t file_bytes,
                         const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> order;
  order.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t end = data_begin;
  for (const StoredTensor* tensor : order) {
    if (tensor->offset != end) {
      return Error(absl::StrCat("tensor ", Quoted(tensor->name), " begins at byte ", tensor->offset,
                                ", but the one before it ends at ", end));
    }
    end += tensor->bytes;
  }
  if (end == file_bytes) return absl::OkStatus();
  return Error(absl::StrCat("the tensors end at byte ", end, ", the file at ", file_bytes));
}

absl::StatusOr<std::vector<StoredTensor>> ReadHeader(
    const std::shared_ptr<const RandomAccessFile>& file) {
  char length[8];
  uint64_t header_bytes;
  if (file->Size() < sizeof(length)) {
    return Error(absl::StrCat("not a safetensors file: it has ", file->Size(), " bytes"));
  }
  RETURN_IF_ERROR(CheckNoGitPointer(*file));
  RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(length)));
  std::memcpy(&header_bytes, length, sizeof(length));
  const uint64_t left = file->Size() - sizeof(length);
  if (header_bytes > left || header_bytes > kMaxHeaderBytes) {
    return Error(absl::StrCat("its header is declared to have ", header_bytes, " bytes, where ",
                              left, " are left and ", kMaxHeaderBytes, " allowed"));
  }
  std::string text(header_bytes, '\0');
  RETURN_IF_ERROR(file->Read(sizeof(length), absl::MakeSpan(text.data(), text.size())));
  const absl::StatusOr<Json> header = ParseJson(text, kMaxHeaderValues);
  if (!header.ok()) return InContext("its header", header.status());
  if (!header->is_object()) return Error("its header is not an object");
  if (header->size() > kMaxTensors) {
    return Error(absl::StrCat(header->size(), " tensors, at most ", kMaxTensors, " are allowed"));
  }
  const uint64_t data_begin = sizeof(length) + header_bytes;
  std::vector<StoredTensor> tensors;
  tensors.reserve(header->size());
  for (const auto& [name, entry] : header->members()) {
    if (name == "__metadata__") continue;
    RETURN_IF_ERROR(Checkpoint());
    StoredTensor tensor;
    tensor.name = name;
    tensor.file = file;
    absl::Status status = ReadEntry(entry, data_begin, file->Size(), &tensor);
    if (!status.ok()) return InContext(absl::StrCat("tensor ", Quoted(name)), status);
    tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(CheckPlaces(data_begin, file->Size(), tensors));
  return tensors;
}

// The names of the files, and with them of the tensors that each must have.
absl::StatusOr<std::set<std::string>> ShardNames(const std::string& path, const Json& index) {
  const Json* const map = index.Find("weight_map");
  if (map == nullptr || !map->is_object()) {
    return Error(absl::StrCat("'", path, "': wanted an object \"weight_map\""));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->members()) {
    const std::string name = file.is_string() ? file.string() : "";
    if (!absl::EndsWith(name, ".safetensors") || absl::StrContains(name, '/')) {
      return Error(absl::StrCat("'", path, "': tensor ", Quoted(tensor),
                                ": wanted the name of a .safetensors file, got ", Quoted(name)));
    }
    names.insert(name);
    if (names.size() > kMaxShards) {
      return Error(absl::StrCat("'", path, "': more than ", kMaxShards, " files"));
    }
  }
  return names;
}

// The one file of a folder without an index.
absl::StatusOr<std::string> OnlyFile(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder / kWhole, error)) return (folder / kWhole).string();
  std::vector<std::string> found;
  bool has_pickle = false;
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, ListFolder(folder.string()));
  for (const std::string& path : paths) {
    if (absl::EndsWith(path, ".safetensors")) found.push_back(path);
    has_pickle |= absl::EndsWith(path, ".bin");
  }
  if (found.size() == 1) return found[0];
  return absl::NotFoundError(absl::StrCat(
      "'", folder.string(), "' has no ", kWhole, " and no ", kIndex,
      found.empty() ? "" : ", but several other .safetensors files",
      has_pickle ? "; files of PyTorch's own format (.bin) are not read, as they are programs"
                 : ""));
}

}  // namespace

std::string StoredTensor::Description() const {
  return absl::StrCat(type, " [", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::vector<StoredTensor>> ReadSafetensors(
    std::shared_ptr<const RandomAccessFile> file) {
  absl::StatusOr<std::vector<StoredTensor>> tensors = ReadHeader(file);
  if (tensors.ok() || absl::StrContains(tensors.status().message(), file->path())) return tensors;
  return InContext(absl::StrCat("'", file->path(), "'"), tensors.status());
}

absl::StatusOr<Safetensors> Safetensors::Open(const std::string& folder) {
  const std::filesystem::path root = folder;
  Safetensors weights;
  std::vector<std::string> paths;
  const std::string index_path = (root / kIndex).string();
  const absl::StatusOr<Json> index = ReadJsonFile(index_path);
  if (index.ok()) {
    ASSIGN_OR_RETURN(const std::set<std::string> names, ShardNames(index_path, *index));
    for (const std::string& name : names) paths.push_back((root / name).string());
  } else {
    if (!absl::IsNotFound(index.status())) return index.status();
    ASSIGN_OR_RETURN(paths.emplace_back(), OnlyFile(root));
  }
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::shared_ptr<const RandomAccessFile> file, OpenFile(path));
    ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ReadSafetensors(std::move(file)));
    for (StoredTensor& tensor : tensors) {
      if (!weights.index_.try_emplace(tensor.name, weights.tensors_.size()).second) {
        return Error(absl::StrCat("'", path, "': tensor ", Quoted(tensor.name), " appears twice"));
      }
      weights.tensors_.push_back(std::move(tensor));
    }
    if (weights.tensors_.size() > kMaxTensors) {
      return Error(absl::StrCat("'", folder, "': more than ", kMaxTensors, " tensors"));
    }
  }
  if (!index.ok()) return weights;
  for (const auto& [name, file] : index->Find("weight_map")->members()) {
    const StoredTensor* const tensor = weights.Find(name);
    if (tensor != nullptr && tensor->file->path() == (root / file.string()).string()) continue;
    return Error(absl::StrCat("'", index_path, "' has tensor ", Quoted(name), " in ",
                              Quoted(file.string()), ", but it is not there"));
  }
  return weights;
}

const StoredTensor* Safetensors::Find(absl::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

absl::StatusOr<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenFile(path));
  if (file->Size() > limits.bytes) {
    return Error(absl::StrCat("'", path, "' has ", file->Size(), " bytes, at most ", limits.bytes,
                              " are read"));
  }
  std::string text(file->Size(), '\0');
  RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(text.data(), text.size())));
  absl::StatusOr<Json> json = ParseJson(text, limits.values);
  if (absl::IsInvalidArgument(json.status())) {
    const absl::Status pointer = CheckNoGitPointer(*file);
    if (!pointer.ok()) return Error(absl::StrCat("'", path, "' is ", pointer.message()));
    return Error(absl::StrCat("'", path, "' ", json.status().message()));
  }
  return json;
}

}  // namespace lm
