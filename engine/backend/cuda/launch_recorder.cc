#include "engine/backend/cuda/launch_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/backend/cuda/device_guard.h"

namespace lm {
namespace {

constexpr size_t kLeastNodes = 4;   // that are worth a graph
constexpr size_t kMostGraphs = 24;  // batches of several sizes, prefills, several models' parts
constexpr size_t kArgumentAlignment = 16;
// A kernel's dynamic shared memory. What is asked for holds for all of a device's queues, and
// replaces what was asked before: it is always the same, so that no launch of a kernel takes from
// another one that waits.
constexpr int kUnaskedSharedBytes = 48 << 10, kMostSharedBytes = 99 << 10;

}  // namespace

// While it lives the device of a queue, which may be chosen again, is the current one; as
// DeviceGuard otherwise, but that it looks once.
class LaunchRecorder::CurrentQueue {
 public:
  explicit CurrentQueue(const LaunchRecorder& recorder) : recorder_(recorder) {}
  ~CurrentQueue() {
    if (now_ != before_ && before_ >= 0) recorder_.api_.SetDevice(before_);
  }
  CurrentQueue(const CurrentQueue&) = delete;
  CurrentQueue& operator=(const CurrentQueue&) = delete;

  cudaError_t Choose(int queue) {
    const int device = recorder_.queues_[queue].device;
    if (!looked_) {
      if (const cudaError_t error = recorder_.api_.GetDevice(&before_); error != cudaSuccess) {
        return error;
      }
      looked_ = true;
      now_ = before_;
    }
    if (now_ == device) return cudaSuccess;
    const cudaError_t error = recorder_.api_.SetDevice(device);
    if (error == cudaSuccess) now_ = device;
    return error;
  }

 private:
  const LaunchRecorder& recorder_;
  bool looked_ = false;
  int before_ = -1, now_ = -1;
};

LaunchRecorder::~LaunchRecorder() {
  Close();
  CurrentQueue current(*this);
  for (size_t q = 0; q < queues_.size(); ++q) {
    if (queues_[q].event == nullptr) continue;
    current.Choose(static_cast<int>(q));
    api_.EventDestroy(queues_[q].event);
  }
}

int LaunchRecorder::AddQueue(int device, cudaStream_t stream, bool overlaps) {
  overlaps_ = overlaps && (queues_.empty() || overlaps_);
  queues_.push_back({.device = device, .stream = stream});
  return static_cast<int>(queues_.size()) - 1;
}

cudaError_t LaunchRecorder::Add(int queue, const void* kernel, dim3 grid, dim3 block,
                                int shared_bytes, void** arguments, const size_t* sizes,
                                int count) {
  if (shared_bytes > kUnaskedSharedBytes) {
    const cudaError_t error =
        AllowSharedBytes(queue, kernel, std::max(shared_bytes, kMostSharedBytes));
    if (error != cudaSuccess) return error;
  }
  if (rehearses_) {
    Learn(queue, kernel);
    return cudaSuccess;
  }
  Node node;
  node.kernel = kernel;
  node.queue = queue;
  node.joins = pending_.joins;
  node.grid = grid;
  node.block = block;
  node.shared_bytes = shared_bytes;
  node.first = pending_.bytes.size();
  node.count = count;
  size_t end = node.first;
  for (int i = 0; i < count; ++i) {
    node.offsets[i] = end - node.first;
    end = (end + sizes[i] + kArgumentAlignment - 1) / kArgumentAlignment * kArgumentAlignment;
  }
  pending_.bytes.resize(end);  // zeros between the arguments
  for (int i = 0; i < count; ++i) {
    std::memcpy(pending_.bytes.data() + node.first + node.offsets[i], arguments[i], sizes[i]);
  }
  pending_.nodes.push_back(node);
  return cudaSuccess;
}

cudaError_t LaunchRecorder::AllowSharedBytes(int queue, const void* kernel, int bytes) {
  std::set<const void*>& may_share = queues_[queue].may_share;
  if (may_share.count(kernel) > 0) return cudaSuccess;
  const DeviceGuard guard(api_, queues_[queue].device);
  if (guard.error() != cudaSuccess) return guard.error();
  const cudaError_t error =
      api_.FuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) may_share.insert(kernel);
  return error;
}

