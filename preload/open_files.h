#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/api/stdchk.h"
#include "core/base/mutex.h"

namespace stdchk::preload {

/// An OpenFile is an open file or folder of the pool. Descriptors made by dup(2) share it, with its
/// position.
///
/// Owns: the stdchk_file, until end().
/// Threads: any.
struct OpenFile {
  std::string path;             ///< below the root of the pool
  int flags = 0;                ///< of open(2)
  stdchk_file* file = nullptr;  ///< nullptr: a folder
  pid_t process = 0;            ///< the process that opened it; only it may use `file`
  Mutex mutex;
  std::uint64_t position STDCHK_GUARDED_BY(mutex) = 0;
  /// futimens(3) came after the last write: end() sets the times again, because a commit changes
  /// them.
  std::atomic<bool> preserves_times{false};
  std::int64_t atime_ns = 0;
  std::int64_t mtime_ns = 0;

  bool is_folder() const { return file == nullptr; }
  /// False, with errno EIO, in a forked child: the connection stayed with the parent.
  bool usable() const;
};
using OpenFilePtr = std::shared_ptr<OpenFile>;

/// The OpenFiles are the descriptors of this process that mean files of the pool.
///
/// Threads: any. A look-up of another descriptor takes no lock.
class OpenFiles {
 public:
  static OpenFiles& all();

  /// Takes a descriptor for `file`. Returns -1, with errno set, when the process has none left.
  int add(OpenFilePtr file);
  /// Makes `fd`, a descriptor of the kernel, mean `file`.
  void set(int fd, OpenFilePtr file);
  /// Returns nullptr when the descriptor is none of the pool's.
  OpenFilePtr find(int fd) const;
  /// Forgets the descriptor. Returns the file when no other descriptor means the same file.
  OpenFilePtr remove(int fd);
  /// Returns each open file once, and forgets all descriptors.
  std::vector<OpenFilePtr> take_all();

 private:
  mutable SharedMutex mutex_;
  std::unordered_map<int, OpenFilePtr> files_ STDCHK_GUARDED_BY(mutex_);
};

/// Commits and ends a file. Returns 0, or -1 with errno set.
int end(OpenFile& file);

}  // namespace stdchk::preload
