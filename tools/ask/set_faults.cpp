#include "tools/ask/set_faults.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/policy/set_naming.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kSetsNamedMax = 3;  ///< sets of which a sentence is made

std::string_view rule_of(const SetFolder& folder, std::string_view key) {
  const auto found = folder.rules.find(key);
  return found == folder.rules.end() ? std::string_view{} : std::string_view(found->second);
}

/// Programs that read the set would take one of the two names, so such a set is never complete.
void find_double_ranks(const SetFolder& folder, std::vector<std::string>& out) {
  const std::string_view pattern = rule_of(folder, "series");
  const SetNaming naming = pattern.empty() ? SetNaming() : SetNaming(pattern);
  using Key = std::pair<std::string, std::uint64_t>;  // application and timestep
  std::map<std::pair<Key, std::uint64_t>, std::string_view> first_names;
  std::map<Key, std::string> found;
  for (const std::string& name : folder.names.files) {
    const auto image = naming.parse(name);
    if (!image || image->is_word) continue;
    const Key set{image->application, image->timestep};
    const auto [at, is_first] = first_names.try_emplace({set, image->node}, name);
    if (is_first) continue;
    found.try_emplace(set, fmt::format("the set {} can never be complete: {} and {} are two names "
                                       "of one rank. Remove one of them",
                                       naming.set_of(name), at->second, name));
  }
  std::size_t named = 0;
  for (auto& [set, sentence] : found) {
    if (named++ < kSetsNamedMax) out.push_back(std::move(sentence));
  }
}

}  // namespace

std::vector<std::string> find_set_faults(const SetFolder& folder) {
  std::vector<std::string> out = find_idle_rules(folder.rules, folder.names);
  if (folder.policy.get(PolicyKey::kMustBeDrained) != 0) {
    const std::uint64_t every = folder.policy.get(PolicyKey::kDrainEvery);
    if (!folder.pool_drains) {
      out.emplace_back(
          "no set can be complete: must-be-drained=yes, and this pool has no drain directory "
          "(stdchk up --drain DIR)");
    } else if (every > 1) {
      out.push_back(fmt::format(
          "sets that drain-every={} leaves out are never complete, because must-be-drained=yes",
          every));
    }
  }
  if (rule_of(folder, "set") != "directory") {
    find_double_ranks(folder, out);
  } else if (rule_of(folder, "marker").empty() && rule_of(folder, "pointer").empty() &&
             folder.policy.get(PolicyKey::kImages) == 0) {
    out.emplace_back(
        "without marker, pointer and images, a directory is a complete set only after "
        "`stdchk set commit`");
  }
  return out;
}

}  // namespace stdchk::tools
