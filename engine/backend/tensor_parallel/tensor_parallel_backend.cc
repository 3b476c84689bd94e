#include "engine/backend/tensor_parallel/tensor_parallel_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/check_arguments.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Rows that stay together: what MatMulColumns is asked for at a time.
constexpr int64_t kRowsTogether = 64;

std::string NameOf(const std::vector<std::unique_ptr<Backend>>& members) {
  std::string name;
  for (const auto& member : members)
    absl::StrAppend(&name, name.empty() ? "" : "+", member->name());
  return name;
}

size_t BytesSpanned(Tensor tensor) {
  if (tensor.rows == 0) return 0;
  return (tensor.rows - 1) * tensor.row_bytes + RowBytes(tensor.dtype, tensor.cols);
}

// Addresses that stand for memory elsewhere.
absl::StatusOr<Buffer> ReserveAddresses(size_t bytes) {
  void* const begin =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are no addresses for ", bytes, " bytes of keys and values"));
  }
  return Buffer(begin, bytes, [](void* data, size_t size) { munmap(data, size); });
}

// Part `i` of `n` parts of the columns.
Tensor Share(Tensor matrix, size_t i, int64_t n) {
  if (matrix.empty()) return matrix;
  const int64_t cols = matrix.cols / n;
  return matrix.Cols(static_cast<int64_t>(i) * cols, cols);
}

}  // namespace

class TensorParallelBackend::At {
 public:
  At(const MemberMemory& memory, size_t member, int32_t size)
      : memory_(memory), member_(member), size_(size) {}

  size_t member() const { return member_; }

  template <typename T>
  const T& operator()(const T& same_for_all) const {
    return same_for_all;
  }
  void* operator()(const void* data) const { return memory_.At(data, member_); }
  void* operator()(void* data) const { return memory_.At(data, member_); }
  Tensor operator()(Tensor tensor) const {
    tensor.data = memory_.At(tensor.data, member_);
    return tensor;
  }
  Norm operator()(Norm norm) const {
    norm.weight = (*this)(norm.weight);
    norm.bias = (*this)(norm.bias);
    return norm;
  }
  ProductInput operator()(ProductInput input) const {
    input.x = (*this)(input.x);
    input.norm = (*this)(input.norm);
    return input;
  }
  KvLayer operator()(KvLayer layer) const {
    const int32_t shares = memory_.SharesOf(layer.keys);
    layer.keys = memory_.At(layer.keys, member_);
    layer.values = memory_.At(layer.values, member_);
    layer.kv_heads /= shares;
    layer.block_stride /= shares;
    return layer;
  }
  AttentionOptions operator()(AttentionOptions options) const {
    options.slopes = (*this)(options.slopes);
    options.sinks = (*this)(options.sinks);
    return options;
  }
  StateLayer operator()(StateLayer layer) const {
    layer.data = static_cast<float*>(memory_.At(layer.data, member_));
    return layer;
  }
  RowLayer operator()(RowLayer layer) const {
    layer.data = static_cast<float*>(memory_.At(layer.data, member_));
    return layer;
  }
  RowAttention operator()(RowAttention attention) const {
    attention.near = (*this)(attention.near);
    attention.far = (*this)(attention.far);
    attention.chosen = (*this)(attention.chosen);
    attention.sinks = (*this)(attention.sinks);
    return attention;
  }
  PoolInputs operator()(PoolInputs inputs) const {
    inputs.values = (*this)(inputs.values);
    inputs.scores = (*this)(inputs.scores);
    inputs.places = (*this)(inputs.places);
    return inputs;
  }
  DeltaRuleInputs operator()(DeltaRuleInputs inputs) const {
    for (Tensor* tensor :
         {&inputs.q, &inputs.k, &inputs.v, &inputs.alpha, &inputs.beta, &inputs.dt_bias, &inputs.a,
          &inputs.log_decay, &inputs.erase, &inputs.skip}) {
      *tensor = (*this)(*tensor);
    }
    return inputs;
  }
  Router operator()(Router router) const {
    router.bias = (*this)(router.bias);
    router.scales = (*this)(router.scales);
    return router;
  }
  // Route has put them there.
  ExpertRoutes& operator()(const ExpertRoutes& routes) const {
    return static_cast<ExpertRoutes*>(routes.memory.data())[member_];
  }
  ExpertRoutes* operator()(ExpertRoutes* routes) const { return &(*this)(std::as_const(*routes)); }

