#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/messages/messages.h"

namespace stdchk::tools {

/// The text of `stdchk check` after a walk over the metadata: a line for each broken rule, and a
/// sum.
std::string check_text(const msg::CheckMetadata::Reply& reply);
nlohmann::json check_json(const msg::CheckMetadata::Reply& reply);
/// The exit status: kExitNo when a rule is broken.
int check_status(const msg::CheckMetadata::Reply& reply);

}  // namespace stdchk::tools
