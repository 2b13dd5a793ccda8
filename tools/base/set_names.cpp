#include "tools/base/set_names.h"

#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"

namespace stdchk::tools {

bool is_named(const msg::ListSets::Entry& set) { return set.timestep == kNamedTimestep; }

std::string name_of_set(const msg::ListSets::Entry& set) {
  return is_named(set) ? set.application : set_name(set.application, set.timestep);
}

}  // namespace stdchk::tools
