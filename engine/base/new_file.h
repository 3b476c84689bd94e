// NewFile: a file that appears under its name when it is complete, or not at all.
#ifndef LM_ENGINE_BASE_NEW_FILE_H_
#define LM_ENGINE_BASE_NEW_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

class NewFile {
 public:
  // AlreadyExists where there is something at `path`, or at `path`.part: another who writes it, or
  // what one left who was killed.
  static absl::StatusOr<std::unique_ptr<NewFile>> Create(const std::string& path);
  // The same of what is there now, for those who have much to do before they write.
  static absl::Status CheckFree(const std::string& path);
  // Without Finish: removes what was written.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // What was appended, until Finish.
  const std::string& part() const { return part_; }
  // Puts the bytes on the disk and the file under its name. AlreadyExists where somebody else did
  // meanwhile.
  absl::Status Finish();

 private:
  explicit NewFile(const std::string& path) : path_(path), part_(path + ".part") {}

  const std::string path_, part_;
  int fd_ = -1;
  bool has_part_ = false;  // of ours
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_NEW_FILE_H_
