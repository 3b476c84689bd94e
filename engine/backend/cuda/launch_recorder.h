// LaunchRecorder: kernels that wait to be put into a device's queue together, as one CUDA graph.
//
//   const int queue = recorder.AddQueue(device, stream, overlaps);
//   recorder.Add(queue, kernel, grid, block, shared_bytes, pointers, sizes, count);   // for each
//   cudaError_t error = recorder.Flush();                                             // all at
//   once
//
// Putting a kernel into the queue costs the host microseconds, several times what a small one runs.
// Steps that decode call the same kernels with nearly the same arguments again and again: the
// second time a list of kernels is seen it becomes a graph, which is launched as a whole from then
// on, after the nodes whose arguments differ have been told so.
//
// In a graph a kernel may begin before the one before has ended (kernel_order.cuh), where the
// device and the kernels' code know of that.
//
// Devices that compute together have one recorder, and a queue each: their kernels are one graph,
// too. Each queue has its own order; where they meet (Join), and at the end of a list of several,
// what follows waits for all that was before, of all queues.
//
// A graph takes memory of the device: where there is none, its kernels are launched one by one.
//
// Whatever else is put into the queue, or frees what kernels may use, flushes before.
// One thread at a time.
#ifndef LM_ENGINE_BACKEND_CUDA_LAUNCH_RECORDER_H_
#define LM_ENGINE_BACKEND_CUDA_LAUNCH_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <vector>

#include "engine/backend/cuda/cuda_api.h"
#include "engine/backend/cuda/kernel_queue.h"

namespace lm {

class LaunchRecorder {
 public:
  // REQUIRES: `api` outlives the recorder.
  explicit LaunchRecorder(const CudaApi& api) : api_(api) {}
  ~LaunchRecorder();
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  // A stream of a device. `overlaps`: kernels may begin early there, whose code has what waits.
  int AddQueue(int device, cudaStream_t stream, bool overlaps);

  // EnqueueKernel (kernel_queue.h).
  cudaError_t Add(int queue, const void* kernel, dim3 grid, dim3 block, int shared_bytes,
                  void** arguments, const size_t* sizes, int count);
  // What is added from now on begins when all that was added before has ended.
  void Join() { pending_.joins += rehearses_ ? 0 : 1; }
  // While it rehearses kernels are brought to the device, each once, and not added.
  void set_rehearses(bool rehearses) { rehearses_ = rehearses; }
  // Puts what was added into the queues. Where it fails the rest of it is forgotten.
  cudaError_t Flush();
  // The same for those who cannot say what has failed: the next Flush does. Never throws.
  void FlushForNow() noexcept;
  // Forgets what was added, and all graphs: a device is lost, or goes away.
  void Close();

 private:
  struct Queue {
    int device;
    cudaStream_t stream;
    cudaEvent_t event = nullptr;              // made when queues meet
    std::set<const void*> known = {};         // kernels that are on the device,
    std::set<const void*> may_share = {};     // that may have dynamic shared memory,
    std::set<const void*> leave_shared = {};  // and that leave others theirs
  };
  struct Node {
    const void* kernel = nullptr;
    int queue = 0;
    int joins = 0;  // before it
    dim3 grid, block;
    int shared_bytes = 0;
    size_t first = 0;  // of its arguments in bytes_
    int count = 0;
    size_t offsets[cuda::kMostArguments] = {};
  };
  // What is launched: kernels with their arguments.
  struct List {
    std::vector<Node> nodes;
    std::vector<char> bytes;
    int joins = 0;

    bool SameKernels(const List& other) const;
    bool SameArguments(const List& other, size_t i) const;
    cudaKernelNodeParams Params(size_t i, void** pointers);
    bool IsOfOneQueue() const;
  };
  struct Graph {
    List list;  // as it was launched last
    std::vector<cudaGraphNode_t> nodes;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;  // null: seen once
  };
  class CurrentQueue;  // whose device is this thread's current one

  void Learn(int queue, const void* kernel);
  // Lets a kernel have so much dynamic shared memory. REQUIRES: it is the same for all launches.
  cudaError_t AllowSharedBytes(int queue, const void* kernel, int bytes);
  cudaError_t LaunchPending();
  cudaError_t LaunchList();
  cudaError_t LaunchGraph(Graph* graph);
  cudaError_t LaunchEach();
  cudaError_t Build(Graph* graph);
  cudaError_t Instantiate(Graph* graph);
  cudaError_t AddNodes(Graph* graph);
  cudaError_t LeaveSharedMemory(int queue, const void* kernel);
  cudaError_t Update(Graph* graph);
  void Destroy(Graph* graph);  // all but its list
  // What is put into `queue` waits for what is in the others; or they for that.
  cudaError_t WaitForOthers(int queue);
  cudaError_t LetOthersWait(int queue);
  cudaError_t Record(int queue);  // its event
  cudaError_t JoinStreams();

  const CudaApi& api_;
  std::vector<Queue> queues_;
  bool rehearses_ = false;
  bool overlaps_ = false;
  List pending_;
  cudaError_t failed_ = cudaSuccess;  // FlushForNow, or a rehearsal
  std::list<Graph> graphs_;           // the one used last in front
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_LAUNCH_RECORDER_H_
