#include "tools/ask/set_folders.h"

#include <algorithm>
#include <utility>

#include "tools/ask/set_faults.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kFoldersMax = 10'000;

/// A folder of the queue of find_faulty_folders(), with the rules of the folder above.
struct Next {
  FileId folder;
  std::string path;
  RulesInForce rules;
};

}  // namespace

Outcome<std::vector<std::string>> faults_of_sets(client::Filesystem& filesystem, FileId folder,
                                                 const RulesInForce& rules) {
  SetFolder seen;
  const auto policy = filesystem.policy(folder);
  if (!policy) return failed("the policy", policy.error());
  seen.policy = policy->effective;
  seen.pool_drains = !filesystem.config().drain_directory.empty();
  for (const auto& [key, rule] : rules) seen.rules[key] = rule.value;
  const auto entries = filesystem.read_directory(folder);
  if (!entries) return failed("the folder", entries.error());
  for (const auto& entry : *entries) {
    if (entry.attributes.type == FileType::kDirectory) {
      seen.names.directories[entry.name];
    } else if (entry.attributes.type == FileType::kRegular) {
      seen.names.files.push_back(entry.name);
    }
  }
  return find_set_faults(seen);
}

Outcome<std::vector<FaultyFolder>> find_faulty_folders(client::Filesystem& filesystem) {
  std::vector<FaultyFolder> out;
  std::vector<Next> todo{{kRootFile, "", {}}};
  for (std::size_t looked = 0; !todo.empty() && looked < kFoldersMax; ++looked) {
    Next at = std::move(todo.back());
    todo.pop_back();
    const auto policy = filesystem.policy(at.folder);
    if (!policy) return failed(at.path, policy.error());
    const auto own = own_rules(filesystem, at.folder);
    if (!own) return failed(at.path, own.error());
    for (const auto& [key, rule] : *own) at.rules[key] = rule;
    if (!own->empty() || !policy->own.settings.empty()) {
      auto faults = faults_of_sets(filesystem, at.folder, at.rules);
      if (!faults) return problem(faults.error());
      if (!faults->empty()) out.push_back({at.path, std::move(*faults)});
    }
    const auto entries = filesystem.read_directory(at.folder);
    if (!entries) return failed(at.path, entries.error());
    for (const auto& entry : *entries) {
      if (entry.attributes.type != FileType::kDirectory) continue;
      todo.push_back({entry.attributes.id,
                      at.path.empty() ? entry.name : at.path + "/" + entry.name, at.rules});
    }
  }
  std::ranges::sort(out, {}, &FaultyFolder::path);
  return out;
}

}  // namespace stdchk::tools
