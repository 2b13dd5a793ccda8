#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "benefactor/drain/drain_attributes.h"
#include "benefactor/drain/drain_paths.h"
#include "benefactor/drain/file_drainer.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/drain_manifest.h"

namespace stdchk::benefactor {

std::uint32_t mode_without_widening(std::uint32_t mode, bool uid_is_right, bool gid_is_right) {
  constexpr std::uint32_t kSticky = S_ISVTX;
  const std::uint32_t user = mode >> 6 & 7;
  std::uint32_t group = mode >> 3 & 7;
  std::uint32_t other = mode & 7;
  std::uint32_t special = mode & kSticky;
  if (uid_is_right) special |= mode & S_ISUID;
  if (gid_is_right) special |= mode & S_ISGID;
  // Members of the pool's group are others there, and the members of the file's group were others.
  if (!gid_is_right) group = other = group & other;
  // In the drain directory, the pool's owner counts as a member of the group, or as another user.
  if (!uid_is_right) {
    group &= user;
    other &= user;
  }
  return special | user << 6 | group << 3 | other;
}

namespace {

/// Gives the file at `self`, a path below /proc/self/fd, to its owner. Without the right to do so,
/// the file keeps its owner.
Outcome<void> set_owner(const std::string& self, const Wanted& wanted, std::string_view path) {
  const auto is_refused = [] { return errno == EPERM || errno == EINVAL; };
  if (::chown(self.c_str(), wanted.uid, wanted.gid) == 0) return {};
  if (!is_refused()) return storage_problem("setting the owner of", path, errno);
  // A user may give a file to a group that he belongs to.
  if (::chown(self.c_str(), static_cast<uid_t>(-1), wanted.gid) != 0 && !is_refused()) {
    return storage_problem("setting the group of", path, errno);
  }
  return {};
}

Outcome<void> set_time(const std::string& self, const Wanted& wanted, std::string_view path) {
  const timespec times[2] = {{0, UTIME_OMIT}, to_timespec(wanted.mtime_ns)};
  if (::utimensat(AT_FDCWD, self.c_str(), times, 0) != 0) {
    return storage_problem("setting the time of", path, errno);
  }
  return {};
}

}  // namespace

Outcome<void> set_attributes(int fd, const Wanted& wanted, std::string_view path, Acl acl) {
  // A path below /proc/self/fd reaches the open file itself, also a symbolic link. No link is
  // followed, and the file's mode does not matter.
  const std::string self = fmt::format("/proc/self/fd/{}", fd);
  // The owner first: a change of owner clears the set-id bits.
  if (auto set = set_owner(self, wanted, path); !set) return set;
  struct stat now {};
  if (::fstat(fd, &now) != 0) return storage_problem("looking at", path, errno);
  if (S_ISLNK(now.st_mode)) return set_time(self, wanted, path);
  if (acl == Acl::kNone) {
    for (const char* name : {"system.posix_acl_access", "system.posix_acl_default"}) {
      if (::removexattr(self.c_str(), name) != 0 && errno != ENODATA && errno != EOPNOTSUPP &&
          errno != EACCES && errno != EINVAL) {
        return storage_problem("removing the access list of", path, errno);
      }
    }
  }
  const std::uint32_t mode = mode_without_widening(wanted.mode & 07777, now.st_uid == wanted.uid,
                                                   now.st_gid == wanted.gid);
  if (::chmod(self.c_str(), mode) != 0) return storage_problem("setting the mode of", path, errno);
  return set_time(self, wanted, path);
}

namespace {

using Done = Outcome<void>;

/// An absent parent folder means that nothing must change.
bool is_absent(const Problem& problem) { return problem.error.os_errno == ENOENT; }

Wanted wanted_of(const msg::MirrorChange& change) {
  return {change.mode, change.uid, change.gid, change.mtime_ns};
}

bool exists(const Place& place) { return place.folder.status(place.name).has_value(); }

Done sync_both(const Place& from, const Place& to) {
  if (auto synced = sync_folder(to.folder, to.path); !synced) return synced;
  return sync_folder(from.folder, from.path);
}

Done rename_place(const Place& from, const Place& to) {
  const WritableFolder from_writable(from.folder);
  const WritableFolder to_writable(to.folder);
  if (::renameat(from.folder.get(), from.name.c_str(), to.folder.get(), to.name.c_str()) != 0) {
    return storage_problem("renaming", from.path, errno);
  }
  // rename(2) does nothing when both are names of one file.
  const auto left = from.folder.status(from.name);
  const auto there = to.folder.status(to.name);
  const bool one_file = left && there && left->st_dev == there->st_dev &&
                        left->st_ino == there->st_ino && from.path != to.path;
  if (one_file && ::unlinkat(from.folder.get(), from.name.c_str(), 0) != 0) {
    return storage_problem("removing", from.path, errno);
  }
  return sync_both(from, to);
}

/// A Mirror is the drain directory during one change.
struct Mirror {
  const DrainDirectory& directory;
  const DrainFolder& root;
  const msg::MirrorChange& change;

