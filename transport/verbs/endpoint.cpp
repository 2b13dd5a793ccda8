#include "transport/verbs/endpoint.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/message_limit.h"
#include "transport/socket_address.h"
#include "transport/verbs/addresses.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport::verbs {

namespace {

constexpr std::string_view kPrefix = "verbs:";
constexpr std::size_t kPartsMax = 32;  ///< parts of one transfer
constexpr unsigned kBusyTurnsMax = 64;
constexpr int kReadsPerTurn = 8;
constexpr Duration kCheckInterval = std::chrono::milliseconds(50);
constexpr Duration kLeaveMax = std::chrono::milliseconds(100);
constexpr Duration kSpin = std::chrono::microseconds(20);

Status set_nonblocking(int descriptor) {
  if (::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK) != 0) {
    return fail_errno("verbs.open fcntl");
  }
  return {};
}

}  // namespace

Status VerbsEndpoint::open(const std::string& host, std::uint16_t port) {
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
  STDCHK_ASSIGN(device_, Device::open(*holder_->verbs, holder_->port_num, region_part_bytes_));
  STDCHK_TRY(set_nonblocking(device_->context().async_fd));
  STDCHK_ASSIGN(scratch_, device_->take_buffer());
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return fail_errno("verbs.open epoll");
  STDCHK_TRY(wake_by(channel_->fd));
  STDCHK_TRY(wake_by(device_->wake_fd()));
  STDCHK_TRY(wake_by(device_->context().async_fd));
  capabilities_ = {.name = "verbs",
                   .write_proof = WriteProof::kDelivered,
                   .fence = FenceKind::kImmediate,
                   .one_sided = true,
                   .target_must_progress = false,
                   .same_host_only = false,
                   .message_bytes_max = kMessageBytesMax,
                   .rma_bytes_max = std::min<std::uint64_t>(
                       {kPartsMax * device_->part_bytes(), limits::kGiB,
                        // both ends may divide a transfer where their parts end
                        (kPartsMax / 2 - 1) * device_->region_part_bytes()})};
  return {};
}

/// Binds `holder_` to the address. Returns true if the address belongs to a verbs device with an
/// active port.
bool VerbsEndpoint::try_device(const sockaddr_storage& address) {
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

Status VerbsEndpoint::find_device(const std::string& host) {
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
              "verbs.open: no verbs device with an active port has an address; `rdma link` lists "
              "the devices, and the interface below one needs an IP address and must be up");
}

Status VerbsEndpoint::wake_by(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    return fail_errno("verbs.open epoll_ctl");
  }
  return {};
}

VerbsEndpoint::~VerbsEndpoint() {
  if (listener_ != nullptr) ::rdma_destroy_id(listener_);
  accept_handler_ = nullptr;
  for (const auto& [key, connection] : connections_) {
    STDCHK_ASSERT(connection->link == nullptr);  // links must end before their endpoint
    connection->close_fabric();
  }
  // Wait until peers have heard of the end, but not long, because a dead peer does not answer.
  const Time give_up = clock_.now() + kLeaveMax;
  while (!lingering_.empty() && clock_.now() < give_up) {
    if (!read_connection_events()) ::usleep(200);
  }
  end_lingering(nullptr, Time::max());
  device_.reset();
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
  if (holder_ != nullptr) ::rdma_destroy_id(holder_);
  if (channel_ != nullptr) ::rdma_destroy_event_channel(channel_);
}

Status VerbsEndpoint::listen(AcceptHandler& handler) {
  constexpr int kBacklog = 128;
  if (listener_ != nullptr) return fail(Code::kExists, "verbs.listen");
  if (::rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) {
    return fail_errno("verbs.listen rdma_create_id");
  }
  if (::rdma_bind_addr(listener_, generic(local_)) != 0 ||
      ::rdma_listen(listener_, kBacklog) != 0) {
    const auto failure = fail_errno("verbs.listen");
    ::rdma_destroy_id(listener_);
    listener_ = nullptr;
    return failure;
  }
  accept_handler_ = &handler;
  sockaddr_storage bound = local_;
  set_port(bound, ntohs(::rdma_get_src_port(listener_)));
  address_ = address_text(kPrefix, bound);
  return {};
}

Connection& VerbsEndpoint::add_connection(State state) {
  auto made = std::make_unique<Connection>(*this, ++connections_made_);
  Connection& connection = *made;
  connection.state = state;
  connections_.emplace(&connection, std::move(made));
  by_number_.emplace(connection.number, &connection);
  return connection;
}

