#include "manager/sets/safe_sets.h"

#include <algorithm>

namespace stdchk::manager {

void SafeSets::note(FileId folder, const std::vector<ImageSet>& sets,
                    const std::vector<const ImageSet*>& drained) {
  const auto known = by_folder_.find(folder);
  if (known != by_folder_.end()) {
    // A client writes an image of the set again: the drain directory then has images of two runs.
    const bool is_here = std::ranges::any_of(
        sets, [&](const ImageSet& set) { return set.name == known->second.name; });
    const bool is_safe = std::ranges::any_of(
        drained, [&](const ImageSet* set) { return set->name == known->second.name; });
    if (is_here && !is_safe) by_folder_.erase(known);
  }
  for (const ImageSet* set : drained) {
    SafeSet& newest = by_folder_[folder];
    if (set->newest_ns >= newest.newest_ns) newest = {set->name, set->newest_ns};
  }
}

std::optional<SafeSet> SafeSets::newest() const {
  const auto found = std::ranges::max_element(
      by_folder_, {}, [](const auto& entry) { return entry.second.newest_ns; });
  if (found == by_folder_.end()) return std::nullopt;
  return found->second;
}

}  // namespace stdchk::manager
