/* Calls of the C library that fail when they are told to, in the program that this is linked into
 * and in every library that it loads:
 *
 *   FailCalls(kReads, 3, kOnce);       // the third read from now on
 *   ... what is under test ...
 *   long reads = StopFailingCalls();   // that were made since
 *
 * On whichever thread they are made. What the C library and the dynamic linker call among
 * themselves is not seen. */
#ifndef LM_TESTS_FAULT_FAILING_CALLS_H_
#define LM_TESTS_FAULT_FAILING_CALLS_H_

#include <stdbool.h>

typedef enum {
  kMemory,  /* malloc and its kin, and so operator new and SQLite's own: ENOMEM */
  kThreads, /* pthread_create: EAGAIN */
  kOpens,   /* open: EMFILE */
  kReads,   /* read, pread, of files: EIO */
  kWrites,  /* write, pwrite, ftruncate, rename, of files: ENOSPC */
  kSyncs,   /* fsync, fdatasync: EIO */
  kMaps,    /* mmap: ENOMEM */
  kSockets, /* socket, connect, send, recv: ECONNRESET */
  kNumCallKinds
} CallKind;

/* What becomes of the n-th call of a kind. The latter two are no failures: whoever makes the call
 * is to go on with it. Of reads, writes and sockets only, and of those what transfers bytes. */
typedef enum {
  kOnce,        /* it fails */
  kOn,          /* it fails, and all that follow it */
  kPart,        /* it transfers half of what is wanted, or a byte, and so do all that follow it */
  kInterrupted, /* EINTR, and so every other one that follows it */
  kNumManners
} Manner;

/* "once", "on", "part", "interrupted"; kNumManners where there is no such manner. */
Manner FindManner(const char* name);

/* "memory", "threads", ...; kNumCallKinds where there is no such kind. */
CallKind FindCallKind(const char* name);

/* Once, before there is a second thread; false where the C library has no such functions. */
bool PrepareFailingCalls(void);

/* From now on, of the n-th call of the kind. 0: of none. */
void FailCalls(CallKind kind, long n, Manner manner);

/* The calls of the kind since FailCalls(). */
long CallsSeen(void);
bool CallsMayFail(void);
long StopFailingCalls(void);

#endif  // LM_TESTS_FAULT_FAILING_CALLS_H_
