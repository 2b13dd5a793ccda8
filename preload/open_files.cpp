// The prefix, the connection, and the descriptors of the pool.
#include "preload/open_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "preload/places.h"
#include "preload/real.h"

namespace stdchk::preload {
namespace {

/// Descriptors from this number on are looked up under the lock.
constexpr int kMarkedMax = 1 << 16;
std::array<std::atomic<bool>, kMarkedMax> is_marked{};

void mark(int fd, bool ours) {
  if (fd >= 0 && fd < kMarkedMax) is_marked[static_cast<std::size_t>(fd)].store(ours);
}

/// The prefix without a slash at its end; empty: the library does nothing.
const std::string& prefix() {
  static const std::string text = [] {
    const char* value = std::getenv("STDCHK_PREFIX");
    std::string given = value == nullptr ? "" : value;
    while (given.size() > 1 && given.back() == '/') given.pop_back();
    return given.starts_with('/') && given.size() > 1 ? given : std::string();
  }();
  return text;
}

/// A Connection is a process's link to the pool. A forked child must not use its parent's link.
struct Connection {
  Mutex mutex;
  pid_t process STDCHK_GUARDED_BY(mutex) = 0;
  stdchk_pool* pool STDCHK_GUARDED_BY(mutex) = nullptr;
};
Connection& connection() {
  static auto* const one = new Connection;  // used at exit, when statics may be destroyed
  return *one;
}

/// Says at the end of the process that a file could not be committed; no call is left to tell.
void complain(const OpenFile& file) {
  std::fprintf(stderr, "stdchk: %s/%s was not saved: %s\n", prefix().c_str(), file.path.c_str(),
               stdchk_error());
}

/// exit(3) closes open files of the pool, as the kernel closes other files.
[[gnu::destructor]] void commit_what_is_open() {
  bool failed = false;
  for (const OpenFilePtr& file : OpenFiles::all().take_all()) {
    if (file->process != ::getpid() || end(*file) == 0) continue;
    complain(*file);
    failed = true;
  }
  if (failed) ::_exit(EXIT_FAILURE);
}

}  // namespace

std::optional<std::string> place_of(const char* path) {
  const std::string& start = prefix();
  if (path == nullptr || start.empty() || std::strncmp(path, start.c_str(), start.size()) != 0) {
    return std::nullopt;
  }
  const char* rest = path + start.size();
  if (*rest != '\0' && *rest != '/') return std::nullopt;
  while (*rest == '/') ++rest;
  return rest;
}

std::optional<std::string> place_of(int folder, const char* path) {
  if (path == nullptr || path[0] == '/' || folder == AT_FDCWD) return place_of(path);
  const OpenFilePtr found = OpenFiles::all().find(folder);
  if (found == nullptr || !found->is_folder()) return std::nullopt;
  if (path[0] == '\0') return found->path;
  return found->path.empty() ? path : found->path + "/" + path;
}

stdchk_pool* pool() {
  Connection& one = connection();
  const MutexLock lock(one.mutex);
  if (one.process == ::getpid()) return one.pool;
  stdchk_pool* made = stdchk_connect(nullptr);
  if (made == nullptr) {
    const int error = errno;
    std::fprintf(stderr, "stdchk: %s\n", stdchk_error());
    errno = error;
    return nullptr;
  }
  one.process = ::getpid();
  return one.pool = made;
}

bool OpenFile::usable() const {
  if (process == ::getpid()) return true;
  errno = EIO;
  return false;
}

OpenFiles& OpenFiles::all() {
  static auto* const one = new OpenFiles;  // used at exit, when statics may be destroyed
  return *one;
}

int OpenFiles::add(OpenFilePtr file) {
  const unsigned flags = (file->flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0;
  const int fd = ::memfd_create("stdchk", flags);
  if (fd >= 0) set(fd, std::move(file));
  return fd;
}

void OpenFiles::set(int fd, OpenFilePtr file) {
  const WriterLock lock(mutex_);
  files_[fd] = std::move(file);
  mark(fd, true);
}

OpenFilePtr OpenFiles::find(int fd) const {
  if (fd < 0 || (fd < kMarkedMax && !is_marked[static_cast<std::size_t>(fd)].load()))
    return nullptr;
  const ReaderLock lock(mutex_);
  const auto found = files_.find(fd);
  return found == files_.end() ? nullptr : found->second;
}

OpenFilePtr OpenFiles::remove(int fd) {
  const WriterLock lock(mutex_);
  const auto found = files_.find(fd);
  if (found == files_.end()) return nullptr;
  OpenFilePtr file = std::move(found->second);
  files_.erase(found);
  mark(fd, false);
  for (const auto& [other, same] : files_) {
    if (same == file) return nullptr;
  }
  return file;
}

std::vector<OpenFilePtr> OpenFiles::take_all() {
  const WriterLock lock(mutex_);
  std::vector<OpenFilePtr> found;
  for (auto& [fd, file] : files_) {
    mark(fd, false);
    bool again = false;
    for (const OpenFilePtr& each : found) again = again || each == file;
    if (!again) found.push_back(file);
  }
  files_.clear();
  return found;
}

int end(OpenFile& file) {
  if (file.is_folder() || !file.usable()) return file.is_folder() ? 0 : -1;
  stdchk_file* ended = file.file;
  file.file = nullptr;
  const int closed = stdchk_close(ended);
  if (closed != 0 || !file.preserves_times) return closed;
  return stdchk_utimens(pool(), file.path.c_str(), file.atime_ns, file.mtime_ns);
}

}  // namespace stdchk::preload
