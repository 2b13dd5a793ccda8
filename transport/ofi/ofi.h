#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// Opens an endpoint over libfabric's verbs provider. `host` must be an address of a device; `port`
/// 0: any free one, from listen() on.
Result<std::unique_ptr<Endpoint>> open_ofi(Clock& clock, const std::string& host,
                                           std::uint16_t port);

/// Returns the versions of libfabric and of its provider: "libfabric 1.17, provider verbs 117.0".
std::string provider_version();

}  // namespace stdchk::transport::ofi
