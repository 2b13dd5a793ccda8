#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "core/messages/messages.h"
#include "core/values/types.h"
#include "manager/pool/membership.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

class Connections;

/// A Connection is a link, with the identity of the remote peer.
class Connection final : public rpc::PeerHandler {
 public:
  Connection(Connections& owner, Reactor& reactor, std::uint64_t number,
             std::unique_ptr<transport::Link> link)
      : number_(number), owner_(owner), peer_(reactor, std::move(link), *this) {}
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

  rpc::Peer& peer() { return peer_; }
  transport::secure::Member member() const { return Membership::member_at(peer_.link()); }
  /// Unique among all connections that this manager ever accepts.
  std::uint64_t number() const { return number_; }
  ClientId client;          ///< none: no registered client
  BenefactorId benefactor;  ///< none: no registered benefactor

 private:
  const std::uint64_t number_;
  Connections& owner_;
  rpc::Peer peer_;
};

/// A Connections holds the links that peers have opened to the manager.
///
/// Owns: the links. Threads: the reactor's.
/// Errors: a link whose other end has not proven that it is a member is closed.
class Connections final : public transport::AcceptHandler {
 public:
  struct Hooks {
    std::function<void(Connection&, msg::RequestEnvelope, Time deadline, rpc::Responder)>
        on_request;
    /// The connection's link is closed. The connection lives until the end of this turn.
    std::function<void(Connection&)> on_closed;
  };
  Connections(Pool& pool, Hooks hooks) : pool_(pool), hooks_(std::move(hooks)) {}
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void on_accept(std::unique_ptr<transport::Link> link) override;
  /// Returns null when the connection has ended.
  Connection* find(std::uint64_t number) const;
  /// Calls `visit(connection)` for each connection that has not ended.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, connection] : connections_) visit(*connection);
  }
  /// Closes all links. Clients' links come first. Closing a benefactor's link drops calls; a client
  /// that waits for such a call must not get the answer that it was dropped.
  void close();

 private:
  friend class Connection;
  void closed(Connection& connection);

  Pool& pool_;
  const Hooks hooks_;
  std::uint64_t accepted_ = 0;                                        ///< connections ever accepted
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  ///< by number
  std::deque<std::unique_ptr<Connection>> ended_;  ///< the connection that ended first comes first
};

}  // namespace stdchk::manager