// A multiprocessor divides its memory into cache and shared memory while it is idle: kernels that
// are to begin beside each other must want the same.
cudaError_t LaunchRecorder::LeaveSharedMemory(int queue, const void* kernel) {
  std::set<const void*>& leave_shared = queues_[queue].leave_shared;
  if (leave_shared.count(kernel) > 0) return cudaSuccess;
  const cudaError_t error = api_.FuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess) leave_shared.insert(kernel);
  return error;
}

void LaunchRecorder::Learn(int queue, const void* kernel) {
  std::set<const void*>& known = queues_[queue].known;
  if (known.count(kernel) > 0) return;
  const DeviceGuard guard(api_, queues_[queue].device);
  cudaFuncAttributes attributes;
  const cudaError_t error =
      guard.error() == cudaSuccess ? api_.FuncGetAttributes(&attributes, kernel) : guard.error();
  if (error == cudaSuccess) {
    known.insert(kernel);
  } else if (failed_ == cudaSuccess) {
    failed_ = error;
  }
}

bool LaunchRecorder::List::SameKernels(const List& other) const {
  return nodes.size() == other.nodes.size() &&
         std::equal(nodes.begin(), nodes.end(), other.nodes.begin(),
                    [](const Node& a, const Node& b) {
                      return a.kernel == b.kernel && a.queue == b.queue && a.joins == b.joins;
                    });
}

// Then it goes into that one's stream like anything else.
bool LaunchRecorder::List::IsOfOneQueue() const {
  return joins == 0 && std::all_of(nodes.begin(), nodes.end(), [this](const Node& node) {
           return node.queue == nodes[0].queue;
         });
}

bool LaunchRecorder::List::SameArguments(const List& other, size_t i) const {
  const Node& a = nodes[i];
  const Node& b = other.nodes[i];
  auto same = [](const dim3& x, const dim3& y) { return x.x == y.x && x.y == y.y && x.z == y.z; };
  auto end = [i](const List& list) {
    return i + 1 < list.nodes.size() ? list.nodes[i + 1].first : list.bytes.size();
  };
  const size_t size = end(*this) - a.first;
  return same(a.grid, b.grid) && same(a.block, b.block) && a.shared_bytes == b.shared_bytes &&
         size == end(other) - b.first &&
         std::memcmp(bytes.data() + a.first, other.bytes.data() + b.first, size) == 0;
}

cudaKernelNodeParams LaunchRecorder::List::Params(size_t i, void** pointers) {
  const Node& node = nodes[i];
  for (int k = 0; k < node.count; ++k) pointers[k] = bytes.data() + node.first + node.offsets[k];
  cudaKernelNodeParams params = {};
  params.func = const_cast<void*>(node.kernel);
  params.gridDim = node.grid;
  params.blockDim = node.block;
  params.sharedMemBytes = static_cast<unsigned>(node.shared_bytes);
  params.kernelParams = pointers;
  return params;
}

cudaError_t LaunchRecorder::Flush() {
  FlushForNow();
  return std::exchange(failed_, cudaSuccess);
}

void LaunchRecorder::FlushForNow() noexcept {
  if (pending_.nodes.empty()) return;
  cudaError_t error;
  try {
    error = LaunchPending();
  } catch (...) {  // the host has no memory for a list
    error = cudaErrorMemoryAllocation;
  }
  if (failed_ == cudaSuccess) failed_ = error;
  pending_.nodes.clear();
  pending_.bytes.clear();
  pending_.joins = 0;
}

// What was launched of a list of several queues before one was refused is over, too, before
// anything else is asked of any of them.
cudaError_t LaunchRecorder::LaunchPending() {
  const bool alone = pending_.IsOfOneQueue();
  const cudaError_t error = LaunchList();
  if (error != cudaSuccess && !alone) JoinStreams();
  return error;
}

cudaError_t LaunchRecorder::LaunchList() {
  if (pending_.nodes.size() < kLeastNodes) return LaunchEach();
  auto graph = std::find_if(graphs_.begin(), graphs_.end(),
                            [this](const Graph& g) { return g.list.SameKernels(pending_); });
  if (graph != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, graph);
    return LaunchGraph(&*graph);
  }
  if (graphs_.size() == kMostGraphs) {
    Destroy(&graphs_.back());
    graphs_.pop_back();
  }
  List list = pending_;
  graphs_.emplace_front().list = std::move(list);
  return LaunchEach();
}

