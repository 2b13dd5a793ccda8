#include "manager/sets/set_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/policy/image_name.h"
#include "core/policy/name_patterns.h"
#include "core/policy/set_naming.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kScannedMax = 200'000;
constexpr std::size_t kRemovedMax = 1000;
constexpr std::int64_t kBusyRetryNs = kNsPerSecond;
constexpr std::int64_t kOwingRetryNs = kNsPerSecond;
// Bounds the error when the wall clock is set.
constexpr Duration kLookAgainMax = std::chrono::minutes(1);

bool is_whole(const ImageSet& set, const Policy& policy) {
  if (set.directory) return set.is_whole_directory;
  if (!set.problem.empty()) return false;
  const std::uint64_t wanted = set.whole > 0 ? set.whole : policy.get(PolicyKey::kImages);
  return wanted > 0 && set.images >= wanted && set.stale == 0;
}

/// Returns the sets that are whole in the drain directory and not yet in the folder's list as they
/// are now, the newest first.
std::vector<DrainedSet> newly_drained(const File& folder, const SetsPlan& plan) {
  std::vector<DrainedSet> out;
  const auto& known = folder.as_directory.drained_sets;
  const std::size_t count = std::min(plan.drained.size(), limits::kDrainedSetsMax);
  for (const ImageSet* set : std::span(plan.drained).first(count)) {
    const DrainedSet wanted{set->name, set->sequence};
    const bool full = known.size() == limits::kDrainedSetsMax;
    if (full && set->sequence < known.front().sequence) break;
    if (std::ranges::find(known, wanted) == known.end()) out.push_back(wanted);
  }
  return out;
}

/// Returns true when a number in the name has zeros in front, so that another name may mean the
/// same.
bool has_leading_zero(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] == '0' && is_digit(name[i + 1]) && (i == 0 || !is_digit(name[i - 1]))) return true;
  }
  return false;
}

/// The images of a set while a folder is scanned.
struct Found {
  ImageSet set;
  std::uint64_t begun = 0;
  bool has_zeros = false;  ///< a name has zeros in front of a number
  std::vector<std::uint64_t> ranks;
  std::set<std::uint64_t> words;  ///< numbers of the words of a SetNaming
};

/// Two names of one rank, or of one timestep, are an error: programs that read the set would take
/// one of them.
void find_problem(Found& found, const SetNaming& naming) {
  ImageSet& set = found.set;
  if (!set.problem.empty()) return;
  if (found.has_zeros) {
    std::ranges::sort(found.ranks);
    const auto twice = std::ranges::adjacent_find(found.ranks);
    if (twice != found.ranks.end()) {
      set.problem = fmt::format("two names are of rank {}, as N0 and N00 are", *twice);
      return;
    }
  }
  for (std::size_t i = 0; i < naming.words().size(); ++i) {
    if (found.words.contains(i)) continue;
    set.problem = fmt::format("the file \"{}\" is missing", naming.words()[i]);
    return;
  }
}

/// The newest complete set of an application, and the sequence below which its sets are obsolete.
struct Series {
  const ImageSet* newest = nullptr;
  std::uint64_t obsolete_below = 0;
  std::uint64_t complete = 0;
};

std::map<std::string_view, Series> series_of(const std::vector<ImageSet>& sets,
                                             const Policy& policy) {
  const std::uint64_t keep = policy.get(PolicyKey::kKeep);
  std::map<std::string_view, Series> all;
  for (auto set = sets.rbegin(); set != sets.rend(); ++set) {
    if (!is_complete(*set, policy)) continue;
    Series& series = all[set->application];
    if (series.newest == nullptr) series.newest = &*set;
    if (++series.complete == keep) series.obsolete_below = set->sequence;
  }
  return all;
}

/// Returns true for the name of a set with "*" for the rank.
bool is_set_name(const SetNaming& naming, std::string_view text) {
  const std::size_t star = text.find('*');
  if (star == std::string_view::npos) return false;
  for (const char* rank : {"N0", "0"}) {
    std::string image(text);
    if (naming.parse(image.replace(star, 1, rank))) return true;
  }
  return false;
}

}  // namespace

