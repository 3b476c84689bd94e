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
  // Without Finish: removes what was written.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Puts the bytes on the disk and the file under its name. AlreadyExists where somebody else did
  // meanwhile.
  absl::Status Finish();

 private:
  NewFile(std::string path, std::string part, int fd)
      : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}

  const std::string path_, part_;
  int fd_;
  bool finished_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_NEW_FILE_H_
