#include "transport/ofi/endpoint.h"

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/message_limit.h"
#include "transport/ofi/library.h"
#include "transport/ofi/ofi.h"
#include "transport/socket_address.h"

namespace stdchk::transport::ofi {

namespace {

constexpr std::size_t kPartsMax = 32;  ///< parts of one transfer
constexpr std::size_t kCompletionsPerRead = 32;
constexpr std::size_t kOwnQueueEntries = kRequestsMax + kSendsMax;
constexpr int kReadsPerPoll = 8;
constexpr Duration kCheckInterval = std::chrono::milliseconds(50);
constexpr std::string_view kKind = "ofi:verbs";
constexpr std::string_view kPrefix = "ofi:verbs:";
/// Receives that are posted on each link. A peer posts at most this number of sends: a further send
/// would find no receive, and be repeated.
constexpr std::size_t kReceives = 8;

}  // namespace

OfiEndpoint::OfiEndpoint(Clock& clock) : clock_(clock), fabric_(kOwnQueueEntries) {}

Status OfiEndpoint::open(const std::string& host, std::uint16_t port) {
  STDCHK_TRY(fabric_.open(host, port, kReceives, wakes_));
  STDCHK_ASSIGN(scratch_, fabric_.make_buffer(1));
  capabilities_ = {.name = kKind,
                   .write_proof = WriteProof::kDelivered,
                   .fence = FenceKind::kImmediate,
                   .one_sided = true,
                   // For messages, and writes wait behind one that was not taken.
                   .target_must_progress = true,
                   .same_host_only = false,
                   .message_bytes_max = kMessageBytesMax,
                   .rma_bytes_max = limits::kGiB};
  // A transfer has at most kPartsMax parts.
  if (fabric_.request_bytes_max() < limits::kGiB / kPartsMax) {
    capabilities_.rma_bytes_max = fabric_.request_bytes_max() * kPartsMax;
  }
  return {};
}

OfiEndpoint::~OfiEndpoint() {
  for (const auto& [key, connection] : connections_) {
    STDCHK_ASSERT(connection->link == nullptr);  // links must end before their endpoint
    connection->close_fabric();
  }
  // Connections and the scratch buffer may have registered memory, so they end before the domain.
  connections_.clear();
  closed_.clear();
  scratch_ = {};
  if (listener_ != nullptr) fi_close(&listener_->fid);
}

Status OfiEndpoint::listen(AcceptHandler& handler) {
  if (listener_ != nullptr) return fail(Code::kExists, "ofi.listen");
  STDCHK_ASSIGN(listener_, fabric_.listen());
  sockaddr_storage name{};
  std::size_t length = sizeof(name);
  if (const int result = fi_getname(&listener_->fid, &name, &length); result != 0) {
    fi_close(&listener_->fid);
    listener_ = nullptr;
    return fail_fabric("ofi.listen", result);
  }
  accept_handler_ = &handler;
  address_ = address_text(kPrefix, name);
  return {};
}

Connection& OfiEndpoint::add_connection() {
  auto made = std::make_unique<Connection>(*this);
  Connection& connection = *made;
  connections_.emplace(&connection, std::move(made));
  return connection;
}

/// Makes the fabric's endpoint, ready to connect or accept, and posts its receives.
Status OfiEndpoint::start_endpoint(Connection& connection, fi_info& info) {
  int result = fi_endpoint(&fabric_.domain(), &info, &connection.ep, nullptr);
  if (result != 0) return fail_fabric("ofi.endpoint", result);
  by_fid_[&connection.ep->fid] = &connection;
  STDCHK_ASSIGN(connection.transmit, fabric_.open_own_queue(wakes_));
  with_own_queue_.push_back(&connection);
  result = fi_ep_bind(connection.ep, &fabric_.events().fid, 0);
  if (result == 0) result = fi_ep_bind(connection.ep, &connection.transmit->fid, FI_TRANSMIT);
  if (result == 0) result = fi_ep_bind(connection.ep, &fabric_.received().fid, FI_RECV);
  if (result == 0) result = fi_enable(connection.ep);
  if (result != 0) return fail_fabric("ofi.endpoint", result);
  for (std::size_t i = 0; i < kReceives; ++i) {
    auto work = std::make_unique<Work>();
    work->connection = &connection;
    work->kind = Work::Kind::kReceive;
    STDCHK_ASSIGN(work->buffer, fabric_.make_buffer(kMessageBytesMax));
    STDCHK_TRY(connection.post_receive(*work));
    connection.receives.push_back(std::move(work));
  }
  return {};
}

Result<std::unique_ptr<Link>> OfiEndpoint::start_link(std::string_view address,
                                                      LinkHandler& handler, Duration deadline,
                                                      const secure::Ticket* /*ticket*/) {
  STDCHK_ASSIGN(const sockaddr_storage target, parse_address(kPrefix, address));
  const InfoPtr info = fabric_.info_to(target);
  if (info == nullptr) return fail(Code::kNoMemory, "ofi.connect");
  Connection& connection = add_connection();
  Status status = start_endpoint(connection, *info);
  if (status.has_value()) {
    const int result = fi_connect(connection.ep, &target, nullptr, 0);
    if (result != 0) status = fail(Code::kPeerLost, "ofi.connect", -result);
  }
  if (!status.has_value()) {
    cut(connection);
    move_to_closed(connection);
    return fail(status.error());
  }
  ++busy_;
  connection.state = State::kConnecting;
  connection.connect_by = clock_.now() + deadline;
  connection.handler = &handler;
  return std::make_unique<OfiLink>(connection);
}

void OfiEndpoint::cut(Connection& connection) {
  if (connection.state == State::kConnecting && connection.link != nullptr) --busy_;
  connection.state = State::kClosed;
  if (connection.ep != nullptr) by_fid_.erase(&connection.ep->fid);
  if (connection.transmit != nullptr) std::erase(with_own_queue_, &connection);
  connection.close_fabric();
}

void OfiEndpoint::move_to_closed(Connection& connection) {
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return;
  closed_.push_back(std::move(found->second));
  connections_.erase(found);
  std::erase_if(to_close_, [&](const Closing& each) { return each.connection == &connection; });
}

void OfiEndpoint::release(Connection& connection) {
  if (connection.state == State::kConnecting) --busy_;
  connection.state = State::kClosed;
  cut(connection);
  connection.finish_transfers(Code::kCancelled);
  move_to_closed(connection);
}

void OfiEndpoint::fence(Connection& connection) {
  fail_later(connection, Code::kFenced, "ofi.fence");
}

void OfiEndpoint::fail_later(Connection& connection, Code code, const char* where) {
  if (connection.state == State::kClosed) return;
  cut(connection);
  to_close_.push_back({&connection, Error{code, 0, where}});
}

bool OfiEndpoint::close_pending() {
  bool any = false;
  while (!to_close_.empty()) {
    any = true;
    const Closing closing = to_close_.front();
    to_close_.erase(to_close_.begin());
    Connection& connection = *closing.connection;
    connection.finish_transfers(closing.why.code);
    if (connection.link == nullptr) {
      move_to_closed(connection);  // no user has a link to it
    } else if (connection.handler != nullptr) {
      connection.handler->on_closed(*connection.link, closing.why);
    }
  }
  return any;
}

bool OfiEndpoint::read_events() {
  bool any = false;
  for (;;) {
    std::uint32_t event = 0;
    fi_eq_cm_entry entry{};
    const ssize_t got = fi_eq_read(&fabric_.events(), &event, &entry, sizeof(entry), 0);
    if (got == -FI_EAVAIL) {
      if (!read_event_error()) return any;
      any = true;
      continue;
    }
    if (got < 0) return any;
    any = true;
    wakes_.note_event();
    if (event == FI_CONNREQ) {
      on_request(entry.info);
      continue;
    }
    const auto found = by_fid_.find(entry.fid);
    if (found == by_fid_.end()) continue;
    Connection& connection = *found->second;
    if (event == FI_CONNECTED) on_up(connection);
    if (event == FI_SHUTDOWN) {
      // The completion queues already have what the peer sent before it closed.
      while (read_completions(&fabric_.received())) {
      }
      while (connection.transmit != nullptr && read_completions(connection.transmit)) {
      }
      fail_later(connection, Code::kPeerLost, "ofi.link");
    }
  }
}

bool OfiEndpoint::read_event_error() {
  fi_eq_err_entry error{};
  if (fi_eq_readerr(&fabric_.events(), &error, 0) <= 0) return false;
  const auto found = by_fid_.find(error.fid);
  if (found != by_fid_.end()) fail_later(*found->second, Code::kPeerLost, "ofi.connect");
  return true;
}

void OfiEndpoint::on_request(fi_info* info) {
  Connection& connection = add_connection();
  connection.state = State::kAccepting;
  connection.connect_by = clock_.now() + limits::kConnectDeadline;
  Status status = start_endpoint(connection, *info);
  if (status.has_value()) {
    const int result = fi_accept(connection.ep, nullptr, 0);
    if (result != 0) status = fail_fabric("ofi.accept", result);
  } else if (connection.ep == nullptr) {
    fi_reject(listener_, info->handle, nullptr, 0);
  }
  fabric_.free(info);
  if (status.has_value()) return;
  log::warning("a connection could not be accepted: {}", describe(status.error()));
  cut(connection);
  move_to_closed(connection);
}

void OfiEndpoint::on_up(Connection& connection) {
  if (connection.state == State::kConnecting) {
    connection.state = State::kConnected;
    --busy_;
    if (connection.link != nullptr) connection.handler->on_connected(*connection.link);
  } else if (connection.state == State::kAccepting) {
    connection.state = State::kConnected;
    accept_handler_->on_accept(std::make_unique<OfiLink>(connection));
  }
}

/// Handles a batch of completions. Returns false when the queue is empty.
bool OfiEndpoint::read_completions(fid_cq* queue) {
  std::array<fi_cq_msg_entry, kCompletionsPerRead> entries;
  const ssize_t got = fi_cq_read(queue, entries.data(), entries.size());
  if (got == -FI_EAVAIL) {
    read_completion_error(queue);
    return true;
  }
  if (got <= 0) return false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
    on_completion(*static_cast<Work*>(entries[i].op_context), entries[i].len);
  }
  return true;
}