std::vector<ImageSet> sets_of(const State& state, const File& folder) {
  const SetNaming* const naming = state.set_names().naming(folder);
  if (naming == nullptr) return {};
  std::map<std::pair<std::string, std::uint64_t>, Found> sets;
  for (const auto& [name, id] : folder.as_directory.children) {
    const auto image = naming->parse(name);
    const File* file = state.file(id);
    if (!image || file->type != FileType::kRegular || file->newest.version == 0) continue;
    const auto [at, first] = sets.try_emplace({image->application, image->timestep});
    Found& found = at->second;
    ImageSet& set = found.set;
    const bool has_zeros = has_leading_zero(name);
    if (first) {
      set.name = naming->set_of(name);
      set.application = image->application;
      set.timestep = image->timestep;
      found.begun = state.set_generations().begun(folder.id, *image);
      set.whole = state.set_generations().whole(folder.id, *image);
    } else if ((has_zeros || found.has_zeros) && naming->set_of(name) != set.name) {
      set.problem = "its timestep is written in two ways, as T1 and T01 are";
    }
    found.has_zeros |= has_zeros;
    // An image without content does not count: a shell creates an empty file
    // before the writer starts.
    if (file->newest.partial) {
      set.problem = fmt::format("{} was stored by fsync, and its writer has not closed it", name);
    } else if (file->newest.content() > 0) {
      const bool is_stale = file->newest.written <= found.begun;
      ++(is_stale ? set.stale : image->is_word ? set.others : set.images);
      set.drained += file->newest.drained ? 1 : 0;
      if (image->is_word) {
        found.words.insert(image->node);
      } else {
        found.ranks.push_back(image->node);
      }
    }
    set.bytes += file->newest.size_bytes;
    set.sequence = std::max(set.sequence, file->newest.sequence);
    set.newest_ns = std::max(set.newest_ns, file->ctime_ns);
    set.in_use |= file->keeps > 0;
    set.members.push_back(id);
  }
  std::vector<ImageSet> out;
  out.reserve(sets.size());
  for (auto& [key, found] : sets) {
    find_problem(found, *naming);
    found.set.pinned = folder.xattrs.count(std::string(kXattrPin) + found.set.name) > 0;
    out.push_back(std::move(found.set));
  }
  std::ranges::stable_sort(out, {}, &ImageSet::sequence);
  return out;
}

bool is_complete(const ImageSet& set, const Policy& policy) {
  if (!is_whole(set, policy) || set.lacks_copies) return false;
  return policy.get(PolicyKey::kMustBeDrained) == 0 || set.is_drained();
}

SetsPlan plan_sets(const std::vector<ImageSet>& sets, const Policy& policy, std::int64_t now_ns) {
  SetsPlan plan;
  for (const ImageSet& set : sets) {
    if (!is_complete(set, policy)) continue;
    plan.latest = set.name;
    if (set.is_drained()) plan.drained.push_back(&set);
  }
  std::ranges::reverse(plan.drained);
  std::map<std::string_view, const ImageSet*> newest_whole;
  for (const ImageSet& set : sets) {
    if (is_whole(set, policy)) newest_whole[set.application] = &set;
  }
  for (const auto& [application, set] : newest_whole) {
    if (!set->is_drained() && !set->skipped) plan.prioritise.push_back(set);
  }
  // Nothing is removed when the policy does not say which sets are whole.
  const bool by_directory = !sets.empty() && sets.front().directory;
  if (policy.get(PolicyKey::kImages) == 0 && !by_directory) return plan;
  const auto all = series_of(sets, policy);
  const auto purge_ns =
      static_cast<std::int64_t>(policy.get(PolicyKey::kPurgeAfter)) * kNsPerSecond;
  const auto look_again = [&](std::int64_t when) {
    plan.next_ns = std::min(plan.next_ns.value_or(when), when);
  };
  for (const ImageSet& set : sets) {
    const auto series = all.find(set.application);
    // Without a complete set there is nothing newer to restart from.
    if (series == all.end() || series->second.newest == &set) continue;
    if (set.pinned || set.is_named) continue;
    // The newest whole set stays although it is not complete: it may never be drained.
    const auto whole = newest_whole.find(set.application);
    if (whole != newest_whole.end() && whole->second == &set) continue;
    const bool must = policy.get(PolicyKey::kMustBeDrained) != 0 && !set.skipped;
    if (must && !set.is_drained()) continue;
    // A directory without files has no place in the order: its program may be about to write.
    const bool is_begun = !set.directory || !set.members.empty();
    const bool obsolete = is_begun && set.sequence < series->second.obsolete_below;
    const bool old = purge_ns > 0 && set.newest_ns + purge_ns <= now_ns;
    if (!obsolete && !old) {
      if (purge_ns > 0) look_again(set.newest_ns + purge_ns);
    } else if (set.in_use) {
      look_again(now_ns + kBusyRetryNs);
    } else {
      plan.remove.push_back(&set);
    }
  }
  return plan;
}

