// Calls that change names and attributes.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "core/base/file_time.h"
#include "preload/open_files.h"
#include "preload/places.h"
#include "preload/real.h"

using namespace stdchk::preload;

namespace {

int refuse(int error) {
  errno = error;
  return -1;
}

/// Calls `change(pool, path)` when the path is the pool's; otherwise returns nothing.
template <class Change>
auto at(int folder, const char* path, const Change& change)
    -> std::optional<decltype(change(static_cast<stdchk_pool*>(nullptr),
                                     static_cast<const char*>(nullptr)))> {
  const auto place = place_of(folder, path);
  if (!place) return std::nullopt;
  stdchk_pool* connected = pool();
  if (connected == nullptr) return -1;
  return change(connected, place->c_str());
}

/// Calls `change(pool, path)` with an open file's path; returns nothing when `fd` is not the
/// pool's.
template <class Change>
std::optional<int> of(int fd, const Change& change) {
  const OpenFilePtr file = OpenFiles::all().find(fd);
  if (file == nullptr) return std::nullopt;
  stdchk_pool* connected = pool();
  return connected == nullptr ? -1 : change(connected, file->path.c_str());
}

std::int64_t ns_of(const timespec& time) {
  if (time.tv_nsec == UTIME_OMIT) return std::numeric_limits<std::int64_t>::min();
  timespec now = time;
  if (time.tv_nsec == UTIME_NOW) ::clock_gettime(CLOCK_REALTIME, &now);
  return stdchk::to_ns(now);
}

/// Both times in nanoseconds since 1970; INT64_MIN: stays as it is.
struct Times {
  explicit Times(const timespec* given) {
    const timespec now{0, UTIME_NOW};
    atime_ns = ns_of(given == nullptr ? now : given[0]);
    mtime_ns = ns_of(given == nullptr ? now : given[1]);
  }
  std::int64_t atime_ns;
  std::int64_t mtime_ns;
};

std::optional<int> set_times(int fd, const Times& times) {
  const OpenFilePtr file = OpenFiles::all().find(fd);
  if (file == nullptr) return std::nullopt;
  stdchk_pool* connected = pool();
  if (connected == nullptr) return -1;
  const int set = stdchk_utimens(connected, file->path.c_str(), times.atime_ns, times.mtime_ns);
  if (set != 0 || file->is_folder() || (file->flags & O_ACCMODE) == O_RDONLY) return set;
  file->atime_ns = times.atime_ns;
  file->mtime_ns = times.mtime_ns;
  file->preserves_times = true;
  return 0;
}

std::optional<int> set_times(int folder, const char* path, const Times& times, int flags) {
  return at(folder, path, [&](stdchk_pool* connected, const char* place) {
    return (flags & AT_SYMLINK_NOFOLLOW) != 0
               ? stdchk_lutimens(connected, place, times.atime_ns, times.mtime_ns)
               : stdchk_utimens(connected, place, times.atime_ns, times.mtime_ns);
  });
}

std::optional<int> rename_at(int from_folder, const char* from, int to_folder, const char* to,
                             unsigned flags) {
  const auto source = place_of(from_folder, from);
  const auto target = place_of(to_folder, to);
  if (!source && !target) return std::nullopt;
  if (!source || !target) return refuse(EXDEV);
  stdchk_pool* connected = pool();
  if (connected == nullptr) return -1;
  return stdchk_rename(connected, source->c_str(), target->c_str(), flags);
}

bool is_ours(int fd) { return OpenFiles::all().find(fd) != nullptr; }

}  // namespace

extern "C" {

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const auto answer = at(folder, path, [&](stdchk_pool* connected, const char* place) {
    return stdchk_mkdir(connected, place, mode & ~mask);
  });
  return answer ? *answer : STDCHK_REAL(mkdirat)(folder, path, mode);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return place_of(path) ? mkdirat(AT_FDCWD, path, mode) : STDCHK_REAL(mkdir)(path, mode);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  const auto answer = at(folder, path, [&](stdchk_pool* connected, const char* place) {
    return (flags & AT_REMOVEDIR) != 0 ? stdchk_rmdir(connected, place)
                                       : stdchk_unlink(connected, place);
  });
  return answer ? *answer : STDCHK_REAL(unlinkat)(folder, path, flags);
}
int unlink(const char* path) noexcept {
  return place_of(path) ? unlinkat(AT_FDCWD, path, 0) : STDCHK_REAL(unlink)(path);
}
int rmdir(const char* path) noexcept {
  return place_of(path) ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : STDCHK_REAL(rmdir)(path);
}
int remove(const char* path) noexcept {
  if (!place_of(path)) return STDCHK_REAL(remove)(path);
  const int removed = unlink(path);
  return removed != 0 && errno == EISDIR ? rmdir(path) : removed;
}

