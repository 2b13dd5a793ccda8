#include "tools/ask/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/policy/folder_settings.h"
#include "core/policy/name_patterns.h"
#include "core/policy/presets.h"
#include "core/policy/set_naming.h"

namespace stdchk::tools {
namespace {

using Rules = std::map<std::string, std::string, std::less<>>;  ///< by key

/// Returns the value of a rule; empty without the rule. It refers to `rules`.
std::string_view value_of(const Rules& rules, std::string_view key) {
  const auto found = rules.find(key);
  return found == rules.end() ? std::string_view{} : std::string_view(found->second);
}

bool any_matches(const std::vector<std::string>& names, const NamePatterns& patterns) {
  return std::ranges::any_of(names, [&](const auto& name) { return patterns.match(name); });
}

/// Counts the directories that are sets. Without a marker and without a file that `part` matches,
/// the policy needs its pointer.
std::uint64_t count_directories(const Rules& rules, std::string_view part,
                                const FolderNames& names) {
  const NamePatterns sets(value_of(rules, "set-names"));
  const std::string_view marker = value_of(rules, "marker");
  const NamePatterns signs(marker.empty() ? part : marker);
  const NamePatterns pointers(value_of(rules, "pointer"));
  if (signs.empty() && !any_matches(names.files, pointers)) return 0;
  return static_cast<std::uint64_t>(std::ranges::count_if(names.directories, [&](const auto& at) {
    const bool is_set = sets.empty() || sets.match(at.first);
    return is_set && (signs.empty() || any_matches(at.second, signs));
  }));
}

struct Counts {
  std::uint64_t sets = 0;
  std::uint64_t ranks = 0;  ///< in the set that has most
};

/// Counts the sets of files. A set without one of the naming's words does not count.
Counts count_images(const SetNaming& naming, const FolderNames& names) {
  struct Set {
    std::set<std::uint64_t> ranks;
    std::set<std::uint64_t> words;
  };
  std::map<std::pair<std::string, std::uint64_t>, Set> sets;
  for (const std::string& name : names.files) {
    const auto image = naming.parse(name);
    if (!image) continue;
    Set& set = sets[{image->application, image->timestep}];
    (image->is_word ? set.words : set.ranks).insert(image->node);
  }
  Counts counts;
  for (const auto& [key, set] : sets) {
    if (set.words.size() < naming.words().size() || set.ranks.empty()) continue;
    ++counts.sets;
    counts.ranks = std::max<std::uint64_t>(counts.ranks, set.ranks.size());
  }
  return counts;
}

/// Finds a marker that no set has. Without markers, finds a pointer that no file matches. A program
/// may still write its only set.
void find_idle_marks(const Rules& rules, const FolderNames& names, std::vector<std::string>& out) {
  const std::string_view marker = value_of(rules, "marker");
  const std::string_view pointer = value_of(rules, "pointer");
  const NamePatterns sets(value_of(rules, "set-names"));
  const NamePatterns markers(marker);
  std::uint64_t with_files = 0;
  for (const auto& [name, files] : names.directories) {
    if (files.empty() || !(sets.empty() || sets.match(name))) continue;
    if (!marker.empty() && any_matches(files, markers)) return;
    ++with_files;
  }
  if (with_files < kSetsJudgedMin) return;
  if (!marker.empty()) out.push_back(fmt::format("no file in the sets matches marker={}", marker));
  if (!pointer.empty() && !any_matches(names.files, NamePatterns(pointer))) {
    out.push_back(fmt::format("no file beside the sets matches pointer={}", pointer));
  }
}

std::optional<Suggestion> try_preset(const Preset& preset, const FolderNames& names) {
  const auto settings = parse_folder_settings(fmt::format("{} {}", preset.settings, preset.policy));
  if (!settings) return std::nullopt;
  const Rules& rules = settings->rules;
  Suggestion out{fmt::format("{}={}", kPresetKey, preset.name), std::string(preset.files), 0};
  if (value_of(rules, "set") == "directory") {
    out.sets = count_directories(rules, preset.part, names);
  } else {
    const Counts counts = count_images(naming_of(rules), names);
    out.sets = counts.sets;
    if (settings->policy.get(PolicyKey::kImages) == 0) {
      out.settings += fmt::format(" images={}", counts.ranks);
    }
  }
  const bool is_shown = any_matches(names.files, NamePatterns(preset.sign));
  if (out.sets == 0 && !is_shown) return std::nullopt;
  return out;
}

}  // namespace

SetNaming naming_of(const Rules& rules) {
  const std::string_view text = value_of(rules, "series");
  return text.empty() ? SetNaming() : SetNaming(text);
}

bool any_is_image(const SetNaming& naming, const FolderNames& names) {
  return std::ranges::any_of(names.files,
                             [&](const auto& name) { return naming.parse(name).has_value(); });
}

std::vector<Suggestion> suggest_policies(const FolderNames& names) {
  std::vector<Suggestion> out;
  for (const Preset& preset : presets()) {
    if (auto suggestion = try_preset(preset, names)) out.push_back(std::move(*suggestion));
  }
  return out;
}

std::vector<std::string> find_idle_rules(
    const std::map<std::string, std::string, std::less<>>& rules, const FolderNames& names) {
  std::vector<std::string> out;
  const std::string_view sets = value_of(rules, "set-names");
  const std::string_view series = value_of(rules, "series");
  if (value_of(rules, "set") != "directory") {
    for (const char* key : {"set-names", "marker", "pointer"}) {
      if (!value_of(rules, key).empty()) {
        out.push_back(fmt::format("{} has no effect without set=directory", key));
      }
    }
    if (!series.empty() && !names.files.empty() && !any_is_image(naming_of(rules), names)) {
      out.push_back(fmt::format("no file matches series={}", series));
    }
    return out;
  }
  if (!series.empty()) out.emplace_back("series has no effect with set=directory");
  const NamePatterns patterns(sets);
  const bool any = std::ranges::any_of(names.directories,
                                       [&](const auto& at) { return patterns.match(at.first); });
  const bool has_entries = !names.directories.empty() || !names.files.empty();
  if (!sets.empty() && has_entries && !any) {
    out.push_back(fmt::format("no subdirectory matches set-names={}", sets));
  }
  find_idle_marks(rules, names, out);
  return out;
}

}  // namespace stdchk::tools
