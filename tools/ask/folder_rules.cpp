#include "tools/ask/folder_rules.h"

#include <filesystem>

#include "core/policy/set_rules.h"
#include "tools/base/connection.h"

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

RulesInForce find_rules(const std::string& pool, const std::string& path) {
  RulesInForce rules;
  bool is_own = true;
  for (fs::path at = fs::absolute(path).lexically_normal();; at = at.parent_path()) {
    const auto located = locate(pool, at.string());
    if (!located) break;
    const auto own = own_rules(*located->filesystem, located->attributes.id);
    if (!own) break;
    for (const auto& [key, rule] : *own) rules.try_emplace(key, RuleInForce{rule.value, is_own});
    is_own = false;
    if (located->attributes.id == kRootFile || at == at.parent_path()) break;
  }
  return rules;
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
