#pragma once

#include <string>

#include "client/api/is_gone.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// Returns no error when someone has removed `what` since it was listed: a walk leaves it out.
/// Otherwise returns failed(what, error).
inline Outcome<void> failed_unless_gone(const std::string& what, const Error& error) {
  if (client::is_gone(error)) return {};
  return failed(what, error);
}

}  // namespace stdchk::tools
