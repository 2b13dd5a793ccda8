#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "transport/socket_address.h"
#include "transport/verbs/addresses.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport::verbs {

namespace {

struct Place {
  std::string device;
  unsigned port;
  auto operator<=>(const Place&) const = default;
};
/// Bound says what librdmacm would bind to on a port: the addresses, and the GID that it chooses.
struct Bound {
  std::vector<std::string> addresses;
  ibv_gid gid{};
};

/// Returns "10.0.0.1" for "10.0.0.1:0", and "fd00::1" for "[fd00::1]:0".
std::string host_of(const sockaddr_storage& address) {
  std::string text = address_text("", address);
  text.resize(text.rfind(':'));
  if (text.starts_with('[')) text = text.substr(1, text.size() - 2);
  return text;
}

std::map<Place, Bound> bound_addresses() {
  std::map<Place, Bound> found;
  // Check first: librdmacm would print an error.
  if (::access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0) return found;
  rdma_event_channel* const channel = ::rdma_create_event_channel();
  if (channel == nullptr) return found;
  for (sockaddr_storage address : addresses_of_host()) {
    rdma_cm_id* id = nullptr;
    if (::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) break;
    if (::rdma_bind_addr(id, generic(address)) == 0 && id->verbs != nullptr) {
      Bound& bound = found[{::ibv_get_device_name(id->verbs->device), id->port_num}];
      if (bound.addresses.empty()) bound.gid = id->route.addr.addr.ibaddr.sgid;
      bound.addresses.push_back(host_of(address));
    }
    ::rdma_destroy_id(id);
  }
  ::rdma_destroy_event_channel(channel);
  return found;
}

std::string gid_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return text.data();
}

std::string kind_of(const ibv_device& device, const ibv_port_attr& port) {
  if (device.transport_type == IBV_TRANSPORT_IWARP) return "iWARP";
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

std::string state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "init";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active, deferred";
    default:
      return "unknown";
  }
}

void add_ports(ibv_context& context, const std::map<Place, Bound>& bound, std::vector<Port>& into) {
  ibv_device_attr device{};
  if (::ibv_query_device(&context, &device) != 0) return;
  for (unsigned number = 1; number <= device.phys_port_cnt; ++number) {
    ibv_port_attr attributes{};
    if (::ibv_query_port(&context, static_cast<std::uint8_t>(number), &attributes) != 0) continue;
    Port port;
    port.device = ::ibv_get_device_name(context.device);
    port.number = number;
    port.kind = kind_of(*context.device, attributes);
    port.active = attributes.state == IBV_PORT_ACTIVE;
    port.state = state_text(attributes.state);
    port.mtu_bytes = 128U << attributes.active_mtu;  // the enumeration has 1 for 256 bytes
    port.firmware = device.fw_ver;
    port.region_bytes_max = device.max_mr_size;
    ibv_gid gid{};
    ::ibv_query_gid(&context, static_cast<std::uint8_t>(number), 0, &gid);
    if (const auto found = bound.find({port.device, number}); found != bound.end()) {
      port.addresses = found->second.addresses;
      gid = found->second.gid;
    }
    port.gid = gid_text(gid);
    into.push_back(std::move(port));
  }
}

}  // namespace

std::vector<Port> ports() {
  std::vector<Port> found;
  int count = 0;
  ibv_device** const devices = ::ibv_get_device_list(&count);
  if (devices == nullptr) return found;
  if (count > 0) {
    const auto bound = bound_addresses();
    for (int i = 0; i < count; ++i) {
      ibv_context* const context = ::ibv_open_device(devices[i]);
      if (context == nullptr) continue;
      add_ports(*context, bound, found);
      ::ibv_close_device(context);
    }
  }
  ::ibv_free_device_list(devices);
  return found;
}

std::string library_version() {
  Dl_info info{};
  // The library has no function that returns its version.
  if (::dladdr(reinterpret_cast<const void*>(&::ibv_get_device_list), &info) == 0) return {};
  std::error_code absent;
  return std::filesystem::canonical(info.dli_fname, absent).filename();
}

}  // namespace stdchk::transport::verbs
