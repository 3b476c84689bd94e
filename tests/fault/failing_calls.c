#define _GNU_SOURCE
#include "failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long count; /* of calls since arming */
static atomic_long fail_at;
static atomic_int armed_manner;
static atomic_bool armed;
static atomic_int armed_kind;

CallKind FindCallKind(const char* name) {
  static const char* const kNames[] = {"memory", "threads", "opens", "reads",
                                       "writes", "syncs",   "maps",  "sockets"};
  int kind = 0;
  while (kind < kNumCallKinds && strcmp(kNames[kind], name) != 0) ++kind;
  return (CallKind)kind;
}

Manner FindManner(const char* name) {
  static const char* const kNames[] = {"once", "on", "part", "interrupted"};
  int manner = 0;
  while (manner < kNumManners && strcmp(kNames[manner], name) != 0) ++manner;
  return (Manner)manner;
}

void FailCalls(CallKind kind, long n, Manner manner) {
  armed_kind = kind;
  fail_at = n > 0 ? n : LONG_MAX;
  armed_manner = manner;
  count = 0;
  armed = true;
}

long CallsSeen(void) { return count; }
bool CallsMayFail(void) { return armed; }

long StopFailingCalls(void) {
  armed = false;
  return count;
}

/* Counts a call of the armed kind; true where it is one that something becomes of. */
static bool IsMet(CallKind kind) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) return false;
  if (atomic_load_explicit(&armed_kind, memory_order_relaxed) != (int)kind) return false;
  const long after = atomic_fetch_add(&count, 1) + 1 - fail_at;
  switch (armed_manner) {
    case kOnce:
      return after == 0;
    case kInterrupted:
      return after >= 0 && after % 2 == 0;
    default:
      return after >= 0;
  }
}

static bool Fails(CallKind kind) { return armed_manner <= kOn && IsMet(kind); }

static bool FailsWith(CallKind kind, int error) {
  if (!Fails(kind)) return false;
  errno = error;
  return true;
}

/* Of a call that transfers *bytes. */
static bool TransferFails(CallKind kind, int error, size_t* bytes) {
  if (!IsMet(kind)) return false;
  if (armed_manner == kPart) {
    *bytes = *bytes > 1 ? *bytes / 2 : *bytes;
    return false;
  }
  errno = armed_manner == kInterrupted ? EINTR : error;
  return true;
}

/* ---- memory ---- */

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static void* Refuse(void) {
  errno = ENOMEM;
  return NULL;
}

/* The dynamic linker's. A thread's storage for a library that was loaded later is taken with malloc
 * when the thread first uses it, and glibc ends the process where that fails: not ours to test. */
static uintptr_t linker_begin, linker_end;

static int FindLinker(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size, (void)data;
  if (info->dlpi_addr == 0 || info->dlpi_addr != getauxval(AT_BASE)) return 0;
  linker_begin = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD) linker_end = linker_begin + part->p_vaddr + part->p_memsz;
  }
  return 1;
}

void* malloc(size_t bytes) {
  const uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  if (caller >= linker_begin && caller < linker_end) return __libc_malloc(bytes);
  return Fails(kMemory) ? Refuse() : __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) { return Fails(kMemory) ? Refuse() : __libc_calloc(n, bytes); }
void* realloc(void* old, size_t bytes) {
  return Fails(kMemory) ? Refuse() : __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return Fails(kMemory) ? Refuse() : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* block = memalign(alignment, bytes);
  if (block == NULL) return ENOMEM;
  *out = block;
  return 0;
}

/* ---- threads ---- */

static int (*create_thread)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  return Fails(kThreads) ? EAGAIN : create_thread(thread, attributes, start, argument);
}

bool PrepareFailingCalls(void) {
  dl_iterate_phdr(FindLinker, NULL);
  *(void**)&create_thread = dlsym(RTLD_NEXT, "pthread_create");
  return create_thread != NULL;
}

/* ---- files: straight to the kernel ---- */

static bool IsFile(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
  va_end(args);
  if (FailsWith(kOpens, EMFILE)) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open64(const char*, int, ...) __attribute__((alias("open")));

ssize_t read(int fd, void* out, size_t bytes) {
  if (IsFile(fd) && TransferFails(kReads, EIO, &bytes)) return -1;
  return syscall(SYS_read, fd, out, bytes);
}

ssize_t pread(int fd, void* out, size_t bytes, off_t at) {
  if (IsFile(fd) && TransferFails(kReads, EIO, &bytes)) return -1;
  return syscall(SYS_pread64, fd, out, bytes, at);
}
ssize_t pread64(int, void*, size_t, off64_t) __attribute__((alias("pread")));

ssize_t write(int fd, const void* data, size_t bytes) {
  if (IsFile(fd) && TransferFails(kWrites, ENOSPC, &bytes)) return -1;
  return syscall(SYS_write, fd, data, bytes);
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  if (IsFile(fd) && TransferFails(kWrites, ENOSPC, &bytes)) return -1;
  return syscall(SYS_pwrite64, fd, data, bytes, at);
}
ssize_t pwrite64(int, const void*, size_t, off64_t) __attribute__((alias("pwrite")));

int ftruncate(int fd, off_t bytes) {
  if (FailsWith(kWrites, ENOSPC)) return -1;
  return (int)syscall(SYS_ftruncate, fd, bytes);
}
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));

int rename(const char* from, const char* to) {
  if (FailsWith(kWrites, ENOSPC)) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fsync(int fd) { return FailsWith(kSyncs, EIO) ? -1 : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return FailsWith(kSyncs, EIO) ? -1 : (int)syscall(SYS_fdatasync, fd); }

void* mmap(void* where, size_t bytes, int protection, int flags, int fd, off_t at) {
  if (FailsWith(kMaps, ENOMEM)) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, where, bytes, protection, flags, fd, at);
}
void* mmap64(void*, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

/* ---- sockets ---- */

int socket(int domain, int type, int protocol) {
  if (FailsWith(kSockets, ECONNRESET)) return -1;
  return (int)syscall(SYS_socket, domain, type, protocol);
}

int connect(int fd, const struct sockaddr* address, socklen_t bytes) {
  if (FailsWith(kSockets, ECONNRESET)) return -1;
  return (int)syscall(SYS_connect, fd, address, bytes);
}

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  if (TransferFails(kSockets, ECONNRESET, &bytes)) return -1;
  return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

ssize_t recv(int fd, void* out, size_t bytes, int flags) {
  if (TransferFails(kSockets, ECONNRESET, &bytes)) return -1;
  return syscall(SYS_recvfrom, fd, out, bytes, flags, NULL, NULL);
}
