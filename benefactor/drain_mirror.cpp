#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benefactor/drain_attributes.h"
#include "benefactor/drain_paths.h"
#include "benefactor/file_drainer.h"
#include "core/drain_manifest.h"
#include "core/limits.h"

namespace stdchk::benefactor {

Outcome<void> set_attributes(int fd, const Wanted& wanted, std::string_view path) {
  // By this name the calls reach the open file itself, whatever its own mode, and no link is
  // followed.
  const std::string self = fmt::format("/proc/self/fd/{}", fd);
  // The owner first: a change of owner clears the set-id bits.
  if (::chown(self.c_str(), wanted.uid, wanted.gid) != 0 && errno != EPERM && errno != EINVAL) {
    return storage_problem("setting the owner of", path, errno);
  }
  if (::chmod(self.c_str(), wanted.mode & 07777) != 0) {
    return storage_problem("setting the mode of", path, errno);
  }
  std::int64_t seconds = wanted.mtime_ns / 1'000'000'000;
  std::int64_t rest = wanted.mtime_ns % 1'000'000'000;
  if (rest < 0) {
    rest += 1'000'000'000;
    --seconds;
  }
  const timespec times[2] = {{0, UTIME_OMIT}, {static_cast<time_t>(seconds), rest}};
  if (::utimensat(AT_FDCWD, self.c_str(), times, 0) != 0) {
    return storage_problem("setting the time of", path, errno);
  }
  return {};
}

namespace {

using Done = Outcome<void>;

/// A folder on the way that is not there means: there is nothing to change.
bool is_absent(const Problem& problem) { return problem.error.os_errno == ENOENT; }

Wanted wanted_of(const msg::MirrorChange& change) {
  return {change.mode, change.uid, change.gid, change.mtime_ns};
}

bool exists(const Place& place) {
  struct stat ignored {};
  return ::fstatat(place.folder.get(), place.name.c_str(), &ignored, AT_SYMLINK_NOFOLLOW) == 0;
}

Done sync_both(const Place& from, const Place& to) {
  if (auto synced = sync_folder(to.folder, to.path); !synced) return synced;
  return sync_folder(from.folder, from.path);
}

Done rename_place(const Place& from, const Place& to) {
  if (::renameat(from.folder.get(), from.name.c_str(), to.folder.get(), to.name.c_str()) != 0) {
    return storage_problem("renaming", from.path, errno);
  }
  return sync_both(from, to);
}

/// The place of a path; of no path, that of the change's temporary file.
Outcome<Place> place_of(const Descriptor& root, const msg::MirrorChange& change,
                        const std::string& path, Missing missing) {
  if (path.empty()) return temporary_place(root, change.file, change.number);
  return find_place(root, path, missing);
}

Done mirror_rename(const Descriptor& root, const msg::MirrorChange& change) {
  auto from = place_of(root, change, change.path, Missing::kFails);
  if (!from && is_absent(from.error())) return {};
  if (!from) return problem(from.error());
  if (!exists(*from)) return {};  // was not drained yet, or renamed before
  auto to = place_of(root, change, change.other_path, Missing::kIsMade);
  if (!to) return problem(to.error());
  return rename_place(*from, *to);
}

/// A file system without hard links refuses that; the manager then waits until nobody reads the
/// file.
Done set_aside(const Descriptor& root, const msg::MirrorChange& change) {
  auto to = temporary_place(root, change.file, change.number);
  if (!to) return problem(to.error());
  if (exists(*to)) return {};
  auto from = find_place(root, change.path, Missing::kFails);
  if (!from && is_absent(from.error())) return {};
  if (!from) return problem(from.error());
  if (::linkat(from->folder.get(), from->name.c_str(), to->folder.get(), to->name.c_str(), 0) !=
          0 &&
      errno != ENOENT) {
    return storage_problem("keeping for readers", from->path, errno);
  }
  return {};
}

/// A folder that nothing is in but a manifest of files that have gone is empty for its user.
void remove_manifests(const Place& folder) {
  const int fd = ::openat(folder.folder.get(), folder.name.c_str(),
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* const listing = fd < 0 ? nullptr : ::fdopendir(fd);
  if (listing == nullptr) {
    if (fd >= 0) ::close(fd);
    return;
  }
  std::vector<std::string> manifests;
  bool others = false;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (is_manifest(name)) {
      manifests.push_back(name);
    } else {
      others |= name != "." && name != "..";
    }
  }
  for (const std::string& name : manifests) {
    if (!others) ::unlinkat(fd, name.c_str(), 0);
  }
  ::closedir(listing);
}

Done mirror_remove(const Descriptor& root, const msg::MirrorChange& change, int flags) {
  auto place = find_place(root, change.path, Missing::kFails);
  if (!place && is_absent(place.error())) return {};
  if (!place) return problem(place.error());
  if (flags == AT_REMOVEDIR) remove_manifests(*place);
  if (::unlinkat(place->folder.get(), place->name.c_str(), flags) != 0) {
    if (errno == ENOENT) return {};
    return storage_problem("removing", place->path, errno);
  }
  return sync_folder(place->folder, place->path);
}

Done mirror_attributes(const Descriptor& root, const msg::MirrorChange& change) {
  auto place = find_place(root, change.path, Missing::kFails);
  if (!place && is_absent(place.error())) return {};
  if (!place) return problem(place.error());
  const Descriptor file(
      ::openat(place->folder.get(), place->name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  if (!file) return storage_problem("opening", place->path, errno);
  struct stat there {};
  if (::fstat(file.get(), &there) != 0) return storage_problem("opening", place->path, errno);
  if (S_ISLNK(there.st_mode)) return {};
  return set_attributes(file.get(), wanted_of(change), place->path);
}

Done mirror_make_directory(const Descriptor& root, const msg::MirrorChange& change) {
  auto place = find_place(root, change.path, Missing::kIsMade);
  if (!place) return problem(place.error());
  if (::mkdirat(place->folder.get(), place->name.c_str(), 0700) != 0 && errno != EEXIST) {
    return storage_problem("making the folder", place->path, errno);
  }
  const Descriptor folder(::openat(place->folder.get(), place->name.c_str(),
                                   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return storage_problem("making the folder", place->path, errno);
  if (auto set = set_attributes(folder.get(), wanted_of(change), place->path); !set) return set;
  return sync_folder(place->folder, place->path);
}

bool is_link_to(const Place& place, const std::string& target) {
  char there[limits::kSymlinkBytesMax + 1];
  const ssize_t length = ::readlinkat(place.folder.get(), place.name.c_str(), there, sizeof(there));
  return length >= 0 && std::string_view(there, static_cast<std::size_t>(length)) == target;
}

Done mirror_symlink(const Descriptor& root, const msg::MirrorChange& change) {
  const std::string& target = change.other_path;
  if (target.empty() || target.size() > limits::kSymlinkBytesMax ||
      target.find('\0') != std::string::npos) {
    return problem(Code::kInvalidArgument, "benefactor.symlink", EINVAL,
                   "The target of a symbolic link is not valid.");
  }
  auto place = find_place(root, change.path, Missing::kIsMade);
  if (!place) return problem(place.error());
  if (is_link_to(*place, target)) return {};
  // Under another name first, so that the name never is without a file.
  auto made = temporary_place(root, change.file, change.number);
  if (!made) return problem(made.error());
  made->name += ".link";
  ::unlinkat(made->folder.get(), made->name.c_str(), 0);
  if (::symlinkat(target.c_str(), made->folder.get(), made->name.c_str()) != 0) {
    return storage_problem("making the link", place->path, errno);
  }
  // Only root may give a link to its owner. A link's owner opens nothing, so a failure is no fault.
  [[maybe_unused]] const int given = ::fchownat(made->folder.get(), made->name.c_str(), change.uid,
                                                change.gid, AT_SYMLINK_NOFOLLOW);
  return rename_place(*made, *place);
}

/// True for FILE.NUMBER, and what begins so, that nobody uses any more. See MirrorKind.
bool is_old(const char* name, std::uint64_t first_used) {
  constexpr unsigned kEpochShift = 40;
  char* end = nullptr;
  (void)std::strtoull(name, &end, 10);
  if (end == name || *end != '.') return false;
  const std::uint64_t number = std::strtoull(end + 1, nullptr, 10);
  const std::uint64_t epoch = number >> kEpochShift;
  return epoch == 0 ? number < (first_used & ((std::uint64_t{1} << kEpochShift) - 1))
                    : epoch < first_used >> kEpochShift;
}

Done drop_old_temporaries(const Descriptor& root, std::uint64_t first_used) {
  auto place = temporary_place(root, {}, first_used);
  if (!place) return problem(place.error());
  DIR* const folder = ::fdopendir(::fcntl(place->folder.get(), F_DUPFD_CLOEXEC, 0));
  if (folder == nullptr) return storage_problem("listing", place->path, errno);
  while (const dirent* entry = ::readdir(folder)) {
    if (is_old(entry->d_name, first_used)) ::unlinkat(place->folder.get(), entry->d_name, 0);
  }
  ::closedir(folder);
  return {};
}

Done drop_temporary(const Descriptor& root, const msg::MirrorChange& change) {
  if (!change.file) return drop_old_temporaries(root, change.number);
  auto place = temporary_place(root, change.file, change.number);
  if (!place) return problem(place.error());
  if (::unlinkat(place->folder.get(), place->name.c_str(), 0) != 0 && errno != ENOENT) {
    return storage_problem("removing", place->path, errno);
  }
  return {};
}

Done carry_out(const Descriptor& root, const msg::MirrorChange& change) {
  switch (change.kind) {
    case msg::MirrorKind::kRename:
      return mirror_rename(root, change);
    case msg::MirrorKind::kUnlink:
      return mirror_remove(root, change, 0);
    case msg::MirrorKind::kMakeDirectory:
      return mirror_make_directory(root, change);
    case msg::MirrorKind::kRemoveDirectory:
      return mirror_remove(root, change, AT_REMOVEDIR);
    case msg::MirrorKind::kSymlink:
      return mirror_symlink(root, change);
    case msg::MirrorKind::kAttributes:
      return mirror_attributes(root, change);
    case msg::MirrorKind::kDropTemporary:
      return drop_temporary(root, change);
    case msg::MirrorKind::kSetAside:
      return set_aside(root, change);
  }
  return problem(Code::kInvalidArgument, "benefactor.mirror", EINVAL, "An unknown change.");
}

}  // namespace

Outcome<msg::MirrorChange::Reply> FileDrainer::mirror(const msg::MirrorChange& request,
                                                      Time deadline) {
  auto root = open_root(directory_);
  if (!root) return problem(root.error());
  if (auto going = give_up_check(deadline); !going) return problem(going.error());
  if (auto done = carry_out(*root, request); !done) return problem(done.error());
  return msg::MirrorChange::Reply{};
}

}  // namespace stdchk::benefactor
