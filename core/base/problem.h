#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/base/result.h"

namespace stdchk {

/// A Problem is an Error with its explanation. The explanation is a text for people. It names the
/// directory, size or file that the static text of an Error cannot name.
struct Problem {
  Error error;
  std::string text;  ///< object, reason, remedy
};

/// An Outcome is a Result whose error has an explanation. For set-up, settings and files below the
/// drain directory; never for each chunk.
template <class T>
using Outcome = tl::expected<T, Problem>;

inline tl::unexpected<Problem> problem(Code code, const char* where, int os_errno,
                                       std::string text) {
  return tl::unexpected<Problem>(Problem{Error{code, os_errno, where}, std::move(text)});
}

/// For callers that show the text and never read the code.
inline tl::unexpected<Problem> problem(std::string text) {
  return tl::unexpected<Problem>(Problem{{}, std::move(text)});
}

/// Explains the error by its own sentence.
inline tl::unexpected<Problem> problem(const Error& error) {
  return tl::unexpected<Problem>(Problem{error, describe(error)});
}

inline tl::unexpected<Problem> problem(Problem other) {
  return tl::unexpected<Problem>(std::move(other));
}

}  // namespace stdchk
