#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "core/policy/policy.h"
#include "core/values/types.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_planner.h"
#include "manager/sets/directory_sets.h"
#include "manager/sets/image_set.h"
#include "manager/sets/safe_sets.h"

namespace stdchk::manager {

/// Returns the sets of a folder that are images there, the oldest first.
std::vector<ImageSet> sets_of(const State& state, const File& folder);
/// Returns true when all images of one generation are committed, and as durable as the policy
/// wants. The policy says how many images make a set whole; a set found whole earlier keeps its own
/// number. Returns false when that number is not known.
bool is_complete(const ImageSet& set, const Policy& policy);

/// The actions to be taken in one folder.
struct SetsPlan {
  std::string latest;                    ///< target of the link; empty: no set is complete
  std::vector<const ImageSet*> drained;  ///< complete sets that are drained whole, the newest first
  /// The newest whole set of each application, to be drained before others.
  std::vector<const ImageSet*> prioritise;
  std::vector<const ImageSet*> remove;
  /// Wall time at which to look again although nothing changes.
  std::optional<std::int64_t> next_ns;
};
/// Plans for `sets`, which come from sets_of(); the plan points into them. It removes no set whose
/// number of images the policy does not define. It never removes the newest complete set of an
/// application, nor a set that is pinned or in use.
SetsPlan plan_sets(const std::vector<ImageSet>& sets, const Policy& policy, std::int64_t now_ns);

/// A SetKeeper carries out what folders ask for about their sets. It points the links to the newest
/// complete sets and removes obsolete or too old sets. It plans, then executes journalled commands.
///
/// Threads: the reactor's. Limits: in one turn it removes kRemovedMax names and
/// scans kScannedMax entries.
class SetKeeper {
 public:
  /// Calls `prioritise` for files that are to be drained before others.
  SetKeeper(Pool& pool, const CopyPlanner& copies, const SessionTable& sessions, Notices& notices,
            std::function<void(FileId file)> prioritise)
      : pool_(pool),
        copies_(copies),
        sessions_(sessions),
        notices_(notices),
        prioritise_(std::move(prioritise)),
        directories_(pool.state(), sessions) {}
  /// Notes that an entry of the folder has changed.
  void folder_changed(FileId folder);
  /// Notes that all folders must be examined: a policy has changed, or the manager has started.
  void examine_all() {
    all_ = true;
    directories_.forget();
  }
  void run();
  /// An image of that name was replaced or removed. If the link names its set, updates the link at
  /// once, not only in the next turn.
  void set_changed(FileId folder, std::string_view name);
  /// Returns the sets of a folder, of both kinds, the oldest first. Sets ImageSet::lacks_copies.
  std::vector<ImageSet> sets_in(const File& folder, const Policy& policy);
  /// Returns true when drain-every leaves the image out and no user has asked to drain it.
  bool skips(const File& file) const;
  /// Returns true while the drain must not give the file its name: other files of its set come
  /// first.
  bool holds(const File& file) {
    return directories_.holds(file, [this](const File& other) { return skips(other); });
  }
  /// Returns true when the file, a regular one or a symbolic link, must not get that name in the
  /// drain directory yet.
  bool would_hold(const File& file, const File& folder, std::string_view name) {
    return directories_.would_hold(file, folder, name,
                                   [this](const File& other) { return skips(other); });
  }
  DirectorySets& directories() { return directories_; }
  /// A user waits for the drain of everything below `below`. For the root that means the newest
  /// sets of the pool.
  void request_drain(FileId below);
  /// A writer waits for space: drains the oldest set that drain-every has left out. Returns false
  /// when no such set exists, nor one that was chosen before and awaits its drain.
  bool want_oldest();
  const SafeSets& safe_sets() const { return safe_; }

 private:
  /// The choice of an application's sets to drain; each set is judged when it is first seen.
  struct Chosen {
    std::map<std::string, bool, std::less<>> by_name;
    std::uint64_t left_out = 0;  ///< sets left out since the last chosen one
    bool any = false;
  };
  /// A folder whose policy sets drain-every.
  struct Every {
    std::map<std::string, Chosen> applications;
    std::set<FileId> images;  ///< images of the chosen sets
  };
  /// A whole set whose copies and parity are examined image by image.
  struct Looked {
    std::uint64_t sequence = 0;  ///< of the set; another number means that the set has changed
    /// Number of images, counted from the first, that had all copies and parity when examined.
    std::size_t paid = 0;
  };
  using SetsLooked = std::map<std::string, Looked>;
  std::vector<ImageSet> all_sets(const File& folder, const Policy& policy);
  bool lacks_copies(const ImageSet& set, Looked& looked) const;
  void choose(const File& folder, std::vector<ImageSet>& sets, std::uint64_t every);
  void want_newest(const File& folder);
  void want_set(const ImageSet& set);
  bool forget_drained();
  std::size_t examine(const File& folder);
  bool has_sets(const File& folder, const Policy& policy) const;
  bool waits(const File& folder, const std::vector<ImageSet>& sets, const Policy& policy) const;
  void note_complete_sets(const File& folder, std::vector<ImageSet>& sets, const Policy& policy);
  void execute(const File& folder, const SetsPlan& plan);
  void link(const File& folder, const SetsPlan& plan);
  void remove_directory(FileId folder, const ImageSet& set);
  void remove(FileId folder, const ImageSet& set);

  Pool& pool_;
  const CopyPlanner& copies_;
  const SessionTable& sessions_;
  Notices& notices_;
  const std::function<void(FileId)> prioritise_;
  DirectorySets directories_;
  SafeSets safe_;
  std::set<FileId> changed_;
  std::map<FileId, Time> due_;  ///< when to examine again; not wall time, which may be set back
  std::map<FileId, SetsLooked> looked_;  ///< folders that want copies before a set is complete
  /// Folders among them with a set that lacks copies or parity.
  std::set<FileId> lacking_;
  std::map<FileId, Every> every_;  ///< by folder
  /// Images left out by drain-every that are drained after all.
  std::set<FileId> wanted_;
  std::size_t removed_ = 0;  ///< in this turn
  bool all_ = true;
};

}  // namespace stdchk::manager
