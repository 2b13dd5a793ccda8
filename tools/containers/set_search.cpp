#include "tools/containers/set_search.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "tools/base/mounts.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDescriptionBytesMax = 16U << 20;

/// The numbers of the job's complete sets. The coordinator writes a set's description last.
std::vector<std::uint64_t> sets_in(const std::string& folder, const std::string& job,
                                   std::error_code& error) {
  std::vector<std::uint64_t> sets;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto set = container::set_of_name(job, entry->path().filename());
    if (set > 0) sets.push_back(set);
  }
  return sets;
}

}  // namespace

Outcome<FoundSet> find_set(const std::string& folder, const std::string& job,
                           const std::string& wanted) {
  const std::uint64_t number =
      wanted.empty() ? 0 : std::strtoull(wanted.c_str() + wanted.rfind('T') + 1, nullptr, 10);
  if (!wanted.empty() && number == 0) return problem("{} is not a set such as T5", wanted);
  std::uint64_t newest = 0, last = 0;
  std::error_code error;
  for (const std::uint64_t set : sets_in(folder, job, error)) {
    if (number == 0 || set == number) newest = std::max(newest, set);
    last = std::max(last, set);
  }
  if (error) return problem("{}: {}", folder, error.message());
  if (newest == 0) return problem("there is no complete set of job {} in {}", job, folder);
  std::ifstream file(folder + "/" + container::description_name(job, newest));
  std::string text(kDescriptionBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  auto set = container::parse_set(text);
  if (!set) return problem(set.error());
  return FoundSet{std::move(*set), last};
}

bool may_have_set(const std::string& folder, const std::string& job, const std::string& mount) {
  std::error_code error;
  const auto sets = sets_in(folder, job, error);
  const bool is_known = !error || error == std::errc::no_such_file_or_directory;
  // The mount is asked last: its end before the listing shows now, too.
  return !sets.empty() || !is_known || mount_at(mount).state != MountState::kAlive;
}

}  // namespace stdchk::tools
