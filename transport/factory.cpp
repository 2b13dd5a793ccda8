#include "transport/factory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/log.h"
#include "transport/ofi/tcp.h"
#include "transport/shm/shm.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport {

namespace {

std::string namespace_name(const char* path) {
  std::array<char, 64> text{};
  const auto length = ::readlink(path, text.data(), text.size());
  if (length <= 0) return "?";
  return {text.data(), static_cast<std::size_t>(length)};
}

/// "ofi:tcp" of "ofi:tcp:10.0.0.1:7471".
std::string_view kind_of(std::string_view address) {
  const auto first = address.find(':');
  if (first == std::string_view::npos) return {};
  return address.substr(0, address.find(':', first + 1));
}

}  // namespace

Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options) {
  if (options.clock == nullptr) return fail(Code::kInvalidArgument, "transport.open");
  if (kind == "ofi:tcp") {
    return ofi::open_tcp(*options.clock, options.listen_host, options.listen_port);
  }
  if (kind == "verbs") {
    return verbs::open_verbs(*options.clock, options.listen_host, options.listen_port);
  }
  if (kind == "shm") return shm::open_shm(*options.clock);
  return fail(Code::kInvalidArgument, "transport.open");
}

std::vector<std::string> choices() { return {"auto", "ofi:tcp", "shm", "verbs"}; }

Result<Endpoints> open_endpoints(std::string_view choice, std::string_view control,
                                 const EndpointOptions& options) {
  Endpoints endpoints;
  const std::string_view control_kind = kind_of(control);
  const bool automatic = choice == "auto";
  // Not verbs: it pins memory, and a limit on that must not keep a pool from coming up.
  std::vector<std::string> kinds{"ofi:tcp", "shm"};
  if (!automatic) kinds = {std::string(choice)};
  for (const std::string& kind : kinds) {
    auto endpoint = open_endpoint(kind, options);
    if (!endpoint && (!automatic || kind == control_kind)) return fail(endpoint.error());
    if (!endpoint) {
      log::info("transport {} is left out: {}", kind, describe(endpoint.error()));
      continue;
    }
    if (kind == control_kind) endpoints.control = endpoint->get();
    endpoints.data.push_back(std::move(*endpoint));
  }
  if (endpoints.control == nullptr) {
    STDCHK_ASSIGN(endpoints.control_only, open_endpoint(control_kind, options));
    endpoints.control = endpoints.control_only.get();
  }
  return endpoints;
}

std::string host_token() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return fmt::format("{}/{}/{}/{}", boot, namespace_name("/proc/self/ns/pid"),
                     namespace_name("/proc/self/ns/user"), namespace_name("/proc/self/ns/net"));
}

std::string fabric_version() { return ofi::library_version(); }

}  // namespace stdchk::transport