void SetKeeper::run() {
  removed_ = 0;
  const State& state = pool_.state();
  if (all_) {
    all_ = false;
    std::vector<const File*> todo{state.file(kRootFile)};
    while (!todo.empty()) {
      const File& at = *todo.back();
      todo.pop_back();
      changed_.insert(at.id);
      if (at.as_directory.subdirectories == 0) continue;
      for (const auto& [name, child] : at.as_directory.children) {
        const File* below = state.file(child);
        if (below->type == FileType::kDirectory) todo.push_back(below);
      }
    }
  }
  if (!lacking_.empty() && copies_.is_fully_redundant()) changed_.merge(std::set(lacking_));
  std::erase_if(due_, [&](const auto& due) {
    if (due.second > pool_.now()) return false;
    changed_.insert(due.first);
    return true;
  });
  for (std::size_t scanned = 0; !changed_.empty() && scanned < kScannedMax;) {
    const FileId id = *changed_.begin();
    changed_.erase(changed_.begin());
    const File* folder = state.file(id);
    lacking_.erase(id);
    if (folder == nullptr) {
      every_.erase(id);
      looked_.erase(id);
      safe_.forget(id);
    }
    const bool is_inside = folder != nullptr && state.set_names().directory(id);
    if (folder != nullptr && folder->type == FileType::kDirectory && folder->parent && !is_inside) {
      scanned += examine(*folder);
    }
    if (removed_ >= kRemovedMax) break;
  }
}

void SetKeeper::set_changed(FileId folder, std::string_view name) {
  const State& state = pool_.state();
  const auto set = state.set_names().set_of(folder, name);
  if (!set) return;
  const auto link = state.lookup(set->first, kLatestName, ClientId{});
  if (!link || (*link)->target != set->second) return;
  examine(*state.file(set->first));
}

/// A change in a directory that is a set concerns the folder which has the set.
void SetKeeper::folder_changed(FileId folder) {
  changed_.insert(folder);
  directories_.changed(folder);
  const State& state = pool_.state();
  const FileId directory = state.set_names().directory(folder);
  if (directory) changed_.insert(state.file(directory)->parent);
}

std::vector<ImageSet> SetKeeper::all_sets(const File& folder, const Policy& policy) {
  const State& state = pool_.state();
  if (state.set_names().naming(folder) != nullptr) return sets_of(state, folder);
  return directories_.sets_of(folder, policy.get(PolicyKey::kImages));
}

