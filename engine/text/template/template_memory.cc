#include "engine/text/template/template_memory.h"

#include "engine/base/thread_slot.h"

namespace lm {
namespace {

ThreadSlot<TemplateMemory> this_threads_memory;

}  // namespace

TemplateMemory::TemplateMemory() : outer_(this_threads_memory.get()) {
  this_threads_memory.set(this);
}

TemplateMemory::~TemplateMemory() { this_threads_memory.set(outer_); }

void TemplateMemory::Add(int64_t bytes) noexcept {
  if (TemplateMemory* const memory = this_threads_memory.get()) memory->held_ += bytes;
}

}  // namespace lm
