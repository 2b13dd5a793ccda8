#include "benefactor/drain/drain_paths.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/base/limits.h"
#include "core/messages/messages.h"

namespace stdchk::benefactor {
namespace {

/// Other users may open a file whose name they know, but they cannot list the folder.
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

/// Returns true when the folder was absent and is made.
Outcome<bool> make_folder(const DrainFolder& parent, const std::string& name,
                          const std::string& path, mode_t mode) {
  const WritableFolder writable(parent);
  const bool made = ::mkdirat(parent.get(), name.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return storage_problem("making the folder of", path, errno);
  return made;
}

/// Opens a folder of `parent`, and makes it if `missing` says so. The name of a new folder is not
/// durable yet: sync `parent`.
Outcome<DrainFolder> enter(const DrainFolder& parent, const std::string& name, Missing missing,
                           const std::string& path, mode_t mode = 0755) {
  auto folder = parent.folder(name);
  if (!folder && folder.error().error.os_errno == ENOENT && missing == Missing::kIsMade) {
    if (auto made = make_folder(parent, name, path, mode); !made) return problem(made.error());
    folder = parent.folder(name);
  }
  if (!folder) return storage_problem("opening the folder of", path, folder.error().error.os_errno);
  return std::move(*folder);
}

}  // namespace

tl::unexpected<Problem> storage_problem(std::string_view what, std::string_view path,
                                        int os_errno) {
  return problem(
      Code::kDrainFailed, "benefactor.drain", os_errno,
      fmt::format("{} {} failed: {}; {}.", what, path, std::strerror(os_errno), remedy(os_errno)));
}

tl::unexpected<Problem> storage_problem(const Problem& refusal) {
  return problem(Code::kDrainFailed, "benefactor.drain", refusal.error.os_errno,
                 refusal.text + ".");
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

Outcome<DrainFolder> open_root(const DrainDirectory& directory) {
  auto root = directory.open();
  if (root) return std::move(*root);
  const int number = root.error().error.os_errno;
  if (number == ELOOP) return storage_problem(root.error());
  return storage_problem("opening the drain directory", directory.path(), number);
}

Outcome<Place> find_place(const DrainFolder& root, const std::string& path, Missing missing) {
  auto parts = split_path(path);
  if (!parts) return problem(parts.error());
  if (missing == Missing::kFails) {
    auto parent = root.parent_of(path);
    if (!parent)
      return storage_problem("opening the folder of", path, parent.error().error.os_errno);
    return Place{std::move(*parent), parts->back(), path};
  }
  auto folder = root.folder("");
  if (!folder) return storage_problem("opening the folder of", path, folder.error().error.os_errno);
  for (std::size_t i = 0; i + 1 < parts->size(); ++i) {
    auto next = enter(*folder, (*parts)[i], missing, path);
    if (!next) return problem(next.error());
    // Sync also a folder that exists: its creator may have crashed before the sync.
    if (auto synced = sync_folder(*folder, path); !synced) return problem(synced.error());
    folder = std::move(*next);
  }
  return Place{std::move(*folder), parts->back(), path};
}

Outcome<bool> make_temporary_folder(const DrainFolder& root) {
  return make_folder(root, msg::kTemporaryFolder, msg::kTemporaryFolder, kTemporaryFolderMode);
}

bool is_closed_to_others(const struct stat& folder, const std::vector<std::uint32_t>& makers) {
  const bool of_ours =
      folder.st_uid == 0 || std::ranges::find(makers, folder.st_uid) != makers.end();
  const bool open_to_all = (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return of_ours && (!open_to_all || (folder.st_mode & S_ISVTX) != 0);
}

std::vector<std::uint32_t> maker_owners(const DrainDirectory& directory, const DrainFolder& root) {
  std::vector<std::uint32_t> owners{::geteuid()};
  if (const auto maker = directory.file_maker(root)) owners.push_back(maker->uid);
  return owners;
}

Outcome<Place> temporary_place(const DrainDirectory& directory, const DrainFolder& root,
                               FileId file, std::uint64_t number) {
  Place place;
  place.name = msg::temporary_name(file, number);
  place.path = fmt::format("{}/{}", msg::kTemporaryFolder, place.name);
  auto folder =
      enter(root, msg::kTemporaryFolder, Missing::kIsMade, place.path, kTemporaryFolderMode);
  if (!folder) return problem(folder.error());
  const auto status = folder->own_status();
  if (!status) return storage_problem(status.error());
  if (!is_closed_to_others(*status, maker_owners(directory, root))) {
    return problem(
        Code::kDrainFailed, "benefactor.drain", EPERM,
        fmt::format(
            "{}/{} belongs to uid {} and has mode {:04o}, so other users could replace drained "
            "files. Remove the folder, or give it to this pool's user with mode 0711.",
            directory.path(), msg::kTemporaryFolder, status->st_uid, status->st_mode & 07777));
  }
  place.folder = std::move(*folder);
  return place;
}

namespace {
constexpr unsigned kEpochShift = 40;
}  // namespace

bool is_of_name_change(std::uint64_t number) { return number >> kEpochShift == 0; }

bool is_old_temporary(const std::string& name, std::uint64_t first_used) {
  char* end = nullptr;
  (void)std::strtoull(name.c_str(), &end, 10);
  if (end == name.c_str() || *end != '.') return false;
  const std::uint64_t number = std::strtoull(end + 1, nullptr, 10);
  const std::uint64_t epoch = number >> kEpochShift;
  return epoch == 0 ? number < (first_used & ((std::uint64_t{1} << kEpochShift) - 1))
                    : epoch < (first_used >> kEpochShift);
}

Outcome<void> sync_folder(const DrainFolder& folder, std::string_view path) {
  // EINVAL: this file system cannot sync a folder, and offers no other way to make the name
  // durable.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) {
    return storage_problem("syncing the folder of", path, errno);
  }
  return {};
}

}  // namespace stdchk::benefactor
