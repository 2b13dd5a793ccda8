#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/policy/image_name.h"
#include "core/values/types.h"
#include "manager/journal/command.h"
#include "manager/state/commit_lists.h"
#include "manager/state/content_table.h"
#include "manager/state/file_table.h"
#include "manager/state/mirror_queue.h"
#include "manager/state/set_generations.h"
#include "manager/state/set_names.h"

namespace stdchk::manager {

/// Greater than the number of any commit.
inline constexpr std::uint64_t kAfterAllCommits = ~std::uint64_t{0};

/// A Catalog has the tables that commands on names and versions change, and the steps that change
/// several of them. The tables are open to commands; a step keeps them consistent with each other.
///
/// Threads: one. Not: checks. A command checks its input before its first step.
struct Catalog {
  // ---- names ----
  /// Gives the file its first committed name, and adds the file to the lists that its name
  /// concerns.
  void link(File& file, File& parent, std::string_view name);
  /// Removes the first committed name.
  void unlink(File& file);
  /// Links a renamed file under its new name. An image counts as written into its new set now.
  /// `elsewhere`: it comes from another folder. `replaced`: content() of the file that had the
  /// name.
  void link_again(File& file, File& parent, std::string_view name, bool elsewhere,
                  std::uint64_t replaced);
  /// Tells the generations that the file is about to lose its name, and no other file gets it.
  void note_loss(const File& file);
  /// Tells the generations that an image was written from nothing, or has got its name.
  void note_image(const File& file, std::uint64_t replaced, std::uint64_t replacing);

  // ---- versions ----
  /// Requires that the caller has counted the references of `next`.
  void set_newest(File& file, VersionData next);
  /// Keeps the file in memory, also without a name, until unkeep() is called as often.
  void keep(FileId id);
  void unkeep(FileId id);
  Status pin(FileId id, Version version);
  void unpin(FileId id, Version version);
  /// Notes whether memory has lost all chunks of a drained version. A version with chunks still in
  /// memory stays evictable.
  void note_evicted(VersionData& version) const;
  /// Erases a file that has no name and that nothing keeps.
  void erase_if_unused(File& file);

  // ---- the drain directory ----
  /// Called before the file loses its name. Queues a change that keeps its bytes in the drain
  /// directory readable for clients that have the file open.
  void set_aside(File& file);
  void set_aside(File& file, const std::string& path);
  /// Takes the file's first name, which was `path`, away in the drain directory, although the pool
  /// still has the file. The new name would vouch for a set that the drain directory lacks. So
  /// the file waits for its drain. A drained version stays there under a number.
  void withhold(File& file, const std::string& path);
  /// As withhold(), for a file whose name another file gets in the drain directory later.
  void leave_stale(File& file);
  /// The newest version is not drained any more, although the drain directory has its bytes.
  void drain_again(File& file);
  /// Keeps the symbolic link out of the drain directory until NameHeld.
  void hold(File& link);
  /// Notes that the drain directory has the bytes of older versions under that number from now on.
  void set_older_aside(FileId id, std::uint64_t number);
  /// Notes that the set is whole in the drain directory.
  void add_drained(File& folder, const DrainedSet& set);
  /// Called before the drain directory gets or loses an image of that name, whose content commit
  /// `written` wrote. Drops the image's set from the sets that are whole there. The set stays whole
  /// if the content is not newer than the set, because an existing image changes only in part.
  void leave_drained(File& folder, std::string_view name, std::uint64_t written);
  /// Points the link in the drain directory to the newest whole set, or removes it. A user's own
  /// file of that name in the pool prevents that.
  void mirror_latest(File& folder);

  // ---- rules of sets ----
  SetNames names() const { return SetNames(files, directory_set_folders > 0); }
  /// Reads the folder's own rules in its extended attributes.
  void read_rules(File& folder);
  /// Called after an extended attribute with a rule has changed.
  void change_rules(File& folder);
  /// Called when a directory has moved from a folder whose names were read by `before`.
  void read_moved_names(const File& directory, const SetNaming* before);

  FileTable files;
  ContentTable contents;
  CommitLists commits;
  SetGenerations generations;
  MirrorQueue mirror;
  History history;
  std::uint64_t sequence = 0;               ///< the number of the newest commit
  std::uint64_t directory_set_folders = 0;  ///< directories with the rule set=directory

 private:
  void stage(File& file, const std::string& path);
  std::uint64_t later_content(const File& file, const ImageName& image) const;
  /// Repeats the folder's rules and policy in the drain directory, where a later pool finds them: a
  /// symbolic link whose target is their text. A link is made atomically: no reader sees half of
  /// it.
  void mirror_rules(const File& folder);
  /// Called when a rule has changed how names of images in the folder and below are read. Forgets
  /// the generations of the sets there.
  void read_names_again(const File& folder);
};

}  // namespace stdchk::manager
