#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/base/result.h"

namespace stdchk {

/// A Problem is an Error with a sentence for people. The sentence names the directory, size or file
/// that the static text of an Error cannot name.
struct Problem {
  Error error;
  std::string detail;
};

/// An Outcome is a Result whose error has such a sentence. For set-up and drain jobs, never for
/// each chunk.
template <class T>
using Outcome = tl::expected<T, Problem>;

inline tl::unexpected<Problem> problem(Code code, const char* where, int os_errno,
                                       std::string detail) {
  return tl::unexpected<Problem>(Problem{Error{code, os_errno, where}, std::move(detail)});
}

inline tl::unexpected<Problem> problem(Problem other) {
  return tl::unexpected<Problem>(std::move(other));
}

}  // namespace stdchk
