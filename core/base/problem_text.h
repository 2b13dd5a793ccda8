#pragma once

#include <string>
#include <utility>

#include "core/base/problem.h"

namespace stdchk {

/// Makes a Problem for callers that show the text and never read the code.
inline tl::unexpected<Problem> problem(std::string text) {
  return tl::unexpected<Problem>(Problem{{}, std::move(text)});
}

}  // namespace stdchk