  // What is made of a matrix's rows that the member has.
  Tensor Own(const WeightMatrix& w, Tensor of_all) const {
    return (*this)(ToSplit(w).Own(of_all, member_));
  }
  // What belongs to the heads that it has.
  Tensor Heads(Tensor of_all) const { return (*this)(Share(of_all, member_, size_)); }

 private:
  const MemberMemory& memory_;
  const size_t member_;
  const int32_t size_;
};

TensorParallelBackend::TensorParallelBackend(std::vector<std::unique_ptr<Backend>> members,
                                             std::unique_ptr<Collectives> collectives,
                                             int64_t least_split_bytes)
    : members_(std::move(members)),
      collectives_(std::move(collectives)),
      name_(NameOf(members_)),
      least_split_bytes_(least_split_bytes),
      memory_(std::make_shared<MemberMemory>()),
      steps_(members_.size()) {}

absl::Status TensorParallelBackend::BeginWriting(const void* data, size_t bytes) {
  const auto* const begin = static_cast<const char*>(data);
  const bool is_given = std::any_of(given_.begin(), given_.end(), [&](const auto& given) {
    return begin < given.second && given.first < begin + bytes;
  });
  return is_given ? Join() : absl::OkStatus();
}

absl::Status TensorParallelBackend::Join() {
  given_.clear();
  return collectives_->Join();
}

template <typename F>
absl::Status TensorParallelBackend::ForMembers(Written written, F f) {
  RETURN_IF_ERROR(BeginMembers(/*vocabulary=*/nullptr));
  for (const Tensor& tensor : written) {
    if (!tensor.empty()) RETURN_IF_ERROR(BeginWriting(tensor.data, BytesSpanned(tensor)));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    RETURN_IF_ERROR(f(members_[i].get(), At(*memory_, i, num_devices())));
  }
  return absl::OkStatus();
}

template <typename... Parameters, typename... Arguments>
absl::Status TensorParallelBackend::Replicate(Written written,
                                              absl::Status (Backend::*op)(Parameters...),
                                              const Arguments&... arguments) {
  return ForMembers(written,
                    [&](Backend* member, const At& at) { return (member->*op)(at(arguments)...); });
}

// --- memory -----------------------------------------------------------------------------------

absl::StatusOr<Buffer> TensorParallelBackend::Allocate(size_t bytes) {
  return AllocateShares(bytes, /*shares=*/1);
}

absl::StatusOr<Buffer> TensorParallelBackend::AllocateKv(size_t bytes, int32_t kv_heads) {
  return AllocateShares(bytes, KvShares(kv_heads, num_devices()));
}

absl::StatusOr<Buffer> TensorParallelBackend::AllocateShares(size_t bytes, int32_t shares) {
  if (bytes == 0) return Buffer();
  std::vector<Buffer> parts;
  for (const auto& member : members_) {
    ASSIGN_OR_RETURN(Buffer part, member->Allocate(bytes / shares));
    parts.push_back(std::move(part));
  }
  void* begin = parts[0].data();
  if (shares > 1) {
    ASSIGN_OR_RETURN(Buffer addresses, ReserveAddresses(bytes));
    begin = addresses.data();
    parts.push_back(std::move(addresses));
  }
  memory_->Add(begin, bytes, shares, absl::MakeConstSpan(parts).first(members_.size()));
  return Buffer(begin, bytes,
                [memory = memory_, parts = std::make_shared<std::vector<Buffer>>(std::move(parts))](
                    void* data, size_t) { memory->Remove(data); });
}

