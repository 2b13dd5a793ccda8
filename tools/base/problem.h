#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/base/problem.h"

namespace stdchk::tools {

using stdchk::problem;

/// Makes the Problem of a failed command. Its text says the failure, the reason and the remedy. No
/// caller asks for its code.
template <class... Args>
tl::unexpected<Problem> problem(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Problem>(Problem{{}, fmt::format(format, std::forward<Args>(args)...)});
}
/// Makes a Problem with the text "what: the error's own sentence".
inline tl::unexpected<Problem> failed(const std::string& what, const Error& error) {
  return tl::unexpected<Problem>(Problem{error, what + ": " + describe(error)});
}

}  // namespace stdchk::tools
