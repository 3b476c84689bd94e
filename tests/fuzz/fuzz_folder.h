// Where a fuzzer of files has its inputs: a folder of this process, in memory where there is such a
// place; gone when it ends.
#ifndef LM_TESTS_FUZZ_FUZZ_FOLDER_H_
#define LM_TESTS_FUZZ_FUZZ_FOLDER_H_

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace lm {

class FuzzFolder {
 public:
  explicit FuzzFolder(const std::string& name) {
    const char* root = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
    path_ = std::string(root) + "/" + name + "_" + std::to_string(getpid());
    std::filesystem::create_directories(path_);
  }
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(PathOf(name), std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  }
  // A new file, its user's only. Returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string path = PathOf(name);
    unlink(path.c_str());
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    chmod(path.c_str(), 0600);
    return path;
  }

 private:
  std::string path_;
};

}  // namespace lm

#endif  // LM_TESTS_FUZZ_FUZZ_FOLDER_H_