absl::StatusOr<int64_t> TensorParallelBackend::FreeBytes() {
  int64_t least = -1;
  for (const auto& member : members_) {
    ASSIGN_OR_RETURN(const int64_t free, member->FreeBytes());
    if (free < 0) return -1;
    // A device that is several of the members has so much for each.
    const int64_t times = std::count_if(members_.begin(), members_.end(), [&](const auto& other) {
      return other->name() == member->name();
    });
    if (least < 0 || free / times < least) least = free / times;
  }
  return least;
}

void TensorParallelBackend::set_rehearsal(const StepBounds* bounds) {
  Backend::set_rehearsal(bounds);
  for (const auto& member : members_) member->set_rehearsal(bounds);
}

void TensorParallelBackend::set_cancel(const std::atomic<bool>* cancel) {
  Backend::set_cancel(cancel);
  for (const auto& member : members_) member->set_cancel(cancel);
}

absl::Status TensorParallelBackend::Upload(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(BeginWriting(to, bytes));
  for (size_t i = 0; i < members_.size(); ++i) {
    RETURN_IF_ERROR(members_[i]->Upload(from, memory_->At(to, i), bytes));
  }
  return absl::OkStatus();
}

absl::Status TensorParallelBackend::Download(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(members_[0]->Download(from, to, bytes));
  return Synchronize();  // another's error is this one's, too
}

absl::Status TensorParallelBackend::Synchronize() {
  for (const auto& member : members_) RETURN_IF_ERROR(member->Synchronize());
  return absl::OkStatus();
}

absl::Status TensorParallelBackend::Copy(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(BeginWriting(to, bytes));
  const size_t own = bytes / memory_->SharesOf(from);
  return ForMembers(
      {}, [&](Backend* member, const At& at) { return member->Copy(at(from), at(to), own); });
}

absl::Status TensorParallelBackend::Zero(void* data, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(BeginWriting(data, bytes));
  const size_t own = bytes / memory_->SharesOf(data);
  return ForMembers({}, [&](Backend* member, const At& at) { return member->Zero(at(data), own); });
}

// --- the step ---------------------------------------------------------------------------------

absl::Status TensorParallelBackend::PlaceStep() {
  begun_ = false;  // for whom its first op is
  vocabulary_.clear();
  return absl::OkStatus();
}

absl::Status TensorParallelBackend::BeginMembers(const RowSplit* vocabulary) {
  const bool fits = vocabulary == nullptr || *vocabulary == vocabulary_;
  if (step_index().tables == nullptr || (begun_ && fits)) return absl::OkStatus();
  const bool is_new = !begun_;
  begun_ = false;
  if (vocabulary != nullptr) vocabulary_ = *vocabulary;
  const std::vector<int32_t>& tokens = step().tokens;
  const auto count = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    if (is_new) steps_[i] = step();
    steps_[i].tokens = tokens;
    steps_[i].row_lists.resize(step().row_lists.size());
    if (!vocabulary_.empty()) {
      std::vector<int32_t>& stack = steps_[i].row_lists.emplace_back();
      for (int32_t t = 0; t < count; ++t) {
        const auto behind = std::upper_bound(vocabulary_.begin(), vocabulary_.end(), tokens[t]);
        const auto owner = static_cast<int32_t>(behind - vocabulary_.begin()) - 1;
        stack.push_back(t * num_devices() + owner);
        const bool own = owner == static_cast<int32_t>(i);
        steps_[i].tokens[t] = own ? tokens[t] - static_cast<int32_t>(vocabulary_[i]) : 0;
      }
    }
    RETURN_IF_ERROR(members_[i]->BeginStep(&steps_[i]));
  }
  begun_ = true;
  return absl::OkStatus();
}

