#include "manager/sets/set_keeper.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/policy/image_name.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kScannedMax = 200'000;
constexpr std::size_t kRemovedMax = 1000;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int64_t kBusyRetryNs = kNsPerSecond;
constexpr std::int64_t kOwingRetryNs = kNsPerSecond;
// Bounds the error when the wall clock is set.
constexpr Duration kLookAgainMax = std::chrono::minutes(1);

std::string name_of(const ImageSet& set) { return set_name(set.application, set.timestep); }

bool is_whole(const ImageSet& set, const Policy& policy) {
  const std::uint64_t wanted = set.whole > 0 ? set.whole : policy.get(PolicyKey::kImages);
  return wanted > 0 && set.images >= wanted && set.stale == 0;
}

/// Returns the sets that are whole in the drain directory and not yet in the folder's list as they
/// are now, the newest first.
std::vector<DrainedSet> newly_drained(const File& folder, const SetsPlan& plan) {
  std::vector<DrainedSet> out;
  const auto& known = folder.drained_sets;
  const std::size_t count = std::min(plan.drained.size(), limits::kDrainedSetsMax);
  for (const ImageSet* set : std::span(plan.drained).first(count)) {
    const DrainedSet wanted{name_of(*set), set->sequence};
    const bool full = known.size() == limits::kDrainedSetsMax;
    if (full && set->sequence < known.front().sequence) break;
    if (std::ranges::find(known, wanted) == known.end()) out.push_back(wanted);
  }
  return out;
}

bool is_drained(const ImageSet& set) { return set.drained == set.images + set.stale; }

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

}  // namespace

std::vector<ImageSet> sets_of(const State& state, const File& folder) {
  struct Found {
    ImageSet set;
    std::uint64_t begun = 0;
  };
  std::map<std::pair<std::string, std::uint64_t>, Found> sets;
  for (const auto& [name, id] : folder.children) {
    const auto image = parse_image_name(name);
    const File* file = state.file(id);
    if (!image || file->type != FileType::kRegular || file->newest.version == 0) continue;
    const auto [at, first] = sets.try_emplace({image->application, image->timestep});
    auto& [set, begun] = at->second;
    if (first) {
      set.application = image->application;
      set.timestep = image->timestep;
      begun = state.set_generations().begun(folder.id, *image);
      set.whole = state.set_generations().whole(folder.id, *image);
    }
    // An image without content does not count: a shell creates an empty file
    // before the writer starts.
    if (file->newest.content() > 0) {
      ++(file->newest.written <= begun ? set.stale : set.images);
      set.drained += file->newest.drained ? 1 : 0;
    }
    set.bytes += file->newest.size_bytes;
    set.sequence = std::max(set.sequence, file->newest.sequence);
    set.newest_ns = std::max(set.newest_ns, file->ctime_ns);
    set.in_use |= file->keeps > 0;
    set.names.push_back(name);
  }
  std::vector<ImageSet> out;
  out.reserve(sets.size());
  for (auto& [key, found] : sets) {
    ImageSet& set = found.set;
    set.pinned = folder.xattrs.count(std::string(kXattrPin) + name_of(set)) > 0;
    out.push_back(std::move(set));
  }
  std::ranges::stable_sort(out, {}, &ImageSet::sequence);
  return out;
}

bool is_complete(const ImageSet& set, const Policy& policy) {
  if (!is_whole(set, policy) || set.lacks_copies) return false;
  return policy.get(PolicyKey::kMustBeDrained) == 0 || is_drained(set);
}

SetsPlan plan_sets(const std::vector<ImageSet>& sets, const Policy& policy, std::int64_t now_ns) {
  SetsPlan plan;
  for (const ImageSet& set : sets) {
    if (!is_complete(set, policy)) continue;
    plan.latest = name_of(set);
    if (is_drained(set)) plan.drained.push_back(&set);
  }
  std::ranges::reverse(plan.drained);
  std::map<std::string_view, const ImageSet*> newest_whole;
  for (const ImageSet& set : sets) {
    if (is_whole(set, policy)) newest_whole[set.application] = &set;
  }
  for (const auto& [application, set] : newest_whole) {
    if (!is_drained(*set) && !set->skipped) plan.prioritise.push_back(set);
  }
  if (policy.get(PolicyKey::kImages) == 0) return plan;
  const auto all = series_of(sets, policy);
  const auto purge_ns =
      static_cast<std::int64_t>(policy.get(PolicyKey::kPurgeAfter)) * kNsPerSecond;
  const auto look_again = [&](std::int64_t when) {
    plan.next_ns = std::min(plan.next_ns.value_or(when), when);
  };
  for (const ImageSet& set : sets) {
    const auto series = all.find(set.application);
    // Without a complete set there is nothing newer to restart from.
    if (series == all.end() || series->second.newest == &set || set.pinned) continue;
    // The newest whole set stays although it is not complete: it may never be drained.
    const auto whole = newest_whole.find(set.application);
    if (whole != newest_whole.end() && whole->second == &set) continue;
    const bool must = policy.get(PolicyKey::kMustBeDrained) != 0 && !set.skipped;
    if (must && !is_drained(set)) continue;
    const bool obsolete = set.sequence < series->second.obsolete_below;
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
      if (at.subdirectories == 0) continue;
      for (const auto& [name, child] : at.children) {
        const File* below = state.file(child);
        if (below->type == FileType::kDirectory) todo.push_back(below);
      }
    }
  }
  if (!lacking_.empty() && copies_.lacks_nothing()) changed_.merge(std::set(lacking_));
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
    }
    if (folder != nullptr && folder->type == FileType::kDirectory && folder->parent) {
      scanned += examine(*folder);
    }
    if (removed_ >= kRemovedMax) break;
  }
}