/// Examines a folder. Returns the cost in entries.
std::size_t SetKeeper::examine(const File& folder) {
  const Policy policy = pool_.policy(folder);
  const std::uint64_t every = pool_.has_drain() ? policy.get(PolicyKey::kDrainEvery) : 1;
  if (every == 1) every_.erase(folder.id);
  const bool judged = has_sets(folder, policy);
  if (every == 1 && !judged) return 1;
  std::vector<ImageSet> sets = sets_in(folder, policy);
  if (every > 1) choose(folder, sets, every);
  if (!judged) return folder.as_directory.children.size() + 1;
  note_complete_sets(folder, sets, policy);
  const std::int64_t now_ns = pool_.wall_ns();
  if (waits(folder, sets, policy)) {
    due_[folder.id] = pool_.now() + std::chrono::nanoseconds(kBusyRetryNs);
    return folder.as_directory.children.size() + 1;
  }
  SetsPlan plan = plan_sets(sets, policy, now_ns);
  safe_.note(folder.id, sets, plan.drained);
  const bool is_written =
      std::ranges::any_of(sets, [](const ImageSet& set) { return set.directory && set.in_use; });
  if (is_written)
    plan.next_ns = std::min(plan.next_ns.value_or(now_ns + kBusyRetryNs), now_ns + kBusyRetryNs);
  if (std::ranges::any_of(sets, &ImageSet::lacks_copies)) {
    lacking_.insert(folder.id);
    plan.next_ns = std::min(plan.next_ns.value_or(now_ns + kOwingRetryNs), now_ns + kOwingRetryNs);
  }
  if (plan.next_ns) {
    const Duration wait = std::chrono::nanoseconds(*plan.next_ns - now_ns);
    due_[folder.id] = pool_.now() + std::min(wait, kLookAgainMax);
  }
  const std::size_t entries = folder.as_directory.children.size() + 1;
  execute(folder, plan);
  return entries;
}

/// Returns true when the policy sets a number of images, a set was found whole, or the link
/// `latest` names a set. Only the manager makes links with such targets.
bool SetKeeper::has_sets(const File& folder, const Policy& policy) const {
  const State& state = pool_.state();
  if (policy.get(PolicyKey::kImages) > 0 || state.set_names().naming(folder) == nullptr)
    return true;
  if (state.set_generations().has_complete_set(folder.id)) return true;
  const auto link = state.lookup(folder.id, kLatestName, ClientId{});
  if (!link || (*link)->type != FileType::kSymlink) return false;
  const SetNaming* const naming = state.set_names().naming(folder);
  // Only the manager makes a link with the name of a set as target.
  return naming != nullptr && is_set_name(*naming, (*link)->target);
}

/// Journals that these sets are whole, so that they stay so under another policy.
void SetKeeper::note_complete_sets(const File& folder, std::vector<ImageSet>& sets,
                                   const Policy& policy) {
  std::map<std::string_view, BeginGeneration> found;
  for (ImageSet& set : sets) {
    if (set.directory || set.whole > 0 || !is_whole(set, policy)) continue;
    set.whole = set.images;
    BeginGeneration& command = found[set.application];
    command.sets.push_back({set.timestep, 0, 0, set.whole});
  }
  for (auto& [application, command] : found) {
    command.directory = folder.id;
    command.application = application;
    pool_.execute(std::move(command), [](const Result<Affected>&) {});
  }
}

/// Returns true while the link must not change. After a restart clients may still report which
/// images they rewrite. Until then the link changes only if its set has become incomplete.
bool SetKeeper::waits(const File& folder, const std::vector<ImageSet>& sets,
                      const Policy& policy) const {
  if (!sessions_.resuming()) return false;
  const auto link = pool_.state().lookup(folder.id, kLatestName, ClientId{});
  return !link || std::ranges::any_of(sets, [&](const ImageSet& set) {
    return set.name == (*link)->target && is_complete(set, policy);
  });
}

/// A set that once had all copies and parity counts so for good: a benefactor lost later does not
/// undo it. After a restart the manager learns this from the link.
std::vector<ImageSet> SetKeeper::sets_in(const File& folder, const Policy& policy) {
  std::vector<ImageSet> sets = all_sets(folder, policy);
  if (policy.commit() != CommitLevel::kRedundant) return sets;
  const auto known = looked_.find(folder.id);
  std::string linked;
  if (known == looked_.end()) {
    const auto link = pool_.state().lookup(folder.id, kLatestName, ClientId{});
    if (link) linked = (*link)->target;
  }
  SetsLooked looked;
  for (ImageSet& set : sets) {
    if (!is_whole(set, policy)) continue;
    const std::string& key = set.name;
    Looked& at = looked[key];
    if (known != looked_.end()) {
      if (const auto before = known->second.find(key); before != known->second.end()) {
        at = before->second;
      }
    }
    if (at.sequence != set.sequence) at = {set.sequence, 0};
    if (set.name == linked) at.paid = set.members.size();
    set.lacks_copies = lacks_copies(set, at);
  }
  looked_[folder.id] = std::move(looked);
  return sets;
}