  Outcome<Place> temporary() const {
    return temporary_place(directory, root, change.file, change.number);
  }
  /// Returns the place of `path`. An empty path means the change's temporary file.
  Outcome<Place> place_of(const std::string& path, Missing missing) const {
    return path.empty() ? temporary() : find_place(root, path, missing);
  }
};

Done mirror_rename(const Mirror& in) {
  auto from = in.place_of(in.change.path, Missing::kFails);
  if (!from && is_absent(from.error())) return {};
  if (!from) return problem(from.error());
  if (!exists(*from)) return {};  // was not drained yet, or renamed before
  auto to = in.place_of(in.change.other_path, Missing::kIsMade);
  if (!to) return problem(to.error());
  if (auto renamed = rename_place(*from, *to); !renamed || !in.change.other_path.empty()) {
    return renamed;
  }
  // A later finish gives the file to its owner in the pool. So another user's file, which somebody
  // has put in its place, goes back.
  const auto kept = to->folder.status(to->name);
  const bool is_other =
      kept && S_ISREG(kept->st_mode) && !in.directory.may_belong(in.root, *kept, in.change.uid);
  if (!is_other) return {};
  log::warning("{} in the drain directory belongs to uid {}, and in the pool to uid {}: it stays",
               from->path, kept->st_uid, in.change.uid);
  return rename_place(*to, *from);
}

/// Gives the drained file a second, temporary name, so that readers keep it when its name goes.
/// Fails on a file system without hard links: the manager then waits until nobody reads the file.
Done set_aside(const Mirror& in) {
  auto to = in.temporary();
  if (!to) return problem(to.error());
  if (exists(*to)) return {};
  auto from = find_place(in.root, in.change.path, Missing::kFails);
  if (!from && is_absent(from.error())) return {};
  if (!from) return problem(from.error());
  if (::linkat(from->folder.get(), from->name.c_str(), to->folder.get(), to->name.c_str(), 0) !=
          0 &&
      errno != ENOENT) {
    return storage_problem("keeping for readers", from->path, errno);
  }
  return {};
}

/// A folder that holds only its manifest and its policy counts as empty.
void remove_pool_files(const Place& place) {
  const auto folder = place.folder.folder(place.name);
  const auto names = folder ? folder->names() : Outcome<std::vector<std::string>>();
  if (!folder || !names || !std::ranges::all_of(*names, is_pool_file)) return;
  const WritableFolder writable(*folder);
  for (const std::string& name : *names) ::unlinkat(folder->get(), name.c_str(), 0);
}

Done mirror_remove(const Mirror& in, int flags) {
  auto place = find_place(in.root, in.change.path, Missing::kFails);
  if (!place && is_absent(place.error())) return {};
  if (!place) return problem(place.error());
  if (flags == AT_REMOVEDIR) remove_pool_files(*place);
  const WritableFolder writable(place->folder);
  if (::unlinkat(place->folder.get(), place->name.c_str(), flags) != 0) {
    if (errno == ENOENT) return {};
    return storage_problem("removing", place->path, errno);
  }
  return sync_folder(place->folder, place->path);
}

/// Sets the attributes of a symbolic link, FIFO or socket, as far as the file system keeps them.
/// Nobody reads bytes of a checkpoint there, so a missing attribute fails no change.
Done set_attributes_of_special(const Place& place, int fd, const msg::MirrorChange& change) {
  auto set = set_attributes(fd, wanted_of(change), place.path, Acl::kKept);
  if (set) return set;
  const int number = set.error().error.os_errno;
  const bool is_unsupported = number == EPERM || number == EACCES || number == EINVAL ||
                              number == ENOSYS || number == EOPNOTSUPP;
  return is_unsupported ? Done() : set;
}

/// Gives `made`, a new file with a temporary name, the attributes of the pool's file and its name.
Done name_special(const Place& made, const Place& place, const msg::MirrorChange& change) {
  const Descriptor file(
      ::openat(made.folder.get(), made.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return storage_problem("opening", place.path, errno);
  if (auto set = set_attributes_of_special(place, file.get(), change); !set) return set;
  return rename_place(made, place);
}

/// A user who may write to the folder may have replaced the drained file by another user's file.
/// That file keeps its owner and its mode.
Done mirror_attributes(const Mirror& in) {
  auto place = find_place(in.root, in.change.path, Missing::kFails);
  if (!place && is_absent(place.error())) return {};
  if (!place) return problem(place.error());
  const Descriptor file(
      ::openat(place->folder.get(), place->name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  if (!file) return storage_problem("opening", place->path, errno);
  struct stat there {};
  if (::fstat(file.get(), &there) != 0) return storage_problem("opening", place->path, errno);
  if (S_ISCHR(there.st_mode) || S_ISBLK(there.st_mode)) return {};
  if (!in.directory.may_belong(in.root, there, in.change.uid) &&
      !in.directory.may_belong(in.root, there, in.change.uid_before)) {
    log::warning(
        "{} in the drain directory belongs to uid {}, and in the pool to uid {}. The file was "
        "replaced after the drain, so it keeps its owner and mode",
        place->path, there.st_uid, in.change.uid);
    return {};
  }
  if (!S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
    return set_attributes_of_special(*place, file.get(), in.change);
  }
  return set_attributes(file.get(), wanted_of(in.change), place->path, Acl::kKept);
}

/// Returns true when the folder may get the owner that the pool says. A folder of the draining user
/// may have been moved there from elsewhere. So its owner changes only while the folder is empty,
/// or where no other user could move folders.
bool may_set_owner(const Mirror& in, const Place& place, const DrainFolder& folder,
                   const struct stat& there) {
  if (in.directory.may_belong(in.root, there, in.change.uid)) return true;
  const auto makers = maker_owners(in.directory, in.root);
  if (std::ranges::find(makers, there.st_uid) == makers.end()) return false;
  const auto above = place.folder.own_status();
  if (above && is_closed_to_others(*above, makers)) return true;
  const auto names = folder.names();
  return names && names->empty();
}

Done mirror_make_directory(const Mirror& in) {
  auto place = find_place(in.root, in.change.path, Missing::kIsMade);
  if (!place) return problem(place.error());
  const WritableFolder writable(place->folder);
  const bool made = ::mkdirat(place->folder.get(), place->name.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return storage_problem("making the folder", place->path, errno);
  const Descriptor way(::openat(place->folder.get(), place->name.c_str(),
                                O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!way) return storage_problem("making the folder", place->path, errno);
  struct stat there {};
  if (::fstat(way.get(), &there) != 0) return storage_problem("looking at", place->path, errno);
  const DrainFolder folder(
      Descriptor(::openat(way.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!may_set_owner(in, *place, folder, there)) {
    log::warning(
        "the folder {} in the drain directory belongs to uid {}, and in the pool to uid "
        "{}: it keeps its owner and mode",
        place->path, there.st_uid, in.change.uid);
    return {};
  }
  const Acl acl = made ? Acl::kNone : Acl::kKept;
  if (auto set = set_attributes(way.get(), wanted_of(in.change), place->path, acl); !set) {
    return set;
  }
  return sync_folder(place->folder, place->path);
}

bool is_link_to(const Place& place, const std::string& target) {
  char there[limits::kSymlinkBytesMax + 1];
  const ssize_t length = ::readlinkat(place.folder.get(), place.name.c_str(), there, sizeof(there));
  return length >= 0 && std::string_view(there, static_cast<std::size_t>(length)) == target;
}

Done mirror_symlink(const Mirror& in) {
  const msg::MirrorChange& change = in.change;
  const std::string& target = change.other_path;
  if (target.empty() || target.size() > limits::kSymlinkBytesMax ||
      target.find('\0') != std::string::npos) {
    return problem(Code::kInvalidArgument, "benefactor.symlink", EINVAL,
                   "The target of a symbolic link is not valid.");
  }
  auto place = find_place(in.root, change.path, Missing::kIsMade);
  if (!place) return problem(place.error());
  if (is_link_to(*place, target)) return {};
  // Makes the link under a temporary name first, so that the final name always exists.
  auto made = in.temporary();
  if (!made) return problem(made.error());
  made->name += ".link";
  ::unlinkat(made->folder.get(), made->name.c_str(), 0);
  if (::symlinkat(target.c_str(), made->folder.get(), made->name.c_str()) != 0) {
    return storage_problem("making the link", place->path, errno);
  }
  return name_special(*made, *place, change);
}

/// Two names of one file in the drain directory. The new name never is without a file.
Done mirror_link(const Mirror& in) {
  auto from = find_place(in.root, in.change.path, Missing::kFails);
  if (!from && is_absent(from.error())) return {};
  if (!from) return problem(from.error());
  const auto file = from->folder.status(from->name);
  if (!file) return {};  // was removed since, or gets its name by a later change
  if (!in.directory.may_belong(in.root, *file, in.change.uid)) {
    log::warning(
        "{} in the drain directory gets no other name: it belongs to uid {}, in the pool to {}, "
        "and is not the drained file",
        from->path, file->st_uid, in.change.uid);
    return {};
  }
  auto to = find_place(in.root, in.change.other_path, Missing::kIsMade);
  if (!to) return problem(to.error());
  if (const auto there = to->folder.status(to->name);
      there && there->st_dev == file->st_dev && there->st_ino == file->st_ino) {
    return {};
  }
  auto made = in.temporary();
  if (!made) return problem(made.error());
  made->name += ".name";
  ::unlinkat(made->folder.get(), made->name.c_str(), 0);
  if (::linkat(from->folder.get(), from->name.c_str(), made->folder.get(), made->name.c_str(), 0) !=
      0) {
    return storage_problem("making another name of", from->path, errno);
  }
  return rename_place(*made, *to);
}

/// A device is never made: see State.
Done mirror_special(const Mirror& in) {
  const msg::MirrorChange& change = in.change;
  const auto type = static_cast<mode_t>(change.mode) & S_IFMT;
  if (type != S_IFIFO && type != S_IFSOCK) {
    return problem(Code::kInvalidArgument, "benefactor.special", EINVAL,
                   "Only FIFOs and sockets are made in the drain directory.");
  }
  auto place = find_place(in.root, change.path, Missing::kIsMade);
  if (!place) return problem(place.error());
  if (const auto there = place->folder.status(place->name);
      there && (there->st_mode & S_IFMT) == type) {
    return {};
  }
  auto made = in.temporary();
  if (!made) return problem(made.error());
  made->name += ".special";
  ::unlinkat(made->folder.get(), made->name.c_str(), 0);
  if (::mknodat(made->folder.get(), made->name.c_str(), type | 0600, 0) != 0) {
    return storage_problem("making the special file", place->path, errno);
  }
  return name_special(*made, *place, change);
}

Done drop_old_temporaries(const Mirror& in) {
  auto place = in.temporary();
  if (!place) return problem(place.error());
  const auto names = place->folder.names();
  if (!names) return storage_problem("listing", place->path, names.error().error.os_errno);
  for (const std::string& name : *names) {
    if (is_old_temporary(name, in.change.number)) ::unlinkat(place->folder.get(), name.c_str(), 0);
  }
  return {};
}

Done drop_temporary(const Mirror& in) {
  if (!in.change.file) return drop_old_temporaries(in);
  auto place = in.temporary();
  if (!place) return problem(place.error());
  if (::unlinkat(place->folder.get(), place->name.c_str(), 0) != 0 && errno != ENOENT) {
    return storage_problem("removing", place->path, errno);
  }
  return {};
}

Done carry_out(const Mirror& in) {
  switch (in.change.kind) {
    case msg::MirrorKind::kRename:
      return mirror_rename(in);
    case msg::MirrorKind::kUnlink:
      return mirror_remove(in, 0);
    case msg::MirrorKind::kMakeDirectory:
      return mirror_make_directory(in);
    case msg::MirrorKind::kRemoveDirectory:
      return mirror_remove(in, AT_REMOVEDIR);
    case msg::MirrorKind::kSymlink:
      return mirror_symlink(in);
    case msg::MirrorKind::kAttributes:
      return mirror_attributes(in);
    case msg::MirrorKind::kDropTemporary:
      return drop_temporary(in);
    case msg::MirrorKind::kSetAside:
      return set_aside(in);
    case msg::MirrorKind::kLink:
      return mirror_link(in);
    case msg::MirrorKind::kSpecial:
      return mirror_special(in);
  }
  return problem(Code::kInvalidArgument, "benefactor.mirror", EINVAL, "An unknown change.");
}

}  // namespace

Outcome<msg::MirrorChange::Reply> FileDrainer::mirror(const msg::MirrorChange& request,
                                                      Time deadline) {
  auto root = open_root(directory_);
  if (!root) return problem(root.error());
  if (auto going = give_up_check(deadline); !going) return problem(going.error());
  if (auto done = carry_out({directory_, *root, request}); !done) return problem(done.error());
  return msg::MirrorChange::Reply{};
}

}  // namespace stdchk::benefactor
