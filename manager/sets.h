#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "core/policy.h"
#include "core/types.h"

namespace stdchk::manager {

class Service;
class State;
struct File;

/// An extended attribute of a folder with this in front of a set's name keeps the set.
inline constexpr std::string_view kXattrPin = "user.stdchk.pin.";

/// An ImageSet is one timestep of one application in one folder: the images A.*.Tj.
struct ImageSet {
  std::string application;
  std::uint64_t timestep = 0;
  std::uint64_t images = 0;   ///< that have bytes and are of the newest generation
  std::uint64_t stale = 0;    ///< that have bytes and are of an earlier one
  std::uint64_t drained = 0;  ///< of both
  std::uint64_t whole = 0;    ///< it was found whole with so many, and is as it was; 0: it was not
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;  ///< of its newest commit: orders the sets of a folder
  std::int64_t newest_ns = 0;
  bool pinned = false;
  bool in_use = false;   ///< somebody reads, writes or drains one of its images
  bool skipped = false;  ///< left out by drain-every
  bool owes = false;     ///< copies or parity that the folder wants before the set counts
  std::vector<std::string> names;
};

/// The sets of a folder, the oldest first.
std::vector<ImageSet> sets_of(const State& state, const File& folder);
/// All images of one generation are committed, as durable as the policy wants that. A set that was
/// whole once stays so with as many images as it had, whatever the policy says now. Never when it
/// is not known how many there are to be.
bool is_complete(const ImageSet& set, const Policy& policy);

/// What is to be done in one folder.
struct SetsPlan {
  std::string latest;                    ///< what the link says; empty: no set is complete
  std::vector<const ImageSet*> drained;  ///< complete ones that are drained whole, the newest first
  std::vector<const ImageSet*> prefer;   ///< the newest whole ones, to be drained before others
  std::vector<const ImageSet*> remove;
  std::optional<std::int64_t> next_ns;  ///< when to look again although nothing changes
};
/// `sets` as from sets_of(), which the plan points into. Nothing is removed where the policy does
/// not say how many images are whole, nor the newest complete set of an application, nor what is
/// pinned or in use.
SetsPlan plan_sets(const std::vector<ImageSet>& sets, const Policy& policy, std::int64_t now_ns);

/// A SetKeeper enforces what folders ask for about their sets: it moves the links to newest
/// complete sets and removes sets that are obsolete or too old. It plans, then executes journalled
/// commands.
///
/// Threads: the reactor's. Limits: kRemovedMax names in one turn, kScannedMax entries.
class SetKeeper {
 public:
  explicit SetKeeper(Service& service) : service_(service) {}
  /// Something in that folder has changed.
  void folder_changed(FileId folder) { changed_.insert(folder); }
  /// All folders are looked at: a policy has changed, or the manager has started.
  void look_at_all() { all_ = true; }
  void run();
  /// An image of that name was replaced, or is gone: a link to its set is changed now, not only in
  /// the next turn.
  void set_changed(FileId folder, std::string_view name);
  /// As sets_of(), with what the sets owe.
  std::vector<ImageSet> sets_in(const File& folder, const Policy& policy);
  /// drain-every leaves the image out, and nobody has asked for it.
  bool skips(const File& file) const;
  /// Somebody waits for the drain of what is below: of all of it, or in the whole pool of the
  /// newest sets.
  void want(FileId below);
  /// Somebody waits for space: of what drain-every has left out, the oldest set is drained after
  /// all. False: there is nothing, and nothing is on its way.
  bool want_oldest();

 private:
  /// Which sets of one application are drained, decided when they are first seen.
  struct Chosen {
    std::map<std::uint64_t, bool> by_timestep;
    std::uint64_t left_out = 0;  ///< since the last one that was chosen
    bool any = false;
  };
  /// A folder with drain-every.
  struct Every {
    std::map<std::string, Chosen> applications;
    std::set<FileId> images;  ///< of the sets that are drained
  };
  /// A whole set whose copies and parity are looked at, image by image.
  struct Looked {
    std::uint64_t sequence = 0;  ///< of the set: another one, and it is another set
    std::size_t paid = 0;        ///< so many of its images owe nothing, or did not when looked at
  };
  using SetsLooked = std::map<std::pair<std::string, std::uint64_t>, Looked>;
  bool owes(const File& folder, const ImageSet& set, Looked& looked) const;
  void choose(const File& folder, std::vector<ImageSet>& sets, std::uint64_t every);
  void want_newest(const File& folder);
  void want_set(const File& folder, const ImageSet& set);
  bool forget_drained();
  std::size_t look_at(const File& folder);
  bool has_sets(const File& folder, const Policy& policy) const;
  bool waits(const File& folder, const std::vector<ImageSet>& sets, const Policy& policy) const;
  void note_whole(const File& folder, std::vector<ImageSet>& sets, const Policy& policy);
  void execute(const File& folder, const SetsPlan& plan);
  void link(const File& folder, const SetsPlan& plan);
  void remove(FileId folder, const ImageSet& set);

  Service& service_;
  std::set<FileId> changed_;
  std::map<FileId, Time> due_;  ///< when to look again; not wall time, which may be set back
  std::map<FileId, SetsLooked> looked_;  ///< of folders that ask for copies first
  std::set<FileId> owing_;               ///< of these, with a set that owes something
  std::map<FileId, Every> every_;        ///< by folder
  std::set<FileId> wanted_;              ///< images left out that are drained after all
  std::size_t removed_ = 0;              ///< in this turn
  bool all_ = true;
};

}  // namespace stdchk::manager
