#pragma once

#include <cstdint>
#include <map>

#include "core/values/types.h"
#include "manager/pool/pool.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A HeldNames keeps markers and pointers of sets out of the drain directory until the directory has
/// their sets. Renames and links of a program do not change that. docs/decisions/0068 has the
/// states.
///
/// A held regular file is an undrained file, so its drain gives it its name. A held symbolic link
/// gets its name here.
///
/// Threads: the reactor's.
class HeldNames {
 public:
  HeldNames(Pool& pool, SetKeeper& sets) : pool_(pool), sets_(sets) {}

  /// Queues the names of the symbolic links that wait for no other file any more.
  void run();
  /// Returns how many symbolic links at and below `below` get their names with the next run().
  std::uint64_t pending(FileId below) const;
  /// Returns true while a queued change of names concerns the set of this marker or pointer.
  bool waits_for_changes(const File& file) const;
  /// Returns the number under which the drain directory has the whole newest version. 0: the
  /// version has no such number, or was not found there.
  std::uint64_t staged_number(const File& file) const;
  /// The drain directory has no file under that number, or cannot name it.
  void staged_file_failed(FileId file, std::uint64_t number) { failed_[file] = number; }

 private:
  bool is_due(FileId link) const;

  Pool& pool_;
  SetKeeper& sets_;
  std::map<FileId, std::uint64_t> failed_;
};

}  // namespace stdchk::manager
