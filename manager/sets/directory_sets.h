#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/name_patterns.h"
#include "core/policy/policy.h"
#include "core/values/types.h"
#include "manager/clients/sessions.h"
#include "manager/sets/image_set.h"
#include "manager/state/state.h"

namespace stdchk::manager {

/// An extended attribute of a directory with this name says that the directory is a whole set
/// (`stdchk set commit`).
inline constexpr std::string_view kXattrCommitted = "user.stdchk.set.committed";

/// A DirectorySets finds the sets that are directories (rule set=directory). It decides whether a
/// set is whole, and which file the drain may take. docs/decisions/0056 has the states.
///
/// The order: all files of a set, then its marker, then the pointers beside it. A file is durable
/// before the next file gets its name.
///
/// Threads: the reactor's.
/// Limits: a directory is scanned once after each change in it.
class DirectorySets {
 public:
  using Skips = std::function<bool(const File& file)>;
  DirectorySets(const State& state, const SessionTable& sessions)
      : state_(state), sessions_(sessions) {}

  /// Notes that an entry of the folder has changed.
  void changed(FileId folder);
  /// Notes that policies may have changed.
  void forget() { scanned_.clear(); }
  /// Returns the sets of a folder with the rule set=directory, the oldest first. `wanted`: the
  /// policy's number of files in a whole set; 0: it has none.
  std::vector<ImageSet> sets_of(const File& folder, std::uint64_t wanted);
  /// Returns true while the drain must not give the file its name, because other files come first.
  /// `skips` tells which files the drain leaves out.
  bool holds(const File& file, const Skips& skips);
  /// Returns true when the drain directory must not have the file under that name yet: other files
  /// come before. The name is about to be made.
  bool would_hold(const File& file, const File& folder, std::string_view name, const Skips& skips);
  /// Returns true while a file below the directory is being written, or is not drained.
  bool is_unfinished(const File& directory) const;
  /// Returns the folder of the sets that a marker or pointer vouches for: of a marker its directory,
  /// of a pointer its folder. None for other files.
  FileId scope_of(const File& file) const;
  /// Returns true while a reader or a session uses a file in the directory.
  bool in_use(const File& directory) const;

  struct Name {
    FileId folder;
    std::string name;
    bool is_directory = false;
  };
  /// Returns all names of the directory in the order of their removal. The marker comes first: the
  /// remaining files are never a whole set.
  std::vector<Name> removal_of(const File& directory) const;

 private:
  struct Scanned {
    ImageSet set;
    std::uint64_t first_sequence = 0;  ///< sequence of its oldest commit
    std::uint64_t parts = 0;           ///< number of its files with VersionData::partial
  };
  Scanned scan(const File& directory, const SetRules& rules) const;
  void judge(ImageSet& set, const SetRules& rules, std::uint64_t wanted,
             std::uint64_t pointer) const;
  std::set<FileId> sets_being_written() const;
  bool was_begun(const ImageSet& set, std::uint64_t pointer) const;
  void mark_named(std::vector<ImageSet>& sets, std::uint64_t pointer) const;
  void mark_linked(const File& folder, const SetRules& rules, std::vector<ImageSet>& sets) const;
  std::vector<std::uint64_t> pointers_of(const File& folder, const SetRules& rules) const;
  FileId waits_for(const File& file, const File& folder, std::string_view name,
                   std::uint64_t written, const Skips& skips);
  FileId marker_waits_for(FileId marker, FileId directory, const NamePatterns& markers) const;
  FileId pointer_waits_for(FileId pointer, const File& folder, std::uint64_t written,
                           const Skips& skips);
  FileId part_waits(const File& file, const File& folder) const;
  bool has_part(FileId directory) const;
  FileId set_waits_for(const ImageSet& set, FileId pointer, bool can_be_whole) const;
  FileId link_waits_for(FileId link, const File& folder, std::string_view target);

  const State& state_;
  const SessionTable& sessions_;
  std::map<FileId, Scanned> scanned_;  ///< by directory
  /// Files that the drain must not take yet, and an undrained file that comes before each.
  std::map<FileId, FileId> waits_for_;
};

}  // namespace stdchk::manager