// A member finds the rows of its own tokens, and something in the places of the others. All of
// these are stacked, and each token's taken of the one who has it.
absl::Status TensorParallelBackend::Embed(const WeightMatrix& w, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckEmbed(step_index(), w, out));
  const SplitMatrix& split = ToSplit(w);
  RETURN_IF_ERROR(BeginMembers(&split.split()));
  if (!split.is_split()) {
    return ForMembers({out}, [&](Backend* member, const At& at) {
      return member->Embed(split.part(at.member()), scale, at(out));
    });
  }
  const int64_t values = out.rows * out.cols;
  if (values == 0) return absl::OkStatus();
  const size_t bytes = num_devices() * values * sizeof(float);
  if (bytes > embedded_.bytes()) {
    RETURN_IF_ERROR(Synchronize());  // what is in the queues may use it
    embedded_ = Buffer();
    ASSIGN_OR_RETURN(embedded_, Allocate(bytes));
  }
  const Tensor stack(embedded_.data(), DType::kF32, out.rows, num_devices() * out.cols);
  RETURN_IF_ERROR(ForMembers({stack}, [&](Backend* member, const At& at) {
    const int64_t first = static_cast<int64_t>(at.member()) * out.cols;
    return member->Embed(split.part(at.member()), scale, at(stack.Cols(first, out.cols)));
  }));
  RETURN_IF_ERROR(Gather(stack, EvenSplit(stack.cols)));
  const auto list = static_cast<int32_t>(step().row_lists.size());
  const Tensor rows(stack.data, DType::kF32, out.rows * num_devices(), out.cols);
  return Replicate({out}, &Backend::GatherRows, rows, list, out);
}

absl::Status TensorParallelBackend::GatherRows(Tensor x, int32_t list, Tensor out) {
  RETURN_IF_ERROR(CheckGatherRows(step_index(), x, list, out));
  return Replicate({out}, &Backend::GatherRows, x, list, out);
}

// --- products ---------------------------------------------------------------------------------

RowSplit TensorParallelBackend::SplitRows(DType dtype, int64_t rows, int64_t cols) const {
  const int64_t runs = (rows + kRowsTogether - 1) / kRowsTogether;
  RowSplit split;
  if (runs < num_devices() || rows * RowBytes(dtype, cols) < least_split_bytes_) return split;
  for (int64_t i = 0; i < num_devices(); ++i) {
    split.push_back(runs * i / num_devices() * kRowsTogether);
  }
  split.push_back(rows);
  return split;
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> TensorParallelBackend::LoadMatrix(DType dtype,
                                                                                int64_t rows,
                                                                                int64_t cols,
                                                                                RowReader read) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  const RowSplit split = SplitRows(dtype, rows, cols);
  std::vector<std::unique_ptr<WeightMatrix>> parts;
  Buffer all;
  if (split.empty()) {  // read once, and given to all
    ASSIGN_OR_RETURN(all, Buffer::AllocateHost(rows * RowBytes(dtype, cols)));
    if (rows > 0) RETURN_IF_ERROR(read(0, rows, all.chars().data()));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    auto part = split.empty()
                    ? members_[i]->LoadMatrix(dtype, rows, cols, all)
                    : members_[i]->LoadMatrix(dtype, split[i + 1] - split[i], cols,
                                              [&](int64_t first, int64_t count, char* to) {
                                                return read(split[i] + first, count, to);
                                              });
    RETURN_IF_ERROR(part.status());
    parts.push_back(*std::move(part));
  }
  return std::make_unique<SplitMatrix>(dtype, rows, cols, split, std::move(parts), memory_);
}

RowSplit TensorParallelBackend::EvenSplit(int64_t cols) const {
  RowSplit split;
  for (int64_t i = 0; i <= num_devices(); ++i) split.push_back(cols / num_devices() * i);
  return split;
}

absl::Status TensorParallelBackend::GiveToAll(Tensor out, const RowSplit& split) {
  std::vector<Tensor> of_members;
  for (size_t i = 0; i < members_.size(); ++i) {
    of_members.push_back(At(*memory_, i, num_devices())(out));
  }
  const auto* const begin = static_cast<const char*>(out.data);
  given_.emplace_back(begin, begin + BytesSpanned(out));
  return collectives_->AllGather(of_members, split);
}

