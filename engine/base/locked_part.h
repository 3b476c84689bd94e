// LockedPart: a file that is being written. It is its writer's as long as he lives, however he ends
// and whichever number his process has: what nobody holds is left over.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<LockedPart> part, LockedPart::Create(path + ".part"));
//   RETURN_IF_ERROR(part->Append(bytes));
//   RETURN_IF_ERROR(part->Finish(path, 0444));
#ifndef LM_ENGINE_BASE_LOCKED_PART_H_
#define LM_ENGINE_BASE_LOCKED_PART_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// Not thread-safe. Errors name the file.
class LockedPart {
 public:
  // An empty file, for this user only; what is left over there is written over. AlreadyExists where
  // another is writing it just now, or is taking it away.
  static absl::StatusOr<std::unique_ptr<LockedPart>> Create(const std::string& path);
  // Without Finish: removes it.
  ~LockedPart();
  LockedPart(const LockedPart&) = delete;
  LockedPart& operator=(const LockedPart&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Writes over what was appended first.
  absl::Status WriteOverBegin(absl::string_view bytes);
  // Puts the bytes on the disk and the file in the place of what is at `path`.
  absl::Status Finish(const std::string& path, mode_t mode);

  // Removes the file at `path` if it is left over.
  static void RemoveLeftover(const std::string& path);

 private:
  explicit LockedPart(std::string path) : path_(std::move(path)) {}
  absl::Status Error(const char* doing) const;
  absl::Status Open();

  const std::string path_;
  int fd_ = -1;
  bool is_ours_ = false;  // the name
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_LOCKED_PART_H_
