#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benefactor/problem.h"
#include "core/types.h"

/// Names below the drain directory. They come from the wire, so nothing here trusts them: a path is
/// relative, without ".." and without symbolic links on its way, and each folder on it is opened
/// from the one above, so that nobody can bend the way while it is walked.
namespace stdchk::benefactor {

/// A Descriptor closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// kDrainFailed with the errno of the call that failed and a sentence with its remedy.
tl::unexpected<Problem> storage_problem(std::string_view what, std::string_view path, int os_errno);

/// The parts of `path`; kInvalidArgument when it is empty, absolute, too long, has an empty part,
/// "." or "..", or leads into the folder of temporary files.
Outcome<std::vector<std::string>> split_path(const std::string& path);

enum class Missing : std::uint8_t {
  kFails,   ///< a missing folder is kDrainFailed with ENOENT
  kIsMade,  ///< and each folder on the way, whoever has made it, is durable before the next one
};

/// A Place is a name in an open folder.
struct Place {
  Descriptor folder;
  std::string name;
  std::string path;  ///< for messages
};

Outcome<Descriptor> open_root(const std::string& drain_directory);
/// Opens the folder that holds the last part of `path`.
Outcome<Place> find_place(const Descriptor& root, const std::string& path, Missing missing);
/// Makes the folder of temporary files; true for the one, of all that do so on all hosts, who was
/// first.
Outcome<bool> make_temporary_folder(const Descriptor& root);
/// The place of the temporary file (file, number); makes the folder.
Outcome<Place> temporary_place(const Descriptor& root, FileId file, std::uint64_t number);

/// Makes what happened in the folder durable.
Outcome<void> sync_folder(const Descriptor& folder, std::string_view path);

}  // namespace stdchk::benefactor
