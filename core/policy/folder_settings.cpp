#include "core/policy/folder_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/policy/presets.h"
#include "core/policy/set_rules.h"

namespace stdchk {
namespace {

tl::unexpected<Problem> refuse(std::string text) {
  return problem(Code::kInvalidArgument, "folder_settings", 0, std::move(text));
}

/// Removes the first word, which ends before a space or a comma, from `text` and returns it.
std::string_view take_word(std::string_view& text) {
  bool within = false;  // parentheses, as in ec(4,2)
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (text[end] == '(' || text[end] == ')') within = text[end] == '(';
    if (!within && (text[end] == ' ' || text[end] == ',')) break;
  }
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return word;
}

}  // namespace

Outcome<FolderSettings> parse_folder_settings(std::string_view text) {
  FolderSettings out;
  std::string of_policy;
  while (!text.empty()) {
    const std::string_view word = take_word(text);
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    if (key == kPresetKey) {
      const Preset* const preset = find_preset(value);
      if (preset == nullptr) {
        return refuse(
            fmt::format("no preset is called \"{}\"; there are {}", value, preset_names()));
      }
      auto settings = parse_folder_settings(preset->settings);
      if (!settings) return settings;
      for (auto& [rule, of_preset] : settings->rules) out.rules[rule] = of_preset;
      // First, so that images=8 counts beside a preset with images=1, whatever the order.
      of_policy.insert(0, std::string(preset->policy) + ' ');
    } else if (is_set_rule(key) && value == "inherit") {
      out.rules[std::string(key)].clear();
    } else if (is_set_rule(key)) {
      if (const auto valid = check_rule(key, value); !valid) {
        return refuse(fmt::format("{}={} is not valid: {}", key, value, valid.error().text));
      }
      out.rules[std::string(key)] = value;
    } else {
      of_policy += std::string(word) + ' ';
    }
  }
  auto policy = parse_policy(of_policy);
  if (!policy) return tl::unexpected(policy.error());
  out.policy = std::move(*policy);
  return out;
}

}  // namespace stdchk
