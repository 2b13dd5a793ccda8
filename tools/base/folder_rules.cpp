#include "tools/base/folder_rules.h"

#include <filesystem>

#include "core/policy/set_rules.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

}  // namespace

Outcome<client::RulesInForce> find_rules(client::Filesystem& filesystem, const std::string& path) {
  client::RulesInForce rules;
  bool is_own = true;
  for (fs::path at = path;; at = at.parent_path()) {
    const auto folder = filesystem.resolve(at.string());
    if (!folder) return failed(at.empty() ? "/" : at.string(), folder.error());
    const auto own = client::own_rules(filesystem, folder->id);
    if (!own) return failed(at.empty() ? "/" : at.string(), own.error());
    for (const auto& [key, rule] : *own)
      rules.try_emplace(key, client::RuleInForce{rule.value, is_own});
    is_own = false;
    if (at.empty()) break;
  }
  return rules;
}

std::string_view value_of(const client::RulesInForce& rules, std::string_view key) {
  const auto found = rules.find(key);
  return found == rules.end() ? std::string_view{} : std::string_view(found->second.value);
}

SetNaming naming_of(const client::RulesInForce& rules) {
  const std::string_view series = value_of(rules, "series");
  const bool is_usable = !series.empty() && SetNaming::check(series);
  return is_usable ? SetNaming(series) : SetNaming();
}

}  // namespace stdchk::tools