Result<std::unique_ptr<Link>> VerbsEndpoint::start_link(std::string_view address,
                                                        LinkHandler& handler, Duration deadline,
                                                        const secure::Ticket* /*ticket*/) {
  STDCHK_ASSIGN(const sockaddr_storage target, parse_address(kPrefix, address));
  Connection& connection = add_connection(State::kConnecting);
  connection.connect_by = clock_.now() + deadline;
  connection.handler = &handler;
  if (const Status status = request(connection, target, deadline); !status.has_value()) {
    cut(connection);
    bury(connection);
    return fail(status.error());
  }
  return std::make_unique<VerbsLink>(connection);
}

/// Binds to the device of this endpoint, because its memory is registered nowhere else.
Status VerbsEndpoint::request(Connection& connection, const sockaddr_storage& target,
                              Duration deadline) {
  if (::rdma_create_id(channel_, &connection.id, &connection, RDMA_PS_TCP) != 0) {
    return fail_errno("verbs.connect rdma_create_id");
  }
  sockaddr_storage from = local_;
  set_port(from, 0);
  sockaddr_storage to = target;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
  const auto wait = static_cast<int>(std::clamp<long long>(milliseconds, 1, 60000));
  if (::rdma_resolve_addr(connection.id, generic(from), generic(to), wait) != 0) {
    return fail(Code::kPeerLost, "verbs.connect rdma_resolve_addr", errno);
  }
  return {};
}

Result<std::unique_ptr<MemoryRegion>> VerbsEndpoint::register_memory(MutableByteSpan memory) {
  STDCHK_ASSIGN(RegisteredParts parts, device_->register_memory(memory));
  auto region = std::make_unique<VerbsRegion>(*this, std::move(parts), memory, ++tables_made_);
  if (region->in_parts()) {
    regions_in_parts_.push_back(region.get());
    for (const auto& [key, connection] : connections_) {
      const bool knows_others = connection->state == State::kConnected && connection->has_access;
      if (knows_others) connection->tell_table(region->table());
    }
  }
  return region;
}

void VerbsEndpoint::cut(Connection& connection) {
  connection.state = State::kClosed;
  if (connection.waits_for_flush) std::erase(to_flush_, &connection);
  by_number_.erase(connection.number);
  const bool had_queue_pair = by_queue_pair_.erase(connection.queue_pair_number) > 0;
  connection.close_fabric();
  if (!had_queue_pair) return;
  // Forget what this queue pair has received: a later queue pair may get the same number.
  while (device_->read_completions(completions_)) {
  }
  for (Completion& each : completions_) {
    if (!each.is_receive || each.entry.qp_num != connection.queue_pair_number) continue;
    if (each.entry.wr_id == 0) continue;
    device_->receive_ended(*reinterpret_cast<Buffer*>(each.entry.wr_id));
    each.entry.wr_id = 0;
  }
}

void VerbsEndpoint::bury(Connection& connection) {
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return;
  buried_.push_back(std::move(found->second));
  connections_.erase(found);
  std::erase_if(to_close_, [&](const Closing& each) { return each.connection == &connection; });
}

void VerbsEndpoint::release(Connection& connection) {
  if (connection.state != State::kClosed) cut(connection);
  connection.finish_transfers(Code::kCancelled);
  bury(connection);
}

void VerbsEndpoint::linger(rdma_cm_id& id) {
  id.context = nullptr;
  lingering_.push_back({&id, clock_.now() + limits::kRmaDeadline});
}

/// Destroys the lingering ids whose time has passed, and `id` if it is among them.
void VerbsEndpoint::end_lingering(const rdma_cm_id* id, Time now) {
  std::erase_if(lingering_, [&](const Lingering& each) {
    const bool ends = each.id == id || each.until <= now;
    if (ends) ::rdma_destroy_id(each.id);
    return ends;
  });
}

void VerbsEndpoint::fence(Connection& connection) {
  fail_later(connection, Code::kFenced, "verbs.fence");
}

/// Cuts the peer off at once. The next poll() tells the handler.
void VerbsEndpoint::fail_later(Connection& connection, Code code, const char* where) {
  if (connection.state == State::kClosed) return;
  cut(connection);
  to_close_.push_back({&connection, Error{code, 0, where}});
}

void VerbsEndpoint::flush_later(Connection& connection) {
  if (connection.waits_for_flush) return;
  connection.waits_for_flush = true;
  to_flush_.push_back(&connection);
}

