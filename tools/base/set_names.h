#pragma once

#include <string>

#include "core/messages/messages.h"

namespace stdchk::tools {

/// Returns true for a set that is a directory, or whose name is not of the form A.*.Tj.
bool is_named(const msg::ListSets::Entry& set);
/// Returns the name of the set as users write it.
std::string name_of_set(const msg::ListSets::Entry& set);

}  // namespace stdchk::tools
