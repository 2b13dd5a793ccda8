#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/policy/set_naming.h"
#include "core/policy/set_rules.h"
#include "core/values/types.h"
#include "manager/state/file_table.h"

namespace stdchk::manager {

/// A SetPart is the role of a name beside or in a set that is a directory.
enum class SetPart : std::uint8_t {
  kNone,
  kMarker,   ///< its directory is whole
  kPointer,  ///< which directory beside it is the newest
};

/// A SetNames reads names of a FileTable by the rules of sets that are in force for their folders.
///
/// Owns: nothing; the table outlives it. Threads: one.
class SetNames {
 public:
  /// `has_directories`: a folder of the table has the rule set=directory.
  SetNames(const FileTable& files, bool has_directories)
      : files_(files), has_directories_(has_directories) {}

  bool has_directories() const { return has_directories_; }
  /// Returns how names of images in the folder are read; null where sets are directories.
  const SetNaming* naming(const File& folder) const;
  /// Returns the parts of an image's name in the folder; nothing for other names.
  std::optional<PatternName> image_name(FileId folder, std::string_view name) const;
  /// Returns the parts of the first name, if the file is an image with a committed name.
  std::optional<PatternName> image_of(const File& file) const;
  /// Returns the parts of a further name, if the file is an image under that name.
  std::optional<PatternName> image_of(const File& file, const Link& link) const;
  /// Returns the rules of sets in force for the folder.
  SetRules set_rules(const File& folder) const;
  /// Returns the directory that is a set (rule set=directory) and has `id` in it, or is `id`.
  /// Nested directories of sets belong to the outermost. None: `id` is in no such directory.
  FileId directory(FileId id) const;
  /// Returns what the entry `name` of the folder says about sets (rule set=directory).
  SetPart part(const File& folder, std::string_view name) const;
  /// Returns the folder and the name of the set that the entry `name` of `folder` belongs to. The
  /// name is as drained_sets has it.
  std::optional<std::pair<FileId, std::string>> set_of(FileId folder, std::string_view name) const;

 private:
  const FileTable& files_;
  bool has_directories_;
};

}  // namespace stdchk::manager
