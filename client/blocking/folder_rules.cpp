#include "client/api/folder_rules.h"

#include <string_view>

#include "core/policy/policy.h"
#include "core/policy/set_rules.h"

namespace stdchk::client {
namespace {

/// Sets the attribute, or removes it when `value` is empty.
Status store(Filesystem& filesystem, FileId folder, std::string_view key,
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

Status store_rules(Filesystem& filesystem, FileId folder, const FolderSettings& settings,
                   const Policy& own) {
  for (const auto& [key, value] : settings.rules) {
    if (auto done = store(filesystem, folder, key, value); !done) return done;
  }
  if (settings.policy.settings.empty()) return {};
  return store(filesystem, folder, kRulePolicy, text_of(own));
}

}  // namespace

Result<RulesInForce> own_rules(Filesystem& filesystem, FileId folder) {
  RulesInForce rules;
  STDCHK_ASSIGN(const auto attributes, filesystem.xattrs(folder));
  for (const auto& [name, value] : attributes) {
    if (!name.starts_with(kXattrRule)) continue;
    const std::string key = name.substr(kXattrRule.size());
    if (is_set_rule(key)) rules.try_emplace(key, RuleInForce{value, true});
  }
  return rules;
}

Outcome<void> change_settings(Filesystem& filesystem, FileId folder,
                              const FolderSettings& changes) {
  if (!changes.policy.settings.empty()) {
    if (auto done = filesystem.set_policy(folder, changes.policy); !done) return done;
  }
  const auto policy = filesystem.policy(folder);
  if (!policy) return problem(policy.error());
  const Status stored = store_rules(filesystem, folder, changes, policy->own);
  if (!stored) return problem(stored.error());
  return {};
}

Status commit_set(Filesystem& filesystem, FileId directory) {
  msg::SetXattr change;
  change.file = directory;
  change.name = "user.stdchk.set.committed";
  change.value = "1";
  return filesystem.set_xattr(change);
}

}  // namespace stdchk::client
