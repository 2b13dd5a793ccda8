#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/clock.h"
#include "core/result.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// Opens an endpoint over libfabric's TCP provider. `port` 0: any free one, from listen() on.
Result<std::unique_ptr<Endpoint>> open_tcp(Clock& clock, const std::string& host,
                                           std::uint16_t port);

/// Of libfabric, for example "1.17".
std::string library_version();

}  // namespace stdchk::transport::ofi
