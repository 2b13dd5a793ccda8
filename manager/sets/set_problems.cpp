#include "manager/sets/set_problems.h"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <vector>

#include "core/policy/set_naming.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kRanksNamedMax = 3;

/// Returns the ranks whose images count. A file with several names may be missing here.
std::set<std::uint64_t> ranks_of(const State& state, const File& folder, const ImageSet& set) {
  std::set<std::uint64_t> ranks;
  const SetNaming* const naming = state.set_names().naming(folder);
  if (naming == nullptr) return ranks;
  for (const FileId id : set.members) {
    const File& file = *state.file(id);
    const auto image = naming->parse(file.name);
    if (!image || image->is_word || file.newest.partial || file.newest.content() == 0) continue;
    const bool is_stale = file.newest.written <= state.set_generations().begun(folder.id, *image);
    if (!is_stale) ranks.insert(image->node);
  }
  return ranks;
}

/// Names the first ranks without an image, as far as the names tell. Some programs count their ranks
/// from 1, so ranks are named only if the set has rank 0.
std::string missing_ranks(const std::set<std::uint64_t>& ranks, std::uint64_t wanted) {
  if (!ranks.contains(0)) return {};
  std::vector<std::uint64_t> missing;
  for (std::uint64_t rank = 0; rank < wanted && missing.size() <= kRanksNamedMax; ++rank) {
    if (!ranks.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return {};
  if (missing.size() == 1) return fmt::format("; rank {} is missing", missing.front());
  const bool is_long = missing.size() > kRanksNamedMax;
  if (is_long) missing.pop_back();
  return fmt::format("; ranks {}{} are missing", fmt::join(missing, ", "),
                     is_long ? " and others" : "");
}

/// Returns the problem of a set of images in the folder; empty: all images are there.
std::string problem_of_images(const State& state, const File& folder, const ImageSet& set,
                              const Policy& policy) {
  const std::uint64_t wanted = set.whole > 0 ? set.whole : policy.get(PolicyKey::kImages);
  if (wanted == 0) return "the policy does not say how many images a set has (images=N)";
  std::string earlier =
      set.stale > 0
          ? fmt::format("{} of an earlier start of the application do not count", set.stale)
          : "";
  if (set.images >= wanted) return earlier;
  const std::set<std::uint64_t> ranks = ranks_of(state, folder, set);
  const bool are_known = ranks.size() == set.images;
  return fmt::format("it has {} of {} images{}{}{}", set.images, wanted,
                     are_known ? missing_ranks(ranks, wanted) : "", earlier.empty() ? "" : "; ",
                     earlier);
}

}  // namespace

std::string why_incomplete(const State& state, const File& folder, const ImageSet& set,
                           const Policy& policy) {
  if (is_complete(set, policy)) return {};
  if (!set.problem.empty()) return set.problem;
  if (!set.directory) {
    std::string problem = problem_of_images(state, folder, set, policy);
    if (!problem.empty()) return problem;
  }
  if (set.lacks_copies) return "copies or parity are still to be made";
  return fmt::format("{} of its {} files are drained, and must-be-drained=yes", set.drained,
                     set.images + set.stale + set.others);
}

}  // namespace stdchk::manager
