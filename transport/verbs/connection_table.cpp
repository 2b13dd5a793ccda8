#include "transport/verbs/connection_table.h"

#include <utility>

namespace stdchk::transport::verbs {

Connection& ConnectionTable::add(VerbsEndpoint& endpoint, State state) {
  auto made = std::make_unique<Connection>(endpoint, ++made_);
  Connection& connection = *made;
  connection.state = state;
  connections_.emplace(&connection, std::move(made));
  by_number_.emplace(connection.number, &connection);
  return connection;
}

bool ConnectionTable::contains(const Connection* connection) const {
  return connections_.contains(connection);
}

Connection* ConnectionTable::of_number(std::uint32_t number) const {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

Connection* ConnectionTable::of_queue_pair(std::uint32_t number) const {
  const auto found = by_queue_pair_.find(number);
  return found == by_queue_pair_.end() ? nullptr : found->second;
}

void ConnectionTable::add_queue_pair(Connection& connection) {
  by_queue_pair_[connection.queue_pair.number()] = &connection;
}

bool ConnectionTable::remove_numbers(const Connection& connection) {
  by_number_.erase(connection.number);
  return by_queue_pair_.erase(connection.queue_pair.number()) > 0;
}

bool ConnectionTable::move_to_closed(Connection& connection) {
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return false;
  closed_.push_back(std::move(found->second));
  connections_.erase(found);
  return true;
}

}  // namespace stdchk::transport::verbs
