#include "transport/choice/factory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "core/base/host_port.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "transport/ofi/ofi.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport {

namespace {

constexpr const char* kNoActivePort =
    "transport.open: no verbs device has an active port and an address; `rdma link` lists the "
    "devices";
constexpr const char* kNoFabricTcp =
    "ofi:tcp is no longer offered, because libfabric's tcp provider lets strangers reach memory "
    "without a proof of their identity: use tcp";

std::string namespace_name(const char* path) {
  std::array<char, 64> text{};
  const auto length = ::readlink(path, text.data(), text.size());
  if (length <= 0) return "?";
  return {text.data(), static_cast<std::size_t>(length)};
}

/// "tcp" of "tcp:10.0.0.1:7471", "ofi:verbs" of "ofi:verbs:10.0.0.1:7471".
std::string_view kind_of(std::string_view address) {
  const auto first = address.find(':');
  if (first == std::string_view::npos) return {};
  const bool has_provider = address.starts_with("ofi:");
  return address.substr(0, has_provider ? address.find(':', first + 1) : first);
}

std::vector<std::string> hosts_of(const EndpointOptions& options) {
  std::vector<std::string> hosts = split(options.listen_host, ',');
  for (std::string& host : hosts) host = without_brackets(host);
  if (hosts.empty()) hosts.emplace_back();
  return hosts;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Addresses of the devices to open: those that are named, otherwise one of each active port.
std::vector<std::string> verbs_hosts(const EndpointOptions& options) {
  const std::vector<std::string> wanted = hosts_of(options);
  std::vector<std::string> named;
  std::vector<std::string> all;
  for (const verbs::Port& port : verbs::ports()) {
    if (!port.active || port.addresses.empty()) continue;
    all.push_back(port.addresses.front());
    for (const std::string& address : port.addresses) {
      if (std::ranges::find(wanted, address) != wanted.end()) named.push_back(address);
    }
  }
  return named.empty() ? all : named;
}

Result<std::unique_ptr<Endpoint>> open_bare(std::string_view kind, const EndpointOptions& options) {
  if (options.clock == nullptr) return fail(Code::kInvalidArgument, "transport.open");
  if (kind == "tcp") {
    if (!options.identity) return fail(Code::kInvalidArgument, "transport.open: tcp needs a key");
    return tcp::open_tcp(*options.clock, options.listen_host, options.listen_port, options.identity,
                         {.trusted_network = options.trusted_network});
  }
  if (kind == "ofi:tcp") return fail(Code::kUnsupported, kNoFabricTcp);
  if (kind == "ofi:verbs") {
    const auto hosts = verbs_hosts(options);
    if (hosts.empty()) {
      return fail(Code::kUnsupported, kNoActivePort);
    }
    return ofi::open_ofi(*options.clock, hosts.front(), options.listen_port);
  }
  if (kind == "verbs") {
    return verbs::open_verbs(*options.clock, options.listen_host, options.listen_port);
  }
  if (kind == "shm") return shm::open_shm(*options.clock);
  return fail(Code::kInvalidArgument, "transport.open");
}

/// Appends the endpoints of one kind. Automatic choice: a missing device is no error.
Status open_kind(const std::string& kind, bool automatic, const EndpointOptions& options,
                 std::vector<std::unique_ptr<Endpoint>>& into) {
  std::vector<std::string> hosts = hosts_of(options);
  if (kind == "shm" || !options.serves) hosts.resize(1);
  if (kind == "verbs" || kind == "ofi:verbs") {
    // A process that listens on loopback only is reached by shared memory.
    if (automatic && options.serves && std::ranges::all_of(hosts, is_loopback)) return {};
    if (const auto found = verbs_hosts(options); !found.empty() || automatic) hosts = found;
    if (hosts.empty() && !verbs::ports().empty()) return fail(Code::kUnsupported, kNoActivePort);
    STDCHK_TRY(verbs::check_lockable(options.pinned_bytes * hosts.size()));
  }
  std::vector<std::unique_ptr<Endpoint>> opened;
  for (const std::string& host : hosts) {
    EndpointOptions one = options;
    one.listen_host = host;
    STDCHK_ASSIGN(auto endpoint, open_endpoint(kind, one));
    opened.push_back(std::move(endpoint));
  }
  std::ranges::move(opened, std::back_inserter(into));
  return {};
}

}  // namespace

Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options) {
  STDCHK_ASSIGN(auto endpoint, open_bare(kind, options));
  // TCP authenticates its peers itself.
  if (!options.identity || kind == "tcp") return endpoint;
  return std::unique_ptr<Endpoint>(std::make_unique<secure::SecureEndpoint>(
      std::move(endpoint), *options.clock, options.identity));
}

std::vector<std::string> choices() { return {"auto", "tcp", "shm", "verbs", "ofi:verbs"}; }

std::vector<std::pair<std::string, std::string>> former_choices() {
  return {{"ofi:tcp", kNoFabricTcp}};
}

Result<Endpoints> open_endpoints(std::string_view choice, std::string_view control,
                                 const EndpointOptions& options) {
  Endpoints endpoints;
  const std::string_view control_kind = kind_of(control);
  const bool automatic = choice == "auto";
  std::vector<std::string> kinds{"verbs", "tcp", "shm"};
  if (!automatic) kinds = {std::string(choice)};
  for (const std::string& kind : kinds) {
    const Status opened = open_kind(kind, automatic, options, endpoints.data);
    if (!opened && (!automatic || kind == control_kind)) return fail(opened.error());
    if (!opened) log::warning("transport {} is not used: {}", kind, describe(opened.error()));
  }
  for (const auto& endpoint : endpoints.data) {
    if (endpoints.control == nullptr && endpoint->capabilities().name == control_kind) {
      endpoints.control = endpoint.get();
    }
  }
  if (endpoints.control == nullptr) {
    EndpointOptions one = options;
    one.listen_host = hosts_of(options).front();
    STDCHK_ASSIGN(endpoints.control_only, open_endpoint(control_kind, one));
    endpoints.control = endpoints.control_only.get();
  }
  return endpoints;
}

std::vector<verbs::Port> rdma_ports() { return verbs::ports(); }

std::string host_token() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return fmt::format("{}/{}/{}/{}", boot, namespace_name("/proc/self/ns/pid"),
                     namespace_name("/proc/self/ns/user"), namespace_name("/proc/self/ns/net"));
}

std::string provider_version(std::string_view kind) {
  if (kind == "tcp") return tcp::library_version();
  if (kind == "verbs") return verbs::library_version();
  return kind == "ofi:verbs" ? ofi::provider_version() : "";
}

}  // namespace stdchk::transport