void OfiEndpoint::on_completion(Work& work, std::size_t length) {
  Connection& connection = *work.connection;
  if (connection.state == State::kClosed || !Connection::completed(work)) return;
  if (work.kind != Work::Kind::kReceive) {
    Operation* const operation = work.operation;
    connection.retire(work);
    connection.moved = clock_.now();
    if (operation != nullptr) operation->finish({});
    return;
  }
  // The first message may overtake the event FI_CONNECTED.
  if (connection.state == State::kAccepting) on_up(connection);
  if (connection.state == State::kClosed) return;
  if (connection.link == nullptr || connection.handler == nullptr) {
    return fail_later(connection, Code::kPeerLost, "ofi.early message");
  }
  connection.handler->on_message(*connection.link, ByteSpan(work.buffer.data(), length));
  if (connection.state == State::kClosed) return;
  if (!connection.post_receive(work).has_value()) {
    fail_later(connection, Code::kPeerLost, "ofi.receive");
  }
}

/// Reads the queues of connections that have work under way. Handlers may make and end connections
/// meanwhile; a connection that is skipped because of that comes next time.
bool OfiEndpoint::read_own_queues() {
  bool any = false;
  for (std::size_t i = 0; i < with_own_queue_.size(); ++i) {
    Connection& connection = *with_own_queue_[i];
    if (connection.transfers == 0 && connection.sends == 0) continue;
    for (int reads = 0; reads < kReadsPerPoll && connection.transmit != nullptr; ++reads) {
      if (!read_completions(connection.transmit)) break;
      any = true;
    }
  }
  return any;
}