absl::Status TensorParallelBackend::Gather(Tensor out, const RowSplit& split) {
  if (out.rows == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Join());
  return GiveToAll(out, split);
}

absl::Status TensorParallelBackend::Gather(absl::Span<const Product> products) {
  bool joined = false;
  for (const Product& product : products) {
    const SplitMatrix& w = ToSplit(*product.w);
    if (!w.is_split() || product.out.rows == 0) continue;
    if (!std::exchange(joined, true)) RETURN_IF_ERROR(Join());
    RETURN_IF_ERROR(GiveToAll(product.out, w.split()));
  }
  return absl::OkStatus();
}

absl::Status TensorParallelBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias,
                                           Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, bias, out));
  RETURN_IF_ERROR(ForMembers({out}, [&](Backend* member, const At& at) {
    return member->MatMul(ToSplit(w).part(at.member()), at(x), at.Own(w, bias), at.Own(w, out));
  }));
  return Gather({{&w, out}});
}

absl::Status TensorParallelBackend::MatMulColumns(const WeightMatrix& w, Tensor x,
                                                  absl::Span<const uint64_t> wanted, Tensor out) {
  RETURN_IF_ERROR(CheckMatMulColumns(w, x, wanted, out));
  const RowSplit& split = ToSplit(w).split();
  RETURN_IF_ERROR(ForMembers({out}, [&](Backend* member, const At& at) {
    absl::Span<const uint64_t> own = wanted;
    if (!split.empty()) {
      const int64_t begin = split[at.member()], end = split[at.member() + 1];
      own =
          wanted.subspan(begin / kRowsTogether, (end - begin + kRowsTogether - 1) / kRowsTogether);
    }
    return member->MatMulColumns(ToSplit(w).part(at.member()), at(x), own, at.Own(w, out));
  }));
  return Gather({{&w, out}});
}

absl::Status TensorParallelBackend::Project(const WeightMatrix& w, const ProductInput& input,
                                            Tensor bias, ProductResult result, Tensor out) {
  return ProjectAll({{&w, input, bias, out}}, result);
}

absl::Status TensorParallelBackend::ProjectAll(absl::Span<const MatrixProduct> products,
                                               ProductResult result) {
  for (const MatrixProduct& p : products) {
    RETURN_IF_ERROR(CheckProject(*p.w, p.input, p.bias, p.out));
    RETURN_IF_ERROR(BeginWriting(p.out.data, BytesSpanned(p.out)));
  }
  RETURN_IF_ERROR(ForMembers({}, [&](Backend* member, const At& at) {
    std::vector<MatrixProduct> own;
    for (const MatrixProduct& p : products) {
      own.push_back({&ToSplit(*p.w).part(at.member()), at(p.input), at.Own(*p.w, p.bias),
                     at.Own(*p.w, p.out)});
    }
    return own.size() == 1
               ? member->Project(*own[0].w, own[0].input, own[0].bias, result, own[0].out)
               : member->ProjectAll(own, result);
  }));
  std::vector<Product> made;
  for (const MatrixProduct& p : products) made.push_back({p.w, p.out});
  return Gather(made);
}

// --- attention --------------------------------------------------------------------------------

absl::Status TensorParallelBackend::RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                                                   const KvLayer& layer) {
  RETURN_IF_ERROR(CheckRopeAndStoreKv(step_index(), q, k, v, rope, layer));
  if (!HasShares(layer)) return Replicate({q, k}, &Backend::RopeAndStoreKv, q, k, v, rope, layer);
  // Of q and k a member writes its own heads, which nobody else needs.
  return ForMembers({}, [&](Backend* member, const At& at) {
    return member->RopeAndStoreKv(at.Heads(q), at.Heads(k), at.Heads(v), rope, at(layer));
  });
}