bool VerbsEndpoint::flush_waiting() {
  const bool any = !to_flush_.empty();
  while (!to_flush_.empty()) {
    Connection& connection = *to_flush_.back();
    to_flush_.pop_back();
    connection.waits_for_flush = false;
    if (const Status status = connection.flush(); !status.has_value()) {
      fail_later(connection, status.error().code, status.error().where);
    }
  }
  return any;
}

bool VerbsEndpoint::close_pending() {
  bool any = false;
  while (!to_close_.empty()) {
    any = true;
    const Closing closing = to_close_.front();
    to_close_.pop_front();
    Connection& connection = *closing.connection;
    connection.finish_transfers(closing.why.code);
    if (connection.link == nullptr) {
      bury(connection);  // no user knows it, or its handler has just destroyed the link
    } else if (connection.handler != nullptr) {
      connection.handler->on_closed(*connection.link, closing.why);
    }
  }
  return any;
}

bool VerbsEndpoint::read_descriptors() {
  busy_turns_ = 0;
  std::array<epoll_event, 4> events;
  const int count = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), 0);
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
    if (descriptor == channel_->fd) {
      any |= read_connection_events();
    } else if (descriptor == device_->wake_fd()) {
      device_->read_wakes();
      armed_ = false;
      any |= handle_completions();
    } else {
      read_device_events();
    }
  }
  return any;
}

/// Reads the device's events. A process opens a device once, so an event may concern another
/// endpoint.
void VerbsEndpoint::read_device_events() {
  ibv_async_event event{};
  while (::ibv_get_async_event(&device_->context(), &event) == 0) {
    Device* concerned = device_.get();
    if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED || event.event_type == IBV_EVENT_SRQ_ERR) {
      concerned = static_cast<Device*>(event.element.srq->srq_context);
    }
    if (event.event_type == IBV_EVENT_CQ_ERR) {
      concerned = static_cast<Device*>(event.element.cq->cq_context);
    }
    concerned->note(event.event_type);
    ::ibv_ack_async_event(&event);  // until here the other endpoint cannot end
  }
}

bool VerbsEndpoint::check_device() {
  device_->replace_lost_receives();
  if (!device_->has_failed() || connections_.empty()) return false;
  std::vector<Connection*> open;
  for (const auto& [key, connection] : connections_) {
    if (connection->state != State::kClosed) open.push_back(connection.get());
  }
  if (open.empty()) return false;
  log::error("the verbs device has failed; all its links end");
  for (Connection* const each : open) fail_later(*each, Code::kPeerLost, "verbs.device");
  return true;
}

bool VerbsEndpoint::read_connection_events() {
  bool any = false;
  rdma_cm_event* event = nullptr;
  while (::rdma_get_cm_event(channel_, &event) == 0) {
    any = true;
    // Copied first, because an id cannot be destroyed while one of its events is held.
    const rdma_cm_event copy = *event;
    const auto* const data = static_cast<const std::byte*>(copy.param.conn.private_data);
    const bool has_data = copy.event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                          copy.event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
                          copy.event == RDMA_CM_EVENT_ESTABLISHED;
    std::vector<std::byte> private_data;
    if (has_data && data != nullptr) {
      private_data.assign(data, data + copy.param.conn.private_data_len);
    }
    ::rdma_ack_cm_event(event);
    on_event(copy, private_data);
  }
  return any;
}

void VerbsEndpoint::on_event(const rdma_cm_event& event, ByteSpan private_data) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event, private_data);
  auto* const connection = static_cast<Connection*>(event.id->context);
  if (connection == nullptr) {
    const bool ends = event.event == RDMA_CM_EVENT_DISCONNECTED ||
                      event.event == RDMA_CM_EVENT_TIMEWAIT_EXIT ||
                      event.event == RDMA_CM_EVENT_DEVICE_REMOVAL;
    if (ends) end_lingering(event.id, Time::min());
    return;
  }
  if (!connections_.contains(connection)) return;
  if (connection->state == State::kClosed) return;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (const Status status = on_resolved(*connection, event.event); !status.has_value()) {
        fail_later(*connection, status.error().code, status.error().where);
      }
      return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (const Status status = on_response(*connection, private_data); !status.has_value()) {
        ::rdma_reject(connection->id, nullptr, 0);
        connection->peer_has_closed = true;  // no peer must be told of the end
        return fail_later(*connection, status.error().code, status.error().where);
      }
      return on_up(*connection);
    case RDMA_CM_EVENT_ESTABLISHED:
      // The event goes to the accepting side; over iWARP to both sides.
      if (connection->state == State::kConnecting) {
        const Status status = take_greeting(*connection, private_data);
        if (!status.has_value()) {
          return fail_later(*connection, status.error().code, status.error().where);
        }
      }
      return on_up(*connection);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return;
    case RDMA_CM_EVENT_REJECTED:
      return fail_later(*connection, Code::kRefused, "verbs.connect");
    default:
      break;
  }
  connection->peer_has_closed = event.event == RDMA_CM_EVENT_DISCONNECTED;
  // The completion queues already have what the peer sent before it closed.
  while (device_->read_completions(completions_)) {
  }
  handle_completions();
  if (!connections_.contains(connection)) return;
  fail_later(*connection, Code::kPeerLost, ::rdma_event_str(event.event));
}