void OfiEndpoint::read_completion_error(fid_cq* queue) {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(queue, &error, 0) <= 0) return;
  if (error.op_context == nullptr) return;
  auto& work = *static_cast<Work*>(error.op_context);
  // A failed work ends the link, because the order of those behind it is lost.
  fail_later(*work.connection, Code::kPeerLost, "ofi.link");
}

/// Ends connections whose oldest transfer, or whose connection attempt, is late.
bool OfiEndpoint::check_deadlines() {
  if (busy_ == 0) return false;
  const Time now = clock_.now();
  if (now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  std::vector<Connection*> late;
  for (const auto& [key, held] : connections_) {
    Connection* const connection = held.get();
    if (connection->state == State::kConnecting && now >= connection->connect_by) {
      late.push_back(connection);
    }
    if (connection->state != State::kConnected || connection->transfers == 0) continue;
    const bool has_overdue =
        std::any_of(connection->works.begin(), connection->works.end(), [&](const auto& work) {
          return work->operation != nullptr &&
                 now - std::max(work->started, connection->moved) >= limits::kRmaDeadline;
        });
    if (has_overdue) late.push_back(connection);
  }
  for (Connection* const each : late) fail_later(*each, Code::kDeadline, "ofi.deadline");
  return !late.empty();
}

bool OfiEndpoint::poll() {
  // The completions read below may still name connections that were closed before. After that these
  // connections can go.
  std::vector<std::unique_ptr<Connection>> leaving;
  leaving.swap(closed_);
  bool any = read_events();
  bool more = true;
  for (int i = 0; i < kReadsPerPoll && more; ++i)
    any |= more = read_completions(&fabric_.received());
  any |= read_own_queues();
  any |= check_deadlines();
  any |= close_pending();
  if (more) {
    for (auto& each : leaving) closed_.push_back(std::move(each));
  }
  return any;
}

bool OfiEndpoint::may_sleep() {
  if (!to_close_.empty()) return false;  // a fence has closed a link, and its handler must be told
  waited_for_ = {&fabric_.events().fid, &fabric_.received().fid};
  for (Connection* const each : with_own_queue_) waited_for_.push_back(&each->transmit->fid);
  if (fi_trywait(&fabric_.fabric(), waited_for_.data(), static_cast<int>(waited_for_.size())) !=
      0) {
    return false;
  }
  wakes_.check_events(clock_.now());
  return true;
}

Duration OfiEndpoint::sleep_max() const {
  if (wakes_.by_time()) return Wakes::kInterval;
  return busy_ > 0 ? kCheckInterval : Duration::max();
}

Result<std::unique_ptr<Endpoint>> open_ofi(Clock& clock, const std::string& host,
                                           std::uint16_t port) {
  auto endpoint = std::make_unique<OfiEndpoint>(clock);
  STDCHK_TRY(endpoint->open(host, port));
  return endpoint;
}

std::string provider_version() {
  const auto library = FabricLibrary::load();
  if (!library) return "no libfabric";
  const auto text = [](std::uint32_t version) {
    return fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
  };
  std::string found = "libfabric " + text((*library)->version());
  fi_info* all = nullptr;
  const int result =
      (*library)->getinfo(FI_VERSION(1, 17), nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &all);
  if (result != 0) return found;
  const InfoPtr owned(all, {*library});
  for (const fi_info* each = all; each != nullptr; each = each->next) {
    if (kProvider != each->fabric_attr->prov_name) continue;
    found += fmt::format(", provider {} {}", each->fabric_attr->prov_name,
                         text(each->fabric_attr->prov_version));
    break;
  }
  return found;
}

}  // namespace stdchk::transport::ofi
