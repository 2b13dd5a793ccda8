#include "benefactor/drain_paths.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/limits.h"
#include "core/messages/messages.h"

namespace stdchk::benefactor {
namespace {

/// Others may open what was set aside under a name that they were told, and list nothing.
constexpr mode_t kTemporaryFolderMode = 0711;

std::string_view remedy(int os_errno) {
  switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
      return "make room in the drain directory; the drain is tried again";
    case EACCES:
    case EPERM:
      return "let the benefactor's user write there";
    case EROFS:
      return "mount the file system writable";
    case ENOENT:
      return "make the drain directory, or mount its file system on this host";
    case ELOOP:
    case ENOTDIR:
      return "remove what stands in the way: a file or link where a folder belongs";
    default:
      return "look at the file system of the drain directory";
  }
}

tl::unexpected<Problem> bad_path(const std::string& path, std::string_view why) {
  return problem(Code::kInvalidArgument, "benefactor.path", EINVAL,
                 fmt::format("The path \"{}\" {}.", path, why));
}

int open_folder(int parent, const std::string& name) {
  return ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// True when it was not there before.
Outcome<bool> make_folder(const Descriptor& parent, const std::string& name,
                          const std::string& path, mode_t mode) {
  const bool made = ::mkdirat(parent.get(), name.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return storage_problem("making the folder of", path, errno);
  return made;
}

/// A folder that it makes is not durable yet.
Outcome<Descriptor> enter(const Descriptor& parent, const std::string& name, Missing missing,
                          const std::string& path, mode_t mode = 0755) {
  Descriptor folder(open_folder(parent.get(), name));
  if (!folder && errno == ENOENT && missing == Missing::kIsMade) {
    if (auto made = make_folder(parent, name, path, mode); !made) return problem(made.error());
    folder = Descriptor(open_folder(parent.get(), name));
  }
  if (!folder) return storage_problem("opening the folder of", path, errno);
  return folder;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

tl::unexpected<Problem> storage_problem(std::string_view what, std::string_view path,
                                        int os_errno) {
  return problem(
      Code::kDrainFailed, "benefactor.drain", os_errno,
      fmt::format("{} {} failed: {}; {}.", what, path, std::strerror(os_errno), remedy(os_errno)));
}

Outcome<std::vector<std::string>> split_path(const std::string& path) {
  if (path.empty() || path.size() > limits::kPathBytesMax) {
    return bad_path(path.substr(0, 64), "is empty or too long");
  }
  if (path.find('\0') != std::string::npos) return bad_path("...", "holds a zero byte");
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at <= path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    std::string part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") {
      return bad_path(path, "is not a plain path below the drain directory");
    }
    if (part.size() > limits::kNameBytesMax) return bad_path(path, "has a name above 255 bytes");
    parts.push_back(std::move(part));
    at = end + 1;
  }
  if (parts.front() == msg::kTemporaryFolder) return bad_path(path, "leads to temporary files");
  return parts;
}

Outcome<Descriptor> open_root(const std::string& drain_directory) {
  Descriptor root(::open(drain_directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return storage_problem("opening the drain directory", drain_directory, errno);
  return root;
}

Outcome<Place> find_place(const Descriptor& root, const std::string& path, Missing missing) {
  auto parts = split_path(path);
  if (!parts) return problem(parts.error());
  Descriptor folder(::fcntl(root.get(), F_DUPFD_CLOEXEC, 0));
  if (!folder) return storage_problem("opening the folder of", path, errno);
  for (std::size_t i = 0; i + 1 < parts->size(); ++i) {
    auto next = enter(folder, (*parts)[i], missing, path);
    if (!next) return problem(next.error());
    if (missing == Missing::kIsMade) {
      // Whoever has made it may not have synced its name yet.
      if (auto synced = sync_folder(folder, path); !synced) return problem(synced.error());
    }
    folder = std::move(*next);
  }
  return Place{std::move(folder), parts->back(), path};
}

Outcome<bool> make_temporary_folder(const Descriptor& root) {
  return make_folder(root, msg::kTemporaryFolder, msg::kTemporaryFolder, kTemporaryFolderMode);
}

Outcome<Place> temporary_place(const Descriptor& root, FileId file, std::uint64_t number) {
  Place place;
  place.name = msg::temporary_name(file, number);
  place.path = fmt::format("{}/{}", msg::kTemporaryFolder, place.name);
  auto folder =
      enter(root, msg::kTemporaryFolder, Missing::kIsMade, place.path, kTemporaryFolderMode);
  if (!folder) return problem(folder.error());
  place.folder = std::move(*folder);
  return place;
}

Outcome<void> sync_folder(const Descriptor& folder, std::string_view path) {
  // Some file systems cannot sync a folder and say EINVAL: there is nothing better to be had there.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) {
    return storage_problem("syncing the folder of", path, errno);
  }
  return {};
}

}  // namespace stdchk::benefactor
