#include "core/policy/set_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/policy/name_patterns.h"
#include "core/policy/policy.h"
#include "core/policy/set_naming.h"

namespace stdchk {
namespace {

constexpr std::size_t kBytesMax = 255;
constexpr SetRule kRules[] = {
    {"set",
     "kind of a set: names (files of one timestep) or directory (a subdirectory and all below)",
     "names"},
    {"series", "how names of images show application {A}, rank {N} and timestep {T}",
     "{A}.N{N}.T{T}"},
    {"set-names", "patterns such as step-*|chk* of the subdirectories that are sets", "all"},
    {"marker", "patterns of the file that makes a directory a whole set", "none"},
    {"pointer", "patterns of the files beside the sets that name the newest set", "none"},
};

}  // namespace

std::span<const SetRule> set_rules() { return kRules; }

bool is_set_rule(std::string_view key) {
  return std::ranges::find(kRules, key, &SetRule::key) != std::end(kRules);
}

Outcome<void> check_rule(std::string_view key, std::string_view value) {
  if (key == kRulePolicy) {
    const auto policy = parse_policy(value);
    return policy ? Outcome<void>() : problem(policy.error());
  }
  if (!is_set_rule(key)) return problem(fmt::format("no rule is called \"{}\"", key));
  if (value.size() > kBytesMax) {
    return problem(fmt::format("it has more than {} bytes", kBytesMax));
  }
  // Spaces and commas separate settings.
  if (value.find_first_of(" ,/\n\t") != std::string_view::npos) {
    return problem("it contains a space, a comma or a slash");
  }
  if (key == "set") {
    if (value == "names" || value == "directory") return {};
    return problem("the allowed values are names, directory");
  }
  return key == "series" ? SetNaming::check(value) : NamePatterns::check(value);
}

}  // namespace stdchk
