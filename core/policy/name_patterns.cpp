#include "core/policy/name_patterns.h"

#include <fnmatch.h>

#include <algorithm>

namespace stdchk {
namespace {

/// Removes the first pattern from `text` and returns it.
std::string take_pattern(std::string_view& text) {
  const std::size_t end = std::min(text.find('|'), text.size());
  std::string pattern(text.substr(0, end));
  text.remove_prefix(std::min(text.size(), end + 1));
  return pattern;
}

}  // namespace

bool NamePatterns::match(std::string_view name) const {
  const std::string wanted(name);
  for (std::string_view rest = text_; !rest.empty();) {
    if (::fnmatch(take_pattern(rest).c_str(), wanted.c_str(), 0) == 0) return true;
  }
  return false;
}

Outcome<void> NamePatterns::check(std::string_view text) {
  if (text.ends_with('|')) return problem("its last pattern is empty");
  while (!text.empty()) {
    if (take_pattern(text).empty()) return problem("one of its patterns is empty");
  }
  return {};
}

}  // namespace stdchk