int rename(const char* from, const char* to) noexcept {
  const auto answer = rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
  return answer ? *answer : STDCHK_REAL(rename)(from, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  const auto answer = rename_at(from_folder, from, to_folder, to, 0);
  return answer ? *answer : STDCHK_REAL(renameat)(from_folder, from, to_folder, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  const auto answer = rename_at(from_folder, from, to_folder, to, flags);
  return answer ? *answer : STDCHK_REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

int symlinkat(const char* target, int folder, const char* path) noexcept {
  const auto answer = at(folder, path, [&](stdchk_pool* connected, const char* place) {
    return stdchk_symlink(connected, target, place);
  });
  return answer ? *answer : STDCHK_REAL(symlinkat)(target, folder, path);
}
int symlink(const char* target, const char* path) noexcept {
  return place_of(path) ? symlinkat(target, AT_FDCWD, path) : STDCHK_REAL(symlink)(target, path);
}

ssize_t readlinkat(int folder, const char* path, char* target, size_t size) noexcept {
  const auto answer = at(folder, path, [&](stdchk_pool* connected, const char* place) {
    return stdchk_readlink(connected, place, target, size);
  });
  return answer ? *answer : STDCHK_REAL(readlinkat)(folder, path, target, size);
}
ssize_t readlink(const char* path, char* target, size_t size) noexcept {
  return place_of(path) ? readlinkat(AT_FDCWD, path, target, size)
                        : STDCHK_REAL(readlink)(path, target, size);
}
// NOLINTBEGIN(bugprone-reserved-identifier): the C library names these functions.
ssize_t __readlink_chk(const char* path, char* target, size_t size, size_t room) {
  return size <= room ? readlink(path, target, size) : (std::abort(), -1);
}
ssize_t __readlinkat_chk(int folder, const char* path, char* target, size_t size, size_t room) {
  return size <= room ? readlinkat(folder, path, target, size) : (std::abort(), -1);
}
// NOLINTEND(bugprone-reserved-identifier)

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  if (place_of(from_folder, from) || place_of(to_folder, to)) return refuse(EPERM);
  return STDCHK_REAL(linkat)(from_folder, from, to_folder, to, flags);
}
int link(const char* from, const char* to) noexcept {
  return place_of(from) || place_of(to) ? refuse(EPERM) : STDCHK_REAL(link)(from, to);
}

int chmod(const char* path, mode_t mode) noexcept {
  const auto answer = at(AT_FDCWD, path, [&](stdchk_pool* connected, const char* place) {
    return stdchk_chmod(connected, place, mode);
  });
  return answer ? *answer : STDCHK_REAL(chmod)(path, mode);
}
int fchmodat(int folder, const char* path, mode_t mode, int flags) noexcept {
  const auto answer = at(folder, path, [&](stdchk_pool* connected, const char* place) {
    stdchk_attributes found{};
    const bool stays = (flags & AT_SYMLINK_NOFOLLOW) != 0;
    if (stays && stdchk_lstat(connected, place, &found) != 0) return -1;
    if (S_ISLNK(found.mode)) return refuse(EOPNOTSUPP);  // as Linux
    return stdchk_chmod(connected, place, mode);
  });
  return answer ? *answer : STDCHK_REAL(fchmodat)(folder, path, mode, flags);
}
int fchmod(int fd, mode_t mode) noexcept {
  const auto answer = of(fd, [&](stdchk_pool* connected, const char* place) {
    return stdchk_chmod(connected, place, mode);
  });
  return answer ? *answer : STDCHK_REAL(fchmod)(fd, mode);
}
int chown(const char* path, uid_t uid, gid_t gid) noexcept {
  const auto answer = at(AT_FDCWD, path, [&](stdchk_pool* connected, const char* place) {
    return stdchk_chown(connected, place, uid, gid);
  });
  return answer ? *answer : STDCHK_REAL(chown)(path, uid, gid);
}
int fchownat(int folder, const char* path, uid_t uid, gid_t gid, int flags) noexcept {
  const auto answer = at(folder, path, [&](stdchk_pool* connected, const char* place) {
    return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? stdchk_lchown(connected, place, uid, gid)
                                              : stdchk_chown(connected, place, uid, gid);
  });
  return answer ? *answer : STDCHK_REAL(fchownat)(folder, path, uid, gid, flags);
}
int lchown(const char* path, uid_t uid, gid_t gid) noexcept {
  return place_of(path) ? fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW)
                        : STDCHK_REAL(lchown)(path, uid, gid);
}
int fchown(int fd, uid_t uid, gid_t gid) noexcept {
  const auto answer = of(fd, [&](stdchk_pool* connected, const char* place) {
    return stdchk_chown(connected, place, uid, gid);
  });
  return answer ? *answer : STDCHK_REAL(fchown)(fd, uid, gid);
}

int utimensat(int folder, const char* path, const timespec times[2], int flags) noexcept {
  const auto answer = path == nullptr ? set_times(folder, Times(times))
                                      : set_times(folder, path, Times(times), flags);
  return answer ? *answer : STDCHK_REAL(utimensat)(folder, path, times, flags);
}
int futimens(int fd, const timespec times[2]) noexcept {
  const auto answer = set_times(fd, Times(times));
  return answer ? *answer : STDCHK_REAL(futimens)(fd, times);
}
int utimes(const char* path, const timeval times[2]) noexcept {
  if (!place_of(path)) return STDCHK_REAL(utimes)(path, times);
  if (times == nullptr) return utimensat(AT_FDCWD, path, nullptr, 0);
  const timespec exact[2] = {{times[0].tv_sec, times[0].tv_usec * 1000},
                             {times[1].tv_sec, times[1].tv_usec * 1000}};
  return utimensat(AT_FDCWD, path, exact, 0);
}

int truncate(const char* path, off_t size) noexcept {
  const auto place = place_of(path);
  if (!place) return STDCHK_REAL(truncate)(path, size);
  stdchk_pool* connected = pool();
  if (connected == nullptr) return -1;
  if (size < 0) return refuse(EINVAL);
  stdchk_file* file = stdchk_open(connected, place->c_str(), O_WRONLY, 0);
  if (file == nullptr) return -1;
  if (stdchk_truncate(file, static_cast<std::uint64_t>(size)) == 0) return stdchk_close(file);
  const int error = errno;
  stdchk_abort(file);
  return refuse(error);
}
int truncate64(const char* path, off_t size) noexcept __attribute__((alias("truncate")));

int chdir(const char* path) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP) : STDCHK_REAL(chdir)(path);
}
int fchdir(int fd) noexcept {
  return OpenFiles::all().find(fd) ? refuse(EOPNOTSUPP) : STDCHK_REAL(fchdir)(fd);
}