void SetKeeper::set_changed(FileId folder, std::string_view name) {
  const auto image = parse_image_name(name);
  if (!image) return;
  const State& state = pool_.state();
  const auto link = state.lookup(folder, kLatestName, ClientId{});
  if (!link || (*link)->target != set_name(image->application, image->timestep)) return;
  examine(*state.file(folder));
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
  if (!judged) return folder.children.size() + 1;
  note_whole(folder, sets, policy);
  const std::int64_t now_ns = pool_.wall_ns();
  if (waits(folder, sets, policy)) {
    due_[folder.id] = pool_.now() + std::chrono::nanoseconds(kBusyRetryNs);
    return folder.children.size() + 1;
  }
  SetsPlan plan = plan_sets(sets, policy, now_ns);
  if (std::ranges::any_of(sets, &ImageSet::lacks_copies)) {
    lacking_.insert(folder.id);
    plan.next_ns = std::min(plan.next_ns.value_or(now_ns + kOwingRetryNs), now_ns + kOwingRetryNs);
  }
  if (plan.next_ns) {
    const Duration wait = std::chrono::nanoseconds(*plan.next_ns - now_ns);
    due_[folder.id] = pool_.now() + std::min(wait, kLookAgainMax);
  }
  const std::size_t entries = folder.children.size() + 1;
  execute(folder, plan);
  return entries;
}

/// Returns true when the policy sets a number of images, a set was found whole, or the link
/// `latest` names a set. Only the manager makes links with such targets.
bool SetKeeper::has_sets(const File& folder, const Policy& policy) const {
  if (policy.get(PolicyKey::kImages) > 0) return true;
  const State& state = pool_.state();
  if (state.set_generations().knows_whole(folder.id)) return true;
  const auto link = state.lookup(folder.id, kLatestName, ClientId{});
  const auto named = link ? parse_set_name((*link)->target) : std::nullopt;
  return named && (*link)->target == set_name(named->application, named->timestep);
}

/// Journals that these sets are whole, so that they stay so under another policy.
void SetKeeper::note_whole(const File& folder, std::vector<ImageSet>& sets, const Policy& policy) {
  std::map<std::string_view, BeginGeneration> found;
  for (ImageSet& set : sets) {
    if (set.whole > 0 || !is_whole(set, policy)) continue;
    set.whole = set.images;
    BeginGeneration& command = found[set.application];
    command.sets.push_back({set.timestep, 0, 0, set.whole});
  }
  for (auto& [application, command] : found) {
    command.directory = folder.id;
    command.application = application;
    pool_.execute(std::move(command), [](const Result<Outcome>&) {});
  }
}

/// Returns true while the link must not change. After a restart clients may still report which
/// images they rewrite. Until then the link changes only if its set has become incomplete.
bool SetKeeper::waits(const File& folder, const std::vector<ImageSet>& sets,
                      const Policy& policy) const {
  if (!sessions_.resuming()) return false;
  const auto link = pool_.state().lookup(folder.id, kLatestName, ClientId{});
  return !link || std::ranges::any_of(sets, [&](const ImageSet& set) {
    return name_of(set) == (*link)->target && is_complete(set, policy);
  });
}

/// A set that once had all copies and parity counts so for good: a benefactor lost later does not
/// undo it. After a restart the manager learns this from the link.
std::vector<ImageSet> SetKeeper::sets_in(const File& folder, const Policy& policy) {
  std::vector<ImageSet> sets = sets_of(pool_.state(), folder);
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
    const std::pair key(set.application, set.timestep);
    Looked& at = looked[key];
    if (known != looked_.end()) {
      if (const auto before = known->second.find(key); before != known->second.end()) {
        at = before->second;
      }
    }
    if (at.sequence != set.sequence) at = {set.sequence, 0};
    if (name_of(set) == linked) at.paid = set.names.size();
    set.lacks_copies = lacks_copies(folder, set, at);
  }
  looked_[folder.id] = std::move(looked);
  return sets;
}

/// Continues where the last call stopped, so that each image is examined about once.
bool SetKeeper::lacks_copies(const File& folder, const ImageSet& set, Looked& looked) const {
  if (copies_.lacks_nothing()) looked.paid = set.names.size();
  for (; looked.paid < set.names.size(); ++looked.paid) {
    const File& image = *pool_.state().file(folder.children.at(set.names[looked.paid]));
    const VersionData& version = image.newest;
    if (!version.drained && version.copies > 1 && copies_.lacks_copies(version)) return true;
  }
  return false;
}