// The pending kernels, by the graph of their list. Of several queues it goes into one's stream: it
// waits for what is in the others, and they wait for it.
cudaError_t LaunchRecorder::LaunchGraph(Graph* graph) {
  CurrentQueue current(*this);
  const int queue = pending_.nodes[0].queue;
  cudaError_t error = current.Choose(queue);
  if (error != cudaSuccess) return error;  // the list is forgotten
  const bool alone = pending_.IsOfOneQueue();
  error = graph->exec == nullptr ? Build(graph) : Update(graph);
  const bool made = error == cudaSuccess;
  bool fits = true;
  if (made && !alone) error = WaitForOthers(queue);
  if (made && error == cudaSuccess) {
    error = api_.GraphLaunch(graph->exec, queues_[queue].stream);
    fits = error != cudaErrorMemoryAllocation;
  }
  if (made && fits && error == cudaSuccess && !alone) error = LetOthersWait(queue);
  if (error == cudaSuccess) return error;
  // It is not what it was, or has no room: the next time it is made anew.
  // It may be that nodes that begin early cannot be told other arguments.
  if (!made && error != cudaErrorMemoryAllocation) overlaps_ = false;
  Destroy(graph);
  if (made && fits) return error;
  if (made) std::swap(graph->list, pending_);  // Update has taken it
  api_.GetLastError();
  return LaunchEach();
}

cudaError_t LaunchRecorder::LaunchEach() {
  CurrentQueue current(*this);
  void* pointers[cuda::kMostArguments];
  int joins = 0;
  for (size_t i = 0; i < pending_.nodes.size(); ++i) {
    const Node& node = pending_.nodes[i];
    cudaError_t error = cudaSuccess;
    if (node.joins > joins) error = JoinStreams();
    joins = node.joins;
    if (error == cudaSuccess) error = current.Choose(node.queue);
    if (error != cudaSuccess) return error;
    const cudaKernelNodeParams params = pending_.Params(i, pointers);
    error = api_.LaunchKernel(params.func, params.gridDim, params.blockDim, pointers,
                              params.sharedMemBytes, queues_[node.queue].stream);
    if (error != cudaSuccess) return error;
  }
  return pending_.IsOfOneQueue() ? cudaSuccess : JoinStreams();
}

cudaError_t LaunchRecorder::Record(int queue) {
  Queue& own = queues_[queue];
  const DeviceGuard guard(api_, own.device);
  cudaError_t error = guard.error();
  if (error == cudaSuccess && own.event == nullptr) error = api_.EventCreate(&own.event);
  return error == cudaSuccess ? api_.EventRecord(own.event, own.stream) : error;
}

