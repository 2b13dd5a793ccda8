#pragma once

#include <string_view>

namespace stdchk {

/// Names that begin so belong to the pool. Programs cannot make them.
inline constexpr std::string_view kReservedPrefix = ".stdchk-";
// Commands of the pool make names with these beginnings for a moment at the top.
inline constexpr std::string_view kCastPrefix = ".stdchk-cast-";  ///< the offer of a multicast
inline constexpr std::string_view kRestartPrefix = ".stdchk-restart-";  ///< of `stdchk restart`
inline constexpr std::string_view kDoctorPrefix = ".stdchk-doctor.";    ///< of `stdchk doctor`

}  // namespace stdchk
