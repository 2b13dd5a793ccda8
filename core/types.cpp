#include "core/types.h"

namespace stdchk {

std::string_view drain_name(DrainState state) {
  switch (state) {
    case DrainState::kNone:
      return "none";
    case DrainState::kPending:
      return "pending";
    case DrainState::kRunning:
      return "running";
    case DrainState::kDrained:
      return "drained";
    case DrainState::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace stdchk
