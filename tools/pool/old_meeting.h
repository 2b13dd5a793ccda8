#pragma once

#include <string>

#include "tools/base/problem.h"

namespace stdchk::tools {

/// Removes a Meeting's folder. An absent folder is no error. Another user of the project may have
/// given this name to a different folder of this user, so only files of a Meeting are removed.
///
/// Errors: a folder with other files, a link, another user's folder.
Outcome<void> remove_meeting(const std::string& folder);

}  // namespace stdchk::tools
