#include "tools/base/folder_rules.h"

#include <filesystem>

#include "core/policy/set_rules.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

/// Sets the attribute, or removes it when `value` is empty.
Status store(client::Filesystem& filesystem, FileId folder, std::string_view key,
             const std::string& value) {
  msg::SetXattr change;
  change.file = folder;
  change.name = std::string(kXattrRule) + std::string(key);
  change.value = value;
  change.remove = value.empty();
  const Status done = filesystem.set_xattr(change);
  if (!done && change.remove && done.error().code == Code::kNoAttribute) return {};
  return done;
}

std::string text_of(const Policy& policy) {
  std::string text;
  for (const PolicySetting& setting : policy.settings) {
    const std::string_view name = policy_name(setting.key);
    if (name.empty()) continue;  // of a newer version
    if (!text.empty()) text += ' ';
    text += std::string(name) + "=" + format_value(setting);
  }
  return text;
}

}  // namespace

Result<RulesInForce> own_rules(client::Filesystem& filesystem, FileId folder) {
  RulesInForce rules;
  STDCHK_ASSIGN(const auto attributes, filesystem.xattrs(folder));
  for (const auto& [name, value] : attributes) {
    if (!name.starts_with(kXattrRule)) continue;
    const std::string key = name.substr(kXattrRule.size());
    if (is_set_rule(key)) rules.try_emplace(key, RuleInForce{value, true});
  }
  return rules;
}

Outcome<RulesInForce> find_rules(client::Filesystem& filesystem, const std::string& path) {
  RulesInForce rules;
  bool is_own = true;
  for (fs::path at = path;; at = at.parent_path()) {
    const auto folder = filesystem.resolve(at.string());
    if (!folder) return failed(at.empty() ? "/" : at.string(), folder.error());
    const auto own = own_rules(filesystem, folder->id);
    if (!own) return failed(at.empty() ? "/" : at.string(), own.error());
    for (const auto& [key, rule] : *own) rules.try_emplace(key, RuleInForce{rule.value, is_own});
    is_own = false;
    if (at.empty()) break;
  }
  return rules;
}

std::string_view value_of(const RulesInForce& rules, std::string_view key) {
  const auto found = rules.find(key);
  return found == rules.end() ? std::string_view{} : std::string_view(found->second.value);
}

SetNaming naming_of(const RulesInForce& rules) {
  const std::string_view series = value_of(rules, "series");
  const bool is_usable = !series.empty() && SetNaming::check(series);
  return is_usable ? SetNaming(series) : SetNaming();
}

Status store_rules(client::Filesystem& filesystem, FileId folder, const FolderSettings& settings,
                   const Policy& own) {
  for (const auto& [key, value] : settings.rules) {
    if (auto done = store(filesystem, folder, key, value); !done) return done;
  }
  if (settings.policy.settings.empty()) return {};
  return store(filesystem, folder, kRulePolicy, text_of(own));
}

}  // namespace stdchk::tools
