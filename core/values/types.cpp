#include "core/values/types.h"

namespace stdchk {

std::string_view naming_text(Naming naming) {
  switch (naming) {
    case Naming::kOff:
      return "off";
    case Naming::kAuto:
      return "auto";
    case Naming::kOn:
      return "on";
  }
  return "unknown";
}

std::optional<Naming> parse_naming(std::string_view text) {
  for (const Naming each : {Naming::kOff, Naming::kAuto, Naming::kOn}) {
    if (text == naming_text(each)) return each;
  }
  return std::nullopt;
}

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
