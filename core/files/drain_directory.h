#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/base/mutex.h"
#include "core/files/drain_folder.h"

namespace stdchk {

/// A FileMaker is the user who owns new files in a drain directory. NFS gives root's files to the
/// user "nobody", and other file systems have one owner for all files.
struct FileMaker {
  std::uint32_t uid = 0;
  bool gives_files = false;  ///< may change the owner of files, and the file system keeps that
};

/// A DrainDirectory is the drain directory by the path that the user gave.
///
/// open() gives the directory that is there now, so a file system may be unmounted between two
/// calls, and mounted again. Symbolic links above the directory are followed when root or this
/// process's user has made them. Links of other users are followed too, as long as they lead where
/// they led at the first open().
///
/// Threads: any. Errors: a Problem, with ELOOP for a link that leads elsewhere than before.
class DrainDirectory {
 public:
  explicit DrainDirectory(std::string path, DrainFolder::Walk walk = DrainFolder::Walk::kByKernel)
      : path_(std::move(path)), walk_(walk) {}

  const std::string& path() const { return path_; }
  Outcome<DrainFolder> open() const;

  /// Whether a file may be a drained file of the pool's user `uid`. Such a file belongs to that
  /// user, or to the benefactors' user where they cannot give files away. `root` is from open().
  bool may_belong(const DrainFolder& root, const struct stat& file, std::uint32_t uid) const;
  /// Opens a drained file of the pool's user `uid` for reading. Refuses, with EPERM, a file that may
  /// not belong to that user: whoever owns the folder may have put it there.
  Outcome<OpenedFile> open_drained(const DrainFolder& root, const std::string& path,
                                   std::uint32_t uid) const;
  /// Tried once, with a file in the temporary folder; empty when no file can be made there.
  std::optional<FileMaker> file_maker(const DrainFolder& root) const;

 private:
  Outcome<void> follow(int folder, const std::string& link, const std::string& walked,
                       std::string& rest) const;

  const std::string path_;
  const DrainFolder::Walk walk_;
  mutable Mutex mutex_;
  /// Links of other users, and their targets.
  mutable std::map<std::string, std::string> links_ STDCHK_GUARDED_BY(mutex_);
  mutable bool opened_ STDCHK_GUARDED_BY(mutex_) = false;
  mutable std::optional<FileMaker> maker_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk
