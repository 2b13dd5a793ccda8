#pragma once

#include <deque>
#include <utility>

#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A ReplacedFiles keeps each file for kKept after another file has taken its name. Between the
/// look-up of a name and the open of its file, the name may get another file. The open then gets
/// the file of the look-up, as on a local file system, and does not fail.
///
/// Owns: one keep of State for each of its files.
/// Threads: the manager's.
/// Limits: kFilesMax files; beyond that, the oldest goes first. Soft state: a restarted manager has
///   none of them.
class ReplacedFiles {
 public:
  /// Longer than a mount may use a name that it has looked up (limits::kCacheLease).
  static constexpr Duration kKept = std::chrono::seconds(2);
  static constexpr std::size_t kFilesMax = 10000;

  explicit ReplacedFiles(Pool& pool) : pool_(pool) {}
  ReplacedFiles(const ReplacedFiles&) = delete;
  ReplacedFiles& operator=(const ReplacedFiles&) = delete;

  /// Keeps the file with this name. Call it before another file takes the name.
  void keep_file_at(FileId parent, const std::string& name);
  /// Lets go of the files whose time is over.
  void expire();
  /// Gives all files up, because their space is needed. Returns true when there were any.
  bool give_up();

 private:
  void release_oldest();

  Pool& pool_;
  std::deque<std::pair<Time, FileId>> files_;  ///< with the time when each one ends
};

}  // namespace stdchk::manager
