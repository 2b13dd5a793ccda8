#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "transport/sealed/sealed.h"
#include "transport/transport.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport {

/// EndpointOptions are the settings of an endpoint. `clock` must outlive the endpoint.
struct EndpointOptions {
  Clock* clock = nullptr;
  /// Host to listen on. open_endpoints() takes several, separated by commas: each is a rail.
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 0;  ///< 0: any free port
  /// Keys of this process. nullptr: the endpoint accepts every peer and proves nothing. "tcp" needs
  /// keys; only measurements of the other transports run without keys.
  std::shared_ptr<secure::Keyring> identity;
  /// "tcp" sends content in clear on the links that peers open to this endpoint.
  bool trusted_network = false;
  // Only open_endpoints() reads these:
  bool serves = false;             ///< peers open links to this process
  std::uint64_t pinned_bytes = 0;  ///< memory to register, which verbs devices lock
};

/// Opens an endpoint of a kind: "tcp", "ofi:verbs", "verbs" or "shm". Other names:
/// kInvalidArgument; "ofi:tcp": kUnsupported.
Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options);

/// Returns the values of --transport: "auto", then each kind. "auto" means verbs, tcp and shm, each
/// where it works.
std::vector<std::string> choices();
/// Returns the values that earlier versions accepted, each with the reason for its refusal.
std::vector<std::pair<std::string, std::string>> former_choices();

/// Endpoints are all endpoints of one process.
struct Endpoints {
  std::vector<std::unique_ptr<Endpoint>> data;
  Endpoint* control = nullptr;             ///< reaches the manager; in `data`, or `control_only`
  std::unique_ptr<Endpoint> control_only;  ///< set when no endpoint for data reaches the manager
};
/// Opens the endpoints for a choice of choices(). `control` is the manager's address.
///
/// A kind that was named must work. "auto" leaves out a kind that does not work here, with a line
/// in the log, unless the manager's address is of that kind.
/// "verbs" and "ofi:verbs" open the devices that have the addresses in listen_host. If no device
/// has them, they open every device with an active port. With "auto", a process that serves on
/// loopback addresses only opens no such device.
Result<Endpoints> open_endpoints(std::string_view choice, std::string_view control,
                                 const EndpointOptions& options);

/// Returns a text that is equal in two processes if and only if "shm" works between them. Such
/// processes share the boot, and the namespaces of processes, users and abstract sockets.
std::string host_token();

/// Returns all ports of this host's verbs devices.
std::vector<verbs::Port> rdma_ports();

/// Names the library that moves the bytes of a kind, for example "libfabric 1.17, provider verbs
/// 117.0". Returns an empty text when no library is used, or when it is absent.
std::string provider_version(std::string_view kind);

}  // namespace stdchk::transport
