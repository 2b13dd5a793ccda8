#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "manager/state/catalog.h"

namespace stdchk::manager {

/// A HardLinks has the steps that change further names of files: their hard links. A file's first
/// name stays a name like that of any other file, so that other steps know one name only.
///
/// Owns: nothing; the catalog outlives it. Threads: one. Limits: the Link that add() returns is
/// valid until the next change of the file's names.
/// Not: checks. A command checks its input before its first step.
class HardLinks {
 public:
  explicit HardLinks(Catalog& catalog) : catalog_(catalog), files_(catalog.files) {}

  Link& add(File& file, File& parent, std::string_view name);
  /// Removes a further name. `mirrors`: from the drain directory, too.
  void remove(File& file, File& parent, std::string_view name, bool mirrors);
  /// Makes this name of the file its first name. A drain may end under the old first name at any
  /// moment. So if the drain directory has the file under that name, it gets the new first name,
  /// too.
  void make_first(File& file, FileId parent, std::string_view name);
  /// Called after the file has lost its first name. A further name takes its place.
  void give_next_name(File& file);

  // ---- the drain directory ----
  /// Called before the file loses its first name to no other file. Queues the removal of that name.
  void mirror_lost_name(File& file);
  /// Called before the file loses its first name. Its bytes in the drain directory stay under its
  /// next name. Without another name, they stay readable for clients that have the file open.
  void keep_for_next_name(File& file);
  /// Called when the drain directory has a new version under the first name. Gives the further
  /// names to the new file there.
  void mirror_all(File& file);
  /// Gives the further names that the drain directory lacks to the file there.
  void mirror_missing(File& file);
  /// Called before the drain directory gets or loses the file's content, which commit `written`
  /// wrote: Catalog::leave_drained() for each name of the file.
  void leave_drained(const File& file, std::uint64_t written);

 private:
  static std::vector<Link>::iterator find(File& file, FileId parent, std::string_view name);
  /// Queues the further name, which the file gets in the drain directory.
  void mirror(const File& file, Link& link);

  Catalog& catalog_;
  FileTable& files_;
};

}  // namespace stdchk::manager