Greeting VerbsEndpoint::greeting() const {
  Greeting mine;
  if (!withholds_access_) mine.tables = static_cast<std::uint32_t>(regions_in_parts_.size());
  return mine;
}

Status VerbsEndpoint::take_greeting(Connection& connection, ByteSpan private_data) {
  const auto peer = greeting_of(private_data);
  if (!peer.has_value()) return fail(Code::kRefused, "verbs.connect: another version");
  connection.tables_expected = peer->tables;
  return {};
}

Status VerbsEndpoint::on_response(Connection& connection, ByteSpan private_data) {
  STDCHK_TRY(take_greeting(connection, private_data));
  STDCHK_TRY(connection.queue_pair.take_answer(*connection.id));
  if (::rdma_establish(connection.id) == 0) return {};
  return fail(Code::kPeerLost, "verbs.connect rdma_establish", errno);
}

Status VerbsEndpoint::on_resolved(Connection& connection, rdma_cm_event_type event) {
  if (event == RDMA_CM_EVENT_ADDR_RESOLVED) {
    if (connection.id->verbs != &device_->context()) {
      return fail(Code::kUnsupported, "verbs.connect: the peer is behind another device");
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(connection.connect_by - clock_.now());
    const auto wait = static_cast<int>(std::clamp<long long>(left.count(), 1, 60000));
    if (::rdma_resolve_route(connection.id, wait) == 0) return {};
    return fail(Code::kPeerLost, "verbs.connect rdma_resolve_route", errno);
  }
  STDCHK_TRY(connection.start());
  armed_ = false;  // there may be a new completion queue
  by_queue_pair_[connection.queue_pair_number] = &connection;
  STDCHK_TRY(connection.queue_pair.prepare_request(*connection.id));
  const Greeting mine = greeting();
  rdma_conn_param parameters = connection.parameters(mine);
  if (::rdma_connect(connection.id, &parameters) == 0) return {};
  return fail(Code::kPeerLost, "verbs.connect rdma_connect", errno);
}

void VerbsEndpoint::on_request(const rdma_cm_event& event, ByteSpan private_data) {
  const auto peer = greeting_of(private_data);
  const bool refused =
      accept_handler_ == nullptr || !peer.has_value() || event.id->verbs != &device_->context();
  Status status;
  if (refused) {
    ::rdma_reject(event.id, nullptr, 0);
    ::rdma_destroy_id(event.id);
    status = fail(Code::kRefused, "verbs.accept: another version, or another device");
  } else {
    Connection& connection = add_connection(State::kAccepting);
    connection.connect_by = clock_.now() + limits::kConnectDeadline;
    connection.id = event.id;
    connection.id->context = &connection;
    connection.is_accepted = true;
    connection.tables_expected = peer->tables;
    status = accept(connection, event);
    if (!status.has_value()) {
      ::rdma_reject(event.id, nullptr, 0);
      cut(connection);
      bury(connection);
    }
  }
  if (status.has_value()) return;
  log::warning("a connection could not be accepted: {}", describe(status.error()));
}

Status VerbsEndpoint::accept(Connection& connection, const rdma_cm_event& event) {
  const rdma_conn_param& asked = event.param.conn;
  QueuePair::Reads& reads = connection.reads;
  reads.as_target = std::min(reads.as_target, asked.responder_resources);
  reads.as_initiator = std::min(reads.as_initiator, asked.initiator_depth);
  STDCHK_TRY(connection.start());
  armed_ = false;
  by_queue_pair_[connection.queue_pair_number] = &connection;
  STDCHK_TRY(connection.queue_pair.prepare_answer(*connection.id, reads));
  const Greeting mine = greeting();
  rdma_conn_param parameters = connection.parameters(mine);
  if (::rdma_accept(connection.id, &parameters) != 0) {
    return fail_errno("verbs.accept rdma_accept");
  }
  return {};
}

void VerbsEndpoint::on_up(Connection& connection) {
  const State before = connection.state;
  if (before != State::kConnecting && before != State::kAccepting) return;
  connection.state = State::kConnected;
  if (!withholds_access_) connection.grant_access();
  announce(connection);
}

void VerbsEndpoint::tell_tables(Connection& connection) {
  for (const VerbsRegion* const each : regions_in_parts_) connection.tell_table(each->table());
}

void VerbsEndpoint::announce(Connection& connection) {
  if (connection.announced || connection.state != State::kConnected || !connection.has_tables()) {
    return;
  }
  connection.announced = true;
  if (connection.is_accepted) {
    accept_handler_->on_accept(std::make_unique<VerbsLink>(connection));
  } else if (connection.link != nullptr) {
    connection.handler->on_connected(*connection.link);
  }
}

bool VerbsEndpoint::handle_completions() {
  bool any = false;
  while (!completions_.empty()) {
    any = true;
    const Completion completion = completions_.front();
    completions_.pop_front();
    handle(completion);
  }
  return any;
}

void VerbsEndpoint::handle(const Completion& completion) {
  const ibv_wc& entry = completion.entry;
  if (!completion.is_receive) {
    const auto found = by_number_.find(static_cast<std::uint32_t>(entry.wr_id >> 32));
    if (found != by_number_.end()) found->second->on_sent(entry);
    return;
  }
  if (entry.wr_id == 0) return;  // its connection was cut off
  Buffer& buffer = *reinterpret_cast<Buffer*>(entry.wr_id);
  const auto found = by_queue_pair_.find(entry.qp_num);
  if (found != by_queue_pair_.end()) {
    Connection& connection = *found->second;
    // The first message may overtake the event RDMA_CM_EVENT_ESTABLISHED.
    if (connection.state == State::kAccepting && entry.status == IBV_WC_SUCCESS) on_up(connection);
    connection.on_received(entry, buffer);
  }
  device_->receive_ended(buffer);
}

/// Ends connections whose oldest work, or whose connection attempt, is late.
bool VerbsEndpoint::check_deadlines() {
  const Time now = clock_.now();
  if (now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  end_lingering(nullptr, now);
  std::vector<Connection*> late;
  for (const auto& [key, connection] : connections_) {
    if (connection->state == State::kConnecting || connection->state == State::kAccepting) {
      if (now >= connection->connect_by) late.push_back(connection.get());
    } else if (connection->state == State::kConnected && !connection->announced) {
      if (now >= connection->connect_by) late.push_back(connection.get());
    } else if (connection->state == State::kConnected && !connection->queue.empty()) {
      const Time since = std::max(connection->queue.oldest().started, connection->moved);
      if (now - since >= limits::kRmaDeadline) late.push_back(connection.get());
    }
  }
  for (Connection* const each : late) fail_later(*each, Code::kDeadline, "verbs.deadline");
  return !late.empty();
}

bool VerbsEndpoint::poll() {
  bool any = handle_completions();
  for (int i = 0; i < kReadsPerTurn && device_->read_completions(completions_); ++i) {
    any |= handle_completions();
  }
  if (any) last_completion_ = clock_.now();
  if (!any || ++busy_turns_ >= kBusyTurnsMax) any |= read_descriptors();
  any |= check_device();
  any |= check_deadlines();
  any |= close_pending();
  any |= flush_waiting();
  buried_.clear();
  return any;
}

bool VerbsEndpoint::may_sleep() {
  if (!to_close_.empty() || !to_flush_.empty() || !completions_.empty()) return false;
  if (clock_.now() - last_completion_ < kSpin) return false;
  if (armed_) return true;
  armed_ = true;
  device_->arm();
  return !device_->read_completions(completions_);
}

/// Wakes at intervals to check deadlines, while anything waits.
Duration VerbsEndpoint::sleep_max() const {
  const bool waits = std::any_of(connections_.begin(), connections_.end(), [](const auto& each) {
    const Connection& connection = *each.second;
    return connection.state == State::kConnecting || connection.state == State::kAccepting ||
           (connection.state == State::kConnected &&
            (!connection.announced || !connection.queue.empty()));
  });
  return waits ? kCheckInterval : Duration::max();
}

Result<std::unique_ptr<Endpoint>> open_verbs(Clock& clock, const std::string& host,
                                             std::uint16_t port, std::uint64_t region_part_bytes) {
  auto endpoint = std::make_unique<VerbsEndpoint>(clock, region_part_bytes);
  STDCHK_TRY(endpoint->open(host, port));
  return endpoint;
}

}  // namespace stdchk::transport::verbs