// Extended attributes: programs that copy them go on without them.
ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP) : STDCHK_REAL(getxattr)(path, name, value, size);
}
ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP) : STDCHK_REAL(lgetxattr)(path, name, value, size);
}
ssize_t listxattr(const char* path, char* names, size_t size) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP) : STDCHK_REAL(listxattr)(path, names, size);
}
ssize_t llistxattr(const char* path, char* names, size_t size) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP) : STDCHK_REAL(llistxattr)(path, names, size);
}
int setxattr(const char* path, const char* name, const void* value, size_t size,
             int flags) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP)
                        : STDCHK_REAL(setxattr)(path, name, value, size, flags);
}
int lsetxattr(const char* path, const char* name, const void* value, size_t size,
              int flags) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP)
                        : STDCHK_REAL(lsetxattr)(path, name, value, size, flags);
}

ssize_t fgetxattr(int fd, const char* name, void* value, size_t size) noexcept {
  return is_ours(fd) ? refuse(EOPNOTSUPP) : STDCHK_REAL(fgetxattr)(fd, name, value, size);
}
ssize_t flistxattr(int fd, char* names, size_t size) noexcept {
  return is_ours(fd) ? refuse(EOPNOTSUPP) : STDCHK_REAL(flistxattr)(fd, names, size);
}
int fsetxattr(int fd, const char* name, const void* value, size_t size, int flags) noexcept {
  return is_ours(fd) ? refuse(EOPNOTSUPP) : STDCHK_REAL(fsetxattr)(fd, name, value, size, flags);
}
int fremovexattr(int fd, const char* name) noexcept {
  return is_ours(fd) ? refuse(EOPNOTSUPP) : STDCHK_REAL(fremovexattr)(fd, name);
}
int removexattr(const char* path, const char* name) noexcept {
  return place_of(path) ? refuse(EOPNOTSUPP) : STDCHK_REAL(removexattr)(path, name);
}

}  // extern "C"
