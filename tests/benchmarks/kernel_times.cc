// Writes down when each CUDA kernel of a program, or each graph, copy and call, began and ended: a
// library that the driver loads into it (CUPTI's injection). gpu_times.py reads what it writes.
//
//   CUDA_INJECTION64_PATH=$PWD/libkernel_times.so LM_KERNEL_TIMES=OUT.tsv PROGRAM ...
//
// LM_KERNEL_TIMES_OF=kernels (default), or steps: graphs as a whole, copies, and the program's
// calls of the runtime. Kernels of a graph that are told one by one take longer.
//
// A line each: what ("kernel", "graph", "copy", "call"), begin and end in ns, the number of the
// call that launched it and of its graph (0: none), thread blocks as "XxY", threads of one,
// registers of a thread, bytes of shared memory, name as the compiler has it. The line "lost"
// counts records that there was no memory for.
#include <cupti.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20, kAlignment = 8;

std::mutex mutex;
FILE* file = nullptr;

void Check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  std::fprintf(stderr, "kernel_times: %s: %s\n", call, text ? text : "?");
}

void GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;  // as many as fit
}

void WriteRecord(const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& k = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    std::fprintf(file, "kernel\t%" PRIu64 "\t%" PRIu64 "\t%u\t%u\t%dx%d\t%d\t%d\t%d\t%s\n", k.start,
                 k.end, k.correlationId, k.graphId, k.gridX, k.gridY * k.gridZ,
                 k.blockX * k.blockY * k.blockZ, int{k.registersPerThread},
                 k.staticSharedMemory + k.dynamicSharedMemory, k.name);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
    const auto& g = *reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record);
    std::fprintf(file, "graph\t%" PRIu64 "\t%" PRIu64 "\t%u\t%u\t0x0\t0\t0\t0\t-\n", g.start, g.end,
                 g.correlationId, g.graphId);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    std::fprintf(file, "copy\t%" PRIu64 "\t%" PRIu64 "\t%u\t0\t0x0\t0\t0\t%" PRIu64 "\t%s\n",
                 c.start, c.end, c.correlationId, c.bytes,
                 c.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "to_device"
                 : c.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "to_host"
                                                                 : "others");
  } else if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
    const auto& c = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
    const char* name = nullptr;
    cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, c.cbid, &name);
    std::fprintf(file, "call\t%" PRIu64 "\t%" PRIu64 "\t%u\t0\t0x0\t0\t0\t0\t%s\n", c.start, c.end,
                 c.correlationId, name ? name : "?");
  }
}

void TakeBuffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t /*bytes*/,
                size_t valid_bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
      WriteRecord(record);
    }
    size_t lost = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS && lost > 0) {
      std::fprintf(file, "lost\t%zu\n", lost);
    }
  }
  std::free(buffer);
}

void End() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard<std::mutex> lock(mutex);
  std::fflush(file);
}

}  // namespace

// The driver calls it in each process that it is loaded into.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("LM_KERNEL_TIMES");
  file = path ? std::fopen(path, "w") : nullptr;
  if (!file) {
    std::fprintf(stderr, "kernel_times: LM_KERNEL_TIMES names no file that can be written\n");
    return 0;
  }
  const char* of = std::getenv("LM_KERNEL_TIMES_OF");
  const bool steps = of && std::strcmp(of, "steps") == 0;
  Check(cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer), "cuptiActivityRegisterCallbacks");
  if (steps) {
    for (const CUpti_ActivityKind kind :
         {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUPTI_ACTIVITY_KIND_MEMCPY,
          CUPTI_ACTIVITY_KIND_RUNTIME}) {
      Check(cuptiActivityEnable(kind), "cuptiActivityEnable");
    }
  } else {
    Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
  }
  std::atexit(End);
  return 1;
}
