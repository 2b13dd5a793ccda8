#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/messages/messages.h"
#include "manager/state/file.h"

namespace stdchk::manager {

/// A MirrorQueue is the list of changes of names that the drain directory still has to get, in the
/// order of their numbers. It also knows files whose new names wait for other files.
///
/// Threads: one.
class MirrorQueue {
 public:
  using Changes = std::map<std::uint64_t, msg::MirrorChange>;

  const Changes& changes() const { return changes_; }
  /// The number of the newest change, which may have left the queue.
  std::uint64_t newest() const { return newest_; }

  /// Files with a name that waits until the drain directory has other files. A regular file gets its
  /// further names there with its next drain, a symbolic link gets all names by NameHeld.
  const std::set<FileId>& held() const { return held_; }
  void hold(FileId file) { held_.insert(file); }
  void unhold(FileId file) { held_.erase(file); }

  /// Adds a change of `file`. Its number is its position in the queue.
  msg::MirrorChange& add(msg::MirrorKind kind, const File& file, std::string path,
                         std::string other = {});
  /// Removes a change that the drain directory has.
  void erase(std::uint64_t number) { changes_.erase(number); }
  /// Puts a change of a snapshot back.
  void restore(std::uint64_t number, const msg::MirrorChange& change) { changes_[number] = change; }
  void restore_newest(std::uint64_t number);

 private:
  Changes changes_;
  std::set<FileId> held_;
  std::uint64_t newest_ = 0;
};

}  // namespace stdchk::manager
