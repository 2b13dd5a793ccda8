#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "transport/transport.h"

namespace stdchk::transport {

/// What an endpoint needs to be told. `clock` must outlive the endpoint.
struct EndpointOptions {
  Clock* clock = nullptr;
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 0;  ///< 0: any free one
};

/// Opens an endpoint of a kind: "ofi:tcp" or "shm". Other names: kInvalidArgument.
Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options);

/// A text that is equal in two processes iff "shm" between them can work: same boot, same name
/// spaces for processes, users and abstract sockets.
std::string host_token();

/// Version of the fabric library in use, for example "1.17".
std::string fabric_version();

}  // namespace stdchk::transport
