#pragma once

namespace stdchk {
/// Prints what was expected and where, then aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}  // namespace stdchk

/// States a condition that holds unless stdchk itself has a bug. Stays on in release builds. Not
/// for input from the wire, the disk or the user: such input is validated and answered with an
/// Error.
#define STDCHK_ASSERT(expression)          \
  (static_cast<bool>(expression) ? void(0) \
                                 : ::stdchk::assertion_failed(#expression, __FILE__, __LINE__))
