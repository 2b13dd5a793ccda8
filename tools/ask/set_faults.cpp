#include "tools/ask/set_faults.h"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "core/policy/set_naming.h"
#include "tools/base/set_names.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kSetsNamedMax = 3;  ///< sets of which a sentence is made

std::string_view rule_of(const SetFolder& folder, std::string_view key) {
  const auto found = folder.rules.find(key);
  return found == folder.rules.end() ? std::string_view{} : std::string_view(found->second);
}

/// Programs that read the set would take one of the two names, so such a set is never complete.
void find_double_names(const SetFolder& folder, std::vector<std::string>& out) {
  const SetNaming naming = naming_of(folder.rules);
  using Key = std::pair<std::string, std::uint64_t>;  // application and timestep
  std::map<std::pair<Key, std::uint64_t>, std::string_view> first_of_rank;
  std::map<Key, std::string_view> first_of_set;
  std::map<Key, std::string> found;
  for (const std::string& name : folder.names.files) {
    const auto image = naming.parse(name);
    if (!image) continue;
    const Key key{image->application, image->timestep};
    const std::string_view first = first_of_set.try_emplace(key, name).first->second;
    if (const std::string set = naming.set_of(first); naming.set_of(name) != set) {
      found.try_emplace(key, fmt::format("the set {} can never be complete: {} and {} write its "
                                         "timestep in two ways. Rename one of them",
                                         set, first, name));
    }
    if (image->is_word) continue;
    const auto [at, is_first] = first_of_rank.try_emplace({key, image->node}, name);
    if (is_first) continue;
    found.try_emplace(key, fmt::format("the set {} can never be complete: {} and {} are two names "
                                       "of one rank. Remove one of them",
                                       naming.set_of(name), at->second, name));
  }
  std::size_t named = 0;
  for (auto& [set, sentence] : found) {
    if (named++ < kSetsNamedMax) out.push_back(std::move(sentence));
  }
}

/// Finds words such as "base" that no set has. A program may still write its only set.
void find_missing_words(const SetFolder& folder, std::vector<std::string>& out) {
  const SetNaming naming = naming_of(folder.rules);
  std::set<std::pair<std::string, std::uint64_t>> sets;
  std::set<std::uint64_t> words;
  for (const std::string& name : folder.names.files) {
    const auto image = naming.parse(name);
    if (!image) continue;
    sets.emplace(image->application, image->timestep);
    if (image->is_word) words.insert(image->node);
  }
  if (sets.size() < kSetsJudgedMin) return;
  for (std::size_t i = 0; i < naming.words().size(); ++i) {
    if (words.contains(i)) continue;
    out.push_back(fmt::format(
        "no set can be complete: none has the file \"{}\" that series={} wants. If the program "
        "writes no such file, leave out the word",
        naming.words()[i], rule_of(folder, "series")));
  }
}

/// Finds settings for sets in a folder whose files have other names than A.Ni.Tj. Subdirectories may
/// have the images.
void find_other_names(const SetFolder& folder, std::vector<std::string>& out) {
  const bool has_images = any_is_image(SetNaming(), folder.names);
  const bool may_have_none = folder.names.files.empty() || !folder.names.directories.empty();
  if (!rule_of(folder, "series").empty() || has_images || may_have_none) return;
  std::string keys;
  for (const PolicyKey key : {PolicyKey::kImages, PolicyKey::kKeep, PolicyKey::kPurgeAfter,
                              PolicyKey::kMustBeDrained, PolicyKey::kDrainEvery}) {
    const std::uint64_t without = key == PolicyKey::kDrainEvery ? 1 : 0;
    if (folder.policy.get(key) == without) continue;
    keys += fmt::format("{}{}", keys.empty() ? "" : ", ", policy_name(key));
  }
  if (keys.empty()) return;
  out.push_back(
      fmt::format("{}: no effect, because no file has a name A.Ni.Tj. Set series=PATTERN, or a "
                  "preset that `stdchk "
                  "policy suggest` shows",
                  keys));
}

/// Returns the part of the name that the sets of an application have in common. Directories in a
/// folder count as sets of one application.
std::string application_of(const msg::ListSets::Entry& set) {
  if (!is_named(set)) return set.application;
  const std::size_t wildcard = set.application.find('*');
  return wildcard == std::string::npos ? std::string() : set.application.substr(0, wildcard);
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
    find_double_names(folder, out);
    find_missing_words(folder, out);
    find_other_names(folder, out);
  } else if (rule_of(folder, "marker").empty() && rule_of(folder, "pointer").empty() &&
             folder.policy.get(PolicyKey::kImages) == 0) {
    out.emplace_back(
        "without marker, pointer and images, a directory is a complete set only after "
        "`stdchk set commit`");
  }
  return out;
}

std::vector<std::string> find_incomplete_sets(const msg::ListSets::Reply& sets) {
  struct Newest {
    std::uint64_t incomplete = 0;
    const msg::ListSets::Entry* named = nullptr;
    bool has_complete = false;
  };
  std::map<std::string, Newest> applications;
  for (const msg::ListSets::Entry& set : sets.sets) {
    const bool is_begun = set.images > 0 || set.bytes > 0;
    Newest& newest = applications[application_of(set)];
    newest.has_complete = newest.has_complete || set.complete;
    if (newest.has_complete || !is_begun) continue;
    if (++newest.incomplete == kSetsJudgedMin) newest.named = &set;
  }
  std::vector<std::string> out;
  for (const auto& [application, newest] : applications) {
    if (newest.named == nullptr || newest.named->problem.empty()) continue;
    if (out.size() == kSetsNamedMax) break;
    out.push_back(fmt::format("the newest {} sets are not complete. {}: {}", newest.incomplete,
                              name_of_set(*newest.named), newest.named->problem));
  }
  return out;
}

}  // namespace stdchk::tools
