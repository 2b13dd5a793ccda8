#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/verbs/connection.h"

namespace stdchk::transport::verbs {

/// A ConnectionTable has the connections of an endpoint, by address and by the numbers that
/// completions carry.
///
/// Owns: the connections. A closed connection lives until destroy_closed(), because callers on the
///   stack may still use it.
class ConnectionTable {
 public:
  Connection& add(VerbsEndpoint& endpoint, State state);
  bool contains(const Connection* connection) const;
  /// Null when no open connection has the number.
  Connection* of_number(std::uint32_t number) const;
  Connection* of_queue_pair(std::uint32_t number) const;

  /// The connection has a queue pair now.
  void add_queue_pair(Connection& connection);
  /// Completions do not find the connection any more. Returns true when it had a queue pair.
  bool remove_numbers(const Connection& connection);
  /// Returns false when the connection was closed before.
  bool move_to_closed(Connection& connection);
  void destroy_closed() { closed_.clear(); }

  bool empty() const { return connections_.empty(); }
  template <class Function>
  void for_each(Function function) const {
    for (const auto& [address, connection] : connections_) function(*connection);
  }

 private:
  std::uint32_t made_ = 0;
  std::unordered_map<const Connection*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint32_t, Connection*> by_number_;
  std::unordered_map<std::uint32_t, Connection*> by_queue_pair_;
  std::vector<std::unique_ptr<Connection>> closed_;
};

}  // namespace stdchk::transport::verbs
