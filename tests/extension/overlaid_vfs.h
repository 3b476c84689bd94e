// A VFS over the system's own that tells a test of each change to a file before it is made, and of
// reads.
#ifndef LM_TESTS_EXTENSION_OVERLAID_VFS_H_
#define LM_TESTS_EXTENSION_OVERLAID_VFS_H_

#include <sqlite3.h>

#include <cstdint>
#include <new>
#include <string>

namespace lm {

// What happens before a change; a code other than SQLITE_OK is what the change comes to instead.
// Thread-safe. `path` is empty for files without a name.
class FileChanges {
 public:
  virtual ~FileChanges() = default;
  virtual int OnRead(const std::string& path) {
    (void)path;
    return SQLITE_OK;
  }
  virtual int OnCreate(const std::string& path) = 0;  // or on opening it so that it may be created
  virtual int OnWrite(const std::string& path, const void* data, int bytes, int64_t offset) = 0;
  virtual int OnTruncate(const std::string& path, int64_t size) = 0;
  virtual int OnSync(const std::string& path) = 0;
  virtual int OnDelete(const std::string& path, bool durably) = 0;
};

namespace overlaid_vfs {

struct File {
  sqlite3_file base;
  FileChanges* changes;
  std::string* path;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

inline File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
inline sqlite3_vfs* Real() {
  static sqlite3_vfs* const real = sqlite3_vfs_find("unix");
  return real;
}

template <auto kMethod, typename... Args>
int Pass(sqlite3_file* file, Args... args) {
  sqlite3_file* real = Of(file)->real();
  return (real->pMethods->*kMethod)(real, args...);
}
inline void Barrier(sqlite3_file* file) {
  sqlite3_file* real = Of(file)->real();
  real->pMethods->xShmBarrier(real);
}
inline int Close(sqlite3_file* file) {
  sqlite3_file* real = Of(file)->real();
  delete Of(file)->path;
  return real->pMethods != nullptr ? real->pMethods->xClose(real) : SQLITE_OK;
}
inline int Read(sqlite3_file* file, void* data, int bytes, sqlite3_int64 offset) {
  const int code = Of(file)->changes->OnRead(*Of(file)->path);
  return code != SQLITE_OK ? code : Pass<&sqlite3_io_methods::xRead>(file, data, bytes, offset);
}
inline int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  const int code = Of(file)->changes->OnWrite(*Of(file)->path, data, bytes, offset);
  return code != SQLITE_OK ? code : Pass<&sqlite3_io_methods::xWrite>(file, data, bytes, offset);
}
inline int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  const int code = Of(file)->changes->OnTruncate(*Of(file)->path, size);
  return code != SQLITE_OK ? code : Pass<&sqlite3_io_methods::xTruncate>(file, size);
}
inline int Sync(sqlite3_file* file, int flags) {
  const int code = Of(file)->changes->OnSync(*Of(file)->path);
  return code != SQLITE_OK ? code : Pass<&sqlite3_io_methods::xSync>(file, flags);
}

inline const sqlite3_io_methods* Methods() {
  using M = sqlite3_io_methods;
  static const M methods = {
      .iVersion = 2,  // no mapped pages: what is written to them would not be seen
      .xClose = Close,
      .xRead = Read,
      .xWrite = Write,
      .xTruncate = Truncate,
      .xSync = Sync,
      .xFileSize = Pass<&M::xFileSize, sqlite3_int64*>,
      .xLock = Pass<&M::xLock, int>,
      .xUnlock = Pass<&M::xUnlock, int>,
      .xCheckReservedLock = Pass<&M::xCheckReservedLock, int*>,
      .xFileControl = Pass<&M::xFileControl, int, void*>,
      .xSectorSize = Pass<&M::xSectorSize>,
      .xDeviceCharacteristics = Pass<&M::xDeviceCharacteristics>,
      .xShmMap = Pass<&M::xShmMap, int, int, int, void volatile**>,
      .xShmLock = Pass<&M::xShmLock, int, int, int>,
      .xShmBarrier = Barrier,
      .xShmUnmap = Pass<&M::xShmUnmap, int>,
      .xFetch = nullptr,
      .xUnfetch = nullptr,
  };
  return &methods;
}

inline int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
  auto* const changes = static_cast<FileChanges*>(vfs->pAppData);
  const std::string path = name == nullptr ? "" : name;
  File* opened = Of(file);
  opened->base.pMethods = nullptr;
  if ((flags & SQLITE_OPEN_CREATE) != 0) {
    if (const int code = changes->OnCreate(path); code != SQLITE_OK) return code;
  }
  const int code = Real()->xOpen(Real(), name, opened->real(), flags, out);
  if (code != SQLITE_OK) return code;
  opened->changes = changes;
  opened->path = new std::string(path);
  opened->base.pMethods = Methods();
  return SQLITE_OK;
}
inline int Delete(sqlite3_vfs* vfs, const char* name, int durably) {
  const int code = static_cast<FileChanges*>(vfs->pAppData)->OnDelete(name, durably != 0);
  return code != SQLITE_OK ? code : Real()->xDelete(Real(), name, durably);
}

}  // namespace overlaid_vfs

// Makes it the process's default VFS, for good. REQUIRES: `changes` lives for ever.
inline void OverlayVfs(FileChanges* changes) {
  static sqlite3_vfs vfs = *overlaid_vfs::Real();
  vfs.szOsFile = overlaid_vfs::Real()->szOsFile + static_cast<int>(sizeof(overlaid_vfs::File));
  vfs.zName = "overlaid";
  vfs.pNext = nullptr;
  vfs.pAppData = changes;
  vfs.xOpen = overlaid_vfs::Open;
  vfs.xDelete = overlaid_vfs::Delete;
  sqlite3_vfs_register(&vfs, 1);
}

}  // namespace lm

#endif  // LM_TESTS_EXTENSION_OVERLAID_VFS_H_
