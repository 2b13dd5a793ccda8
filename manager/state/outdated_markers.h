#pragma once

#include <cstdint>
#include <string_view>

#include "manager/state/catalog.h"
#include "manager/state/hard_links.h"

namespace stdchk::manager {

/// A directory that is a set has this extended attribute while its marker is older than a change of
/// its files.
inline constexpr std::string_view kXattrOutdated = "user.stdchk.set.outdated";

/// An OutdatedMarkers has the steps for programs that write a set again in place (rule
/// set=directory). A marker vouches for the files that were there when it was committed. After a
/// change of such a file the marker is outdated, until it is written again. The drain directory
/// must not have an outdated marker beside changed files. docs/decisions/0082 has the states.
///
/// Owns: nothing; the catalog outlives it. Threads: one.
/// Not: a file that is added after the marker does not make the marker outdated. Symbolic links and
/// special files count neither as markers nor as members.
class OutdatedMarkers {
 public:
  explicit OutdatedMarkers(Catalog& catalog) : catalog_(catalog), links_(catalog) {}

  // ---- before a change in the pool ----
  /// A session is about to change the file's content. `opened`: the newest commit of the pool when
  /// the session was opened. A session opened before the marker belongs to the marker's set.
  void note_commit(const File& file, std::uint64_t opened);
  /// The file or directory is about to lose that name.
  void note_loss(const File& file, const File& folder, std::string_view name,
                 std::uint64_t opened = kAfterAllCommits);
  // ---- after a change in the pool ----
  /// The file has a new content. If it is a marker, it is up to date.
  void note_committed(const File& file);
  /// A file has got that name.
  void note_named(FileId folder, std::string_view name);
  /// A user says that the directory is whole.
  void forget(File& directory);

  // ---- before a change in the drain directory ----
  /// The file is about to get its names there. Queues the removal of the markers that do not vouch
  /// for it.
  void withdraw_for(const File& file);
  /// The file or directory is about to lose that name there, if it has it. As withdraw_for().
  void withdraw_for_loss(const File& file, const File& folder, std::string_view name);

 private:
  template <class Visit>
  void each_marker(const File& directory, const Visit& visit);
  bool has_sets() const { return catalog_.directory_set_folders > 0; }
  File* set_of(FileId folder);
  bool is_marker(const File& folder, std::string_view name) const;
  bool has_vouched_below(const File& directory, std::uint64_t marked) const;
  void withdraw(const File& changed, const File& folder, std::string_view name);
  void withdraw_marker(File& marker, const File& directory, std::string_view name,
                       bool is_outdated);

  Catalog& catalog_;
  HardLinks links_;
};

}  // namespace stdchk::manager
