#include "transport/verbs/endpoint.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/message_limit.h"
#include "transport/socket_address.h"
#include "transport/verbs/addresses.h"
#include "transport/verbs/verbs.h"

namespace stdchk::transport::verbs {
namespace {

constexpr std::size_t kPartsMax = 32;  ///< parts of one transfer
constexpr unsigned kBusyTurnsMax = 64;
constexpr int kReadsPerTurn = 8;
constexpr Duration kCheckInterval = std::chrono::milliseconds(50);
constexpr Duration kLeaveMax = std::chrono::milliseconds(100);

}  // namespace

Status VerbsEndpoint::open(const std::string& host, std::uint16_t port) {
  STDCHK_TRY(cm_.open(host, port));
  STDCHK_ASSIGN(device_, Device::open(cm_.device(), cm_.device_port(), region_part_bytes_));
  completions_ = std::make_unique<CompletionReader>(clock_, *device_);
  STDCHK_TRY(set_nonblocking(device_->context().async_fd));
  STDCHK_ASSIGN(scratch_, device_->take_buffer());
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return fail_errno("verbs.open epoll");
  STDCHK_TRY(wake_by(cm_.fd()));
  STDCHK_TRY(wake_by(device_->wake_fd()));
  STDCHK_TRY(wake_by(device_->context().async_fd));
  const DeviceLimits& device = device_->limits();
  capabilities_ = {.name = "verbs",
                   .write_proof = WriteProof::kDelivered,
                   .fence = FenceKind::kImmediate,
                   .one_sided = true,
                   .target_must_progress = false,
                   .same_host_only = false,
                   .message_bytes_max = kMessageBytesMax,
                   .rma_bytes_max = std::min<std::uint64_t>(
                       {kPartsMax * device.part_bytes, limits::kGiB,
                        // both ends may divide a transfer where their parts end
                        (kPartsMax / 2 - 1) * device.region_part_bytes})};
  return {};
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
  cm_.stop_listening();
  accept_handler_ = nullptr;
  connections_.for_each([](Connection& connection) {
    STDCHK_ASSERT(connection.link == nullptr);  // links must end before their endpoint
    connection.close_fabric();
  });
  // Wait until peers have heard of the end, but not long, because a dead peer does not answer.
  const Time give_up = clock_.now() + kLeaveMax;
  while (cm_.has_lingering() && clock_.now() < give_up) {
    if (!read_connection_events()) ::usleep(200);
  }
  cm_.end_lingering(nullptr, Time::max());
  device_.reset();
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

Status VerbsEndpoint::listen(AcceptHandler& handler) {
  STDCHK_TRY(cm_.listen());
  accept_handler_ = &handler;
  return {};
}

Result<std::unique_ptr<Link>> VerbsEndpoint::start_link(std::string_view address,
                                                        LinkHandler& handler, Duration deadline,
                                                        const secure::Ticket* /*ticket*/) {
  STDCHK_ASSIGN(const sockaddr_storage target, parse_address(kAddressPrefix, address));
  Connection& connection = connections_.add(*this, State::kConnecting);
  connection.connect_by = clock_.now() + deadline;
  connection.handler = &handler;
  if (const Status status = cm_.resolve(connection, target, deadline); !status.has_value()) {
    cut(connection);
    move_to_closed(connection);
    return fail(status.error());
  }
  return std::make_unique<VerbsLink>(connection);
}

Result<std::unique_ptr<MemoryRegion>> VerbsEndpoint::register_memory(MutableByteSpan memory) {
  STDCHK_ASSIGN(RegisteredParts parts, device_->register_memory(memory));
  auto region = std::make_unique<VerbsRegion>(*this, std::move(parts), memory, ++tables_made_);
  if (region->in_parts()) {
    regions_in_parts_.push_back(region.get());
    connections_.for_each([&](Connection& connection) {
      const bool knows_others = connection.state == State::kConnected && connection.has_access;
      if (knows_others) connection.tell_table(region->table());
    });
  }
  return region;
}

void VerbsEndpoint::on_queue_pair(Connection& connection) {
  completions_->disarm();  // there may be a new completion queue
  connections_.add_queue_pair(connection);
}

void VerbsEndpoint::cut(Connection& connection) {
  connection.state = State::kClosed;
  if (connection.waits_for_flush) std::erase(to_flush_, &connection);
  const bool had_queue_pair = connections_.remove_numbers(connection);
  connection.close_fabric();
  if (had_queue_pair) completions_->drop_received(connection.queue_pair.number());
}

void VerbsEndpoint::move_to_closed(Connection& connection) {
  if (!connections_.move_to_closed(connection)) return;
  std::erase_if(to_close_, [&](const Closing& each) { return each.connection == &connection; });
}

void VerbsEndpoint::release(Connection& connection) {
  if (connection.state != State::kClosed) cut(connection);
  connection.finish_transfers(Code::kCancelled);
  move_to_closed(connection);
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
      move_to_closed(connection);  // no user knows it, or its handler has just destroyed the link
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
    if (descriptor == cm_.fd()) {
      any |= read_connection_events();
    } else if (descriptor == device_->wake_fd()) {
      device_->read_wakes();
      completions_->disarm();
      any |= handle_completions();
    } else {
      device_->read_events();
    }
  }
  return any;
}

bool VerbsEndpoint::check_device() {
  device_->replace_lost_receives();
  if (!device_->has_failed() || connections_.empty()) return false;
  std::vector<Connection*> open;
  connections_.for_each([&](Connection& connection) {
    if (connection.state != State::kClosed) open.push_back(&connection);
  });
  if (open.empty()) return false;
  log::error("the verbs device has failed; all its links end");
  for (Connection* const each : open) fail_later(*each, Code::kPeerLost, "verbs.device");
  return true;
}

bool VerbsEndpoint::handle_completions() {
  bool any = false;
  while (const auto completion = completions_->next()) {
    any = true;
    handle(*completion);
  }
  return any;
}

void VerbsEndpoint::handle(const Completion& completion) {
  const ibv_wc& entry = completion.entry;
  if (!completion.is_receive) {
    Connection* const sender =
        connections_.of_number(static_cast<std::uint32_t>(entry.wr_id >> 32));
    if (sender != nullptr) sender->on_sent(entry);
    return;
  }
  if (entry.wr_id == 0) return;  // its connection was cut off
  Buffer& buffer = *reinterpret_cast<Buffer*>(entry.wr_id);
  if (Connection* const receiver = connections_.of_queue_pair(entry.qp_num); receiver != nullptr) {
    // The first message may overtake the event RDMA_CM_EVENT_ESTABLISHED.
    if (receiver->state == State::kAccepting && entry.status == IBV_WC_SUCCESS) on_up(*receiver);
    receiver->on_received(entry, buffer);
  }
  device_->receive_ended(buffer);
}

/// Ends connections whose oldest work, or whose connection attempt, is late.
bool VerbsEndpoint::check_deadlines() {
  const Time now = clock_.now();
  if (now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  cm_.end_lingering(nullptr, now);
  std::vector<Connection*> late;
  connections_.for_each([&](Connection& connection) {
    if (connection.is_late(now)) late.push_back(&connection);
  });
  for (Connection* const each : late) fail_later(*each, Code::kDeadline, "verbs.deadline");
  return !late.empty();
}

bool VerbsEndpoint::poll() {
  bool any = handle_completions();
  for (int i = 0; i < kReadsPerTurn && completions_->read(); ++i) any |= handle_completions();
  if (any) completions_->note_activity();
  if (!any || ++busy_turns_ >= kBusyTurnsMax) any |= read_descriptors();
  any |= check_device();
  any |= check_deadlines();
  any |= close_pending();
  any |= flush_waiting();
  connections_.destroy_closed();
  return any;
}

bool VerbsEndpoint::may_sleep() {
  return to_close_.empty() && to_flush_.empty() && completions_->may_sleep();
}

/// Wakes at intervals to check deadlines, while anything waits.
Duration VerbsEndpoint::sleep_max() const {
  bool waits = false;
  connections_.for_each([&](const Connection& each) { waits |= each.has_deadline(); });
  return waits ? kCheckInterval : Duration::max();
}

Result<std::unique_ptr<Endpoint>> open_verbs(Clock& clock, const std::string& host,
                                             std::uint16_t port, std::uint64_t region_part_bytes) {
  auto endpoint = std::make_unique<VerbsEndpoint>(clock, region_part_bytes);
  STDCHK_TRY(endpoint->open(host, port));
  return endpoint;
}

}  // namespace stdchk::transport::verbs
