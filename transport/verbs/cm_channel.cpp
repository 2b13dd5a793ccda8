#include "transport/verbs/cm_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/limits.h"
#include "transport/socket_address.h"
#include "transport/verbs/addresses.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport::verbs {
namespace {

constexpr int kBacklog = 128;
constexpr int kResolveMsMax = 60'000;

}  // namespace

Status set_nonblocking(int descriptor) {
  if (::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK) != 0) {
    return fail_errno("verbs.open fcntl");
  }
  return {};
}

CmChannel::~CmChannel() {
  stop_listening();
  end_lingering(nullptr, Time::max());
  if (holder_ != nullptr) ::rdma_destroy_id(holder_);
  if (channel_ != nullptr) ::rdma_destroy_event_channel(channel_);
}

Status CmChannel::open(const std::string& host, std::uint16_t port) {
  // Check first: librdmacm would print an error.
  if (::access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0) {
    return fail(Code::kUnsupported,
                "verbs.open: /dev/infiniband/rdma_cm cannot be opened; load rdma_ucm, and let this "
                "user or container use /dev/infiniband",
                errno);
  }
  ::ibv_fork_init();  // a child process must not take pages to which the device writes
  channel_ = ::rdma_create_event_channel();
  if (channel_ == nullptr) return fail_errno("verbs.open rdma_create_event_channel");
  STDCHK_TRY(set_nonblocking(channel_->fd));
  STDCHK_TRY(find_device(host));
  set_port(local_, port);
  return {};
}

Status CmChannel::find_device(const std::string& host) {
  const bool is_v6 = host.find(':') != std::string::npos && host.front() != '[';
  const std::string text = is_v6 ? "[" + host + "]:0" : host + ":0";
  STDCHK_ASSIGN(const sockaddr_storage address, parse_address("", text));
  if (!is_any_device(address)) {
    if (try_device(address)) return {};
    return fail(Code::kUnsupported,
                "verbs.open: no verbs device with an active port has that address; `rdma link` "
                "lists the devices");
  }
  for (const sockaddr_storage& each : addresses_of_host()) {
    if (try_device(each)) return {};
  }
  return fail(Code::kUnsupported,
              "verbs.open: no verbs device with an active port has an address. `rdma link` lists "
              "the devices. Give the interface of a device an IP address and bring it up");
}

/// Binds `holder_` to the address. Returns true if the address belongs to a verbs device with an
/// active port.
bool CmChannel::try_device(const sockaddr_storage& address) {
  sockaddr_storage wanted = address;
  if (::rdma_create_id(channel_, &holder_, nullptr, RDMA_PS_TCP) != 0) return false;
  ibv_port_attr port{};
  if (::rdma_bind_addr(holder_, generic(wanted)) == 0 && holder_->verbs != nullptr &&
      ::ibv_query_port(holder_->verbs, holder_->port_num, &port) == 0 &&
      port.state == IBV_PORT_ACTIVE) {
    local_ = address;
    return true;
  }
  ::rdma_destroy_id(holder_);
  holder_ = nullptr;
  return false;
}

Status CmChannel::listen() {
  if (listener_ != nullptr) return fail(Code::kExists, "verbs.listen");
  if (::rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) {
    return fail_errno("verbs.listen rdma_create_id");
  }
  if (::rdma_bind_addr(listener_, generic(local_)) != 0 ||
      ::rdma_listen(listener_, kBacklog) != 0) {
    const auto failure = fail_errno("verbs.listen");
    stop_listening();
    return failure;
  }
  sockaddr_storage bound = local_;
  set_port(bound, ntohs(::rdma_get_src_port(listener_)));
  address_ = address_text(kAddressPrefix, bound);
  return {};
}

void CmChannel::stop_listening() {
  if (listener_ != nullptr) ::rdma_destroy_id(listener_);
  listener_ = nullptr;
}

/// Binds to the device of this endpoint, because its memory is registered nowhere else.
Status CmChannel::resolve(Connection& connection, const sockaddr_storage& peer, Duration deadline) {
  if (::rdma_create_id(channel_, &connection.id, &connection, RDMA_PS_TCP) != 0) {
    return fail_errno("verbs.connect rdma_create_id");
  }
  sockaddr_storage from = local_;
  set_port(from, 0);
  sockaddr_storage to = peer;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
  const auto wait = static_cast<int>(std::clamp<long long>(milliseconds, 1, kResolveMsMax));
  if (::rdma_resolve_addr(connection.id, generic(from), generic(to), wait) != 0) {
    return fail(Code::kPeerLost, "verbs.connect rdma_resolve_addr", errno);
  }
  return {};
}

void CmChannel::give_back(rdma_cm_id& id, bool tells_peer) {
  if (!tells_peer) {
    ::rdma_destroy_id(&id);
    return;
  }
  id.context = nullptr;
  lingering_.push_back({&id, clock_.now() + limits::kRmaDeadline});
}

void CmChannel::end_lingering(const rdma_cm_id* id, Time now) {
  std::erase_if(lingering_, [&](const Lingering& each) {
    const bool ends = each.id == id || each.until <= now;
    if (ends) ::rdma_destroy_id(each.id);
    return ends;
  });
}

std::optional<CmChannel::Event> CmChannel::next_event() {
  rdma_cm_event* event = nullptr;
  if (::rdma_get_cm_event(channel_, &event) != 0) return std::nullopt;
  // Copied first, because an id cannot be destroyed while one of its events is held.
  Event copy{*event, {}};
  const auto* const data = static_cast<const std::byte*>(event->param.conn.private_data);
  const bool has_data = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                        event->event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
                        event->event == RDMA_CM_EVENT_ESTABLISHED;
  if (has_data && data != nullptr) {
    copy.private_data.assign(data, data + event->param.conn.private_data_len);
  }
  ::rdma_ack_cm_event(event);
  return copy;
}

}  // namespace stdchk::transport::verbs
