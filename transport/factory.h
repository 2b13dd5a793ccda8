#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "transport/transport.h"

namespace stdchk::transport {

/// What an endpoint needs to be told. `clock` must outlive the endpoint.
struct EndpointOptions {
  Clock* clock = nullptr;
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 0;  ///< 0: any free one
};

/// Opens an endpoint of a kind: "ofi:tcp", "verbs" or "shm". Other names: kInvalidArgument.
Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options);

/// What a person may choose: "auto", which is ofi:tcp and shm where they work, and then the kinds.
std::vector<std::string> choices();

/// Endpoints is what one process moves bytes by.
struct Endpoints {
  std::vector<std::unique_ptr<Endpoint>> data;
  Endpoint* control = nullptr;             ///< reaches the manager: one of them, or:
  std::unique_ptr<Endpoint> control_only;  ///< not for data
};
/// `choice` is one of choices(). With "auto" a kind that does not work here is left out, but not
/// that of `control`, the manager's address; one that was named must work.
Result<Endpoints> open_endpoints(std::string_view choice, std::string_view control,
                                 const EndpointOptions& options);

/// A text that is equal in two processes iff "shm" between them can work: same boot, same name
/// spaces for processes, users and abstract sockets.
std::string host_token();

/// Version of the fabric library in use, for example "1.17".
std::string fabric_version();

}  // namespace stdchk::transport
