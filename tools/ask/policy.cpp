#include "core/policy/policy.h"

#include <nlohmann/json.hpp>

#include "tools/ask/commands.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

Outcome<Policy> parse_changes(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  auto changes = parse_policy(text);
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

int print_policy(client::Filesystem& filesystem, FileId file, bool json) {
  const auto policy = filesystem.policy(file);
  if (!policy) return complain(describe(policy.error()));
  Json object = Json::object();
  std::vector<std::vector<std::string>> table = {{"KEY", "VALUE", "FROM", "MEANING"}};
  for (const PolicyKey key : kPolicyKeys) {
    const std::string name(policy_name(key));
    const std::string value = shown_value(policy->effective, key);
    object[name] = {{"value", value}, {"from", origin(*policy, key)}};
    table.push_back({name, value, origin(*policy, key), std::string(policy_meaning(key))});
  }
  if (json) {
    print(object);
  } else {
    print_table(table, {});
  }
  return kExitGood;
}

}  // namespace

int run_policy(const PolicyOptions& options) {
  const bool set = options.action == "set";
  if (!set && options.action != "get") {
    return complain(
        fmt::format("policy \"{}\" is not known; there are get and set", options.action));
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
    const Status done = filesystem.set_policy(located->attributes.id, *changes);
    if (!done) return complain(fmt::format("{}: {}", options.path, describe(done.error())));
    if (!options.json) return kExitGood;
  }
  return print_policy(filesystem, located->attributes.id, options.json);
}

}  // namespace stdchk::tools
