// Filesystem::connect: finds the transports.
#include "client/blocking_filesystem.h"
#include "core/clock.h"
#include "core/log.h"
#include "transport/factory.h"

namespace stdchk::client {
namespace {

/// "ofi:tcp:host:port" -> "ofi:tcp".
std::string_view kind_of(std::string_view address) {
  const std::size_t first = address.find(':');
  if (first == std::string_view::npos) return {};
  return address.substr(0, address.find(':', first + 1));
}

SystemClock& system_clock() {
  static SystemClock clock;  // without state
  return clock;
}

}  // namespace

Result<std::unique_ptr<Filesystem>> Filesystem::connect(const Options& options) {
  SystemClock& clock = system_clock();
  const std::string control(kind_of(options.manager_address));
  if (control.empty()) return fail(Code::kInvalidArgument, "client.manager address");
  std::vector<std::string> kinds;
  if (options.transport == "auto") {
    kinds = {"ofi:tcp", "shm"};
  } else {
    kinds = {options.transport};
  }
  BlockingFilesystem::Parts parts;
  for (const std::string& kind : kinds) {
    transport::EndpointOptions endpoint_options;
    endpoint_options.clock = &clock;
    auto endpoint = transport::open_endpoint(kind, endpoint_options);
    if (!endpoint.has_value()) {
      // Without shared memory everything goes by TCP.
      if (options.transport != "auto" || kind == control) return fail(endpoint.error());
      log::info("{} cannot be used: {}", kind, describe(endpoint.error()));
      continue;
    }
    if (kind == control) parts.control = endpoint->get();
    parts.endpoints.push_back(std::move(*endpoint));
  }
  if (parts.control == nullptr) {
    transport::EndpointOptions endpoint_options;
    endpoint_options.clock = &clock;
    STDCHK_ASSIGN(auto endpoint, transport::open_endpoint(control, endpoint_options));
    parts.control = endpoint.get();
    parts.control_only = std::move(endpoint);
  }
  parts.host_token = transport::host_token();
  return BlockingFilesystem::connect_over(options, clock, std::move(parts));
}

}  // namespace stdchk::client
