#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/base/result.h"

namespace stdchk::tools {

/// A Problem is the text of a failed command: the failure, its reason, and the remedy.
struct Problem {
  std::string text;
};

/// A value, or the Problem in its place.
template <class T>
using Outcome = tl::expected<T, Problem>;

template <class... Args>
tl::unexpected<Problem> problem(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Problem>(Problem{fmt::format(format, std::forward<Args>(args)...)});
}
inline tl::unexpected<Problem> problem(const Problem& other) {
  return tl::unexpected<Problem>(other);
}
/// "what: the error's own sentence".
inline tl::unexpected<Problem> failed(const std::string& what, const Error& error) {
  return tl::unexpected<Problem>(Problem{what + ": " + describe(error)});
}

}  // namespace stdchk::tools
