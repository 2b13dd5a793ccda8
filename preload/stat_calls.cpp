// Calls that describe files.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "core/base/file_time.h"
#include "preload/open_files.h"
#include "preload/places.h"
#include "preload/real.h"

using namespace stdchk::preload;

namespace {

constexpr blksize_t kBlockBytes = 1 << 20;  // what programs read and write at once
constexpr unsigned kDevice = 0x57d;         // no device of the kernel: the inodes are the pool's

void show(const stdchk_attributes& from, struct stat& to) {
  to = {};
  to.st_dev = kDevice;
  to.st_ino = from.id;
  to.st_mode = from.mode;
  to.st_nlink = from.links;
  to.st_uid = from.uid;
  to.st_gid = from.gid;
  to.st_size = static_cast<off_t>(from.size_bytes);
  to.st_blksize = kBlockBytes;
  to.st_blocks = static_cast<blkcnt_t>((from.size_bytes + 511) / 512);
  to.st_atim = stdchk::to_timespec(from.atime_ns);
  to.st_mtim = stdchk::to_timespec(from.mtime_ns);
  to.st_ctim = stdchk::to_timespec(from.ctime_ns);
}

void show(const stdchk_attributes& from, struct statx& to) {
  const auto time = [](std::int64_t ns) {
    const timespec parts = stdchk::to_timespec(ns);
    return statx_timestamp{parts.tv_sec, static_cast<__u32>(parts.tv_nsec), {}};
  };
  to = {};
  to.stx_mask = STATX_BASIC_STATS;
  to.stx_blksize = static_cast<__u32>(kBlockBytes);
  to.stx_nlink = from.links;
  to.stx_uid = from.uid;
  to.stx_gid = from.gid;
  to.stx_mode = static_cast<__u16>(from.mode);
  to.stx_ino = from.id;
  to.stx_size = from.size_bytes;
  to.stx_blocks = (from.size_bytes + 511) / 512;
  to.stx_atime = time(from.atime_ns);
  to.stx_mtime = time(from.mtime_ns);
  to.stx_ctime = time(from.ctime_ns);
  to.stx_dev_major = major(kDevice);
  to.stx_dev_minor = minor(kDevice);
}

template <class Out>
int describe(const std::string& path, bool follows, Out* out) {
  stdchk_pool* connected = pool();
  if (connected == nullptr) return -1;
  stdchk_attributes found{};
  const int result = follows ? stdchk_stat(connected, path.c_str(), &found)
                             : stdchk_lstat(connected, path.c_str(), &found);
  if (result == 0) show(found, *out);
  return result;
}

template <class Out>
int describe(OpenFile& file, Out* out) {
  if (file.is_folder()) return describe(file.path, true, out);
  if (!file.usable()) return -1;
  stdchk_attributes found{};
  const int result = stdchk_fstat(file.file, &found);
  if (result == 0) show(found, *out);
  return result;
}

/// Answers a call with a folder's descriptor, a path and flags, if it is about the pool.
template <class Out>
std::optional<int> describe_at(int folder, const char* path, int flags, Out* out) {
  if (path != nullptr && path[0] == '\0' && (flags & AT_EMPTY_PATH) != 0) {
    const OpenFilePtr file = OpenFiles::all().find(folder);
    return file == nullptr ? std::nullopt : std::optional(describe(*file, out));
  }
  const auto place = place_of(folder, path);
  if (!place) return std::nullopt;
  return describe(*place, (flags & AT_SYMLINK_NOFOLLOW) == 0, out);
}

std::optional<int> access_at(int folder, const char* path, int mode) {
  struct stat found {};
  const auto answer = describe_at(folder, path, 0, &found);
  if (!answer || *answer != 0) return answer;
  const mode_t bits = found.st_mode;
  // The pool leaves permissions to mounts, so only check that some user has the bits.
  const bool executable = S_ISDIR(bits) || (bits & 0111) != 0;
  if ((mode & X_OK) == 0 || executable) return 0;
  errno = EACCES;
  return -1;
}

}  // namespace

extern "C" {

int stat(const char* path, struct stat* out) noexcept {
  const auto answer = describe_at(AT_FDCWD, path, 0, out);
  return answer ? *answer : STDCHK_REAL(stat)(path, out);
}
int lstat(const char* path, struct stat* out) noexcept {
  const auto answer = describe_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, out);
  return answer ? *answer : STDCHK_REAL(lstat)(path, out);
}
int fstat(int fd, struct stat* out) noexcept {
  const OpenFilePtr file = OpenFiles::all().find(fd);
  return file ? describe(*file, out) : STDCHK_REAL(fstat)(fd, out);
}
int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  const auto answer = describe_at(folder, path, flags, out);
  return answer ? *answer : STDCHK_REAL(fstatat)(folder, path, out, flags);
}
// On 64-bit machines struct stat64 is struct stat.
int stat64(const char* path, struct stat64* out) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(out));
}
int lstat64(const char* path, struct stat64* out) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}
int fstat64(int fd, struct stat64* out) noexcept {
  return fstat(fd, reinterpret_cast<struct stat*>(out));
}
int fstatat64(int folder, const char* path, struct stat64* out, int flags) noexcept {
  return fstatat(folder, path, reinterpret_cast<struct stat*>(out), flags);
}

int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
  const auto answer = describe_at(folder, path, flags, out);
  return answer ? *answer : STDCHK_REAL(statx)(folder, path, flags, mask, out);
}

int access(const char* path, int mode) noexcept {
  const auto answer = access_at(AT_FDCWD, path, mode);
  return answer ? *answer : STDCHK_REAL(access)(path, mode);
}
int euidaccess(const char* path, int mode) noexcept {
  const auto answer = access_at(AT_FDCWD, path, mode);
  return answer ? *answer : STDCHK_REAL(euidaccess)(path, mode);
}
int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  const auto answer = access_at(folder, path, mode);
  return answer ? *answer : STDCHK_REAL(faccessat)(folder, path, mode, flags);
}

int statvfs(const char* path, struct statvfs* out) noexcept {
  if (!place_of(path)) return STDCHK_REAL(statvfs)(path, out);
  stdchk_pool* connected = pool();
  stdchk_space space{};
  if (connected == nullptr || stdchk_statfs(connected, &space) != 0) return -1;
  *out = {};
  out->f_bsize = out->f_frsize = static_cast<unsigned long>(kBlockBytes);
  out->f_blocks = space.total_bytes / static_cast<std::uint64_t>(kBlockBytes);
  out->f_bfree = out->f_bavail =
      (space.free_bytes + space.evictable_bytes) / static_cast<std::uint64_t>(kBlockBytes);
  out->f_namemax = 255;
  return 0;
}
int statvfs64(const char* path, struct statvfs64* out) noexcept {
  return statvfs(path, reinterpret_cast<struct statvfs*>(out));
}

}  // extern "C"
