#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/values/ids.h"
#include "core/values/values.structs.h"

namespace stdchk {

/// Returns "off", "auto" or "on".
std::string_view naming_text(Naming naming);
/// Parses these words; nullopt for any other text.
std::optional<Naming> parse_naming(std::string_view text);

/// Returns the word that users see, such as "pending".
std::string_view drain_name(DrainState state);

}  // namespace stdchk
