#include "engine/backend/cuda/launch_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/backend/cuda/device_guard.h"

namespace lm {
namespace {

constexpr size_t kLeastNodes = 8;   // that are worth a graph
constexpr size_t kMostGraphs = 24;  // batches of several sizes, prefills, several models' parts
constexpr size_t kArgumentAlignment = 16;

}  // namespace

LaunchRecorder::~LaunchRecorder() { Close(); }

void LaunchRecorder::Add(const void* kernel, dim3 grid, dim3 block, int shared_bytes,
                         void** arguments, const size_t* sizes, int count) {
  if (rehearses_) return Learn(kernel);
  Node node;
  node.kernel = kernel;
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
}

cudaError_t LaunchRecorder::AllowSharedBytes(const void* kernel, int bytes) {
  if (may_share_.count(kernel) > 0) return cudaSuccess;
  const DeviceGuard guard(api_, device_);
  if (guard.error() != cudaSuccess) return guard.error();
  const cudaError_t error =
      api_.FuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) may_share_.insert(kernel);
  return error;
}

// A multiprocessor divides its memory into cache and shared memory while it is idle: kernels that
// are to begin beside each other must want the same.
cudaError_t LaunchRecorder::LeaveSharedMemory(const void* kernel) {
  if (leave_shared_.count(kernel) > 0) return cudaSuccess;
  const cudaError_t error = api_.FuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess) leave_shared_.insert(kernel);
  return error;
}

void LaunchRecorder::Learn(const void* kernel) {
  if (known_.count(kernel) > 0) return;
  const DeviceGuard guard(api_, device_);
  cudaFuncAttributes attributes;
  const cudaError_t error =
      guard.error() == cudaSuccess ? api_.FuncGetAttributes(&attributes, kernel) : guard.error();
  if (error == cudaSuccess) {
    known_.insert(kernel);
  } else if (failed_ == cudaSuccess) {
    failed_ = error;
  }
}

bool LaunchRecorder::List::SameKernels(const List& other) const {
  return nodes.size() == other.nodes.size() &&
         std::equal(nodes.begin(), nodes.end(), other.nodes.begin(),
                    [](const Node& a, const Node& b) { return a.kernel == b.kernel; });
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
}

cudaError_t LaunchRecorder::LaunchPending() {
  const DeviceGuard guard(api_, device_);
  cudaError_t error = guard.error();
  if (error != cudaSuccess) {
    // The list is forgotten.
  } else if (pending_.nodes.size() < kLeastNodes) {
    error = LaunchEach();
  } else {
    auto graph = std::find_if(graphs_.begin(), graphs_.end(),
                              [this](const Graph& g) { return g.list.SameKernels(pending_); });
    if (graph == graphs_.end()) {
      if (graphs_.size() == kMostGraphs) {
        Destroy(&graphs_.back());
        graphs_.pop_back();
      }
      graphs_.emplace_front().list = pending_;
      error = LaunchEach();
    } else {
      graphs_.splice(graphs_.begin(), graphs_, graph);
      error = LaunchGraph(&*graph);
    }
  }
  return error;
}

// The pending kernels, by the graph of their list.
cudaError_t LaunchRecorder::LaunchGraph(Graph* graph) {
  cudaError_t error = graph->exec == nullptr ? Build(graph) : Update(graph);
  const bool made = error == cudaSuccess;
  if (made) error = api_.GraphLaunch(graph->exec, stream_);
  if (error == cudaSuccess) return error;
  // It has not been launched, and is not what it was: the next time it is made anew.
  // It may be that nodes that begin early cannot be told other arguments.
  if (!made && error != cudaErrorMemoryAllocation) overlaps_ = false;
  Destroy(graph);
  if (made) return error;
  api_.GetLastError();
  return LaunchEach();
}

cudaError_t LaunchRecorder::LaunchEach() {
  void* pointers[kMostArguments];
  for (size_t i = 0; i < pending_.nodes.size(); ++i) {
    const cudaKernelNodeParams params = pending_.Params(i, pointers);
    const cudaError_t error = api_.LaunchKernel(params.func, params.gridDim, params.blockDim,
                                                pointers, params.sharedMemBytes, stream_);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
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

// Each node waits for the one before it, or does so itself.
cudaError_t LaunchRecorder::Instantiate(Graph* graph) {
  Destroy(graph);
  graph->nodes.reserve(graph->list.nodes.size());
  cudaError_t error = api_.GraphCreate(&graph->graph);
  void* pointers[kMostArguments];
  for (size_t i = 0; i < graph->list.nodes.size() && error == cudaSuccess; ++i) {
    const cudaKernelNodeParams params = graph->list.Params(i, pointers);
    if (overlaps_) error = LeaveSharedMemory(params.func);
    if (error != cudaSuccess) break;
    const bool waits = i > 0 && !overlaps_;
    cudaGraphNode_t node = nullptr;
    error = api_.GraphAddKernelNode(&node, graph->graph, waits ? &graph->nodes.back() : nullptr,
                                    waits ? 1 : 0, &params);
    if (error == cudaSuccess && i > 0 && overlaps_) {
      error = api_.GraphAddProgrammaticEdge(graph->graph, graph->nodes.back(), node);
    }
    graph->nodes.push_back(node);
  }
  if (error != cudaSuccess) return error;
  return api_.GraphInstantiate(&graph->exec, graph->graph);
}

cudaError_t LaunchRecorder::Update(Graph* graph) {
  void* pointers[kMostArguments];
  for (size_t i = 0; i < pending_.nodes.size(); ++i) {
    if (pending_.SameArguments(graph->list, i)) continue;
    const cudaKernelNodeParams params = pending_.Params(i, pointers);
    const cudaError_t error =
        api_.GraphExecKernelNodeSetParams(graph->exec, graph->nodes[i], &params);
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
  const DeviceGuard guard(api_, device_);
  for (Graph& graph : graphs_) Destroy(&graph);
  graphs_.clear();
}

}  // namespace lm
