#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "core/values/types.h"
#include "manager/state/file.h"

namespace stdchk::manager {

/// A CommitLists orders the files that have a name and a content by their newest commits.
///
/// A file's newest version must be removed before it changes, and added again afterwards.
/// Threads: one.
class CommitLists {
 public:
  using List = std::set<std::pair<std::uint64_t, FileId>>;

  /// Files that have no name, no content or another type are left out.
  void add(const File& file);
  void remove(const File& file);

  const List& undrained() const { return undrained_; }
  /// Drained files of which memory still has chunks.
  const List& evictable() const { return evictable_; }
  /// The size of all these files.
  std::uint64_t logical_bytes() const { return logical_bytes_; }
  /// Among undrained(), files with bytes for which one copy is wanted, and those
  /// for which more is wanted.
  std::uint64_t undrained_single() const { return undrained_single_; }
  std::uint64_t undrained_redundant() const { return undrained_redundant_; }

 private:
  std::uint64_t& undrained_like(const VersionData& version) {
    return version.copies == 1 ? undrained_single_ : undrained_redundant_;
  }

  List undrained_;
  List evictable_;
  std::uint64_t logical_bytes_ = 0;
  std::uint64_t undrained_single_ = 0;
  std::uint64_t undrained_redundant_ = 0;
};

}  // namespace stdchk::manager
