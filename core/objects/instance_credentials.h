#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/objects/credentials.h"

namespace stdchk {

/// Longest time in which the services of a host answer.
inline constexpr Duration kHostPatience = std::chrono::seconds(6);

/// Gets the temporary credentials that a rented machine or a container gives to its programs. Asks the
/// container's endpoint if AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI names it. Otherwise
/// asks the instance's metadata service (IMDSv2), unless AWS_EC2_METADATA_DISABLED is true.
///
/// Asks the services directly, whatever proxy the environment names, and follows no redirects. In
/// clear it asks only this host or the link-local addresses of these services.
///
/// Errors: kConfig: no service answers, or an address is not allowed. The text says why.
/// Limits: kHostPatience. Threads: any; blocks.
/// Not: IMDSv1, whose requests other programs can be made to send.
Outcome<Credentials> ask_host_for_credentials();

/// Reads the answer of these services, a JSON object. `now_s` is the present time in seconds since
/// 1970. Errors: kMalformed; the text has nothing of the answer.
Outcome<Credentials> parse_host_credentials(const std::string& text, std::int64_t now_s);

/// Returns true for a URL of the container's endpoint that may be asked: https, or http to this
/// host's own or link-local addresses.
bool is_container_url(std::string_view url);
/// Returns true for an address of the instance's metadata service that may be asked.
bool is_instance_url(std::string_view url);

}  // namespace stdchk
