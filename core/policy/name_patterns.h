#pragma once

#include <string>
#include <string_view>

#include "core/base/problem.h"

namespace stdchk {

/// NamePatterns are patterns of file names, separated by "|". Each is a pattern of fnmatch(3): "*"
/// stands for any text, "?" for one character, "[a-z]" for one of several.
class NamePatterns {
 public:
  /// Refers to `text`, which the caller keeps. No pattern matches when it is empty.
  explicit NamePatterns(std::string_view text) : text_(text) {}

  bool empty() const { return text_.empty(); }
  bool match(std::string_view name) const;
  /// Refuses a text that has an empty pattern.
  static Outcome<void> check(std::string_view text);

 private:
  std::string_view text_;
};

}  // namespace stdchk
