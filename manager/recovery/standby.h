#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "manager/recovery/rebuilder.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// A Standby follows a manager: it asks twice a second by which benefactors it may decide, and has
/// its Rebuilder take over when the manager is silent. After that it tells the manager that there
/// is a later one, whenever that comes back.
///
/// Owns: the link to the manager; not the endpoint, which the caller adds to the reactor.
/// Threads: the reactor's.
/// Errors: on_refused, when asking again will not help. A manager that was never heard is
///   waited for.
class Standby final : public rpc::PeerHandler {
 public:
  struct Config {
    std::string manager;                ///< its address
    std::string address;                ///< where benefactors and clients find the standby
    Duration silence{};                 ///< of the manager, before it is taken for lost
    std::function<void()> on_followed;  ///< the manager has it as its standby
    std::function<void(const std::string&)> on_refused;
  };

  Standby(Reactor& reactor, transport::Endpoint& endpoint, Config config);
  ~Standby() override;
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  /// Follows for a rebuilder that was started as a standby's, and lives until tell().
  void watch(Rebuilder& rebuilder);
  /// The rebuilder is done, and a manager of that epoch serves here.
  void tell(Epoch own);

  /// The manager was heard, and not lost since.
  bool follows() const { return follows_; }

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  void turn();
  void ask();
  void answered(const rpc::Answer& answer);
  void followed(const msg::FollowManager::Reply& reply);

  Reactor& reactor_;
  transport::Endpoint& endpoint_;
  Config config_;
  Rebuilder* rebuilder_ = nullptr;  ///< none: it tells
  std::unique_ptr<rpc::Peer> peer_;
  bool asking_ = false;
  bool lost_ = false;  ///< the peer is of no use any more
  bool follows_ = false;
  Time heard_{};
  Rebuilder::Quorum quorum_;  ///< the epoch is the own one when it tells
  std::uint64_t seen_ = 0;
  TimerId timer_;
};

}  // namespace stdchk::manager