/// Continues where the last call stopped, so that each image is examined about once.
bool SetKeeper::lacks_copies(const ImageSet& set, Looked& looked) const {
  if (copies_.is_fully_redundant()) looked.paid = set.members.size();
  for (; looked.paid < set.members.size(); ++looked.paid) {
    const File& image = *pool_.state().file(set.members[looked.paid]);
    const VersionData& version = image.newest;
    if (!version.drained && version.copies > 1 && copies_.lacks_copies(version)) return true;
  }
  return false;
}

/// Chooses the first set of an application, then every k-th. Sets count in the order in which their
/// first files are committed. A directory without files has sequence 0, which would put it before
/// older sets. So it does not count yet. A set with drained images counts as chosen:
/// an earlier manager chose it.
void SetKeeper::choose(const File& folder, std::vector<ImageSet>& sets, std::uint64_t every) {
  Every& known = every_[folder.id];
  known.images.clear();
  std::set<std::string_view> there;
  for (ImageSet& set : sets) {
    if (set.members.empty()) continue;
    there.insert(set.name);
    Chosen& chosen = known.applications[set.application];
    const auto [decided, first_seen] = chosen.by_name.try_emplace(set.name, false);
    if (first_seen) {
      decided->second = set.drained > 0 || !chosen.any || chosen.left_out + 1 >= every;
      chosen.left_out = decided->second ? 0 : chosen.left_out + 1;
      chosen.any = true;
    }
    set.skipped = !decided->second && !set.pinned;
    if (set.skipped) continue;
    known.images.insert(set.members.begin(), set.members.end());
  }
  for (auto& application : known.applications) {
    std::erase_if(application.second.by_name,
                  [&](const auto& decided) { return !there.contains(decided.first); });
  }
}

bool SetKeeper::skips(const File& file) const {
  if (every_.empty()) return false;
  const State& state = pool_.state();
  const FileId directory = state.set_names().directory(file.id);
  const auto folder = every_.find(directory ? state.file(directory)->parent : file.parent);
  if (folder == every_.end() || folder->second.images.contains(file.id)) return false;
  if (wanted_.contains(file.id)) return false;
  return directory || state.set_names().image_name(file.parent, file.name).has_value();
}

/// Wants the newest whole set of each application, or its newest set if the policy gives no number
/// of images.
void SetKeeper::want_newest(const File& folder) {
  const Policy policy = pool_.policy(folder);
  const std::vector<ImageSet> sets = all_sets(folder, policy);
  const bool has_complete_set =
      policy.get(PolicyKey::kImages) > 0 || pool_.state().set_names().naming(folder) == nullptr;
  std::map<std::string_view, const ImageSet*> newest;
  for (const ImageSet& set : sets) {
    if (!has_complete_set || is_whole(set, policy)) {
      newest[set.application] = &set;
    }
  }
  for (const auto& [application, set] : newest) want_set(*set);
}

void SetKeeper::want_set(const ImageSet& set) {
  for (const FileId id : set.members) {
    const File& image = *pool_.state().file(id);
    if (!image.newest.drained && skips(image)) wanted_.insert(image.id);
  }
}

bool SetKeeper::forget_drained() {
  return std::erase_if(wanted_, [&](FileId id) {
           const File* file = pool_.state().file(id);
           return file == nullptr || !file->parent || file->newest.drained;
         }) > 0;
}

void SetKeeper::request_drain(FileId below) {
  if (every_.empty()) return;
  forget_drained();
  const State& state = pool_.state();
  if (below == kRootFile) {
    for (const auto& [id, every] : every_) {
      if (const File* folder = state.file(id); folder != nullptr) want_newest(*folder);
    }
    return;
  }
  for (const auto& [sequence, id] : state.commits().undrained()) {
    if (state.files().is_below(id, below) && skips(*state.file(id))) wanted_.insert(id);
  }
}

