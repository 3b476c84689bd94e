#include "engine/gguf/gguf_part.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/checked_math.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/byte_cursor.h"
#include "engine/gguf/message.h"
#include "engine/gguf/metadata_reader.h"
#include "engine/gguf/no_model.h"

namespace lm {
namespace {

constexpr absl::string_view kMagic = "GGUF";
constexpr absl::string_view kSwappedMagic = "FUGG";
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMinAlignment = 8;
constexpr int64_t kMaxAlignment = 64 << 10;

absl::Status BigEndian() {
  return absl::InvalidArgumentError(
      "a big-endian GGUF file; only little-endian ones are supported");
}

absl::Status CheckMagic(ByteCursor* cursor) {
  char magic[4];
  RETURN_IF_ERROR(cursor->ReadBytes(absl::MakeSpan(magic)));
  absl::string_view found(magic, sizeof(magic));
  if (found == kMagic) return absl::OkStatus();
  if (found == kSwappedMagic) return BigEndian();
  return absl::InvalidArgumentError(
      absl::StrCat("not a GGUF file: it begins with ", Quoted(found), ", wanted \"GGUF\""));
}

absl::StatusOr<uint32_t> ReadVersion(ByteCursor* cursor) {
  ASSIGN_OR_RETURN(uint32_t version, cursor->ReadNumber<uint32_t>());
  if (version == 2 || version == 3) return version;
  // A version is small; in the other byte order it is at least 2^24.
  if (version != 0 && (version & 0x00ffffff) == 0) return BigEndian();
  return absl::InvalidArgumentError(
      absl::StrCat("GGUF version ", version, " is not supported, wanted 2 or 3"));
}

absl::StatusOr<uint64_t> Alignment(const Metadata& metadata) {
  constexpr absl::string_view kKey = "general.alignment";
  if (!metadata.Has(kKey)) return kDefaultAlignment;
  ASSIGN_OR_RETURN(int64_t alignment, metadata.GetInt(kKey));
  if (alignment < kMinAlignment || alignment > kMaxAlignment ||
      (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("key ", Quoted(kKey), ": wanted a power of two ",
                                                   "from ", kMinAlignment, " to ", kMaxAlignment,
                                                   ", got ", alignment));
  }
  return static_cast<uint64_t>(alignment);
}

// Behind the last tensor there may be padding: up to the alignment whatever it is, and some more of
// zeros, to whole blocks of a disk.
absl::Status CheckRest(const RandomAccessFile& file, uint64_t data_end, uint64_t alignment) {
  constexpr uint64_t kMostZeros = 1 << 20;
  const std::optional<uint64_t> padded_end = CheckedAlignUp(data_end, alignment);
  if (!padded_end.has_value() || *padded_end >= file.Size()) return absl::OkStatus();
  const uint64_t rest = file.Size() - *padded_end;
  if (rest <= kMostZeros) {
    std::string bytes(rest, '\0');
    RETURN_IF_ERROR(file.Read(*padded_end, absl::MakeSpan(bytes.data(), bytes.size())));
    if (bytes.find_first_not_of('\0') == std::string::npos) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the file has ", file.Size(), " bytes, but its last tensor ends at ", data_end,
                   ": ", file.Size() - data_end, " bytes belong to nothing"));
}

absl::StatusOr<GgufPart> ReadPart(const RandomAccessFile& file, int split) {
  ByteCursor cursor(file);
  GgufPart part;
  const absl::Status magic = CheckMagic(&cursor);
  if (!magic.ok()) RETURN_IF_ERROR(CheckNoGitPointer(file));
  RETURN_IF_ERROR(magic);
  ASSIGN_OR_RETURN(part.version, ReadVersion(&cursor));
  ASSIGN_OR_RETURN(uint64_t num_tensors, cursor.ReadNumber<uint64_t>());
  ASSIGN_OR_RETURN(uint64_t num_pairs, cursor.ReadNumber<uint64_t>());
  ASSIGN_OR_RETURN(part.metadata, ReadMetadata(num_pairs, &cursor));
  ASSIGN_OR_RETURN(uint64_t alignment, Alignment(part.metadata));
  ASSIGN_OR_RETURN(part.tensors, ReadTensorDirectory(num_tensors, split, &cursor));
  ASSIGN_OR_RETURN(const uint64_t data_end,
                   PlaceTensors(alignment, cursor.position(), file.Size(), &part.tensors));
  RETURN_IF_ERROR(CheckRest(file, data_end, alignment));
  return part;
}

}  // namespace

absl::StatusOr<GgufPart> ReadGgufPart(const RandomAccessFile& file, int split) {
  absl::StatusOr<GgufPart> part = ReadPart(file, split);
  // The file's own errors name it already.
  if (part.ok() || absl::StrContains(part.status().message(), file.path())) return part;
  return InContext(absl::StrCat("'", file.path(), "'"), part.status());
}

}  // namespace lm