cudaError_t LaunchRecorder::WaitForOthers(int queue) {
  for (int other = 0; other < static_cast<int>(queues_.size()); ++other) {
    if (other == queue) continue;
    cudaError_t error = Record(other);
    if (error == cudaSuccess) {
      const DeviceGuard guard(api_, queues_[queue].device);
      error = guard.error() == cudaSuccess
                  ? api_.StreamWaitEvent(queues_[queue].stream, queues_[other].event)
                  : guard.error();
    }
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchRecorder::LetOthersWait(int queue) {
  cudaError_t error = Record(queue);
  for (int other = 0; other < static_cast<int>(queues_.size()); ++other) {
    if (other == queue || error != cudaSuccess) continue;
    const DeviceGuard guard(api_, queues_[other].device);
    error = guard.error() == cudaSuccess
                ? api_.StreamWaitEvent(queues_[other].stream, queues_[queue].event)
                : guard.error();
  }
  return error;
}

// One has waited for all, and then all for that one.
cudaError_t LaunchRecorder::JoinStreams() {
  const cudaError_t error = WaitForOthers(0);
  return error == cudaSuccess ? LetOthersWait(0) : error;
}

cudaError_t LaunchRecorder::Build(Graph* graph) {
  graph->list = pending_;
  const cudaError_t error = Instantiate(graph);
  if (!overlaps_ || error == cudaSuccess || error == cudaErrorMemoryAllocation) return error;
  // Where the driver does not know of kernels that begin early it goes without.
  api_.GetLastError();
  overlaps_ = false;
  return Instantiate(graph);
}

cudaError_t LaunchRecorder::Instantiate(Graph* graph) {
  Destroy(graph);
  cudaError_t error = api_.GraphCreate(&graph->graph);
  if (error == cudaSuccess) error = AddNodes(graph);
  return error == cudaSuccess ? api_.GraphInstantiate(&graph->exec, graph->graph) : error;
}

// Each node waits for the one before it in its queue, or does so itself; the first one behind a
// join for the last ones of all queues before that.
cudaError_t LaunchRecorder::AddNodes(Graph* graph) {
  CurrentQueue current(*this);
  void* pointers[cuda::kMostArguments];
  std::vector<int> last(queues_.size(), -1);  // node of each queue
  std::vector<cudaGraphNode_t> joined;        // those that were last when the queues met
  int joins = 0;
  graph->nodes.reserve(graph->list.nodes.size());
  for (size_t i = 0; i < graph->list.nodes.size(); ++i) {
    const Node& node = graph->list.nodes[i];
    if (node.joins > joins) {
      joined.clear();
      for (const int before : last) {
        if (before >= 0) joined.push_back(graph->nodes[before]);
      }
      joins = node.joins;
    }
    const int before = last[node.queue];
    const bool follows = before >= 0 && graph->list.nodes[before].joins == node.joins;
    std::vector<cudaGraphNode_t> waits_for = joined;
    if (follows) waits_for.assign(overlaps_ ? 0 : 1, graph->nodes[before]);
    const cudaKernelNodeParams params = graph->list.Params(i, pointers);
    cudaError_t error = current.Choose(node.queue);
    if (error == cudaSuccess && overlaps_) error = LeaveSharedMemory(node.queue, params.func);
    cudaGraphNode_t added = nullptr;
    if (error == cudaSuccess) {
      error = api_.GraphAddKernelNode(&added, graph->graph, waits_for.data(), waits_for.size(),
                                      &params);
    }
    if (error == cudaSuccess && follows && overlaps_) {
      error = api_.GraphAddProgrammaticEdge(graph->graph, graph->nodes[before], added);
    }
    if (error != cudaSuccess) return error;
    graph->nodes.push_back(added);
    last[node.queue] = static_cast<int>(i);
  }
  return cudaSuccess;
}

cudaError_t LaunchRecorder::Update(Graph* graph) {
  CurrentQueue current(*this);
  void* pointers[cuda::kMostArguments];
  for (size_t i = 0; i < pending_.nodes.size(); ++i) {
    if (pending_.SameArguments(graph->list, i)) continue;
    const cudaKernelNodeParams params = pending_.Params(i, pointers);
    cudaError_t error = current.Choose(pending_.nodes[i].queue);
    if (error == cudaSuccess) {
      error = api_.GraphExecKernelNodeSetParams(graph->exec, graph->nodes[i], &params);
    }
    if (error != cudaSuccess) return error;
  }
  std::swap(graph->list, pending_);
  return cudaSuccess;
}

void LaunchRecorder::Destroy(Graph* graph) {
  if (graph->exec != nullptr) api_.GraphExecDestroy(graph->exec);
  if (graph->graph != nullptr) api_.GraphDestroy(graph->graph);
  graph->nodes.clear();
  graph->graph = nullptr;
  graph->exec = nullptr;
}

void LaunchRecorder::Close() {
  pending_ = {};
  failed_ = cudaSuccess;
  if (graphs_.empty()) return;
  CurrentQueue current(*this);
  for (Graph& graph : graphs_) {
    current.Choose(graph.list.nodes[0].queue);
    Destroy(&graph);
  }
  graphs_.clear();
}

cudaError_t cuda::EnqueueKernel(const Queue& queue, const void* kernel, dim3 grid, dim3 block,
                                int shared_bytes, void** arguments, const size_t* sizes,
                                int count) {
  return queue.recorder->Add(queue.number, kernel, grid, block, shared_bytes, arguments, sizes,
                             count);
}

}  // namespace lm
