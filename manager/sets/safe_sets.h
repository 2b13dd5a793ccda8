#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/values/types.h"
#include "manager/sets/image_set.h"

namespace stdchk::manager {

/// A SafeSet is a complete set of which the drain directory has all files, verified.
struct SafeSet {
  std::string name;
  std::int64_t newest_ns = 0;  ///< time of the newest commit in the set, since 1970
};

/// A SafeSets remembers the newest SafeSet of each folder. A program that starts again can begin at
/// this set, even when the whole pool is lost.
///
/// The pool may remove the set later, because a newer set is complete: the drain directory keeps
/// it, so it stays remembered.
///
/// Threads: the reactor's.
/// Not: sets that only an earlier manager has seen in the pool.
class SafeSets {
 public:
  /// `sets` are all sets of the folder now; `drained` are the safe ones among them, newest first.
  void note(FileId folder, const std::vector<ImageSet>& sets,
            const std::vector<const ImageSet*>& drained);
  void forget(FileId folder) { by_folder_.erase(folder); }
  /// Returns the newest of all folders; nothing when no set is safe.
  std::optional<SafeSet> newest() const;

 private:
  std::map<FileId, SafeSet> by_folder_;
};

}  // namespace stdchk::manager
