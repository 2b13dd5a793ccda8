#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/clock.h"
#include "core/result.h"
#include "transport/transport.h"

namespace stdchk::transport::verbs {

/// Opens "verbs" on the device that has the address `host`; a wildcard or loopback address means
/// the first device with an address that is up. `port` 0: any free one, from listen() on.
/// kUnsupported: this build has no libibverbs, or this host no such device.
Result<std::unique_ptr<Endpoint>> open_verbs(Clock& clock, const std::string& host,
                                             std::uint16_t port);

}  // namespace stdchk::transport::verbs
