#include "tools/ask/set_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "client/api/is_gone.h"
#include "core/policy/name_patterns.h"
#include "tools/ask/set_faults.h"
#include "tools/ask/suggest.h"
#include "tools/base/folder_rules.h"
#include "tools/base/left_out.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kFoldersMax = 10'000;
constexpr std::size_t kNamesMax = 1000;  ///< names of a folder that are compared with presets
constexpr std::size_t kSetsMax = 16;     ///< sets of a folder whose markers are looked for
constexpr std::uint64_t kSetsMin = 2;    ///< one set may look like another program's by chance

constexpr auto kNoSeries = static_cast<std::size_t>(-1);

/// A folder in the queue of a Walk, with its parent folder's rules.
struct Next {
  FileId folder;
  std::string path;
  client::RulesInForce rules;
  std::size_t series = kNoSeries;  ///< number of the folder whose rule `series` is in force
};

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

/// Returns true for a directory that is a set by the rules of the folders above.
bool is_set(const std::string& path, const client::RulesInForce& rules) {
  const auto kind = rules.find("set");
  if (kind == rules.end() || kind->second.is_own || kind->second.value != "directory") return false;
  return NamePatterns(value_of(rules, "set-names")).match(path.substr(path.rfind('/') + 1));
}

/// A Walk examines all folders of a pool.
class Walk {
 public:
  explicit Walk(client::Filesystem& filesystem) : filesystem_(filesystem) {}

  Outcome<SetFolders> run() {
    std::vector<Next> todo{{kRootFile, "", {}, kNoSeries}};
    for (std::size_t looked = 0; !todo.empty() && looked < kFoldersMax; ++looked) {
      Next at = std::move(todo.back());
      todo.pop_back();
      if (auto done = examine(at, todo); !done) return problem(done.error());
    }
    if (todo.empty()) find_idle_series();
    for (auto& [path, folder] : unruled_) suggest(path, folder);
    std::ranges::sort(found_.faulty, {}, &FaultyFolder::path);
    return std::move(found_);
  }

 private:
  /// A folder without rules of sets.
  struct Unruled {
    FolderNames names;
    bool knows_images = false;  ///< the policy says how many images a set has
  };

  /// A folder with a rule `series`. Counts the files that the pattern may match.
  struct Series {
    std::string path;
    std::string pattern;
    SetNaming naming;
    std::uint64_t files_below = 0;
    bool has_images = false;
    bool has_own_files = false;  ///< find_set_faults() has judged them
  };

  Outcome<void> examine(Next& at, std::vector<Next>& todo) {
    const auto policy = filesystem_.policy(at.folder);
    if (!policy) return failed_unless_gone(at.path, policy.error());
    const auto own = client::own_rules(filesystem_, at.folder);
    if (!own) return failed_unless_gone(at.path, own.error());
    for (auto& [key, rule] : at.rules) rule.is_own = false;
    for (const auto& [key, rule] : *own) at.rules[key] = rule;
    std::vector<std::string> faults;
    if (!own->empty() || !policy->own.settings.empty()) {
      auto found = faults_of_sets(filesystem_, at.path, at.folder, at.rules);
      if (!found) return problem(found.error());
      faults = std::move(*found);
    }
    const bool has_sets = !at.rules.empty() || policy->effective.get(PolicyKey::kImages) > 0;
    if (has_sets && !is_set(at.path, at.rules)) {
      const auto sets = filesystem_.sets(at.folder);
      if (!sets) return failed_unless_gone(at.path, sets.error());
      std::ranges::move(find_incomplete_sets(*sets), std::back_inserter(faults));
    }
    if (!faults.empty()) found_.faulty.push_back({at.path, std::move(faults)});
    if (own->contains("series") || own->contains("set")) at.series = series_of(at);
    const auto entries = filesystem_.read_directory(at.folder);
    if (!entries) return failed_unless_gone(at.path, entries.error());
    Unruled seen;
    seen.knows_images = policy->effective.get(PolicyKey::kImages) > 0;
    for (const auto& entry : *entries) {
      if (entry.attributes.type == FileType::kDirectory) {
        todo.push_back({entry.attributes.id, join(at.path, entry.name), at.rules, at.series});
        if (seen.names.directories.size() < kNamesMax) seen.names.directories[entry.name];
      } else if (seen.names.files.size() < kNamesMax) {
        seen.names.files.push_back(entry.name);
      }
      if (entry.attributes.type == FileType::kRegular) note_file(at, entry.name);
    }
    if (at.rules.empty()) unruled_.emplace(at.path, std::move(seen));
    return {};
  }

  /// Returns the number of the folder with its rule `series`; kNoSeries: it has no such sets.
  std::size_t series_of(const Next& at) {
    const std::string_view pattern = value_of(at.rules, "series");
    if (pattern.empty() || value_of(at.rules, "set") == "directory") return kNoSeries;
    series_.push_back({at.path, std::string(pattern), naming_of(at.rules)});
    return series_.size() - 1;
  }

