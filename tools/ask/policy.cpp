#include "core/policy/policy.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/policy/folder_settings.h"
#include "core/policy/image_placement.h"
#include "core/policy/presets.h"
#include "core/policy/set_rules.h"
#include "tools/ask/commands.h"
#include "tools/ask/set_folders.h"
#include "tools/ask/suggest.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/folder_rules.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

Outcome<FolderSettings> parse_changes(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  auto changes = parse_folder_settings(text);
  if (!changes) return problem("{}", changes.error().text);
  return std::move(*changes);
}

/// The origin of the effective value.
const char* origin(const msg::GetPolicy::Reply& policy, PolicyKey key) {
  if (policy.own.find(key)) return "this folder";
  return policy.effective.find(key) ? "inherited" : "default";
}

std::string shown_value(const Policy& policy, PolicyKey key) {
  if (key == PolicyKey::kChunking && !policy.chunking()) return "as the pool";
  return format_value({key, policy.get(key)});
}

int print_policy(client::Filesystem& filesystem, FileId file, const client::RulesInForce& rules,
                 bool json) {
  const auto policy = filesystem.policy(file);
  if (!policy) return complain(describe(policy.error()));
  Json object = Json::object();
  std::vector<std::vector<std::string>> table = {{"KEY", "VALUE", "FROM", "MEANING"}};
  for (const PolicyKey key : kAllPolicyKeys) {
    const std::string name(policy_name(key));
    const std::string value = shown_value(policy->effective, key);
    object[name] = {{"value", value}, {"from", origin(*policy, key)}};
    table.push_back({name, value, origin(*policy, key), std::string(policy_meaning(key))});
  }
  for (const SetRule& rule : set_rules()) {
    const std::string key(rule.key);
    const auto found = rules.find(key);
    const std::string value(found == rules.end() ? rule.otherwise : found->second.value);
    const char* const from = found == rules.end()   ? "default"
                             : found->second.is_own ? "this folder"
                                                    : "inherited";
    object[key] = {{"value", value}, {"from", from}};
    table.push_back({key, value, from, std::string(rule.meaning)});
  }
  if (json) {
    print(object);
  } else {
    print_table(table, {});
  }
  return kExitGood;
}

/// Reads the names in a folder, of a pool or not. Leaves out folders that cannot be read.
FolderNames names_in(const std::string& path) {
  FolderNames names;
  std::error_code code;
  for (fs::directory_iterator entry(path, code), end; !code && entry != end;
       entry.increment(code)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) {
      names.files.push_back(entry->path().filename());
      continue;
    }
    std::vector<std::string>& files = names.directories[entry->path().filename()];
    for (fs::directory_iterator below(entry->path(), ignored); !ignored && below != end;
         below.increment(ignored)) {
      files.push_back(below->path().filename());
    }
  }
  return names;
}

/// Suggests policies for the names in a folder.
int suggest(const PolicyOptions& options) {
  std::error_code code;
  if (!fs::is_directory(options.path, code)) {
    return complain(fmt::format("{} is not a folder", options.path));
  }
  const auto found = suggest_policies(names_in(options.path));
  if (options.json) {
    Json list = Json::array();
    for (const Suggestion& one : found) {
      list.push_back({{"settings", one.settings}, {"files", one.files}, {"sets", one.sets}});
    }
    print(list);
    return kExitGood;
  }
  if (found.empty()) {
    return complain(
        fmt::format("no preset fits the names in {}; the presets are {}. For other names set "
                    "series=PATTERN, or "
                    "set=directory with marker=NAME",
                    options.path, preset_names()));
  }
  std::vector<std::vector<std::string>> table = {{"SETS", "POLICY", "FILES"}};
  for (const Suggestion& one : found) {
    table.push_back({std::to_string(one.sets), one.settings, one.files});
  }
  print_table(table, {0});
  fmt::print("To set the first: stdchk policy set {} {}\n", options.path, found.front().settings);
  return kExitGood;
}

/// Warns of rules without effect on the present files, and of sets that can never be complete. The
/// change has been made: a failure to look at the files is no error.
void warn_of_faults(const Located& located, const client::RulesInForce& rules,
                    const std::string& path) {
  const auto faults =
      faults_of_sets(*located.filesystem, located.path, located.attributes.id, rules);
  if (!faults) return;
  for (const std::string& fault : *faults) {
    fmt::print(stderr, "stdchk: warning: {}: {}\n", path, shown(fault));
  }
}

/// Returns the keys among the changes that concern whole sets.
std::string keys_of_sets(const FolderSettings& changes) {
  std::string keys;
  const auto add = [&](std::string_view key) {
    if (!keys.empty()) keys += ", ";
    keys += key;
  };
  for (const auto& [key, value] : changes.rules) {
    if (!value.empty()) add(key);
  }
  for (const PolicyKey key : {PolicyKey::kImages, PolicyKey::kKeep, PolicyKey::kPurgeAfter,
                              PolicyKey::kMustBeDrained, PolicyKey::kDrainEvery, PolicyKey::kEnd}) {
    if (changes.policy.find(key)) add(policy_name(key));
  }
  return keys;
}

/// Warns of settings for sets inside a set. Only settings of the folder above the set take
/// effect.
void warn_inside_a_set(const Located& located, const FolderSettings& changes,
                       const std::string& path) {
  const std::string keys = keys_of_sets(changes);
  if (keys.empty()) return;
  const auto set = set_above(*located.filesystem, located.path);
  if (!set || set->empty()) return;
  const std::string above = fs::path(*set).parent_path();
  fmt::print(stderr,
             "stdchk: warning: {}: {} has no effect here, because /{} is a set; set it for /{}\n",
             path, keys, shown(*set), shown(above));
}

}  // namespace

int run_policy(const PolicyOptions& options) {
  if (options.action == "suggest") return suggest(options);
  const bool set = options.action == "set";
  if (!set && options.action != "get") {
    return complain(
        fmt::format("policy \"{}\" is not known; there are get, set and suggest", options.action));
  }
  if (set == options.settings.empty()) {
    return complain(set ? "policy set needs KEY=VALUE" : "policy get takes no KEY=VALUE");
  }
  const auto changes = parse_changes(options.settings);
  if (!changes) return complain(changes.error().text);
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  if (located->attributes.type != FileType::kDirectory) {
    return complain(fmt::format("{} is not a folder; a policy is its folder's", options.path));
  }
  if (set) {
    const auto done = client::change_settings(filesystem, located->attributes.id, *changes);
    if (!done) return complain(fmt::format("{}: {}", options.path, done.error().text));
  }
  const auto rules = find_rules(filesystem, located->path);
  if (!rules) return complain(rules.error().text);
  if (set && !options.json) {
    warn_inside_a_set(*located, *changes, options.path);
    warn_of_faults(*located, *rules, options.path);
    return kExitGood;
  }
  return print_policy(filesystem, located->attributes.id, *rules, options.json);
}

}  // namespace stdchk::tools
