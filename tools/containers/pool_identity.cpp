#include "tools/containers/pool_identity.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace stdchk::tools {
namespace {

constexpr std::array<std::string_view, 6> kUnsuitable{"--export", "--no-mount", "--node",
                                                      "--detach", "--help",     "-h"};

}  // namespace

PoolIdentity identity_of(const PoolRecord& pool) {
  return {pool.directory, pool.mount, pool.created, pool.starter, pool.starter_boot};
}

Outcome<std::string> folder_in_pool(const std::string& folder, const std::string& earlier_mount,
                                    const std::string& mount) {
  if (folder.empty()) return folder;
  const std::string full = absolute_path(folder);
  if (is_below(full, mount)) return full;
  if (!earlier_mount.empty() && is_below(full, earlier_mount)) {
    return mount + full.substr(earlier_mount.size());
  }
  const std::string in_pool = (std::filesystem::path("/") / folder).lexically_normal();
  if (!folder.starts_with('/')) return absolute_path(mount + in_pool);
  return problem("{} is not below {}; name the folder of the sets by its path in the pool, as JOB",
                 folder, mount);
}

Outcome<void> check_up_words(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (std::ranges::find(kUnsuitable, word.substr(0, word.find('='))) == kUnsuitable.end()) {
      continue;
    }
    return problem("--up: {} does not suit the pool of a job; leave it out", word);
  }
  return {};
}

}  // namespace stdchk::tools
