#pragma once

#include <cstdint>
#include <string>

#include "core/files/drain_lease.h"

namespace stdchk {

/// The text of a lease that was renewed `renewals` times.
std::string lease_text(const LeaseHolder& holder, std::uint64_t renewals);
/// Returns a holder with empty members for a text that is no lease.
LeaseHolder parse_lease(const std::string& text);

}  // namespace stdchk
