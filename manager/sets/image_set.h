#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/values/types.h"

namespace stdchk::manager {

/// An extended attribute of a folder, this prefix and a set's name, protects the set from removal.
inline constexpr std::string_view kXattrPin = "user.stdchk.pin.";

/// An ImageSet is the checkpoint of one timestep in a folder. Its members are the images A.*.Tj of
/// one application. With the rule set=directory they are all files below a directory.
struct ImageSet {
  /// As users write it, zeros included: "heat.*.T007", "step-7".
  std::string name;
  std::string application;     ///< of a directory: the rule set-names
  std::uint64_t timestep = 0;  ///< of a directory: 0
  FileId directory;            ///< none: the images lie in the folder
  std::uint64_t images = 0;    ///< images of ranks that have bytes and are of the newest generation
  std::uint64_t stale = 0;     ///< images that have bytes and are of an earlier generation
  /// Files that a whole set has, and that are no rank's: a base file, the marker of a directory.
  std::uint64_t others = 0;
  std::uint64_t drained = 0;  ///< drained ones of all three
  /// Number of images with which it was found whole; 0: it was not, or has changed since.
  std::uint64_t whole = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;  ///< sequence of its newest commit, which orders the sets of a folder
  std::int64_t newest_ns = 0;
  bool pinned = false;
  bool in_use = false;   ///< a session or reader uses one of its images
  bool skipped = false;  ///< left out by drain-every
  /// A directory: its marker, number of files, pointer or `stdchk set commit` says that it is
  /// whole.
  bool is_whole_directory = false;
  /// A pointer beside the directory names it, as far as the order of the commits tells.
  bool is_named = false;
  /// Lacks copies or parity that the folder wants before a set counts as complete.
  bool lacks_copies = false;
  /// Why the set cannot be whole, for people; empty: nothing prevents it.
  std::string problem;
  std::vector<FileId> members;  ///< all its files that have a version

  bool is_drained() const { return drained == images + stale + others; }
};

}  // namespace stdchk::manager
