#pragma once

#include <string>

namespace stdchk::tools {

/// The exit statuses of every subcommand.
inline constexpr int kExitGood = 0;
inline constexpr int kExitNo = 1;     ///< the answer is no
inline constexpr int kExitError = 2;  ///< the command failed; standard error says why

/// Prints "stdchk: text" to standard error. A terminal or reader that is gone is no error.
void tell(const std::string& text);
/// The same; returns kExitError.
int complain(const std::string& text);

}  // namespace stdchk::tools