  void note_file(const Next& at, const std::string& name) {
    if (at.series == kNoSeries) return;
    Series& series = series_[at.series];
    if (at.path == series.path) {
      series.has_own_files = true;
    } else {
      ++series.files_below;
    }
    series.has_images = series.has_images || series.naming.parse(name);
  }

  /// Finds rules `series` for folders below that no file there matches.
  void find_idle_series() {
    for (const Series& series : series_) {
      if (series.has_images || series.has_own_files || series.files_below == 0) continue;
      std::string sentence = fmt::format("no file below matches series={}", series.pattern);
      const auto known = std::ranges::find(found_.faulty, series.path, &FaultyFolder::path);
      if (known != found_.faulty.end()) {
        known->faults.push_back(std::move(sentence));
      } else {
        found_.faulty.push_back({series.path, {std::move(sentence)}});
      }
    }
  }

  /// Adds the folder to `fitting` if a preset matches its names. Leaves out preset=lammps-single,
  /// which also matches log files such as "log.1".
  void suggest(const std::string& path, Unruled& folder) {
    for (auto& [name, files] : folder.names.directories) {
      const auto below = unruled_.find(join(path, name));
      if (below != unruled_.end()) files = below->second.names.files;
    }
    for (Suggestion& one : suggest_policies(folder.names)) {
      const bool is_vague = one.settings.starts_with("preset=lammps-single");
      const bool is_known = one.settings.starts_with("preset=names") && folder.knows_images;
      if (is_vague || is_known || one.sets < kSetsMin) continue;
      found_.fitting.push_back({path, std::move(one.settings), std::move(one.files)});
      return;
    }
  }

  client::Filesystem& filesystem_;
  std::map<std::string, Unruled> unruled_;  ///< by path
  std::vector<Series> series_;
  SetFolders found_;
};

/// Reads the names in the last directories that are sets, and adds them to `names`. Only rules with
/// a marker or a pointer need these names.
Outcome<void> look_into_sets(client::Filesystem& filesystem,
                             const std::map<std::string, FileId>& directories,
                             const client::RulesInForce& rules, FolderNames& names) {
  if (value_of(rules, "set") != "directory") return {};
  if (value_of(rules, "marker").empty() && value_of(rules, "pointer").empty()) return {};
  const NamePatterns sets(value_of(rules, "set-names"));
  std::size_t looked = 0;
  for (auto at = directories.rbegin(); at != directories.rend() && looked < kSetsMax; ++at) {
    if (!sets.empty() && !sets.match(at->first)) continue;
    ++looked;
    const auto entries = filesystem.read_directory(at->second);
    if (!entries && client::is_gone(entries.error())) continue;
    if (!entries) return failed(at->first, entries.error());
    for (const auto& entry : *entries) names.directories[at->first].push_back(entry.name);
  }
  return {};
}

}  // namespace

Outcome<std::vector<std::string>> faults_of_sets(client::Filesystem& filesystem,
                                                 const std::string& path, FileId folder,
                                                 const client::RulesInForce& rules) {
  if (is_set(path, rules)) return std::vector<std::string>();
  SetFolder seen;
  const auto policy = filesystem.policy(folder);
  if (!policy) return failed("the policy", policy.error());
  seen.policy = policy->effective;
  seen.pool_drains = !filesystem.config().drain_directory.empty();
  for (const auto& [key, rule] : rules) seen.rules[key] = rule.value;
  const auto entries = filesystem.read_directory(folder);
  if (!entries) return failed("the folder", entries.error());
  std::map<std::string, FileId> directories;
  for (const auto& entry : *entries) {
    if (entry.attributes.type == FileType::kDirectory) {
      seen.names.directories[entry.name];
      directories[entry.name] = entry.attributes.id;
    } else if (entry.attributes.type == FileType::kRegular) {
      seen.names.files.push_back(entry.name);
    }
  }
  if (auto done = look_into_sets(filesystem, directories, rules, seen.names); !done) {
    return problem(done.error());
  }
  return find_set_faults(seen);
}

Outcome<std::string> set_above(client::Filesystem& filesystem, const std::string& path) {
  std::string folder;
  for (std::size_t end = 0; end < path.size();) {
    const std::size_t begin = end;
    end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const auto rules = find_rules(filesystem, folder);
    if (!rules) return problem(rules.error());
    folder = join(folder, name);
    if (end < path.size()) ++end;
    const auto kind = rules->find("set");
    if (kind == rules->end() || kind->second.value != "directory") continue;
    const std::string_view patterns = value_of(*rules, "set-names");
    // Without patterns, the subdirectories of the folder that has the rule are sets.
    const bool is_set = patterns.empty() ? kind->second.is_own : NamePatterns(patterns).match(name);
    if (is_set) return folder;
  }
  return std::string();
}

Outcome<SetFolders> examine_set_folders(client::Filesystem& filesystem) {
  return Walk(filesystem).run();
}

}  // namespace stdchk::tools