/// Chooses the first set of an application, then every k-th. A set with drained images counts as
/// chosen: an earlier manager chose it.
void SetKeeper::choose(const File& folder, std::vector<ImageSet>& sets, std::uint64_t every) {
  Every& known = every_[folder.id];
  known.images.clear();
  std::set<std::pair<std::string_view, std::uint64_t>> there;
  for (ImageSet& set : sets) {
    there.emplace(set.application, set.timestep);
    Chosen& chosen = known.applications[set.application];
    const auto [decided, first_seen] = chosen.by_timestep.try_emplace(set.timestep, false);
    if (first_seen) {
      decided->second = set.drained > 0 || !chosen.any || chosen.left_out + 1 >= every;
      chosen.left_out = decided->second ? 0 : chosen.left_out + 1;
      chosen.any = true;
    }
    set.skipped = !decided->second && !set.pinned;
    if (set.skipped) continue;
    for (const std::string& name : set.names) known.images.insert(folder.children.at(name));
  }
  for (auto& application : known.applications) {
    std::erase_if(application.second.by_timestep, [&](const auto& decided) {
      return !there.contains({application.first, decided.first});
    });
  }
}

bool SetKeeper::skips(const File& file) const {
  const auto folder = every_.find(file.parent);
  if (folder == every_.end() || folder->second.images.contains(file.id)) return false;
  return !wanted_.contains(file.id) && parse_image_name(file.name).has_value();
}

/// Wants the newest whole set of each application, or its newest set if the policy gives no number
/// of images.
void SetKeeper::want_newest(const File& folder) {
  const Policy policy = pool_.policy(folder);
  const std::vector<ImageSet> sets = sets_of(pool_.state(), folder);
  std::map<std::string_view, const ImageSet*> newest;
  for (const ImageSet& set : sets) {
    if (policy.get(PolicyKey::kImages) == 0 || is_whole(set, policy)) {
      newest[set.application] = &set;
    }
  }
  for (const auto& [application, set] : newest) want_set(folder, *set);
}

void SetKeeper::want_set(const File& folder, const ImageSet& set) {
  for (const std::string& name : set.names) {
    const File& image = *pool_.state().file(folder.children.at(name));
    if (!image.newest.drained && skips(image)) wanted_.insert(image.id);
  }
}

bool SetKeeper::forget_drained() {
  return std::erase_if(wanted_, [&](FileId id) {
           const File* file = pool_.state().file(id);
           return file == nullptr || !file->parent || file->newest.drained;
         }) > 0;
}

void SetKeeper::want(FileId below) {
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
    const File& folder = *state.file(file.parent);
    const auto image = parse_image_name(file.name);
    for (const ImageSet& set : sets_of(state, folder)) {
      const bool same = set.application == image->application && set.timestep == image->timestep;
      if (same) want_set(folder, set);
    }
    return true;
  }
  return false;
}

void SetKeeper::execute(const File& folder, const SetsPlan& plan) {
  const FileId id = folder.id;
  link(folder, plan);
  for (const ImageSet* set : plan.prioritise) {
    for (const std::string& name : set->names) {
      const auto image = folder.children.find(name);
      if (image != folder.children.end()) prioritise_(image->second);
    }
  }
  for (const ImageSet* set : plan.remove) {
    if (removed_ >= kRemovedMax) {
      changed_.insert(id);
      return;
    }
    remove(id, *set);
  }
}

void SetKeeper::link(const File& folder, const SetsPlan& plan) {
  const auto there = folder.children.find(kLatestName);
  const File* link = there == folder.children.end() ? nullptr : pool_.state().file(there->second);
  if (link != nullptr && link->type != FileType::kSymlink) return;  // a user's own file
  std::vector<DrainedSet> drained;
  if (pool_.has_drain()) drained = newly_drained(folder, plan);
  const bool missed = link != nullptr && !link->in_drain && !folder.drained_sets.empty();
  if (drained.empty() && plan.latest == (link == nullptr ? std::string() : link->target) &&
      !(missed && pool_.has_drain())) {
    return;
  }
  if (drained.empty()) drained.emplace_back();
  const FileId id = folder.id;
  const FileId link_id = link == nullptr ? FileId{} : link->id;  // the command may erase the link
  for (DrainedSet& set : drained) {
    SetLatest command{id, FileId{pool_.next_id()}, plan.latest, std::move(set), pool_.wall_ns()};
    pool_.execute(std::move(command), [](const Result<Outcome>&) {});
  }
  notices_.entry_changed(id, kLatestName, {});
  if (link_id) notices_.file_changed(link_id, {});
  changed_.erase(id);
}

/// Removes a set from the pool. The drained files stay: they belong to the user.
void SetKeeper::remove(FileId folder, const ImageSet& set) {
  log::info("the set {} of {} images is removed as its folder's policy says", name_of(set),
            set.images);
  for (const std::string& name : set.names) {
    const RemoveName command{folder, name, false, pool_.wall_ns(), false};
    pool_.execute(command, [](const Result<Outcome>&) {});
    notices_.entry_changed(folder, name, {});
    ++removed_;
  }
}

}  // namespace stdchk::manager
