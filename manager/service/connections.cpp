#include "manager/service/connections.h"

#include "core/base/log.h"

namespace stdchk::manager {

void Connection::on_request(rpc::Peer&, msg::RequestEnvelope request, Time deadline,
                            rpc::Responder respond) {
  owner_.hooks_.on_request(*this, std::move(request), deadline, std::move(respond));
}

void Connection::on_closed(rpc::Peer&, Error) { owner_.closed(*this); }

void Connections::on_accept(std::unique_ptr<transport::Link> link) {
  if (!pool_.config().membership.admits(*link)) {
    return log::warning("a link was closed: its other end has not proven that it is a member");
  }
  const std::uint64_t number = ++accepted_;
  connections_.emplace(
      number, std::make_unique<Connection>(*this, pool_.reactor(), number, std::move(link)));
}

Connection* Connections::find(std::uint64_t number) const {
  const auto found = connections_.find(number);
  return found == connections_.end() ? nullptr : found->second.get();
}

void Connections::closed(Connection& connection) {
  hooks_.on_closed(connection);
  // Calls that were made while on_closed() ran are answered first, in the next turn. The ends of
  // other connections in this turn come after this.
  ended_.push_back(std::move(connections_.extract(connection.number()).mapped()));
  pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
    if (!alive.expired()) ended_.pop_front();
  });
}

void Connections::close() {
  std::erase_if(connections_, [](const auto& each) { return !each.second->benefactor; });
  connections_.clear();
  ended_.clear();
}

}  // namespace stdchk::manager