absl::Status TensorParallelBackend::Attention(Tensor q, const KvLayer& layer,
                                              const AttentionOptions& options, Tensor out) {
  RETURN_IF_ERROR(CheckAttention(step_index(), q, layer, options, out));
  if (!HasShares(layer)) return Replicate({out}, &Backend::Attention, q, layer, options, out);
  RETURN_IF_ERROR(ForMembers({out}, [&](Backend* member, const At& at) {
    AttentionOptions own = options;
    own.slopes = at.Heads(options.slopes);
    own.sinks = at.Heads(options.sinks);
    return member->Attention(at.Heads(q), at(layer), own, at.Heads(out));
  }));
  return Gather(out, EvenSplit(out.cols));
}

// --- mixtures of experts ----------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<MatrixGroup>> TensorParallelBackend::GroupMatrices(
    std::vector<GroupedMatrix> members) {
  RETURN_IF_ERROR(CheckGroupMatrices(members));
  std::vector<std::unique_ptr<MatrixGroup>> parts;
  for (size_t i = 0; i < members_.size(); ++i) {
    const At at(*memory_, i, num_devices());
    std::vector<GroupedMatrix> own;
    for (const GroupedMatrix& member : members) {
      own.push_back({&ToSplit(*member.w).part(i), at.Own(*member.w, member.bias)});
    }
    ASSIGN_OR_RETURN(std::unique_ptr<MatrixGroup> part, members_[i]->GroupMatrices(std::move(own)));
    parts.push_back(std::move(part));
  }
  return std::make_unique<SplitGroup>(std::move(members), std::move(parts));
}

// Each member has routes of its own, all the same. What `routes` points to is the first one's.
absl::Status TensorParallelBackend::Route(Tensor logits, const Router& router,
                                          ExpertRoutes* routes) {
  RETURN_IF_ERROR(CheckRoute(logits, router));
  if (routes->memory.data() == nullptr) {
    auto* const of_members = new ExpertRoutes[members_.size()];
    routes->memory = Buffer(of_members, members_.size() * sizeof(ExpertRoutes),
                            [](void* data, size_t) { delete[] static_cast<ExpertRoutes*>(data); });
  }
  RETURN_IF_ERROR(Replicate({}, &Backend::Route, logits, router, routes));
  const ExpertRoutes& first = *static_cast<const ExpertRoutes*>(routes->memory.data());
  routes->experts = first.experts;
  routes->chosen = first.chosen;
  routes->num_rows = first.num_rows;
  routes->begin = first.begin;
  routes->rows = first.rows;
  routes->slots = first.slots;
  routes->weights = first.weights;
  return absl::OkStatus();
}

absl::Status TensorParallelBackend::ProjectExperts(absl::Span<const ExpertProduct> products,
                                                   const ExpertRoutes& routes,
                                                   ProductResult result) {
  RETURN_IF_ERROR(CheckProjectExperts(products, routes));
  auto first = [](const ExpertProduct& product) -> const WeightMatrix& {
    return *product.group->members()[0].w;
  };
  for (const ExpertProduct& p : products) {
    RETURN_IF_ERROR(BeginWriting(p.out.data, BytesSpanned(p.out)));
  }
  RETURN_IF_ERROR(ForMembers({}, [&](Backend* member, const At& at) {
    std::vector<ExpertProduct> own;
    for (const ExpertProduct& p : products) {
      own.push_back({static_cast<const SplitGroup*>(p.group)->part(at.member()), at(p.input),
                     at.Own(first(p), p.out)});
    }
    return member->ProjectExperts(own, at(routes), result);
  }));
  std::vector<Product> made;
  for (const ExpertProduct& p : products) made.push_back({&first(p), p.out});
  return Gather(made);
}

absl::Status TensorParallelBackend::MoveWeights(ExpertRoutes* routes, Tensor out) {
  RETURN_IF_ERROR(CheckMoveWeights(*routes, out));
  return Replicate({out}, &Backend::MoveWeights, routes, out);
}

