#pragma once

#include "core/messages/messages.h"

namespace stdchk::msg {

/// The route of a request: which role sends it to which role. The schema says it of each request.
template <class M>
constexpr Route route_of() {
  return M::kRoute;
}

}  // namespace stdchk::msg
