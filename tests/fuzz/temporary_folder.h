#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "core/base/assert.h"

namespace stdchk::fuzz {

/// A TemporaryFolder holds files of one process, in memory if possible.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const bool memory = std::filesystem::is_directory("/dev/shm");
    path_ = std::string(memory ? "/dev/shm" : "/tmp") + "/stdchk-fuzz-XXXXXX";
    STDCHK_ASSERT(::mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Writes a file with that content; returns its path.
  std::string write(const std::string& name, std::string_view content) const {
    std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

/// The folder of this process, removed at its end.
inline const TemporaryFolder& folder() {
  static const TemporaryFolder one;
  return one;
}

}  // namespace stdchk::fuzz
