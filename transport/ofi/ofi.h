#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/result.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// Opens an endpoint over libfabric, "ofi:tcp" or "ofi:verbs". For "ofi:verbs", `host` must be an
/// address of a device. With `port` 0, listen() takes any free port.
Result<std::unique_ptr<Endpoint>> open_ofi(std::string_view kind, Clock& clock,
                                           const std::string& host, std::uint16_t port);

/// Returns the versions of libfabric and its provider, such as "libfabric 1.17, provider tcp
/// 117.0".
std::string provider_version(std::string_view kind);

}  // namespace stdchk::transport::ofi