absl::Status TensorParallelBackend::GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckGatherSlots(x, routes, out));
  return Replicate({out}, &Backend::GatherSlots, x, routes, out);
}

absl::Status TensorParallelBackend::CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckCombineSlots(y, routes, out));
  return Replicate({out}, &Backend::CombineSlots, y, routes, out);
}

// --- what each member does for itself ---------------------------------------------------------

absl::Status TensorParallelBackend::Normalize(Tensor x, const Norm& norm, Tensor out) {
  return Replicate({out}, &Backend::Normalize, x, norm, out);
}

absl::Status TensorParallelBackend::RotateTails(Tensor x, int64_t head_dim, const Rope& rope) {
  return Replicate({x}, &Backend::RotateTails, x, head_dim, rope);
}

absl::Status TensorParallelBackend::PoolRows(const PoolInputs& inputs, const StateLayer& layer,
                                             Tensor out) {
  return Replicate({out}, &Backend::PoolRows, inputs, layer, out);
}

absl::Status TensorParallelBackend::StoreRows(Tensor x, const RowLayer& layer) {
  return Replicate({}, &Backend::StoreRows, x, layer);
}

absl::Status TensorParallelBackend::ScoreRows(Tensor q, Tensor weights, const RowLayer& layer,
                                              Tensor out) {
  return Replicate({out}, &Backend::ScoreRows, q, weights, layer, out);
}

absl::Status TensorParallelBackend::AttendRows(Tensor q, const RowAttention& attention,
                                               Tensor out) {
  return Replicate({out}, &Backend::AttendRows, q, attention, out);
}

absl::Status TensorParallelBackend::CausalConv(Tensor x, Tensor weight, Tensor bias,
                                               Activation activation, const StateLayer& layer,
                                               Tensor out) {
  return Replicate({out}, &Backend::CausalConv, x, weight, bias, activation, layer, out);
}

absl::Status TensorParallelBackend::DeltaRule(const DeltaRuleInputs& inputs,
                                              const StateLayer& layer, Tensor out) {
  return Replicate({out}, &Backend::DeltaRule, inputs, layer, out);
}

absl::Status TensorParallelBackend::GatedActivation(Activation activation, Tensor gate, Tensor up,
                                                    Tensor out) {
  return Replicate({out}, &Backend::GatedActivation, activation, gate, up, out);
}

absl::Status TensorParallelBackend::Add(Tensor x, Tensor y, float scale) {
  return Replicate({x}, &Backend::Add, x, y, scale);
}

absl::Status TensorParallelBackend::ScaleAndCap(Tensor x, float scale, float cap) {
  return Replicate({x}, &Backend::ScaleAndCap, x, scale, cap);
}

absl::Status TensorParallelBackend::Clamp(Tensor x, float low, float high) {
  return Replicate({x}, &Backend::Clamp, x, low, high);
}

absl::Status TensorParallelBackend::ScaleGroups(Tensor x, Tensor factors, Activation activation) {
  return Replicate({x}, &Backend::ScaleGroups, x, factors, activation);
}

absl::Status TensorParallelBackend::Dot(Tensor x, Tensor y, Tensor out) {
  return Replicate({out}, &Backend::Dot, x, y, out);
}

absl::Status TensorParallelBackend::MixStreams(Tensor x, Tensor weights, int32_t streams,
                                               ProductResult result, Tensor out) {
  return Replicate({out}, &Backend::MixStreams, x, weights, streams, result, out);
}

absl::Status TensorParallelBackend::BalanceStreams(Tensor x, int32_t streams, int32_t iterations,
                                                   float eps, Tensor out) {
  return Replicate({out}, &Backend::BalanceStreams, x, streams, iterations, eps, out);
}

absl::Status TensorParallelBackend::Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                                           std::vector<absl::StatusOr<int32_t>>* tokens,
                                           std::vector<float>* margins) {
  RETURN_IF_ERROR(members_[0]->Sample(logits, rows, tokens, margins));
  return Synchronize();
}

}  // namespace lm
