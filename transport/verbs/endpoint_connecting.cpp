#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/verbs/endpoint.h"

// How connections begin and how their peers end them: librdmacm's events.
namespace stdchk::transport::verbs {

bool VerbsEndpoint::read_connection_events() {
  bool any = false;
  while (const auto next = cm_.next_event()) {
    any = true;
    on_event(next->event, next->private_data);
  }
  return any;
}

void VerbsEndpoint::on_event(const rdma_cm_event& event, ByteSpan private_data) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event, private_data);
  auto* const known = static_cast<Connection*>(event.id->context);
  if (known == nullptr) {
    const bool ends = event.event == RDMA_CM_EVENT_DISCONNECTED ||
                      event.event == RDMA_CM_EVENT_TIMEWAIT_EXIT ||
                      event.event == RDMA_CM_EVENT_DEVICE_REMOVAL;
    if (ends) cm_.end_lingering(event.id, Time::min());
    return;
  }
  if (!connections_.contains(known) || known->state == State::kClosed) return;
  Connection& connection = *known;
  const auto fail_if = [&](const Status& status) {
    if (!status) fail_later(connection, status.error().code, status.error().where);
    return !status;
  };
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      fail_if(connection.resolve_route());
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      fail_if(connection.connect(greeting()));
      return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (const Status status = connection.take_answer(private_data); !status) {
        ::rdma_reject(connection.id, nullptr, 0);
        connection.peer_has_closed = true;  // no peer must be told of the end
        fail_if(status);
        return;
      }
      return on_up(connection);
    case RDMA_CM_EVENT_ESTABLISHED:
      // The event goes to the accepting side; over iWARP to both sides.
      if (connection.state == State::kConnecting &&
          fail_if(connection.take_greeting(private_data))) {
        return;
      }
      return on_up(connection);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return;
    case RDMA_CM_EVENT_REJECTED:
      return fail_later(connection, Code::kRefused, "verbs.connect");
    default:
      return on_lost(connection, event.event);
  }
}

void VerbsEndpoint::on_lost(Connection& connection, rdma_cm_event_type event) {
  connection.peer_has_closed = event == RDMA_CM_EVENT_DISCONNECTED;
  // The completion queues already have what the peer sent before it closed.
  while (completions_->read()) {
  }
  handle_completions();
  if (!connections_.contains(&connection)) return;
  fail_later(connection, Code::kPeerLost, ::rdma_event_str(event));
}

Greeting VerbsEndpoint::greeting() const {
  Greeting mine;
  if (!withholds_access_) mine.tables = static_cast<std::uint32_t>(regions_in_parts_.size());
  return mine;
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
    Connection& connection = connections_.add(*this, State::kAccepting);
    connection.connect_by = clock_.now() + limits::kConnectDeadline;
    connection.id = event.id;
    connection.id->context = &connection;
    connection.is_accepted = true;
    connection.peer_regions.expect(peer->tables);
    status = connection.accept(event.param.conn, greeting());
    if (!status.has_value()) {
      ::rdma_reject(event.id, nullptr, 0);
      cut(connection);
      move_to_closed(connection);
    }
  }
  if (status.has_value()) return;
  log::warning("a connection could not be accepted: {}", describe(status.error()));
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
  if (connection.announced || connection.state != State::kConnected ||
      !connection.peer_regions.has_all()) {
    return;
  }
  connection.announced = true;
  if (connection.is_accepted) {
    accept_handler_->on_accept(std::make_unique<VerbsLink>(connection));
  } else if (connection.link != nullptr) {
    connection.handler->on_connected(*connection.link);
  }
}

}  // namespace stdchk::transport::verbs
