#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "transport/secure/secure.h"
#include "transport/transport.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport {

/// What an endpoint needs to be told. `clock` must outlive the endpoint.
struct EndpointOptions {
  Clock* clock = nullptr;
  /// Of open_endpoints(): one or more, with commas between them, each a rail of its own.
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 0;  ///< 0: any free one
  /// None: anyone may connect, and be connected to. Only for measuring a transport by itself, and
  /// not for "tcp".
  std::shared_ptr<secure::Keyring> identity;
  /// Of "tcp": content in clear on links that are opened to this endpoint.
  bool trusted_network = false;
  // Of open_endpoints() only:
  bool serves = false;             ///< others connect to this process
  std::uint64_t pinned_bytes = 0;  ///< that will be registered, where that pins them
};

/// Opens an endpoint of a kind: "tcp", "ofi:verbs", "verbs" or "shm". Other names:
/// kInvalidArgument; "ofi:tcp": kUnsupported.
Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options);

/// What a person may choose: "auto", which is verbs, tcp and shm where they work, and then the
/// kinds.
std::vector<std::string> choices();
/// What earlier versions offered, and why it is refused.
std::vector<std::pair<std::string, std::string>> former_choices();

/// Endpoints is what one process moves bytes by.
struct Endpoints {
  std::vector<std::unique_ptr<Endpoint>> data;
  Endpoint* control = nullptr;             ///< reaches the manager: one of them, or:
  std::unique_ptr<Endpoint> control_only;  ///< not for data
};
/// `choice` is one of choices(). With "auto" a kind that does not work here is left out, but not
/// that of `control`, the manager's address; one that was named must work. "verbs" and "ofi:verbs"
/// open the devices that have the addresses of listen_host; with none of them, every device with an
/// active port. In "auto" that is so for whoever does not listen on loopback addresses only, and a
/// device that cannot be used is said in the log, once.
Result<Endpoints> open_endpoints(std::string_view choice, std::string_view control,
                                 const EndpointOptions& options);

/// A text that is equal in two processes iff "shm" between them can work: same boot, same name
/// spaces for processes, users and abstract sockets.
std::string host_token();

/// All ports of verbs devices here.
std::vector<verbs::Port> rdma_ports();

/// What moves the bytes of a kind, for example "libfabric 1.17, provider verbs 117.0". Empty: only
/// the kernel, or what is needed is absent.
std::string provider_version(std::string_view kind);

}  // namespace stdchk::transport