bool SetKeeper::want_oldest() {
  // Sets that have just been drained will free memory first.
  if (forget_drained() || !wanted_.empty()) return true;
  const State& state = pool_.state();
  for (const auto& [sequence, id] : state.commits().undrained()) {
    const File& file = *state.file(id);
    if (!skips(file)) continue;
    const FileId directory = state.set_names().directory(id);
    const File& folder = *state.file(directory ? state.file(directory)->parent : file.parent);
    for (const ImageSet& set : all_sets(folder, pool_.policy(folder))) {
      const bool is_in = std::ranges::find(set.members, id) != set.members.end();
      if (is_in) want_set(set);
    }
    return true;
  }
  return false;
}

void SetKeeper::execute(const File& folder, const SetsPlan& plan) {
  const FileId id = folder.id;
  link(folder, plan);
  for (const ImageSet* set : plan.prioritise) {
    for (const FileId image : set->members) prioritise_(image);
  }
  for (const ImageSet* set : plan.remove) {
    if (removed_ >= kRemovedMax) {
      changed_.insert(id);
      return;
    }
    if (set->directory) {
      remove_directory(id, *set);
    } else {
      remove(id, *set);
    }
  }
}

void SetKeeper::link(const File& folder, const SetsPlan& plan) {
  const auto there = folder.as_directory.children.find(kLatestName);
  const File* link =
      there == folder.as_directory.children.end() ? nullptr : pool_.state().file(there->second);
  if (link != nullptr && link->type != FileType::kSymlink) return;  // a user's own file
  // The program writes such a file itself.
  const SetRules rules = pool_.state().set_names().set_rules(folder);
  if (NamePatterns(rules.pointer).match(kLatestName)) return;
  std::vector<DrainedSet> drained;
  if (pool_.has_drain()) drained = newly_drained(folder, plan);
  const bool missed =
      link != nullptr && !link->in_drain && !folder.as_directory.drained_sets.empty();
  if (drained.empty() && plan.latest == (link == nullptr ? std::string() : link->target) &&
      !(missed && pool_.has_drain())) {
    return;
  }
  if (drained.empty()) drained.emplace_back();
  const FileId id = folder.id;
  const FileId link_id = link == nullptr ? FileId{} : link->id;  // the command may erase the link
  for (DrainedSet& set : drained) {
    SetLatest command{id, FileId{pool_.next_id()}, plan.latest, std::move(set), pool_.wall_ns()};
    pool_.execute(std::move(command), [](const Result<Affected>&) {});
  }
  notices_.entry_changed(id, kLatestName, {});
  if (link_id) notices_.file_changed(link_id, {});
  changed_.erase(id);
}

/// Removes a set from the pool. The drained files stay: they belong to the user.
void SetKeeper::remove(FileId folder, const ImageSet& set) {
  log::info("the set {} of {} images is removed as its folder's policy says", set.name, set.images);
  for (const FileId id : set.members) {
    const File* const image = pool_.state().file(id);
    if (image == nullptr || image->parent != folder) continue;
    const std::string name = image->name;
    const RemoveName command{folder, name, false, pool_.wall_ns(), false};
    pool_.execute(command, [](const Result<Affected>&) {});
    notices_.entry_changed(folder, name, {});
    ++removed_;
  }
}

/// Removes a directory and all files below, as remove() removes images. Stops at kRemovedMax and
/// goes on in the next turn. If drain-every has left the set out, its folders in the drain directory
/// are empty. These go, too: a program would take an empty folder for a checkpoint.
void SetKeeper::remove_directory(FileId folder, const ImageSet& set) {
  const File* const directory = pool_.state().file(set.directory);
  if (directory == nullptr || directory->parent != folder) return;
  if (directories_.in_use(*directory)) {
    due_[folder] = pool_.now() + std::chrono::nanoseconds(kBusyRetryNs);
    return;
  }
  log::info("the set {} of {} files is removed as its folder's policy says", set.name,
            set.members.size());
  const bool in_drain_too = set.skipped && set.drained == 0 && pool_.has_drain();
  for (const DirectorySets::Name& one : directories_.removal_of(*directory)) {
    if (removed_++ >= kRemovedMax) {
      changed_.insert(folder);
      return;
    }
    const RemoveName command{one.folder, one.name, one.is_directory, pool_.wall_ns(), in_drain_too};
    pool_.execute(command, [](const Result<Affected>&) {});
    notices_.entry_changed(one.folder, one.name, {});
  }
}

}  // namespace stdchk::manager
