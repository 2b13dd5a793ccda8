#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/problem.h"
#include "core/files/data_ranges.h"
#include "core/files/drain_manifest.h"
#include "core/policy/set_naming.h"
#include "core/values/types.h"
#include "manager/journal/command.h"
#include "manager/state/file.h"

namespace stdchk::manager {

/// Returns the map of the content of a drained file: `ranges`, in order, have known checksums. The
/// rest is a hole, but for the ranges in `data`.
ChunkMap map_of(std::uint64_t size, const std::vector<DrainedRange>& ranges,
                const std::vector<DataRange>& data);

/// An ImportedTree holds the files, policies, rules and sets that a new pool takes over from an earlier
/// one. They come from a drain directory or an object store.
///
/// Threads: one.
class ImportedTree {
 public:
  /// Adds a file. Gives it the next id, and returns that.
  FileId add(RestoreFile file);
  /// Adds a further name of a file.
  void add_link(RestoreLink link) { links_.push_back(std::move(link)); }
  /// Uses the text of the policy and the rules that the earlier pool has left in the folder
  /// `directory`. `path` is for messages.
  void use_policy(const Outcome<std::string>& text, const std::string& path, FileId directory);
  /// Emits the files in the order of their names. Their sequence numbers follow their times, so the
  /// file written last is the newest.
  void emit(const std::function<void(Command)>& emit);
  std::uint64_t count() const { return next_id_ - kFirstId; }
  FileId next_id() const { return FileId{next_id_}; }

 private:
  static constexpr std::uint64_t kFirstId = 2;
  /// The images that an earlier pool has left of a set.
  struct Left {
    std::uint64_t images = 0;
    bool is_linked = false;  ///< the link of the folder names the set
  };
  /// An application of a folder, and its sets by timestep.
  using Application = std::pair<FileId, std::string>;
  using Applications = std::map<Application, std::map<std::uint64_t, Left>>;
  const SetNaming* naming(FileId folder) const;
  void count_image(FileId folder, const std::string& name, bool has_content,
                   Applications& images) const;
  Applications images_left();
  std::vector<BeginGeneration> generations_after(std::uint64_t sequence);

  std::uint64_t next_id_ = kFirstId;
  std::vector<RestoreFile> found_;
  std::vector<Command> commands_;     ///< policy and rules of the root
  std::map<FileId, OwnRules> rules_;  ///< how folders read the names of images; no other rules
  std::map<FileId, std::string> links_to_sets_;  ///< targets of the links `latest`, by folder
  std::vector<RestoreLink> links_;
};

}  // namespace stdchk::manager
