#include "engine/gguf/value_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"

namespace lm {
namespace {

size_t BlockBytes(const TensorInfo& tensor) { return Traits(tensor.dtype).block_bytes; }

uint64_t End(const TensorInfo& tensor) { return tensor.offset + tensor.bytes; }

}  // namespace

ValueCheck::ValueCheck(absl::Span<const TensorInfo* const> tensors, uint64_t begin, uint64_t end)
    : at_(begin), end_(end) {
  auto first = std::partition_point(tensors.begin(), tensors.end(),
                                    [begin](const TensorInfo* t) { return End(*t) <= begin; });
  tensors_ = tensors.subspan(first - tensors.begin());
}

absl::Status ValueCheck::Add(absl::string_view bytes) {
  auto pass = [this, &bytes](size_t count) {
    at_ += count;
    bytes.remove_prefix(count);
  };
  while (!bytes.empty() && !tensors_.empty()) {
    const TensorInfo& tensor = *tensors_.front();
    const size_t block = BlockBytes(tensor);
    if (!partial_.empty()) {
      const size_t count = std::min(block - partial_.size(), bytes.size());
      partial_.append(bytes.data(), count);
      pass(count);
      if (partial_.size() < block) continue;
      RETURN_IF_ERROR(Check(tensor, at_ - block, partial_));
      partial_.clear();
      continue;
    }
    const uint64_t into = at_ > tensor.offset ? at_ - tensor.offset : 0;
    const uint64_t next = tensor.offset + (into + block - 1) / block * block;
    if (next >= std::min(End(tensor), end_)) {
      tensors_.remove_prefix(1);
    } else if (next > at_) {
      pass(std::min<uint64_t>(next - at_, bytes.size()));
    } else {
      const size_t count = std::min<uint64_t>(End(tensor) - at_, bytes.size());
      const size_t whole = count / block * block;
      RETURN_IF_ERROR(Check(tensor, at_, bytes.substr(0, whole)));
      partial_.assign(bytes.data() + whole, count - whole);
      pass(count);
    }
  }
  return absl::OkStatus();
}

size_t ValueCheck::missing() const {
  return partial_.empty() ? 0 : BlockBytes(*tensors_.front()) - partial_.size();
}

absl::Status ValueCheck::Check(const TensorInfo& tensor, uint64_t at, absl::string_view blocks) {
  const DTypeTraits& traits = Traits(tensor.dtype);
  auto values = [&traits](uint64_t bytes) {
    return static_cast<int64_t>(bytes / traits.block_bytes * traits.block_size);
  };
  const absl::Status finite =
      CheckFinite(tensor.dtype, blocks.data(), values(blocks.size()), values(at - tensor.offset));
  if (finite.ok()) return finite;
  return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': ", finite.message()));
}

}  // namespace lm
